//! What is wrong with a configuration, and where.

use std::fmt;

use super::Override;
use super::positions::Positions;

/// One reason to refuse a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Dotted path of the field; empty for the whole document.
    pub path: String,
    /// Line and column in the file, both from 1, of the field or else of the nearest mapping around it.
    pub position: Option<(usize, usize)>,
    /// Whether the value comes from a `--set` rather than from the file.
    pub from_override: bool,
    /// What is wrong.
    pub message: String,
    /// What is allowed, or what to write instead.
    pub help: Option<String>,
}

impl Problem {
    /// A problem of the field at `path`.
    pub fn at(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), position: None, from_override: false, message: message.into(), help: None }
    }

    /// The same with advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says where the problem's path comes from: a place in `text`, the file, or one of the `overrides`.
    /// [`load`](super::load) has done so already; [`not_available_yet`](super::not_available_yet) cannot.
    #[must_use]
    pub fn located(mut self, text: &str, overrides: &[Override]) -> Self {
        if self.position.is_some() || self.from_override {
            return self;
        }
        let positions = Positions::of(text);
        let in_file = positions.get(&self.path);
        let set_here = overrides.iter().any(|one| is_within(&self.path, one.path()));
        let made_by_set =
            in_file.is_none() && !self.path.is_empty() && overrides.iter().any(|one| is_within(one.path(), &self.path));
        self.from_override = set_here || made_by_set;
        if !self.from_override {
            self.position = in_file.or_else(|| positions.nearest(&self.path));
        }
        self
    }

    /// The problem as one line that starts with its place: `file:line:column`, or the `--set` that caused it.
    #[must_use]
    pub fn render(&self, file: &str) -> String {
        match (self.from_override, self.position) {
            (true, _) if self.path.is_empty() => format!("--set: {}", self.text()),
            (true, _) => format!("--set {}: {}", self.path, self.text()),
            (false, Some((line, column))) => format!("{file}:{line}:{column}: {self}"),
            (false, None) => format!("{file}: {self}"),
        }
    }

    fn text(&self) -> String {
        match &self.help {
            Some(help) => format!("{}; {help}", self.message),
            None => self.message.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(formatter, "{}: ", self.path)?;
        }
        formatter.write_str(&self.text())
    }
}

impl std::error::Error for Problem {}

/// Whether `path` is `outer` or lies below it.
fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The answer to a section that only a search over configurations has.
pub(super) fn search_section(path: &str, name: &str) -> Problem {
    Problem::at(path, format!("`{name}` belongs to a search over configurations"))
        .help("predict runs one concrete configuration: remove this section")
}

/// The answer to `choices`, `range` or `preset` where predict wants a value.
pub(super) fn search_domain(path: impl Into<String>, word: &str) -> Problem {
    Problem::at(path, format!("`{word}` is a search domain, which belongs to a search over configurations"))
        .help("predict wants one concrete value here")
}
