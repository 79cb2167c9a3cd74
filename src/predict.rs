//! `dynosim predict`.

use std::time::Instant;

use dynosim_schemas::config::{self, Prediction, Router};
use dynosim_schemas::play_row::PlayRow;
use serde_json::Value;

use crate::assemble;
use crate::cli::{Format, PredictArgs};
use crate::config_file::LoadedConfig;
use crate::error::CommandError;
use crate::interrupt::Interrupt;
use crate::output::{
    KnownOutput, OutputError, OutputFolder, ParquetRows, PartialFile, Provenance, Report, RowSink, Sinks, WallClock,
    file_metadata, summary_line, summary_table, to_pretty_json,
};
use crate::perf_db::data_files;
use crate::profile::Profile;
use crate::resolve::resolve;
use crate::run::{self, RunOptions, RunResult};

/// Version of the layout of the report and of the per-request table.
pub const SCHEMA_VERSION: &str = "1";

/// Runs the command; `print` puts the result on standard output.
///
/// It prints before files get their final names, so that a failure to print leaves none behind.
///
/// # Errors
/// With the message and exit code for the user. Nothing has been written then.
pub fn predict(
    args: &PredictArgs,
    interrupt: &Interrupt,
    print: impl FnOnce(&str) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let loaded = LoadedConfig::read(&args.source)?;
    let prediction = &loaded.prediction;
    if args.decisions && !matches!(prediction.router, Router::KvRouter { .. }) {
        return Err(CommandError::usage(
            "--decisions: a `round_robin` router decides nothing; set `router.policy: kv_router`, or leave the flag out",
        ));
    }
    let files = data_files()?;
    let resolved_values = resolve(prediction, &files, args.strict_timing).map_err(|problem| loaded.refuse(problem))?;
    let folder = OutputFolder::prepare(&args.output_dir, args.overwrite)?;
    let mut deployment = assemble::deployment(prediction, &resolved_values);
    deployment.records_decisions = args.decisions;
    let resolved = resolved_config(prediction)?;
    let config_digest = blake3::hash(resolved.to_string().as_bytes()).to_hex().to_string();
    let metadata = file_metadata(env!("CARGO_PKG_VERSION"), SCHEMA_VERSION, &config_digest);
    let new_sink = || {
        let parquet = folder.partial(KnownOutput::RequestsParquet)?;
        let jsonl = args.capture_per_request.then(|| folder.partial(KnownOutput::RequestsJsonl)).transpose()?;
        let decisions = args.decisions.then(|| folder.partial(KnownOutput::DecisionsParquet)).transpose()?;
        Sinks::new(RowSink::start(parquet, jsonl, &metadata)?, decisions, &metadata)
    };

    let started = Instant::now();
    let options = RunOptions { profiled: args.profile, audited: args.check || cfg!(debug_assertions) };
    let result = run::run(prediction, &deployment, interrupt, options, new_sink)?;
    let RunResult { summary, inputs, graph, plays, notes, sink, mut profile, remains } = result;
    // Its memory goes with the process, which is about to end.
    std::mem::forget(remains);
    let rows = sink.finish()?;
    let wall_clock = WallClock::new(started.elapsed().as_secs_f64() * 1000.0, &summary);

    if let Some(profile) = &mut profile {
        let read = inputs.iter().map(|input| input.bytes).sum();
        let written =
            rows.stats.parquet_bytes + rows.stats.jsonl_bytes.unwrap_or(0) + rows.decisions_bytes.unwrap_or(0);
        profile.set_traffic(rows.stats.rows, read, written);
    }
    let provenance = Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        schema_version: SCHEMA_VERSION.to_owned(),
        config_digest,
        seed: arrival_seed(prediction),
        inputs,
        graph: graph.map(|identity| identity.to_json()),
        notes,
    };
    let report = Report {
        summary: &summary,
        config: &resolved,
        provenance: &provenance,
        capture_per_request: args.capture_per_request,
        per_request_records: rows.stats.rows,
        wall_clock,
    };
    let mut json = report.to_json();
    let optional = [
        ("profile", profile.as_ref().map(Profile::to_json)),
        ("timing_provenance", resolved_values.timing_provenance()),
        ("memory", resolved_values.memory()),
    ];
    for (name, part) in optional {
        if let Some(part) = part {
            json[name] = part;
        }
    }
    let mut files = rows.files;
    if !plays.is_empty() {
        files.push(write_plays(&folder, plays, &metadata)?);
    }
    files.push(folder.write(KnownOutput::Prediction, to_pretty_json(json).as_bytes())?);
    let report_path = folder.target(KnownOutput::Prediction);
    let text = match args.format {
        Format::Table => {
            let profile = profile.map(|profile| format!("\n{}", profile.to_table())).unwrap_or_default();
            summary_table(&summary, &wall_clock, &report_path) + &profile
        }
        Format::Json => summary_line(&summary) + "\n",
    };
    print(&text)?;
    folder.publish(files)?;
    Ok(())
}

fn write_plays(
    folder: &OutputFolder,
    plays: Vec<PlayRow>,
    metadata: &[(String, String)],
) -> Result<PartialFile, OutputError> {
    let path = folder.target(KnownOutput::PlaysParquet);
    let failed = |error: std::io::Error| OutputError::write(&path, &error);
    let mut table = ParquetRows::new(folder.partial(KnownOutput::PlaysParquet)?, metadata).map_err(failed)?;
    plays.into_iter().try_for_each(|play| table.push(play)).map_err(failed)?;
    Ok(table.finish().map_err(failed)?.0)
}

fn resolved_config(prediction: &Prediction) -> Result<Value, CommandError> {
    serde_json::to_value(prediction)
        .map_err(|e| CommandError::execution(format!("cannot write the resolved configuration: {e}")))
}

fn arrival_seed(prediction: &Prediction) -> Option<u64> {
    match prediction.traffic.load {
        config::Load::Poisson { seed, .. } => Some(seed),
        _ => None,
    }
}
