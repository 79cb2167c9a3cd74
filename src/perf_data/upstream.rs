//! The public package of measured operator times (NVIDIA AIConfigurator) as files: a wheel, or a folder with its
//! content.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use dynosim_schemas::perf_table::TableKind;
use zip::ZipArchive;

/// Where the package keeps its tables.
const SYSTEMS: &str = "aiconfigurator_core/systems/";

/// An opened package.
pub enum Package {
    /// A wheel.
    Wheel(Box<ZipArchive<File>>),
    /// The folder that has `data/` in it.
    Folder(PathBuf),
}

impl Package {
    /// Opens a wheel or a folder.
    ///
    /// # Errors
    /// If it cannot be read or is something else.
    pub fn open(path: &Path) -> Result<Self, String> {
        if path.is_dir() {
            let candidates = [path.to_owned(), path.join("systems"), path.join(SYSTEMS)];
            let folder = candidates.into_iter().find(|folder| folder.join("query_versions.yaml").is_file());
            return folder.map(Self::Folder).ok_or_else(|| {
                "has no query_versions.yaml; give the wheel of aiconfigurator-core, or the folder it unpacks to"
                    .to_owned()
            });
        }
        let file = File::open(path).map_err(|e| e.to_string())?;
        let archive = ZipArchive::new(file).map_err(|e| format!("is no wheel: {e}"))?;
        Ok(Self::Wheel(Box::new(archive)))
    }

    /// The paths of its files, relative to the folder of `data/`, sorted.
    ///
    /// # Errors
    /// If a folder cannot be listed.
    pub fn paths(&self) -> Result<Vec<String>, String> {
        let mut paths = match self {
            Self::Wheel(archive) => {
                archive.file_names().filter_map(|name| name.strip_prefix(SYSTEMS)).map(str::to_owned).collect()
            }
            Self::Folder(folder) => {
                let mut found = Vec::new();
                list(folder, &folder.join("data"), &mut found)?;
                found
            }
        };
        paths.sort();
        Ok(paths)
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// If it is not there or cannot be read.
    pub fn read(&mut self, path: &str) -> Result<Bytes, String> {
        let wrong = |e: &dyn std::fmt::Display| format!("{path}: {e}");
        match self {
            Self::Folder(folder) => std::fs::read(folder.join(path)).map(Bytes::from).map_err(|e| wrong(&e)),
            Self::Wheel(archive) => {
                let mut file = archive.by_name(&format!("{SYSTEMS}{path}")).map_err(|e| wrong(&e))?;
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|e| wrong(&e))?;
                Ok(bytes.into())
            }
        }
    }

    /// A YAML file of the package.
    ///
    /// # Errors
    /// If it is not there or no YAML.
    pub fn yaml(&mut self, path: &str) -> Result<serde_yaml::Value, String> {
        serde_yaml::from_slice(&self.read(path)?).map_err(|e| format!("{path}: {e}"))
    }
}

fn list(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.is_dir() {
            list(root, &path, found)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.push(relative.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// The file of a kind of table in the package: its folder and its name.
pub fn file_of(kind: TableKind) -> (&'static str, &'static str) {
    match kind {
        TableKind::Gemm => ("gemm", "gemm_perf.parquet"),
        TableKind::ContextAttention => ("attention", "context_attention_perf.parquet"),
        TableKind::GenerationAttention => ("attention", "generation_attention_perf.parquet"),
        TableKind::Moe => ("moe", "moe_perf.parquet"),
        TableKind::ContextMla => ("mla", "context_mla_perf.parquet"),
        TableKind::GenerationMla => ("mla", "generation_mla_perf.parquet"),
        TableKind::MlaContextModule => ("mla", "mla_context_module_perf.parquet"),
        TableKind::MlaGenerationModule => ("mla", "mla_generation_module_perf.parquet"),
        TableKind::MlaBmm => ("mla_bmm", "mla_bmm_perf.parquet"),
        TableKind::AllReduce => ("comm", "custom_allreduce_perf.parquet"),
        TableKind::Nccl => ("comm", "nccl_perf.parquet"),
    }
}

/// Versions of one table, by backend.
pub type Versions = BTreeMap<String, Vec<String>>;

/// The versions of a kind of table for one accelerator, by backend, oldest first.
pub fn versions(paths: &[String], hardware: &str, kind: TableKind) -> Versions {
    let (family, file) = file_of(kind);
    let mut found = Versions::new();
    for path in paths {
        let parts: Vec<&str> = path.split('/').collect();
        if let ["data", of, folder, backend, version, name] = parts[..]
            && (of, folder, name) == (hardware, family, file)
        {
            found.entry(backend.to_owned()).or_default().push(version.to_owned());
        }
    }
    found.values_mut().for_each(|versions| versions.sort_by_key(|version| age(version)));
    found
}

/// Orders versions such as `0.5.9`, `0.5.14`, `1.3.0rc20`: every number in it counts as a number.
pub fn age(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}
