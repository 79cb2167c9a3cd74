//! Models, hardware and tables by name.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use dynosim_schemas::config::nearest;
use dynosim_schemas::hardware::Hardware;
use dynosim_schemas::model::Model;
use dynosim_schemas::perf_table::{PerfTable, TableKind};

use super::locate::DataFiles;
use super::store::{TableInfo, read_info, read_table};

/// Something that a configuration names and that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl DataError {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.help)
    }
}

const HARDWARE_HELP: &str =
    "see `dynosim perf-db list`, or put a file of your own into the `hardware` folder of `DYNOSIM_DATA`";
const DAMAGED_HELP: &str = "restore the file, or leave `DYNOSIM_DATA` out to use what is built in";

/// The accelerator of that name.
///
/// # Errors
/// If nobody knows it, or its file is wrong.
pub fn hardware(files: &DataFiles, name: &str) -> Result<Hardware, DataError> {
    let damaged = |message: String| DataError::new(message, DAMAGED_HELP);
    let Some((bytes, origin)) = files.read(&format!("hardware/{name}.yaml")).map_err(damaged)? else {
        let known = names(files, "hardware/", ".yaml");
        return Err(DataError::new(format!("hardware `{name}` is not known"), suggestion(name, &known, HARDWARE_HELP)));
    };
    let text = String::from_utf8_lossy(&bytes);
    Hardware::parse(&text).map_err(|problem| damaged(format!("{origin}: {problem}")))
}

/// The model of that Hugging Face name, or that a folder or a `config.json` describes.
///
/// # Errors
/// If nobody knows it, or its configuration is wrong or of an architecture that is not known.
pub fn model(files: &DataFiles, name: &str) -> Result<Model, DataError> {
    let path = Path::new(name);
    if path.exists() {
        let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let wrong = |problem: String| {
            let help = "give a folder with a Hugging Face `config.json`, that file, or a name that is built in";
            DataError::new(format!("model {}: {problem}", file.display()), help)
        };
        let text = std::fs::read_to_string(&file).map_err(|e| wrong(e.to_string()))?;
        return Model::parse(&text).map_err(wrong);
    }
    let damaged = |message: String| DataError::new(message, DAMAGED_HELP);
    let (index, origin) = files
        .read("models/names.yaml")
        .map_err(damaged)?
        .ok_or_else(|| damaged("models/names.yaml is missing".into()))?;
    let index: serde_yaml::Mapping = serde_yaml::from_slice(&index).map_err(|e| damaged(format!("{origin}: {e}")))?;
    let Some(file) = index.get(name).and_then(|file| file.as_str()) else {
        let known: Vec<String> = index.keys().filter_map(|key| key.as_str()).map(str::to_owned).collect();
        let help = "or give the path of a folder with its Hugging Face `config.json`";
        return Err(DataError::new(format!("model `{name}` is not known"), suggestion(name, &known, help)));
    };
    let path = format!("models/{file}.json");
    let (bytes, origin) = files.read(&path).map_err(damaged)?.ok_or_else(|| damaged(format!("{path} is missing")))?;
    Model::parse(&String::from_utf8_lossy(&bytes)).map_err(|problem| damaged(format!("{origin}: {problem}")))
}

/// A table, those rows whose words `wants` accepts; `None` if there is no such table.
///
/// # Errors
/// If it is damaged.
pub fn table(
    files: &DataFiles,
    (hardware, backend): (&str, &str),
    kind: TableKind,
    wants: &dyn Fn(&[&str]) -> bool,
) -> Result<Option<PerfTable>, DataError> {
    read_with(files, (hardware, backend), kind, |bytes| read_table(kind, bytes, wants))
}

/// What a table says of itself; `None` if there is no such table.
///
/// # Errors
/// If it is damaged.
pub fn table_info(
    files: &DataFiles,
    (hardware, backend): (&str, &str),
    kind: TableKind,
) -> Result<Option<TableInfo>, DataError> {
    read_with(files, (hardware, backend), kind, read_info)
}

fn read_with<T>(
    files: &DataFiles,
    (hardware, backend): (&str, &str),
    kind: TableKind,
    read: impl FnOnce(Bytes) -> Result<T, String>,
) -> Result<Option<T>, DataError> {
    let folder = if kind == TableKind::Nccl { "nccl" } else { backend };
    let path = format!("perf/{hardware}/{folder}/{}.parquet", kind.name());
    let damaged = |message: String| DataError::new(message, DAMAGED_HELP);
    let Some((bytes, origin)) = files.read(&path).map_err(damaged)? else { return Ok(None) };
    read(bytes).map(Some).map_err(|problem| damaged(format!("{origin}: is no table of {}: {problem}", kind.name())))
}

fn names(files: &DataFiles, prefix: &str, ending: &str) -> Vec<String> {
    let name = |path: &String| Some(path.strip_prefix(prefix)?.strip_suffix(ending)?.to_owned());
    files.list(prefix).iter().filter_map(name).collect()
}

fn suggestion(name: &str, known: &[String], otherwise: &str) -> String {
    let near = nearest(name, known.iter().map(String::as_str));
    format!("nearest known: {}; {otherwise}", near.join(", "))
}
