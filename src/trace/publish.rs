//! New files that appear whole or not at all.

use std::path::Path;

use tempfile::NamedTempFile;

use crate::error::CommandError;
use crate::interrupt::Interrupt;

/// Refuses to write where something is already.
pub(super) fn refuse_existing(target: &Path) -> Result<(), CommandError> {
    match target.symlink_metadata() {
        Ok(_) => Err(exists(target)),
        Err(_) => Ok(()),
    }
}

fn exists(target: &Path) -> CommandError {
    CommandError::usage(format!("{}: is there already; remove it, or choose another `--output`", target.display()))
}

/// A file without a name of its own, in the folder where it is going to get one.
pub(super) fn create_beside(target: &Path) -> Result<NamedTempFile, CommandError> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let message =
            format!("{}: there is no such folder; make it first, or choose another `--output`", folder.display());
        return Err(CommandError::usage(message));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".dynosim-").suffix(".part");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The default is private to the owner; the umask still applies to this.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder).map_err(|error| {
        CommandError::usage(format!("{}: cannot be written to: {error}; choose another `--output`", folder.display()))
    })
}

/// A file that could not be written to.
pub(super) fn cannot_write(target: &Path, error: &std::io::Error) -> CommandError {
    CommandError::execution(format!("{}: cannot be written: {error}", target.display()))
}

/// Gives a file its name, unless somebody wants to stop or has taken the name meanwhile.
pub(super) fn publish(file: NamedTempFile, target: &Path, interrupt: &Interrupt) -> Result<(), CommandError> {
    if interrupt.is_set() {
        return Err(interrupted());
    }
    file.as_file().sync_all().and_then(|()| file.persist_noclobber(target).map_err(|failed| failed.error)).map_err(
        |error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => exists(target),
            _ => cannot_write(target, &error),
        },
    )?;
    Ok(())
}

fn interrupted() -> CommandError {
    CommandError {
        exit_code: crate::error::exit_code::INTERRUPTED,
        message: "interrupted; no file was written".to_owned(),
    }
}

impl Interrupt {
    /// An error, or that the user wanted to stop where that is why there is one.
    pub(super) fn or(&self, error: CommandError) -> CommandError {
        if self.is_set() { interrupted() } else { error }
    }
}
