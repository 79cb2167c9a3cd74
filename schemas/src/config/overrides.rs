//! `--set PATH=YAML`: assignments on top of the file.

use serde_yaml::{Mapping, Value};

use super::{Problem, SEARCH_SECTIONS, document, fields, problem};

/// One parsed `--set` assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    path: String,
    value: Value,
}

/// Reads `PATH=YAML`, split at the first `=`.
///
/// # Errors
/// A path that is missing, has an empty part, indexes a list or names a section of a search; a value that is not YAML.
pub fn parse_override(text: &str) -> Result<Override, Problem> {
    let refuse = |path: &str, problem: Problem| Problem { path: path.to_owned(), from_override: true, ..problem };
    let Some((path, value)) = text.split_once('=') else {
        let problem = Problem::at("", format!("`{text}` has no `=`"))
            .help("write PATH=VALUE, as in `traffic.load.concurrency=8`");
        return Err(refuse("", problem));
    };
    check_path(path).map_err(|problem| refuse(path, problem))?;
    match document::value(value, path) {
        Ok(value) => Ok(Override { path: path.to_owned(), value }),
        Err(problem) => Err(Problem { from_override: true, position: None, ..problem }),
    }
}

fn check_path(path: &str) -> Result<(), Problem> {
    for part in path.split('.') {
        if part.is_empty() {
            return Err(Problem::at(path, "the path has an empty part").help("write names separated by single dots"));
        }
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Problem::at(path, "list elements cannot be set one by one").help("set the whole list"));
        }
    }
    let section = path.split('.').next().unwrap_or(path);
    if SEARCH_SECTIONS.contains(&section) { Err(problem::search_section(path, section)) } else { Ok(()) }
}

impl Override {
    /// The dotted path that is assigned.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Puts the value in, making the mappings on the way that are missing.
    pub(super) fn apply(&self, document: &mut Value) -> Result<(), Problem> {
        let (outer, name) = match self.path.rsplit_once('.') {
            Some((outer, name)) => (Some(outer), name),
            None => (None, self.path.as_str()),
        };
        let mut target = document;
        let mut walked = 0;
        for part in outer.into_iter().flat_map(|outer| outer.split('.')) {
            let inner = self.mapping(target, walked)?;
            walked += part.len() + 1;
            target = inner.entry(Value::from(part)).or_insert_with(|| Value::Mapping(Mapping::new()));
        }
        self.mapping(target, walked)?.insert(Value::from(name), self.value.clone());
        Ok(())
    }

    /// The mapping at the first `walked` bytes of the path (which end with a dot).
    fn mapping<'a>(&self, target: &'a mut Value, walked: usize) -> Result<&'a mut Mapping, Problem> {
        let found = fields::describe(target);
        target.as_mapping_mut().ok_or_else(|| {
            let crossed = self.path.get(..walked.saturating_sub(1)).unwrap_or_default();
            let problem = Problem::at(&self.path, format!("`{crossed}` is {found}, which has no fields"))
                .help(format!("set `{crossed}` as a whole"));
            Problem { from_override: true, ..problem }
        })
    }
}
