//! How the command fails.

use std::fmt;

use crate::output::OutputError;
use crate::traces::TraceError;

/// The documented exit codes.
pub mod exit_code {
    /// The run succeeded.
    pub const SUCCESS: u8 = 0;
    /// The run failed: a trace that cannot be read, a disk that is full.
    pub const EXECUTION: u8 = 1;
    /// The command line, the configuration or the output folder is wrong; nothing was run.
    pub const USAGE: u8 = 2;
    /// Interrupted by Ctrl-C or a request to terminate.
    pub const INTERRUPTED: u8 = 130;
}

/// A failed command: one message, one exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// The process's exit code.
    pub exit_code: u8,
    /// What to tell the user.
    pub message: String,
}

impl CommandError {
    /// A wrong command line or configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit_code: exit_code::USAGE, message: message.into() }
    }

    /// A failed run.
    pub fn execution(message: impl Into<String>) -> Self {
        Self { exit_code: exit_code::EXECUTION, message: message.into() }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CommandError {}

impl From<OutputError> for CommandError {
    fn from(error: OutputError) -> Self {
        Self { exit_code: error.exit_code(), message: error.to_string() }
    }
}

impl From<TraceError> for CommandError {
    fn from(error: TraceError) -> Self {
        Self::execution(error.to_string())
    }
}
