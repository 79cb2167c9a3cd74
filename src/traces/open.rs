//! Opens a trace of a format that is read whole.

use dynosim_schemas::config::TraceFormat;
use dynosim_systems::traffic::Unit;

use super::agentic::{self, Graph};
use super::dynamo::{self, DynamoTrace};
use super::files::FileReport;
use super::weka::{self, WekaOptions};
use super::{TraceError, applied};
use crate::interrupt::Interrupt;

/// A trace that is read whole, and how to read it.
#[derive(Clone, Debug)]
pub struct WholeTrace<'a> {
    /// The files, or the folder.
    pub paths: &'a [String],
    /// The format.
    pub format: TraceFormat,
    /// Tokens per hash id; `None` where the trace has its own and nothing else was asked for.
    pub block_size: Option<u64>,
    /// How to read it if it is one of Weka.
    pub weka: WekaOptions,
}

/// What a trace turns out to be.
pub enum TraceContent {
    /// Requests and sessions.
    Units(Vec<Unit>),
    /// Plays of agents.
    Agentic(Graph),
}

/// A trace that has been read.
pub struct OpenedTrace {
    /// What it is.
    pub content: TraceContent,
    /// The files that it came from.
    pub files: Vec<FileReport>,
}

/// Reads a trace whole; `None` if the format is one that is played while it is read.
///
/// # Errors
/// If it cannot be read or used, or reading was interrupted.
pub fn open_whole(trace: &WholeTrace<'_>, interrupt: &Interrupt) -> Result<Option<OpenedTrace>, TraceError> {
    let path = trace.paths.first().map_or("", String::as_str);
    let (content, files) = match trace.format {
        TraceFormat::Mooncake | TraceFormat::MooncakeDelta => return Ok(None),
        TraceFormat::AgenticMooncake => {
            let (graph, file) = agentic::read(path, trace.block_size.unwrap_or(1), interrupt)?;
            (TraceContent::Agentic(graph), vec![file])
        }
        TraceFormat::AppliedComputeAgentic => {
            let (units, file) = applied::read(path, interrupt)?;
            (TraceContent::Units(units), vec![file])
        }
        TraceFormat::Dynamo => match dynamo::read(trace.paths, trace.block_size, interrupt)? {
            (DynamoTrace::Standard(units), files) => (TraceContent::Units(units), files),
            (DynamoTrace::Agentic(graph), files) => (TraceContent::Agentic(graph), files),
        },
        TraceFormat::Weka => {
            let (graph, files) =
                weka::read(path, WekaOptions { block_size: trace.block_size, ..trace.weka }, interrupt)?;
            (TraceContent::Agentic(graph), files)
        }
    };
    Ok(Some(OpenedTrace { content, files }))
}
