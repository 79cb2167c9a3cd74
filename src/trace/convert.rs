//! `dynosim trace convert`.

use std::io::BufWriter;
use std::path::Path;

use super::publish::{create_beside, publish, refuse_existing};
use super::{ConvertArgs, Target};
use crate::error::CommandError;
use crate::interrupt::Interrupt;
use crate::traces::agentic::{self, Graph, Identity};
use crate::traces::{TraceContent, open_whole};

/// Converts a trace, and says what was written.
pub(super) fn convert(args: &ConvertArgs, interrupt: &Interrupt) -> Result<String, CommandError> {
    refuse_existing(&args.output)?;
    match args.to {
        Target::AgenticMooncake => {
            let read = open_whole(&args.input.whole()?, interrupt).map_err(|error| interrupt.or(error.into()))?;
            let Some(TraceContent::Agentic(graph)) = read.map(|opened| opened.content) else {
                return Err(CommandError::usage(format!(
                    "{}: has no agents in it; `--to agentic_mooncake` is for traces of agents (weka, agentic_mooncake, \
                     or dynamo with `agent_context`)",
                    args.input.paths.join(", ")
                )));
            };
            write_graph(&graph, &args.output, interrupt)
        }
    }
}

/// Writes a graph, reads it again, and gives the file its name if both are the same.
fn write_graph(graph: &Graph, target: &Path, interrupt: &Interrupt) -> Result<String, CommandError> {
    let cannot_write =
        |error: std::io::Error| CommandError::execution(format!("{}: cannot be written: {error}", target.display()));
    let mut file = create_beside(target)?;
    let mut out = BufWriter::new(file.as_file_mut());
    agentic::write_v2(graph, &mut out).map_err(cannot_write)?;
    out.into_inner().map_err(|error| cannot_write(error.into_error()))?;
    let wanted = Identity::of(graph);
    let written = agentic::reload(file.path(), interrupt).map_err(|error| interrupt.or(error.into()))?;
    let got = Identity::of(&written);
    if got != wanted {
        return Err(CommandError::execution(format!(
            "{}: was not kept, for what was written differs from its source ({} instead of {}); this is a bug in \
             dynosim, please report it",
            target.display(),
            got.graph_digest,
            wanted.graph_digest
        )));
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
