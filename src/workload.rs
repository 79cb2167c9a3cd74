//! From a configuration to a workload: opens its source, and puts it on the clock.

use dynosim_schemas::config::traffic::DEFAULT_TRACE_BLOCK_SIZE;
use dynosim_schemas::config::{self, PlannerPolicy, Prediction, Source, TraceFormat};
use dynosim_systems::deployment::{Deployment, TokenLimits};
use dynosim_systems::traffic::agentic::{Lanes, Playback};
use dynosim_systems::traffic::{Load, SessionShape, SyntheticRequests, SyntheticSessions, Traffic, UnitSource};

use crate::assemble::count;
use crate::interrupt::Interrupt;
use crate::traces::agentic::{Graph, Identity, play_book};
use crate::traces::weka::WekaOptions;
use crate::traces::{
    FileReport, ListedUnits, OpenedTrace, Prompts, StartOrder, TraceContent, TraceError, TraceFile, TraceSource,
    TraceThread, WholeTrace, open_whole,
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

impl OpenedSource {
    fn units(units: Box<dyn UnitSource>, prediction: &Prediction, limits: TokenLimits) -> Self {
        let traffic = Traffic::new(units, load(prediction), limits);
        Self { traffic, reader: None, files: Vec::new(), graph: None }
    }
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

/// Opens the source of the workload; `whole` as in [`TraceFile`].
///
/// # Errors
/// If a trace cannot be opened or used.
pub fn open(
    prediction: &Prediction,
    deployment: &Deployment,
    whole: bool,
    interrupt: &Interrupt,
) -> Result<OpenedSource, TraceError> {
    let count_of_units = prediction.traffic.unit_count().unwrap_or(0);
    let limits = deployment.token_limits();
    let opened = |units| OpenedSource::units(units, prediction, limits);
    Ok(match &prediction.traffic.source {
        Source::Synthetic { input_tokens, output_tokens } => {
            opened(Box::new(SyntheticRequests::new(count(*input_tokens), count(*output_tokens), count_of_units)))
        }
        Source::SyntheticSession { new_input_tokens_per_turn, output_tokens_per_turn, session } => {
            let shape = SessionShape {
                new_input_tokens: count(*new_input_tokens_per_turn),
                output_tokens: count(*output_tokens_per_turn),
                turns: count(session.turns),
                delay_ms: session.inter_turn_delay_ms,
                shared_prefix_ratio: session.shared_prefix_ratio,
                prefix_groups: session.prefix_groups,
                block_size: deployment.entry_engine().map_or(1, |engine| engine.block_size),
            };
            opened(Box::new(SyntheticSessions::new(shape, count_of_units)))
        }
        Source::Trace { paths, format, block_size, weka_rules, nested_timestamp_basis } => {
            let weka = WekaOptions {
                rules: weka_rules.unwrap_or_default(),
                basis: nested_timestamp_basis.unwrap_or_default(),
                block_size: *block_size,
            };
            let trace = WholeTrace { paths, format: *format, block_size: *block_size, weka };
            match open_whole(&trace, interrupt)? {
                Some(read) => read_whole(prediction, read, limits)?,
                None => {
                    let (units, reader) = TraceSource::open(trace_file(prediction, &trace, whole), interrupt)?;
                    OpenedSource { reader: Some(reader), ..opened(Box::new(units)) }
                }
            }
        }
    })
}

/// A trace that is played while it is read, or once it is read `whole`.
fn trace_file(prediction: &Prediction, trace: &WholeTrace<'_>, whole: bool) -> TraceFile {
    let is_timed = matches!(prediction.traffic.load, config::Load::TraceTimestamps { .. });
    let is_delta = trace.format == TraceFormat::MooncakeDelta;
    TraceFile {
        path: trace.paths.first().cloned().unwrap_or_default(),
        tokens_per_id: count(trace.block_size.unwrap_or(DEFAULT_TRACE_BLOCK_SIZE)),
        order: if is_timed { StartOrder::Timestamps } else { StartOrder::File },
        prompts: if is_delta { Prompts::Delta } else { Prompts::Complete },
        whole,
    }
}

fn read_whole(prediction: &Prediction, read: OpenedTrace, limits: TokenLimits) -> Result<OpenedSource, TraceError> {
    let OpenedTrace { content, files } = read;
    let fits = match &content {
        TraceContent::Units(_) => check_units(prediction),
        TraceContent::Agentic(_) => check_agentic(prediction),
    };
    fits.map_err(|message| {
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        TraceError { path: paths.join(", "), line: None, message: message.to_owned() }
    })?;
    Ok(match content {
        TraceContent::Units(units) => {
            OpenedSource { files, ..OpenedSource::units(Box::new(ListedUnits::new(units)), prediction, limits) }
        }
        TraceContent::Agentic(graph) => OpenedSource {
            traffic: Traffic::agentic(playback(prediction, &graph), limits),
            reader: None,
            files,
            graph: Some(Identity::of(&graph)),
        },
    })
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
