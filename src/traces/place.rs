//! Where something stands in a trace.

use std::fmt;
use std::sync::Arc;

use super::TraceError;

/// A place in a source: a line of a file, or an entry of a JSON file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    path: Arc<str>,
    line: Option<u64>,
    entry: Option<Box<str>>,
}

impl SourcePlace {
    /// A line, from 1.
    #[must_use]
    pub fn line(path: &Arc<str>, line: u64) -> Self {
        Self { path: Arc::clone(path), line: Some(line), entry: None }
    }

    /// An entry of a JSON object, which itself may be a line.
    #[must_use]
    pub fn entry(path: &Arc<str>, line: Option<u64>, entry: &str) -> Self {
        Self { path: Arc::clone(path), line, entry: Some(entry.into()) }
    }

    /// The line, from 1, if there are lines.
    #[must_use]
    pub const fn line_number(&self) -> Option<u64> {
        self.line
    }

    /// An error at this place.
    #[must_use]
    pub fn error(&self, message: String) -> TraceError {
        let message = match &self.entry {
            Some(entry) => format!("{entry}: {message}"),
            None => message,
        };
        TraceError { path: self.path.to_string(), line: self.line, message }
    }
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match &self.entry {
            Some(entry) => write!(f, ": {entry}"),
            None => Ok(()),
        }
    }
}
