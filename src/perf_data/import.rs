//! `perf-db import`: from the public package to the project's own layout.

use std::path::Path;

use dynosim_schemas::perf_table::{LATENCY, PerfTable, TableKind};
use parquet::file::reader::FileReader;

use super::columns::{self, Values};
use super::merge::Merge;
use super::store::{TableInfo, write_table};
use super::upstream::{Package, Versions, age, file_of, versions};

/// Tables of which older versions fill what the current one lacks.
const FILLED: [TableKind; 2] = [TableKind::Moe, TableKind::AllReduce];
/// Tables of which the other backends' framework-neutral rows fill what is still missing.
const SHARED: [TableKind; 2] = [TableKind::MlaContextModule, TableKind::MlaGenerationModule];
/// The kernel of such rows.
const NEUTRAL_KERNEL: &str = "default";
/// A kernel that is only used where latency counts for more than throughput.
const LOW_LATENCY_MOE: &str = "moe_torch_flow_min_latency";
/// The backends of the simulator.
const BACKENDS: [&str; 3] = ["vllm", "sglang", "trtllm"];

/// What an import wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Files.
    pub tables: u64,
    /// Rows in them.
    pub rows: u64,
    /// Their size.
    pub bytes: u64,
}

/// One table to be made.
struct Wanted<'a> {
    hardware: &'a str,
    backend: &'a str,
    version: String,
    kind: TableKind,
}

/// Reads the package and hands over each table as `(path, bytes)`, paths relative to the folder of tables.
///
/// # Errors
/// If the package cannot be read, or has nothing for `hardware`.
pub fn import(
    package: &Path,
    hardware: &[String],
    mut write: impl FnMut(&str, &[u8]) -> Result<(), String>,
) -> Result<ImportReport, String> {
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut package = Package::open(package)?;
    let paths = package.paths()?;
    let slots = package.yaml("query_versions.yaml")?;
    let mut report = ImportReport::default();
    for system in hardware {
        let mut tables = 0;
        for wanted in wanted_tables(&mut package, &slots, system)? {
            let all = versions(&paths, system, wanted.kind);
            let Some((table, sources)) = gather(&mut package, &wanted, &all)? else { continue };
            let source = format!("{name}: {}", sources.join(", "));
            let info = TableInfo { backend_version: wanted.version, source, rows: table.len() as u64 };
            let bytes = write_table(&table, &info)?;
            write(&format!("{system}/{}/{}.parquet", wanted.backend, wanted.kind.name()), &bytes)?;
            tables += 1;
            report.rows += info.rows;
            report.bytes += bytes.len() as u64;
        }
        if tables == 0 {
            return Err(format!("has no tables for `{system}`"));
        }
        report.tables += tables;
    }
    Ok(report)
}

fn wanted_tables<'a>(
    package: &mut Package,
    slots: &serde_yaml::Value,
    hardware: &'a str,
) -> Result<Vec<Wanted<'a>>, String> {
    let mut wanted = Vec::new();
    for backend in BACKENDS {
        let current = |section: &serde_yaml::Value| {
            section
                .get(backend)
                .and_then(|slot| slot.get("current"))
                .and_then(|version| version.as_str())
                .map(str::to_owned)
        };
        let own = slots.get("overrides").and_then(|all| all.get(hardware)).and_then(current);
        let version = own.or_else(|| slots.get("defaults").and_then(current));
        let version = version.ok_or_else(|| format!("query_versions.yaml names no current version of {backend}"))?;
        for kind in TableKind::ALL.into_iter().filter(|kind| *kind != TableKind::Nccl) {
            wanted.push(Wanted { hardware, backend, version: version.clone(), kind });
        }
    }
    let system = package.yaml(&format!("{hardware}.yaml"))?;
    let nccl = system.get("misc").and_then(|misc| misc.get("nccl_version"));
    if let Some(version) = nccl.and_then(|version| version.as_str()) {
        wanted.push(Wanted { hardware, backend: "nccl", version: version.to_owned(), kind: TableKind::Nccl });
    }
    Ok(wanted)
}

/// The rows of a table and which versions they come from; nothing if there are none.
fn gather(
    package: &mut Package,
    wanted: &Wanted<'_>,
    all: &Versions,
) -> Result<Option<(PerfTable, Vec<String>)>, String> {
    let (family, file) = file_of(wanted.kind);
    let mut merge = Merge::new(wanted.kind);
    let mut sources = Vec::new();
    for (backend, version) in sources_of(wanted, all) {
        let path = format!("data/{}/{family}/{backend}/{version}/{file}", wanted.hardware);
        let bytes = package.read(&path)?;
        let foreign = backend != wanted.backend;
        read_rows(wanted.kind, bytes, foreign, &mut merge).map_err(|problem| format!("{path}: {problem}"))?;
        sources.push(format!("{backend} {version}"));
    }
    let table = merge.finish();
    Ok((!table.is_empty()).then_some((table, sources)))
}

/// Where rows come from, in order: the first that has a key decides.
fn sources_of<'a>(wanted: &'a Wanted<'_>, all: &'a Versions) -> Vec<(&'a str, &'a str)> {
    let mut sources = Vec::new();
    let own = all.get(wanted.backend).map_or(&[][..], Vec::as_slice);
    if own.contains(&wanted.version) {
        sources.push((wanted.backend, wanted.version.as_str()));
    }
    if FILLED.contains(&wanted.kind) {
        let older = own.iter().rev().filter(|version| age(version) < age(&wanted.version));
        sources.extend(older.map(|version| (wanted.backend, version.as_str())));
    }
    if SHARED.contains(&wanted.kind) && !sources.is_empty() {
        let others = all.iter().filter(|(backend, _)| *backend != wanted.backend);
        sources
            .extend(others.flat_map(|(backend, list)| list.last().map(|version| (backend.as_str(), version.as_str()))));
    }
    sources
}

fn read_rows(kind: TableKind, bytes: bytes::Bytes, foreign: bool, merge: &mut Merge) -> Result<(), String> {
    let file = columns::open(bytes)?;
    for index in 0..file.num_row_groups() {
        let group = file.get_row_group(index).map_err(|e| e.to_string())?;
        let column =
            |name: &str| columns::position(&file, name).map(|place| columns::read(group.as_ref(), place)).transpose();
        let words_of = |name: &str| match column(name)? {
            Some(Values::Words(words)) => Ok(words),
            _ => Err(format!("column `{name}` is missing or no text")),
        };
        let words = kind.words().iter().map(|name| words_of(name)).collect::<Result<Vec<_>, String>>()?;
        let numbers = kind.numbers().iter().map(|name| number_column(name, &column)).collect::<Result<Vec<_>, _>>()?;
        let Some(Values::Floats(latency)) = column(LATENCY)? else {
            return Err(format!("column `{LATENCY}` is missing or no number"));
        };
        let kernels = words_of("kernel_source")?;
        let implementations = column("backend")?;
        for row in 0..latency.len() {
            let eager = match &implementations {
                Some(Values::Words(names)) => names[row].ends_with("_eager"),
                _ => false,
            };
            let kernel = kernels[row].as_str();
            let unwanted = eager || kernel.ends_with("_eager") || kernel == LOW_LATENCY_MOE;
            if unwanted || (foreign && kernel != NEUTRAL_KERNEL) || latency[row] <= 0.0 {
                continue;
            }
            let key: Vec<&str> = words.iter().map(|column| column[row].as_str()).collect();
            let counts: Vec<u32> = numbers.iter().map(|column| column[row]).collect();
            merge.push(&key, &counts, latency[row] as f32);
        }
    }
    Ok(())
}

type Lookup<'a> = dyn Fn(&str) -> Result<Option<Values>, String> + 'a;

fn number_column(name: &str, column: &Lookup<'_>) -> Result<Vec<u32>, String> {
    match name {
        // The tokens that a decode step attends to.
        "sequence" => {
            let (prompt, steps) = (whole("isl", column)?, whole("step", column)?);
            Ok(prompt.into_iter().zip(steps).map(|(a, b)| a + b).collect())
        }
        // Absent where no kernel has a window.
        "window_size" if column(name)?.is_none() => Ok(vec![0; whole("isl", column)?.len()]),
        _ => whole(name, column),
    }
}

fn whole(name: &str, column: &Lookup<'_>) -> Result<Vec<u32>, String> {
    let number = |value: i64| u32::try_from(value).map_err(|_| format!("column `{name}`: {value} is out of range"));
    match column(name)? {
        Some(Values::Integers(values)) => values.into_iter().map(number).collect(),
        Some(Values::Floats(values)) => values.into_iter().map(|value| number(value as i64)).collect(),
        _ => Err(format!("column `{name}` is missing or no number")),
    }
}
