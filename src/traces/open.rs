//! Opens a trace of any format.

use dynosim_schemas::config::TraceFormat;
use dynosim_systems::traffic::Unit;

use super::agentic::{self, Graph};
use super::dynamo::{self, DynamoTrace};
use super::files::FileReport;
use super::weka::{self, WekaOptions};
use super::{RowFormat, TraceError, applied};
use crate::interrupt::Interrupt;

/// A trace, and how to read it.
#[derive(Clone, Debug)]
pub struct TraceRequest<'a> {
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

impl TraceRequest<'_> {
    /// The file, or the first of several.
    #[must_use]
    pub fn path(&self) -> &str {
        self.paths.first().map_or("", String::as_str)
    }
}

/// A trace, as far as its format lets it be read before it is played.
pub enum TraceReading {
    /// It is played while it is read, row by row.
    Rows(RowFormat),
    /// It had to be read whole.
    Whole(OpenedTrace),
}

/// Reads a trace whole if its format wants that.
///
/// # Errors
/// If it cannot be read or used, or reading was interrupted.
pub fn read_trace(trace: &TraceRequest<'_>, interrupt: &Interrupt) -> Result<TraceReading, TraceError> {
    // A configuration has no larger one.
    let tokens_per_id = trace.block_size.or(trace.format.default_block_size()).unwrap_or(1) as u32;
    let path = trace.path();
    let (content, files) = match trace.format {
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
        TraceFormat::Mooncake | TraceFormat::MooncakeDelta => {
            return Ok(TraceReading::Rows(RowFormat::Mooncake(tokens_per_id)));
        }
        TraceFormat::QwenBailian => return Ok(TraceReading::Rows(RowFormat::QwenBailian(tokens_per_id))),
        TraceFormat::AzureLlm => return Ok(TraceReading::Rows(RowFormat::AzureLlm)),
        TraceFormat::BurstGpt => return Ok(TraceReading::Rows(RowFormat::BurstGpt)),
        TraceFormat::Vidur => return Ok(TraceReading::Rows(RowFormat::Vidur)),
    };
    Ok(TraceReading::Whole(OpenedTrace { content, files }))
}
