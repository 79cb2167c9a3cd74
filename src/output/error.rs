//! The one error of the output side.

use std::fmt;
use std::io;
use std::path::Path;

/// Who has to act on an [`OutputError`], which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The command asked for something that cannot be done; found before the run started.
    Usage,
    /// The run itself failed, such as by a full disk.
    Execution,
}

/// A problem with the output, worded for the person at the terminal: the path, the cause and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputError {
    class: ErrorClass,
    message: String,
}

impl OutputError {
    /// A mistake in the command.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { class: ErrorClass::Usage, message: message.into() }
    }

    /// A failure of the run.
    pub(crate) fn execution(message: impl Into<String>) -> Self {
        Self { class: ErrorClass::Execution, message: message.into() }
    }

    /// The output at `path` could not be written.
    #[must_use]
    pub fn write(path: &Path, cause: &io::Error) -> Self {
        Self::execution(format!("cannot write {}: {cause}; {}", path.display(), advice(cause)))
    }

    /// Who has to act.
    #[must_use]
    pub const fn class(&self) -> ErrorClass {
        self.class
    }

    /// The exit code that the command ends with.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self.class {
            ErrorClass::Usage => 2,
            ErrorClass::Execution => 1,
        }
    }
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OutputError {}

/// What helps against `cause`.
pub(crate) fn advice(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, or pass another `--output-dir` on a disk with more room"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "allow writing there, or pass another `--output-dir`"
        }
        _ => "pass another `--output-dir` if it persists",
    }
}
