//! `dynosim perf-db`.

use std::path::Path;

use dynosim_schemas::perf_table::TableKind;

use crate::cli::PerfDbCommand;
use crate::error::CommandError;
use crate::perf_check::compare;
use crate::perf_data::{DataError, DataFiles, hardware, import, model, read_info, table};

/// Runs the command and gives the text for standard output.
///
/// # Errors
/// With the message and exit code for the user.
pub fn perf_db(command: &PerfDbCommand) -> Result<String, CommandError> {
    match command {
        PerfDbCommand::Import { package, output_dir, hardware } => import_package(package, output_dir, hardware),
        PerfDbCommand::Check { golden } => check(&data_files()?, golden),
        PerfDbCommand::List => list(&data_files()?),
        PerfDbCommand::Show { hardware, backend } => show(&data_files()?, hardware, backend),
    }
}

/// The data of this process.
///
/// # Errors
/// If `DYNOSIM_DATA` is wrong.
pub fn data_files() -> Result<DataFiles, CommandError> {
    DataFiles::of_process().map_err(CommandError::usage)
}

fn import_package(package: &Path, output_dir: &Path, hardware: &[String]) -> Result<String, CommandError> {
    let target = output_dir.join("perf");
    if target.exists() {
        let message = format!("{}: is there already; remove it, or name another --output-dir", target.display());
        return Err(CommandError::usage(message));
    }
    let io = |e: std::io::Error| CommandError::execution(format!("{}: {e}", output_dir.display()));
    std::fs::create_dir_all(output_dir).map_err(io)?;
    // Under a name of its own until it is complete, so that nobody meets half of it.
    let unfinished = tempfile::Builder::new().prefix(".perf-").tempdir_in(output_dir).map_err(io)?;
    let report = import(package, hardware, |path, bytes| {
        let file = unfinished.path().join(path);
        let folder = file.parent().unwrap_or(unfinished.path());
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, bytes));
        written.map_err(|e| format!("{}: {e}", file.display()))
    });
    let report = report.map_err(|problem| CommandError::usage(format!("{}: {problem}", package.display())))?;
    std::fs::rename(unfinished.keep(), &target).map_err(io)?;
    Ok(format!(
        "{} tables, {} rows, {:.1} MB in {}\n",
        report.tables,
        report.rows,
        report.bytes as f64 / 1e6,
        target.display()
    ))
}

fn check(files: &DataFiles, golden: &Path) -> Result<String, CommandError> {
    let comparison = compare(files, golden)?;
    let text = comparison.to_text();
    if comparison.different.is_empty() { Ok(text) } else { Err(CommandError::execution(text.trim_end())) }
}

/// The accelerators and backends that have tables.
fn measured(files: &DataFiles) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = files
        .list("perf/")
        .iter()
        .filter_map(|path| {
            let mut parts = path.strip_prefix("perf/")?.split('/');
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        })
        .collect();
    found.dedup();
    found
}

fn list(files: &DataFiles) -> Result<String, CommandError> {
    let mut text = String::from("measured:\n");
    for (hardware, backend) in measured(files) {
        let tables = tables_of(files, &hardware, &backend)?;
        let rows: u64 = tables.iter().map(|table| table.rows).sum();
        let version = tables.first().map_or("", |table| table.version.as_str());
        line(&mut text, &format!("  {hardware:<10} {backend:<7} {version:<10} {rows:>8} rows"));
    }
    text.push_str("accelerators:\n");
    for path in files.list("hardware/") {
        let name = path.trim_start_matches("hardware/").trim_end_matches(".yaml");
        let of = hardware(files, name).map_err(refuse)?;
        let (memory, bandwidth) = (of.memory_bytes as f64 / GIB, of.memory_bytes_per_second / 1e12);
        line(&mut text, &format!("  {name:<20} {memory:>6.1} GiB  {bandwidth:>5.2} TB/s"));
    }
    text.push_str("models with a name:\n");
    let names = files.read("models/names.yaml").map_err(CommandError::usage)?;
    let names = names.map(|(bytes, _)| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    for name in names.lines().filter(|name| !name.starts_with('#')).filter_map(|name| name.split(": ").next()) {
        let of = model(files, name).map_err(refuse)?;
        let (layers, context, weights) = (of.layers, of.context_length, of.quantisation.gemm.name());
        line(&mut text, &format!("  {name:<45} {layers:>3} layers  {context:>7} tokens  {weights}"));
    }
    Ok(text)
}

const GIB: f64 = (1_u64 << 30) as f64;

fn refuse(problem: DataError) -> CommandError {
    CommandError::usage(problem.to_string())
}

struct Described {
    kind: TableKind,
    version: String,
    rows: u64,
    origin: String,
    source: String,
}

fn tables_of(files: &DataFiles, hardware: &str, backend: &str) -> Result<Vec<Described>, CommandError> {
    let mut tables = Vec::new();
    for kind in TableKind::ALL {
        let path = format!("perf/{hardware}/{backend}/{}.parquet", kind.name());
        let Some((bytes, origin)) = files.read(&path).map_err(CommandError::usage)? else { continue };
        let info = read_info(bytes).map_err(|e| CommandError::usage(format!("{origin}: is no table: {e}")))?;
        let (version, rows, source) = (info.backend_version, info.rows, info.source);
        tables.push(Described { kind, version, rows, origin: origin.to_string(), source });
    }
    Ok(tables)
}

/// Every row is read, so that a damaged table shows here.
fn show(files: &DataFiles, system: &str, backend: &str) -> Result<String, CommandError> {
    hardware(files, system).map_err(refuse)?;
    let tables = tables_of(files, system, backend)?;
    if tables.is_empty() {
        let message = format!("there are no tables for `{system}` and `{backend}`; see `dynosim perf-db list`");
        return Err(CommandError::usage(message));
    }
    let mut text = String::new();
    for described in tables {
        let name = described.kind.name();
        let read = table(files, (system, backend), described.kind, &|_| true).map_err(refuse)?;
        let rows = read.map_or(0, |table| table.len());
        line(&mut text, &format!("{name:<22} {rows:>7} rows  {}", described.origin));
        line(&mut text, &format!("{:<22} {}", "", described.source));
    }
    Ok(text)
}

fn line(text: &mut String, words: &str) {
    text.push_str(words);
    text.push('\n');
}
