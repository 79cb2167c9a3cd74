//! Where the program's data is: in `DYNOSIM_DATA`, beside the program, or inside it.

use std::path::PathBuf;

use bytes::Bytes;

/// A file that is part of the program.
type Embedded = (&'static str, &'static [u8]);

include!(concat!(env!("OUT_DIR"), "/embedded_data.rs"));

/// The environment variable that names a folder with `models`, `hardware` and `perf` in it.
const VARIABLE: &str = "DYNOSIM_DATA";

/// Where a file was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// Inside the program.
    Embedded(String),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Embedded(path) => write!(f, "{path} (built in)"),
        }
    }
}

/// The program's data. Folders come before what is built in, file by file.
#[derive(Clone, Debug, Default)]
pub struct DataFiles {
    folders: Vec<PathBuf>,
}

impl DataFiles {
    /// The data of this process: the folder of `DYNOSIM_DATA`, then `data` beside the program.
    ///
    /// # Errors
    /// If `DYNOSIM_DATA` names no folder.
    pub fn of_process() -> Result<Self, String> {
        let mut folders = Vec::new();
        if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
            if !folder.is_dir() {
                return Err(format!("{VARIABLE}: {} is no folder; name one that has `perf` in it", folder.display()));
            }
            folders.push(folder);
        }
        let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join("data")));
        folders.extend(beside.filter(|folder| folder.is_dir()));
        Ok(Self { folders })
    }

    /// The data in a folder, before what is built in.
    #[must_use]
    pub fn in_folder(folder: PathBuf) -> Self {
        Self { folders: vec![folder] }
    }

    /// A file by its path under the data folder; `None` if nobody has it.
    ///
    /// # Errors
    /// If it is there but cannot be read.
    pub fn read(&self, path: &str) -> Result<Option<(Bytes, Origin)>, String> {
        for folder in &self.folders {
            let file = folder.join(path);
            if file.is_file() {
                let bytes = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
                return Ok(Some((bytes.into(), Origin::File(file))));
            }
        }
        let embedded =
            EMBEDDED.binary_search_by_key(&path, |(name, _)| name).ok().and_then(|place| EMBEDDED.get(place));
        Ok(embedded.map(|(name, bytes)| (Bytes::from_static(bytes), Origin::Embedded((*name).to_owned()))))
    }

    /// The paths of all files below `prefix`, sorted, each once.
    #[must_use]
    pub fn list(&self, prefix: &str) -> Vec<String> {
        let mut paths: Vec<String> =
            EMBEDDED.iter().map(|(name, _)| (*name).to_owned()).filter(|name| name.starts_with(prefix)).collect();
        for folder in &self.folders {
            collect(folder, prefix.trim_end_matches('/'), &mut paths);
        }
        paths.sort();
        paths.dedup();
        paths
    }
}

/// Adds the files under `folder`/`below`; what cannot be listed is not there.
fn collect(folder: &std::path::Path, below: &str, paths: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder.join(below)).into_iter().flatten().flatten() {
        let path = format!("{below}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(folder, &path, paths);
        } else {
            paths.push(path);
        }
    }
}
