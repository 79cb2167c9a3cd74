//! `dynosim trace convert`.

use std::io::{BufWriter, Write};
use std::path::Path;

use dynosim_schemas::config::TraceFormat;
use dynosim_systems::traffic::Load;

use super::mooncake_file::MooncakeFile;
use super::publish::{cannot_write, create_beside, publish, refuse_existing};
use super::stats::Gist;
use super::{ConvertArgs, Target};
use crate::assemble::count;
use crate::error::CommandError;
use crate::interrupt::Interrupt;
use crate::traces::agentic::{self, Graph, Identity};
use crate::traces::{OpenedTrace, TraceContent, TraceReading, TraceRequest, each_row, read_trace};

/// Converts a trace, and says what was written.
pub(super) fn convert(args: &ConvertArgs, interrupt: &Interrupt) -> Result<String, CommandError> {
    refuse_existing(&args.output)?;
    let trace = args.input.request()?;
    let converted = match args.to {
        Target::AgenticMooncake => to_graph(&trace, &args.output, interrupt),
        Target::Mooncake => to_mooncake(&trace, &args.output, interrupt),
    };
    converted.map_err(|error| interrupt.or(error))
}

fn to_graph(trace: &TraceRequest<'_>, target: &Path, interrupt: &Interrupt) -> Result<String, CommandError> {
    let TraceReading::Whole(OpenedTrace { content: TraceContent::Agentic(graph), .. }) = read_trace(trace, interrupt)?
    else {
        return Err(CommandError::usage(format!(
            "{}: has no agents in it; `--to agentic_mooncake` is for traces of agents (weka, agentic_mooncake, or dynamo \
             with `agent_context`)",
            trace.paths.join(", ")
        )));
    };
    write_graph(&graph, target, interrupt)
}

/// Writes a graph, reads it again, and gives the file its name if both are the same.
pub(super) fn write_graph(graph: &Graph, target: &Path, interrupt: &Interrupt) -> Result<String, CommandError> {
    let mut file = create_beside(target)?;
    let mut out = BufWriter::new(file.as_file_mut());
    agentic::write_v2(graph, &mut out).and_then(|()| out.flush()).map_err(|error| cannot_write(target, &error))?;
    drop(out);
    let wanted = Identity::of(graph);
    let got = Identity::of(&agentic::reload(file.path(), interrupt)?);
    if got != wanted {
        return Err(not_kept(target, &got.graph_digest, &wanted.graph_digest));
    }
    publish(file, target, interrupt)?;
    Ok(format!(
        "{}: {} requests in {} plays, blocks of {} tokens\ngraph digest {}\n",
        target.display(),
        wanted.requests,
        wanted.plays,
        wanted.block_size,
        wanted.graph_digest
    ))
}

fn not_kept(target: &Path, got: &str, wanted: &str) -> CommandError {
    CommandError::execution(format!(
        "{}: was not kept, for what was written differs from its source ({got} instead of {wanted}); this is a bug in \
         dynosim, please report it",
        target.display()
    ))
}

/// Writes requests, reads them again, and gives the file its name if both have the same in them.
fn to_mooncake(trace: &TraceRequest<'_>, target: &Path, interrupt: &Interrupt) -> Result<String, CommandError> {
    if let Some(lost) = lost(trace.format) {
        return Err(loses(trace, lost));
    }
    let mut file = create_beside(target)?;
    let tokens_per_id = trace.block_size.map(count);
    let mut rows = MooncakeFile::new(BufWriter::new(file.as_file_mut()), tokens_per_id, true);
    write_requests(trace, &mut rows, target, interrupt)?;
    let (requests, tokens_per_id) = (rows.rows(), u64::from(rows.tokens_per_id()));
    rows.into_inner().flush().map_err(|error| cannot_write(target, &error))?;
    let written = TraceRequest {
        paths: &[file.path().to_string_lossy().into_owned()],
        format: TraceFormat::Mooncake,
        block_size: Some(tokens_per_id),
        weka: trace.weka,
    };
    let (wanted, got) = (Gist::of(trace, interrupt)?, Gist::of(&written, interrupt)?);
    if got != wanted {
        return Err(not_kept(target, &format!("{got:?}"), &format!("{wanted:?}")));
    }
    publish(file, target, interrupt)?;
    Ok(format!(
        "{}: {requests} requests; to read it, set `format: mooncake` and `block_size: {tokens_per_id}`\n",
        target.display()
    ))
}

/// What rows of Mooncake could not say of any trace of a format.
const fn lost(format: TraceFormat) -> Option<&'static str> {
    match format {
        TraceFormat::MooncakeDelta => Some("that later prompts begin with what was generated before"),
        TraceFormat::AzureLlm | TraceFormat::BurstGpt | TraceFormat::Vidur => {
            Some("that nobody knows which prompts begin alike (hash ids would say that none do)")
        }
        _ => None,
    }
}

fn loses(trace: &TraceRequest<'_>, what: &str) -> CommandError {
    CommandError::usage(format!(
        "{}: cannot be written as `mooncake`; it would be lost {what}. Play the trace as it is",
        trace.paths.join(", ")
    ))
}

fn write_requests(
    trace: &TraceRequest<'_>,
    rows: &mut MooncakeFile<impl Write>,
    target: &Path,
    interrupt: &Interrupt,
) -> Result<(), CommandError> {
    let content = match read_trace(trace, interrupt)? {
        TraceReading::Whole(opened) => opened.content,
        TraceReading::Rows(format) => {
            each_row(trace.path(), format, interrupt, |row| {
                rows.recorded(row).map_err(|error| cannot_write(target, &error).message)
            })?;
            return Ok(());
        }
    };
    let TraceContent::Units(units) = content else {
        return Err(loses(trace, "which requests wait for each other (`--to agentic_mooncake` keeps that)"));
    };
    // Conversations with tools have no times.
    let mut load = match trace.format {
        TraceFormat::AppliedComputeAgentic => Load::Concurrency { units: 1 },
        _ => Load::TraceTimestamps { speedup: 1.0 },
    };
    units.into_iter().try_for_each(|unit| rows.unit(unit, &mut load)).map_err(|error| cannot_write(target, &error))
}
