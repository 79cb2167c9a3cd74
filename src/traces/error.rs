//! What can be wrong with a trace.

use std::fmt;

/// A trace that cannot be read or used. Shown as `FILE:LINE: field: what is wrong`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file.
    pub path: String,
    /// The line, from 1, if it is a line's fault.
    pub line: Option<u64>,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

impl std::error::Error for TraceError {}

/// The trace cannot be played while it is read: its rows are not in order of time, or belong to
/// sessions. It has to be read whole first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsWholeFile;

impl fmt::Display for NeedsWholeFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the trace has to be read whole before it can be played")
    }
}

impl std::error::Error for NeedsWholeFile {}

/// The thread that reads the trace has stopped; joining it tells why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderStopped;

impl fmt::Display for ReaderStopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reading the trace stopped")
    }
}

impl std::error::Error for ReaderStopped {}
