//! The reader of one mapping: typed getters that know their path.

use std::ops::RangeInclusive;

use serde_yaml::{Mapping, Value};

use super::Problem;
use super::limits::{MAX_NUMBER, MIN_RATE};
use super::positions::join;
use super::problem::search_domain;

/// The message for a field that does not exist.
pub(super) const UNKNOWN_FIELD: &str = "unknown field";
/// Words that start a search domain.
const DOMAIN_WORDS: [&str; 3] = ["choices", "range", "preset"];

/// A fixed set of words, one of which a field may hold.
pub(super) trait Choice: Copy + 'static {
    /// What the words are, as in "unknown backend".
    const WHAT: &'static str;
    /// Every word with its meaning.
    const ALL: &'static [(&'static str, Self)];
}

/// The numbers that a field accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    /// Above 0.
    Positive,
    /// Above 0, and its inverse is taken.
    Rate,
    /// 0 or more.
    NonNegative,
    /// From the first to the second, both included.
    Between(f64, f64),
    /// Above 0, up to 1.
    Share,
}

impl Bound {
    fn accepts(self, number: f64) -> bool {
        match self {
            Self::Positive => number > 0.0 && number <= MAX_NUMBER,
            Self::Rate => (MIN_RATE..=MAX_NUMBER).contains(&number),
            Self::NonNegative => (0.0..=MAX_NUMBER).contains(&number),
            Self::Between(low, high) => (low..=high).contains(&number),
            Self::Share => number > 0.0 && number <= 1.0,
        }
    }

    fn wanted(self) -> String {
        match self {
            Self::Positive => format!("write a number above 0, at most {MAX_NUMBER:e}"),
            Self::Rate => format!("write a number from {MIN_RATE:e} to {MAX_NUMBER:e}"),
            Self::NonNegative => format!("write a number from 0 to {MAX_NUMBER:e}"),
            Self::Between(low, high) => format!("write a number from {low} to {high}"),
            Self::Share => "write a number above 0, at most 1".to_owned(),
        }
    }
}

/// A value and the dotted path it stands at.
#[derive(Clone, Debug)]
pub(super) struct At<'a> {
    pub(super) value: &'a Value,
    pub(super) path: String,
}

impl At<'_> {
    /// The refusal of a value of the wrong kind.
    pub(super) fn wrong(&self, wanted: &str) -> Problem {
        let domain = self
            .value
            .as_mapping()
            .and_then(|entries| DOMAIN_WORDS.into_iter().find(|word| entries.contains_key(*word)));
        match domain {
            Some(word) => search_domain(&self.path, word),
            None => Problem::at(&self.path, format!("expected {wanted}, found {}", describe(self.value))),
        }
    }

    /// The value as a whole number: no text, no `96.0`.
    pub(super) fn int(&self, range: RangeInclusive<u64>) -> Result<u64, Problem> {
        let Value::Number(number) = self.value else { return Err(self.wrong("a whole number")) };
        if number.is_f64() {
            return Err(self.wrong("a whole number").help("write it without a fraction or exponent"));
        }
        number.as_u64().filter(|value| range.contains(value)).ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            Problem::at(&self.path, format!("{number} is out of range"))
                .help(format!("write a whole number from {low} to {high}"))
        })
    }

    /// The value as a number; whole numbers count.
    pub(super) fn number(&self, bound: Bound) -> Result<f64, Problem> {
        let Value::Number(number) = self.value else { return Err(self.wrong("a number")) };
        number
            .as_f64()
            .filter(|value| bound.accepts(*value))
            .ok_or_else(|| Problem::at(&self.path, format!("{number} is out of range")).help(bound.wanted()))
    }

    /// The value as text that is not empty.
    pub(super) fn text(&self) -> Result<&str, Problem> {
        match self.value {
            Value::String(text) if text.is_empty() => Err(Problem::at(&self.path, "must not be empty")),
            Value::String(text) => Ok(text),
            Value::Number(_) | Value::Bool(_) => Err(self.wrong("text").help("quote it")),
            _ => Err(self.wrong("text")),
        }
    }

    /// The value as one word of a set.
    pub(super) fn choice<T: Choice>(&self) -> Result<T, Problem> {
        let names = || T::ALL.iter().map(|(name, _)| *name);
        let allowed = format!("use one of {}", names().collect::<Vec<_>>().join(", "));
        let Value::String(text) = self.value else { return Err(self.wrong("a word").or_help(allowed)) };
        T::ALL.iter().find(|(name, _)| name == text).map(|(_, choice)| *choice).ok_or_else(|| {
            let hint = closest(text, names()).map_or(String::new(), |name| format!("did you mean `{name}`? "));
            let allowed = if hint.is_empty() { allowed } else { format!("{hint}({allowed})") };
            Problem::at(&self.path, format!("unknown {} {}", T::WHAT, quote(text))).help(allowed)
        })
    }
}

impl Problem {
    /// Adds help, unless there is some that says more.
    fn or_help(mut self, help: String) -> Self {
        self.help.get_or_insert(help);
        self
    }
}

/// One mapping of the document, or one that was left out.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    path: String,
    entries: Option<&'a Mapping>,
}

impl<'a> Fields<'a> {
    /// The mapping at `path`.
    pub(super) fn open(value: &'a Value, path: &str) -> Result<Self, Problem> {
        let at = At { value, path: path.to_owned() };
        let entries = value.as_mapping().ok_or_else(|| at.wrong("a mapping"))?;
        Ok(Self { path: at.path, entries: Some(entries) })
    }

    /// The mapping at `path`, whose fields all have `known` names.
    pub(super) fn open_known(at: At<'a>, known: &[&str]) -> Result<Self, Problem> {
        let fields = Self::open(at.value, &at.path)?;
        fields.only(known)?;
        Ok(fields)
    }

    /// The mapping under `key`, whose fields all have `known` names. One that was left out has no fields.
    pub(super) fn section(&self, key: &str, known: &[&str]) -> Result<Fields<'a>, Problem> {
        match self.value(key) {
            Some(at) => Self::open_known(at, known),
            None => Ok(Self { path: join(&self.path, key), entries: None }),
        }
    }

    /// The dotted path of the mapping.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Whether the mapping has this field, be it null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// The field as it stands.
    pub(super) fn value(&self, key: &str) -> Option<At<'a>> {
        let value = self.entries?.get(key)?;
        Some(At { value, path: join(&self.path, key) })
    }

    /// The field as it stands, unless it is null.
    fn not_null(&self, key: &str) -> Option<At<'a>> {
        self.value(key).filter(|at| !at.value.is_null())
    }

    /// The field as it stands; it must be there.
    pub(super) fn required(&self, key: &str) -> Result<At<'a>, Problem> {
        self.value(key).ok_or_else(|| Problem::at(join(&self.path, key), "is required, but missing"))
    }

    /// Refuses fields with other names.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        for key in self.entries.into_iter().flat_map(Mapping::keys) {
            let Value::String(name) = key else {
                return Err(Problem::at(&self.path, format!("a field name must be text, found {}", describe(key))));
            };
            if !known.contains(&name.as_str()) {
                return Err(unknown(&self.path, name, known));
            }
        }
        Ok(())
    }

    /// Refuses, at the mapping itself, fields that belong to another variant than `variant`.
    pub(super) fn only_for(&self, variant: &str, own: &[&str]) -> Result<(), Problem> {
        let names = self.entries.into_iter().flat_map(Mapping::keys).filter_map(Value::as_str);
        match names.into_iter().find(|name| !own.contains(name)) {
            Some(name) => Err(Problem::at(&self.path, format!("`{name}` does not go with `{variant}`"))
                .help(format!("with `{variant}`, use only {}", own.join(", ")))),
            None => Ok(()),
        }
    }

    /// A whole number in `range`.
    pub(super) fn int(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Problem> {
        self.value(key).map(|at| at.int(range)).transpose()
    }

    /// A whole number in `range`, or null.
    pub(super) fn int_or_null(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Problem> {
        self.not_null(key).map(|at| at.int(range)).transpose()
    }

    /// A number within `bound`.
    pub(super) fn number(&self, key: &str, bound: Bound) -> Result<Option<f64>, Problem> {
        self.value(key).map(|at| at.number(bound)).transpose()
    }

    /// A number within `bound`, or null.
    pub(super) fn number_or_null(&self, key: &str, bound: Bound) -> Result<Option<f64>, Problem> {
        self.not_null(key).map(|at| at.number(bound)).transpose()
    }

    /// Text that must be there.
    pub(super) fn text(&self, key: &str) -> Result<String, Problem> {
        self.required(key)?.text().map(str::to_owned)
    }

    /// Text, or null.
    pub(super) fn text_or_null(&self, key: &str) -> Result<Option<String>, Problem> {
        self.not_null(key).map(|at| at.text().map(str::to_owned)).transpose()
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Problem> {
        self.value(key).map(|at| at.value.as_bool().ok_or_else(|| at.wrong("true or false"))).transpose()
    }

    /// One word of a set.
    pub(super) fn choice<T: Choice>(&self, key: &str) -> Result<Option<T>, Problem> {
        self.value(key).map(|at| at.choice()).transpose()
    }
}

fn unknown(path: &str, name: &str, known: &[&str]) -> Problem {
    let full = join(path, name);
    if DOMAIN_WORDS.contains(&name) {
        return search_domain(full, name);
    }
    let allowed = known.join(", ");
    let help = match closest(name, known.iter().copied()) {
        Some(close) => format!("did you mean `{close}`? (allowed here: {allowed})"),
        None => format!("allowed here: {allowed}"),
    };
    Problem::at(full, UNKNOWN_FIELD).help(help)
}

/// The name that a typing slip away from `word` lies; hyphens, underscores and case do not count.
fn closest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let near = by_slips(word, names).into_iter().next()?;
    (near.0 <= word.chars().take(LONGEST_WORD).count() / 3).then_some(near.1)
}

/// The three names that are nearest to `word`, the nearest first.
#[must_use]
pub fn nearest<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    by_slips(word, names).into_iter().map(|(_, name)| name).take(3).collect()
}

/// Characters of a word that count.
const LONGEST_WORD: usize = 64;

fn by_slips<'n>(word: &str, names: impl Iterator<Item = &'n str>) -> Vec<(usize, &'n str)> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let word = plain(&word.chars().take(LONGEST_WORD).collect::<String>());
    let slips = |name: &str| strsim::damerau_levenshtein(&word, &plain(name));
    let mut near: Vec<(usize, &str)> = names.map(|name| (slips(name), name)).collect();
    near.sort_by_key(|(slips, _)| *slips);
    near
}

/// A value in a few words, for messages.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text {}", quote(text)),
        Value::Sequence(_) => "a list".to_owned(),
        Value::Mapping(_) => "a mapping".to_owned(),
        Value::Tagged(_) => "a value with a YAML tag".to_owned(),
    }
}

/// Text in quotes, cut where it gets long.
fn quote(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{:?}...", text.get(..cut).unwrap_or(text)),
        None => format!("{text:?}"),
    }
}
