//! `dynosim trace stats`: what is in a trace, before anything is simulated.

mod arrivals;
mod lengths;
mod observe;
mod render;
mod reuse;

use self::observe::Tally;
use super::args::StatsArgs;
use crate::error::CommandError;
use crate::interrupt::Interrupt;
use crate::output::to_pretty_json;
use crate::traces::{TraceError, TraceRequest};

/// What two traces have in common that hold the same requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gist {
    requests: u64,
    input_tokens: u64,
    output_tokens: u64,
    sessions: u64,
    span_ms: Option<f64>,
    blocks: Option<(u64, u64)>,
}

impl Gist {
    /// What is in a trace.
    pub fn of(trace: &TraceRequest<'_>, interrupt: &Interrupt) -> Result<Self, TraceError> {
        let stats = Tally::of(trace, interrupt)?.finish();
        Ok(Self {
            requests: stats.requests,
            input_tokens: stats.input.total,
            output_tokens: stats.output.total,
            sessions: stats.sessions,
            span_ms: stats.arrivals.map(|arrivals| arrivals.span_ms),
            blocks: stats.blocks,
        })
    }
}

/// Reads a trace, and says what is in it.
pub(super) fn stats(args: &StatsArgs, interrupt: &Interrupt) -> Result<String, CommandError> {
    let request = args.input.request()?;
    let tally = Tally::of(&request, interrupt).map_err(|error| interrupt.or(error.into()))?;
    let stats = tally.finish();
    Ok(if args.json { to_pretty_json(render::to_json(&stats)) } else { render::to_text(&stats) })
}
