//! The `dynamo` format: what the Dynamo frontend records, in one or more shards.
//!
//! Without agents every request stands by itself. With agents the records become a graph (`graph`).

mod graph;
mod records;

use dynosim_schemas::config::limits::MAX_TOKENS;
use dynosim_schemas::trace::dynamo::{ServedRequest, ToolEnd};
use dynosim_systems::prefix::PromptIdentity;
use dynosim_systems::traffic::{Script, Turn, Unit};

use super::agentic::Graph;
use super::files::FileReport;
use super::mooncake::token_count;
use super::{SourcePlace, TraceError};
use crate::interrupt::Interrupt;

/// What shards turn out to be.
pub enum DynamoTrace {
    /// Independent requests, in order of their start.
    Standard(Vec<Unit>),
    /// Requests of agents.
    Agentic(Graph),
}

/// A request that was served, with its recorded times, in ms since 1970.
struct Served {
    request: ServedRequest,
    session: Option<Box<str>>,
    parent: Option<Box<str>>,
    start_ms: u64,
    end_ms: u64,
    place: SourcePlace,
}

/// The use of a tool, and where it was read.
type ToolUse = (ToolEnd, SourcePlace);

/// Reads shards. Their order does not matter.
pub(super) fn read(
    paths: &[String],
    block_size: Option<u64>,
    interrupt: &Interrupt,
) -> Result<(DynamoTrace, Vec<FileReport>), TraceError> {
    let records::Records { mut served, tools, reports } = records::read(paths, interrupt)?;
    let order = |a: &Served, b: &Served| {
        let times = |one: &Served| (one.start_ms, one.end_ms);
        times(a).cmp(&times(b)).then_with(|| a.request.request_id.cmp(&b.request.request_id))
    };
    served.sort_by(order);
    check_unique(&served)?;
    let tokens_per_id = common_block_size(&served, block_size)?;
    let agentic = served.iter().filter(|one| one.session.is_some()).count();
    let trace = if agentic == 0 {
        DynamoTrace::Standard(standard(&served, tokens_per_id)?)
    } else if agentic == served.len() {
        DynamoTrace::Agentic(graph::lower(served, &tools, tokens_per_id, &reports)?)
    } else {
        return Err(without_agent(&served));
    };
    Ok((trace, reports))
}

fn without_agent(served: &[Served]) -> TraceError {
    let message = "agent_context: is missing, but other requests have one; all have it or none has".to_owned();
    match served.iter().find(|one| one.session.is_none()) {
        Some(one) => one.place.error(message),
        None => TraceError { path: String::new(), line: None, message },
    }
}

fn check_unique(served: &[Served]) -> Result<(), TraceError> {
    let mut by_id: Vec<&Served> = served.iter().collect();
    by_id.sort_by(|a, b| a.request.request_id.cmp(&b.request.request_id));
    match by_id.windows(2).find(|pair| pair[0].request.request_id == pair[1].request.request_id) {
        Some(pair) => Err(pair[1].place.error(format!(
            "request.request_id: {:?} is there already, at {}",
            pair[1].request.request_id, pair[0].place
        ))),
        None => Ok(()),
    }
}

/// The block size that all records have, and that the configuration gives if it gives one.
fn common_block_size(served: &[Served], given: Option<u64>) -> Result<u64, TraceError> {
    let own = |one: &Served| one.request.replay.trace_block_size;
    let wanted = given.or(served.first().map(own)).unwrap_or(1);
    if let Some(one) = served.iter().find(|one| !(1..=MAX_TOKENS).contains(&own(one)) || own(one) != wanted) {
        let why = match given {
            Some(given) => format!("`traffic.source.block_size` is {given}; leave it out, the records have their own"),
            None => format!("other records have {wanted}; it is the same number above 0 in all records of a trace"),
        };
        return Err(one.place.error(format!("request.replay.trace_block_size: is {}, but {why}", own(one))));
    }
    Ok(wanted)
}

/// Independent requests, at their times from the first one on.
fn standard(served: &[Served], tokens_per_id: u64) -> Result<Vec<Unit>, TraceError> {
    let earliest_ms = served.first().map_or(0, |one| one.start_ms);
    let units = served.iter().zip(0..).map(|(one, number)| {
        let turn = turn(one, tokens_per_id, number).map_err(|message| one.place.error(message))?;
        Ok(Unit { start_ms: (one.start_ms - earliest_ms) as f64, session_id: None, script: Script::single(turn) })
    });
    units.collect()
}

fn turn(one: &Served, tokens_per_id: u64, number: u64) -> Result<Turn, String> {
    let ServedRequest { replay, output_tokens, request_id, .. } = &one.request;
    let capacity = (replay.input_sequence_hashes.len() as u64).saturating_mul(tokens_per_id);
    if replay.input_length == 0 {
        return Err("request.replay.input_length: is 0; a prompt has at least one token".to_owned());
    }
    if replay.input_length > capacity {
        return Err(format!(
            "request.replay.input_length: {} tokens, but {} hashes of {tokens_per_id} tokens cover only {capacity}",
            replay.input_length,
            replay.input_sequence_hashes.len()
        ));
    }
    let input_tokens = token_count("request.replay.input_length", replay.input_length)?;
    let hashes = &replay.input_sequence_hashes;
    Ok(Turn {
        input_tokens,
        output_tokens: token_count("request.output_tokens", *output_tokens)?,
        identity: PromptIdentity::from_trace_ids(hashes, tokens_per_id as u32, input_tokens, number),
        delay_ms: 0.0,
        request_id: Some(request_id.clone()),
        source_line: one.place.line_number(),
    })
}
