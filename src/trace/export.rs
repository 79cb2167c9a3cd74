//! `dynosim trace export`: a workload as a trace that plays the same requests.

use std::io::{BufWriter, Write};
use std::path::Path;

use dynosim_schemas::config::{self, Mode, Prediction, Source, TraceFormat};
use dynosim_systems::deployment::Deployment;
use dynosim_systems::traffic::{Load, UnitSource};
use serde_json::json;

use super::ExportArgs;
use super::convert::write_graph;
use super::mooncake_file::MooncakeFile;
use super::publish::{cannot_write, create_beside, publish, refuse_existing};
use crate::assemble;
use crate::cli::ConfigArgs;
use crate::config_file::LoadedConfig;
use crate::error::CommandError;
use crate::interrupt::Interrupt;
use crate::perf_db::data_files;
use crate::resolve::resolve;
use crate::workload::{self, Content, OpenedContent, Stopped};

/// Units between looks at Ctrl-C.
const UNITS_PER_LOOK: u64 = 1024;

/// Writes the workload of a configuration, and gives the `traffic` that plays it.
pub(super) fn export(args: &ExportArgs, interrupt: &Interrupt) -> Result<String, CommandError> {
    let config = ConfigArgs { config: args.config.clone(), stack: args.stack, overrides: args.overrides.clone() };
    let loaded = LoadedConfig::read(&config)?;
    let prediction = &loaded.prediction;
    refuse_existing(&args.output)?;
    if grows(prediction) {
        refuse_two_pools(prediction, "mooncake-delta")?;
    }
    let resolved = resolve(prediction, &data_files()?, false).map_err(|problem| loaded.refuse(problem))?;
    let deployment = assemble::deployment(prediction, &resolved);
    workload::whole_if_needed(|whole| write(prediction, &deployment, &args.output, whole, interrupt))
        .map_err(|error| interrupt.or(error))
}

/// Whether later prompts hold what was generated before, which only `mooncake-delta` can say.
fn grows(prediction: &Prediction) -> bool {
    matches!(prediction.traffic.source, Source::SyntheticSession { .. })
        || prediction.traffic.source.trace_format() == Some(TraceFormat::MooncakeDelta)
}

fn refuse_two_pools(prediction: &Prediction, format: &str) -> Result<(), CommandError> {
    if prediction.engine.mode == Mode::Disaggregated {
        return Err(CommandError::usage(format!(
            "engine.mode: this workload is written as `{format}`, which is played in aggregated mode only; export it \
             from a configuration with `mode: aggregated`"
        )));
    }
    Ok(())
}

fn write(
    prediction: &Prediction,
    deployment: &Deployment,
    target: &Path,
    whole: bool,
    interrupt: &Interrupt,
) -> Result<String, Stopped> {
    let OpenedContent { content, reader, .. } = workload::open_content(prediction, deployment, whole, interrupt)?;
    let mut units = match content {
        Content::Units(units) => units,
        Content::Agentic(graph) => {
            refuse_two_pools(prediction, "agentic_mooncake")?;
            let written = write_graph(&graph, target, interrupt)?;
            return Ok(written + &advice(prediction, target, TraceFormat::AgenticMooncake, None));
        }
    };
    let mut file = create_beside(target)?;
    let mut rows = MooncakeFile::new(
        BufWriter::new(file.as_file_mut()),
        block_size(prediction).map(assemble::count),
        prediction.traffic.source.trace_format() != Some(TraceFormat::BurstGpt),
    );
    let written = write_units(&mut *units, workload::load(prediction), &mut rows, target, interrupt);
    drop(units);
    // If reading stopped, that is why writing did.
    reader.map(workload::join_reader).transpose()?;
    written?;
    let (count, tokens_per_id) = (rows.rows(), rows.tokens_per_id());
    rows.into_inner().flush().map_err(|error| cannot_write(target, &error))?;
    publish(file, target, interrupt)?;
    let format = if grows(prediction) { TraceFormat::MooncakeDelta } else { TraceFormat::Mooncake };
    let advice = advice(prediction, target, format, Some(tokens_per_id));
    Ok(format!("{}: {count} requests\n{advice}", target.display()))
}

/// Tokens per hash id of the trace that is exported, if it is one and does not say itself.
fn block_size(prediction: &Prediction) -> Option<u64> {
    match prediction.traffic.source {
        Source::Trace { block_size, .. } => block_size,
        Source::Synthetic { .. } | Source::SyntheticSession { .. } => None,
    }
}

fn write_units(
    units: &mut dyn UnitSource,
    mut load: Load,
    rows: &mut MooncakeFile<impl Write>,
    target: &Path,
    interrupt: &Interrupt,
) -> Result<(), Stopped> {
    let mut count: u64 = 0;
    while let Some(unit) = units.next_unit()? {
        if count.is_multiple_of(UNITS_PER_LOOK) && interrupt.is_set() {
            return Err(CommandError::execution("writing was interrupted").into());
        }
        rows.unit(unit, &mut load).map_err(|error| cannot_write(target, &error))?;
        count += 1;
    }
    Ok(())
}

/// The `traffic` section that plays the written file as the workload itself would have been.
fn advice(prediction: &Prediction, target: &Path, format: TraceFormat, tokens_per_id: Option<u32>) -> String {
    let mut source = json!({ "type": "trace", "format": format, "paths": [target] });
    if let Some(tokens) = tokens_per_id {
        source["block_size"] = json!(tokens);
    }
    let load = match &prediction.traffic.load {
        load @ config::Load::Concurrency { .. } => json!(load),
        // Lanes are not in the file, and neither is the pace of agents.
        load @ config::Load::TraceTimestamps { .. } if format == TraceFormat::AgenticMooncake => json!(load),
        _ => json!({ "type": "trace_timestamps" }),
    };
    let mut traffic = json!({ "source": source, "load": load });
    if let Some(seconds) = prediction.traffic.stop.max_virtual_time_seconds {
        traffic["stop"] = json!({ "max_virtual_time_seconds": seconds });
    }
    // YAML can say whatever JSON can.
    let yaml = serde_yaml::to_string(&json!({ "traffic": traffic })).unwrap_or_default();
    format!("# plays it\n{yaml}")
}
