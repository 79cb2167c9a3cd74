//! From a configuration to a workload: opens its source, and puts it on the clock.

use dynosim_schemas::config::{self, PlannerPolicy, Prediction, Source, TraceFormat};
use dynosim_systems::deployment::Deployment;
use dynosim_systems::traffic::agentic::{Lanes, Playback};
use dynosim_systems::traffic::{
    Load, SessionShape, SourceError, SyntheticRequests, SyntheticSessions, Traffic, UnitSource,
};

use crate::assemble::count;
use crate::error::CommandError;
use crate::interrupt::Interrupt;
use crate::traces::agentic::{Graph, Identity, play_book};
use crate::traces::weka::WekaOptions;
use crate::traces::{
    FileReport, ListedUnits, NeedsWholeFile, OpenedTrace, Prompts, RowFormat, StartOrder, TraceContent, TraceError,
    TraceFile, TraceReading, TraceReport, TraceRequest, TraceSource, TraceThread, read_trace,
};

/// A workload whose source has been opened.
pub struct OpenedSource {
    /// The workload.
    pub traffic: Traffic,
    /// The thread that reads the trace, if it is played while it is read.
    pub reader: Option<TraceThread>,
    /// The files that have been read.
    pub files: Vec<FileReport>,
    /// Which graph is played, if it is one.
    pub graph: Option<Identity>,
}

/// Why a workload was not gone through to its end.
pub enum Stopped {
    /// Its trace has to be read whole first; nothing else is wrong.
    NeedsWholeFile,
    /// Something failed.
    Failed(CommandError),
}

impl From<CommandError> for Stopped {
    fn from(error: CommandError) -> Self {
        Self::Failed(error)
    }
}

impl From<TraceError> for Stopped {
    fn from(error: TraceError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SourceError> for Stopped {
    fn from(error: SourceError) -> Self {
        if error.is::<NeedsWholeFile>() {
            return Self::NeedsWholeFile;
        }
        Self::Failed(CommandError::execution(error.to_string()))
    }
}

/// Goes through a workload while its trace is read, in little memory. If the trace turns out to be out of order or to
/// have sessions, `attempt` is made again with all of it read first; the result is the same as if it had been at once.
///
/// # Errors
/// As `attempt`.
pub fn whole_if_needed<T>(attempt: impl Fn(bool) -> Result<T, Stopped>) -> Result<T, CommandError> {
    for whole in [false, true] {
        match attempt(whole) {
            Ok(result) => return Ok(result),
            Err(Stopped::Failed(error)) => return Err(error),
            Err(Stopped::NeedsWholeFile) => {}
        }
    }
    Err(CommandError::execution("the trace could not be put in order; this is a bug in dynosim, please report it"))
}

/// Waits for the end of a trace, and says what was read.
///
/// # Errors
/// Why reading it stopped.
pub fn join_reader(reader: TraceThread) -> Result<TraceReport, Stopped> {
    let lost = |_| Err(CommandError::execution("the thread that reads the trace was lost").into());
    Ok(reader.join().unwrap_or_else(lost)?)
}

/// What a workload is made of, before it is put on the clock.
pub struct OpenedContent {
    /// The requests.
    pub content: Content,
    /// The thread that reads the trace, if it is played while it is read.
    pub reader: Option<TraceThread>,
    /// The files that have been read.
    pub files: Vec<FileReport>,
}

/// The requests of a workload.
pub enum Content {
    /// Units of load, one after the other.
    Units(Box<dyn UnitSource>),
    /// Plays of agents.
    Agentic(Graph),
}

/// The load pattern that a configuration describes.
#[must_use]
pub fn load(prediction: &Prediction) -> Load {
    let load = &prediction.traffic.load;
    let rate = load.rate_per_second().unwrap_or(1.0);
    match load {
        config::Load::Concurrency { concurrency } => Load::Concurrency { units: *concurrency },
        config::Load::ConstantRate { .. } => Load::constant_rate(rate),
        config::Load::Poisson { seed, .. } => Load::poisson(rate, *seed),
        config::Load::TraceTimestamps { speedup, .. } => Load::TraceTimestamps { speedup: *speedup },
    }
}

/// Opens the source of the workload and puts it on the clock; `whole` as in [`TraceFile`].
///
/// # Errors
/// If a trace cannot be opened or used.
pub fn open(
    prediction: &Prediction,
    deployment: &Deployment,
    whole: bool,
    interrupt: &Interrupt,
) -> Result<OpenedSource, TraceError> {
    let limits = deployment.token_limits();
    let OpenedContent { content, reader, files } = open_content(prediction, deployment, whole, interrupt)?;
    let (traffic, graph) = match content {
        Content::Units(units) => (Traffic::new(units, load(prediction), limits), None),
        Content::Agentic(graph) => (Traffic::agentic(playback(prediction, &graph), limits), Some(Identity::of(&graph))),
    };
    Ok(OpenedSource { traffic, reader, files, graph })
}

/// Opens the source of the workload; `whole` as in [`TraceFile`].
///
/// # Errors
/// If a trace cannot be opened, or does not go with the rest of the configuration.
pub fn open_content(
    prediction: &Prediction,
    deployment: &Deployment,
    whole: bool,
    interrupt: &Interrupt,
) -> Result<OpenedContent, TraceError> {
    let made_up = |units| OpenedContent { content: Content::Units(units), reader: None, files: Vec::new() };
    let count_of_units = prediction.traffic.unit_count().unwrap_or(0);
    match &prediction.traffic.source {
        Source::Synthetic { input_tokens, output_tokens } => {
            let units = SyntheticRequests::new(count(*input_tokens), count(*output_tokens), count_of_units);
            Ok(made_up(Box::new(units)))
        }
        Source::SyntheticSession { new_input_tokens_per_turn, output_tokens_per_turn, session } => {
            let shape = SessionShape {
                new_input_tokens: count(*new_input_tokens_per_turn),
                output_tokens: count(*output_tokens_per_turn),
                turns: count(session.turns),
                delay_ms: session.inter_turn_delay_ms,
                shared_prefix_ratio: session.shared_prefix_ratio,
                prefix_groups: session.prefix_groups,
                block_size: prefix_block_size(deployment),
            };
            Ok(made_up(Box::new(SyntheticSessions::new(shape, count_of_units))))
        }
        Source::Trace { paths, format, block_size, weka_rules, nested_timestamp_basis } => {
            let weka = WekaOptions {
                rules: weka_rules.unwrap_or_default(),
                basis: nested_timestamp_basis.unwrap_or_default(),
                block_size: *block_size,
            };
            let trace = TraceRequest { paths, format: *format, block_size: *block_size, weka };
            open_trace(prediction, &trace, whole, interrupt)
        }
    }
}

/// Tokens of the blocks in which synthetic sessions share their prefixes.
#[must_use]
pub fn prefix_block_size(deployment: &Deployment) -> u32 {
    deployment.entry_engine().map_or(1, |engine| engine.block_size)
}

fn open_trace(
    prediction: &Prediction,
    trace: &TraceRequest<'_>,
    whole: bool,
    interrupt: &Interrupt,
) -> Result<OpenedContent, TraceError> {
    let OpenedTrace { content, files } = match read_trace(trace, interrupt)? {
        TraceReading::Whole(opened) => opened,
        TraceReading::Rows(format) => {
            let (units, reader) = TraceSource::open(trace_file(prediction, trace, format, whole), interrupt)?;
            let content = Content::Units(Box::new(units));
            return Ok(OpenedContent { content, reader: Some(reader), files: Vec::new() });
        }
    };
    let (content, fits) = match content {
        TraceContent::Units(units) => (Content::Units(Box::new(ListedUnits::new(units))), check_units(prediction)),
        TraceContent::Agentic(graph) => (Content::Agentic(graph), check_agentic(prediction)),
    };
    fits.map_err(|message| {
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        TraceError { path: paths.join(", "), line: None, message: message.to_owned() }
    })?;
    Ok(OpenedContent { content, reader: None, files })
}

/// A trace that is played while it is read, or once it is read `whole`.
fn trace_file(prediction: &Prediction, trace: &TraceRequest<'_>, format: RowFormat, whole: bool) -> TraceFile {
    let is_timed = matches!(prediction.traffic.load, config::Load::TraceTimestamps { .. });
    let is_delta = trace.format == TraceFormat::MooncakeDelta;
    TraceFile {
        path: trace.path().to_owned(),
        format,
        order: if is_timed { StartOrder::Timestamps } else { StartOrder::File },
        prompts: if is_delta { Prompts::Delta } else { Prompts::Complete },
        whole,
    }
}

/// What a trace without agents rules out. Only its records tell that it has none.
fn check_units(prediction: &Prediction) -> Result<(), &'static str> {
    match prediction.traffic.load {
        config::Load::TraceTimestamps { agentic_lanes: Some(_), .. } => {
            Err("has no agents in it, so `traffic.load.agentic_lanes` has nothing to play; remove it")
        }
        _ => Ok(()),
    }
}

/// What a trace of agents rules out, where only its records tell that it is one.
fn check_agentic(prediction: &Prediction) -> Result<(), &'static str> {
    if !matches!(prediction.traffic.load, config::Load::TraceTimestamps { .. }) {
        return Err("is a trace of agents, which needs `traffic.load.type: trace_timestamps`");
    }
    if !prediction.traffic.stop.is_empty() {
        return Err("is a trace of agents, which runs to its end; remove `traffic.stop`");
    }
    if prediction.planner.policy == PlannerPolicy::Enabled {
        return Err("is a trace of agents, which does not go with a planner; set `planner.policy: disabled`");
    }
    Ok(())
}

fn playback(prediction: &Prediction, graph: &Graph) -> Playback {
    let (speedup, lanes) = match prediction.traffic.load {
        config::Load::TraceTimestamps { speedup, agentic_lanes, lane_policy } => {
            (speedup, agentic_lanes.map(|lanes| Lanes { count: count(lanes), policy: lane_policy.unwrap_or_default() }))
        }
        _ => (1.0, None),
    };
    Playback::new(play_book(graph), speedup, lanes)
}
