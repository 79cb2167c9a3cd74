//! The output folder: checked before the run, filled only when the run has succeeded.
//!
//! Every file is written under a hidden name in the folder itself, so that [`OutputFolder::publish`] only has to
//! rename. A run that fails, or is stopped by Ctrl-C, drops its partial files and leaves the folder as it was.
//! This guards against the end of the process, not of the machine: nothing is synced to disk, because that can cost
//! more than the run.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::NamedTempFile;

use super::error::{OutputError, advice};

/// The files that dynosim writes, in the order in which they are published: the report last, because its presence
/// says that the rest is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownOutput {
    /// The per-request table.
    RequestsParquet,
    /// The same, as one JSON object a line.
    RequestsJsonl,
    /// The router's decisions.
    DecisionsParquet,
    /// The plays of agents.
    PlaysParquet,
    /// The report.
    Prediction,
}

impl KnownOutput {
    /// All of them, in order of publication.
    pub const ALL: [Self; 5] =
        [Self::RequestsParquet, Self::RequestsJsonl, Self::DecisionsParquet, Self::PlaysParquet, Self::Prediction];

    /// The name within the output folder.
    #[must_use]
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::RequestsParquet => "requests.parquet",
            Self::RequestsJsonl => "requests.jsonl",
            Self::DecisionsParquet => "decisions.parquet",
            Self::PlaysParquet => "plays.parquet",
            Self::Prediction => "prediction.json",
        }
    }

    /// The start of its hidden names.
    fn partial_prefix(self) -> String {
        format!(".{}.partial-", self.file_name())
    }

    /// Whether `name` is a partial file, such as a killed run leaves behind.
    fn is_partial(name: &str) -> bool {
        Self::ALL.iter().any(|known| name.starts_with(&known.partial_prefix()))
    }
}

/// Folders that this run created, innermost last. Dropping it removes those that are still empty.
///
/// The folder and its partial files share it, so that it goes last in whatever order they are dropped.
#[derive(Debug, Default)]
struct CreatedFolders(Vec<PathBuf>);

impl Drop for CreatedFolders {
    fn drop(&mut self) {
        while let Some(path) = self.0.pop() {
            // A folder that holds something stays, and so do its parents.
            if fs::remove_dir(&path).is_err() {
                return;
            }
        }
    }
}

/// A file under a hidden name, which vanishes when dropped unless it is published.
#[derive(Debug)]
pub struct PartialFile {
    // Order matters: the file has to be gone before the folder can be.
    file: NamedTempFile,
    output: KnownOutput,
    target: PathBuf,
    _created: Arc<CreatedFolders>,
}

impl PartialFile {
    /// The name that it will have.
    #[must_use]
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Which file it is.
    #[must_use]
    pub const fn output(&self) -> KnownOutput {
        self.output
    }
}

impl Write for PartialFile {
    // Straight to the file: `NamedTempFile` would put its hidden path into every message.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

/// A folder that is ready to take the output of one run.
#[derive(Debug)]
pub struct OutputFolder {
    path: PathBuf,
    overwrite: bool,
    created: Arc<CreatedFolders>,
}

impl OutputFolder {
    /// Checks the folder at `path`, and creates it with its parents if it is missing. Changes nothing that exists.
    ///
    /// # Errors
    ///
    /// Of class [`Usage`](super::ErrorClass::Usage): something else is in its place, it holds files and `overwrite` is
    /// off, or it cannot be created, read or written.
    pub fn prepare(path: &Path, overwrite: bool) -> Result<Self, OutputError> {
        if path.as_os_str().is_empty() {
            return Err(OutputError::usage("the output folder has no name; pass `--output-dir`"));
        }
        let created = create_folders(path)?;
        check_content(path, overwrite)?;
        let folder = Self { path: path.to_owned(), overwrite, created: Arc::new(created) };
        // A trial, because permission bits alone do not tell (read-only mounts, access lists, root).
        folder.temporary(KnownOutput::Prediction).map_err(|e| unusable("write to", path, &e))?;
        Ok(folder)
    }

    /// Where the folder is, as the user named it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where `output` will be.
    #[must_use]
    pub fn target(&self, output: KnownOutput) -> PathBuf {
        self.path.join(output.file_name())
    }

    /// Opens a new partial file for `output`.
    ///
    /// # Errors
    ///
    /// If the file cannot be created.
    pub fn partial(&self, output: KnownOutput) -> Result<PartialFile, OutputError> {
        let target = self.target(output);
        match self.temporary(output) {
            Ok(file) => Ok(PartialFile { file, output, target, _created: Arc::clone(&self.created) }),
            Err(e) => Err(OutputError::write(&target, &e)),
        }
    }

    /// Opens a partial file for `output` and fills it.
    ///
    /// # Errors
    ///
    /// If the file cannot be created or written.
    pub fn write(&self, output: KnownOutput, content: &[u8]) -> Result<PartialFile, OutputError> {
        let mut file = self.partial(output)?;
        file.write_all(content).map_err(|e| OutputError::write(file.target(), &e))?;
        Ok(file)
    }

    /// Gives every file its real name. Under `overwrite`, known outputs that are not among `files` are removed, so
    /// that the folder never mixes two runs.
    ///
    /// Returns the paths of the files.
    ///
    /// # Errors
    ///
    /// If a file cannot be renamed or removed. The message says which files are already new.
    pub fn publish(self, mut files: Vec<PartialFile>) -> Result<Vec<PathBuf>, OutputError> {
        files.sort_by_key(|f| f.output as u8);
        let mut done: Vec<PathBuf> = Vec::with_capacity(files.len());
        let outputs: Vec<_> = files.iter().map(|f| f.output).collect();
        for file in files {
            let target = file.target.clone();
            rename(file, self.overwrite).map_err(|e| self.half_published(&target, &e, &done))?;
            done.push(target);
        }
        if self.overwrite {
            self.remove_outdated(&outputs)?;
        }
        Ok(done)
    }

    /// A hidden file in the folder, with the permissions of any other new file.
    fn temporary(&self, output: KnownOutput) -> io::Result<NamedTempFile> {
        let prefix = output.partial_prefix();
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix);
        #[cfg(unix)]
        {
            // tempfile's default is private to the owner; the umask still applies to this.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        builder.tempfile_in(&self.path)
    }

    fn half_published(&self, target: &Path, cause: &io::Error, done: &[PathBuf]) -> OutputError {
        let todo = match cause.kind() {
            io::ErrorKind::AlreadyExists => "it appeared while the run was going on; pass `--overwrite` to replace it",
            _ => advice(cause),
        };
        let state = match done {
            [] => "no file in the folder was changed".to_owned(),
            _ => {
                let names: Vec<_> = done.iter().map(|p| p.display().to_string()).collect();
                format!("already from this run: {}; every other file there is older", names.join(", "))
            }
        };
        OutputError::execution(format!("cannot put {} in place: {cause}; {todo} ({state})", target.display()))
    }

    /// Removes known outputs of an earlier run that `kept` did not replace, and the partial files of killed runs.
    fn remove_outdated(&self, kept: &[KnownOutput]) -> Result<(), OutputError> {
        for output in KnownOutput::ALL.into_iter().filter(|o| !kept.contains(o)) {
            let path = self.target(output);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(outdated_stays(&path, &e)),
                _ => {}
            }
        }
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(KnownOutput::is_partial) {
                // Only tidying up: the output of this run is complete without it.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

/// Creates `path` and its missing parents, one by one, to know which to take back.
fn create_folders(path: &Path) -> Result<CreatedFolders, OutputError> {
    let mut missing = Vec::new();
    for ancestor in path.ancestors().filter(|a| !a.as_os_str().is_empty()) {
        match fs::metadata(ancestor) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => return Err(in_the_way(ancestor)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                missing.push(ancestor);
            }
            Err(e) => return Err(unusable("open", ancestor, &e)),
        }
    }
    let mut created = CreatedFolders::default();
    for folder in missing.into_iter().rev() {
        match fs::create_dir(folder) {
            Ok(()) => created.0.push(folder.to_owned()),
            // Another process was faster, or the path has a `..` in it.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(e) => return Err(unusable("create", folder, &e)),
        }
    }
    Ok(created)
}

/// Refuses a folder whose content the run would have to touch without leave.
fn check_content(path: &Path, overwrite: bool) -> Result<(), OutputError> {
    for entry in fs::read_dir(path).map_err(|e| unusable("read", path, &e))? {
        let entry = entry.map_err(|e| unusable("read", path, &e))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !overwrite && !KnownOutput::is_partial(&name) {
            return Err(OutputError::usage(format!(
                "the output folder {} is not empty (it holds {name}); \
                 pass `--overwrite` to replace the results in it, or another `--output-dir`",
                path.display()
            )));
        }
        if KnownOutput::ALL.iter().any(|o| o.file_name() == name) && entry.path().is_dir() {
            return Err(OutputError::usage(format!(
                "{} is a folder, where a file has to be written; move it away, or pass another `--output-dir`",
                entry.path().display()
            )));
        }
    }
    Ok(())
}

fn rename(partial: PartialFile, overwrite: bool) -> io::Result<()> {
    let PartialFile { file, target, .. } = partial;
    let outcome = if overwrite { file.persist(target) } else { file.persist_noclobber(target) };
    outcome.map(drop).map_err(|e| e.error)
}

fn in_the_way(path: &Path) -> OutputError {
    OutputError::usage(format!(
        "{} is not a folder, so that no output can be put there; pass another `--output-dir`",
        path.display()
    ))
}

fn unusable(verb: &str, path: &Path, cause: &io::Error) -> OutputError {
    OutputError::usage(format!("cannot {verb} the output folder {}: {cause}; {}", path.display(), advice(cause)))
}

fn outdated_stays(path: &Path, cause: &io::Error) -> OutputError {
    OutputError::execution(format!(
        "cannot remove {} of an earlier run: {cause}; remove it by hand, the other files there are new and complete",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::ErrorClass;
    use super::*;

    fn root() -> TempDir {
        tempfile::tempdir().unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn content(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    /// A folder with all outputs of an earlier run and a file of somebody else.
    fn used(path: &Path) {
        fs::create_dir_all(path).unwrap();
        for output in KnownOutput::ALL {
            fs::write(path.join(output.file_name()), "old").unwrap();
        }
        fs::write(path.join("notes.txt"), "mine").unwrap();
    }

    fn refusal(path: &Path, overwrite: bool) -> String {
        let error = OutputFolder::prepare(path, overwrite).unwrap_err();
        assert_eq!((error.class(), error.exit_code()), (ErrorClass::Usage, 2));
        error.to_string()
    }

    #[test]
    fn creates_parents_and_publishes() {
        let root = root();
        let path = root.path().join("a/b/../c");
        let folder = OutputFolder::prepare(&path, false).unwrap();
        let files = vec![
            folder.write(KnownOutput::Prediction, b"report").unwrap(),
            folder.write(KnownOutput::RequestsParquet, b"table").unwrap(),
        ];
        assert!(names(&path).iter().all(|n| n.starts_with('.')), "{:?}", names(&path));
        let paths = folder.publish(files).unwrap();
        assert_eq!(paths, [path.join("requests.parquet"), path.join("prediction.json")]);
        assert_eq!(names(&path), ["prediction.json", "requests.parquet"]);
        assert_eq!(content(&paths[1]), "report");
    }

    #[cfg(unix)]
    #[test]
    fn files_have_the_permissions_of_any_other() {
        use std::os::unix::fs::PermissionsExt;
        let root = root();
        let plain = root.path().join("plain");
        fs::write(&plain, "").unwrap();
        let folder = OutputFolder::prepare(&root.path().join("out"), false).unwrap();
        let file = folder.write(KnownOutput::Prediction, b"").unwrap();
        let paths = folder.publish(vec![file]).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&paths[0]), mode(&plain));
    }

    #[test]
    fn a_failed_run_leaves_nothing_of_a_new_folder() {
        let root = root();
        let path = root.path().join("a/b");
        let folder = OutputFolder::prepare(&path, false).unwrap();
        let file = folder.partial(KnownOutput::RequestsParquet).unwrap();
        drop(folder);
        assert!(path.exists(), "the partial file still needs it");
        drop(file);
        assert!(names(root.path()).is_empty());
    }

    #[test]
    fn a_failed_run_leaves_an_old_folder_as_it_was() {
        let root = root();
        let path = root.path().join("out");
        used(&path);
        let before = names(&path);
        let folder = OutputFolder::prepare(&path, true).unwrap();
        let file = folder.write(KnownOutput::Prediction, b"half").unwrap();
        drop((folder, file));
        assert_eq!(names(&path), before);
        for output in KnownOutput::ALL {
            assert_eq!(content(&path.join(output.file_name())), "old");
        }
    }

    #[test]
    fn overwrite_replaces_what_is_known_and_spares_strangers() {
        let root = root();
        let path = root.path().join("out");
        used(&path);
        fs::write(path.join(".requests.parquet.partial-killed"), "half").unwrap();
        let folder = OutputFolder::prepare(&path, true).unwrap();
        let files = vec![
            folder.write(KnownOutput::Prediction, b"new").unwrap(),
            folder.write(KnownOutput::RequestsParquet, b"new").unwrap(),
        ];
        folder.publish(files).unwrap();
        // The old requests.jsonl belongs to another run than the new files.
        assert_eq!(names(&path), ["notes.txt", "prediction.json", "requests.parquet"]);
        assert_eq!(content(&path.join("notes.txt")), "mine");
        assert_eq!(content(&path.join("prediction.json")), "new");
    }

    #[test]
    fn refuses_what_it_would_spoil() {
        let root = root();
        let path = root.path().join("out");
        used(&path);
        let text = refusal(&path, false);
        assert!(
            text.contains("not empty") && text.contains("`--overwrite`") && text.contains("`--output-dir`"),
            "{text}"
        );
        let file = path.join("notes.txt");
        for path in [file.clone(), file.join("below")] {
            for overwrite in [false, true] {
                let text = refusal(&path, overwrite);
                assert!(text.contains("notes.txt is not a folder") && text.contains("`--output-dir`"), "{text}");
            }
        }
        let taken = root.path().join("taken");
        fs::create_dir_all(taken.join("prediction.json")).unwrap();
        assert!(refusal(&taken, true).contains("prediction.json is a folder"));
        assert!(refusal(Path::new(""), true).contains("no name"));
    }

    #[test]
    fn leftovers_of_a_killed_run_do_not_count() {
        let root = root();
        fs::write(root.path().join(".prediction.json.partial-x"), "half").unwrap();
        assert!(OutputFolder::prepare(root.path(), false).is_ok());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn says_which_folder_cannot_be_created() {
        let text = refusal(Path::new("/proc/dynosim/out"), false);
        assert!(text.contains("cannot create the output folder /proc/dynosim:"), "{text}");
    }

    #[test]
    fn without_overwrite_a_file_that_appears_meanwhile_is_kept() {
        let root = root();
        let path = root.path().join("out");
        let folder = OutputFolder::prepare(&path, false).unwrap();
        let files = vec![
            folder.write(KnownOutput::Prediction, b"new").unwrap(),
            folder.write(KnownOutput::RequestsParquet, b"new").unwrap(),
        ];
        fs::write(path.join("prediction.json"), "theirs").unwrap();
        let error = folder.publish(files).unwrap_err();
        assert_eq!((error.class(), error.exit_code()), (ErrorClass::Execution, 1));
        let text = error.to_string();
        assert!(text.contains("prediction.json in place") && text.contains("already from this run:"), "{text}");
        assert!(text.contains("requests.parquet"), "{text}");
        assert_eq!(content(&path.join("prediction.json")), "theirs");
        assert_eq!(names(&path), ["prediction.json", "requests.parquet"]);
    }
}
