//! The `mooncake` format: one JSON object a line, each a request with its complete prompt.

use dynosim_schemas::config::limits::{MAX_NUMBER, MAX_TOKENS};
use dynosim_schemas::trace::MooncakeRow;
use dynosim_systems::prefix::{PromptIdentity, SharedPrefix, mix};
use dynosim_systems::traffic::Turn;

use super::rows::{Parsed, RowLayout};
use super::{json, plain_row};

/// A row as a turn, with what decides when it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceTurn {
    /// The session that the row names.
    pub session_id: Option<Box<str>>,
    /// Recorded arrival, in ms.
    pub timestamp_ms: Option<f64>,
    /// Recorded wait after the turn before, in ms.
    pub delay_ms: Option<f64>,
    /// The conversation that it belongs to, where turns do not wait for each other.
    pub conversation: Option<Box<str>>,
    /// The recorded output.
    pub output_token_ids: Option<Vec<u32>>,
    /// The request.
    pub turn: Turn,
}

impl TraceTurn {
    /// A turn of which nothing else is recorded.
    pub(super) const fn of(turn: Turn) -> Self {
        Self { session_id: None, timestamp_ms: None, delay_ms: None, conversation: None, output_token_ids: None, turn }
    }
}

pub(super) struct MooncakeRows {
    tokens_per_id: u32,
    /// Memory for the ids of the next row.
    ids: Vec<u64>,
}

impl MooncakeRows {
    pub const fn new(tokens_per_id: u32) -> Self {
        Self { tokens_per_id, ids: Vec::new() }
    }
}

impl RowLayout for MooncakeRows {
    fn parse(&mut self, line: &str, number: u64) -> Result<Parsed, String> {
        let mut row = match plain_row::read(line, std::mem::take(&mut self.ids)) {
            Some(row) => row,
            None => json::decode(line)?,
        };
        let turn = trace_turn(&mut row, number, self.tokens_per_id)?;
        self.ids = row.hash_ids;
        self.ids.clear();
        Ok(Parsed::Row(turn))
    }
}

fn trace_turn(row: &mut MooncakeRow, number: u64, tokens_per_id: u32) -> Result<TraceTurn, String> {
    let capacity = row.hash_ids.len() as u64 * u64::from(tokens_per_id);
    if capacity == 0 {
        return Err("hash_ids: is empty; a prompt needs an id for each block of its tokens".to_owned());
    }
    let input = row.input_length.unwrap_or(capacity);
    if input == 0 {
        return Err("input_length: is 0; a prompt has at least one token".to_owned());
    }
    if input > capacity {
        return Err(format!(
            "input_length: {input} tokens, but {} hash_ids of {tokens_per_id} tokens cover only {capacity}; \
             is `traffic.source.block_size` the block size of this trace?",
            row.hash_ids.len()
        ));
    }
    let input_tokens = token_count("input_length", input)?;
    let output_tokens = token_count("output_length", row.output_length)?;
    if let Some(ids) = &row.output_token_ids
        && ids.len() as u64 != row.output_length
    {
        let (given, wanted) = (ids.len(), row.output_length);
        return Err(format!("output_token_ids: has {given} tokens, but output_length is {wanted}"));
    }
    for (field, ms) in [("timestamp", row.timestamp), ("delay", row.delay)] {
        if ms.is_some_and(|ms| ms.abs() > MAX_NUMBER) {
            return Err(format!("{field}: is beyond {MAX_NUMBER:e} ms; times are milliseconds"));
        }
    }
    let identity = PromptIdentity::from_trace_ids(&row.hash_ids, tokens_per_id, input_tokens, number);
    let turn = Turn {
        input_tokens,
        output_tokens,
        identity: with_recorded_output(identity, input_tokens, row.output_token_ids.as_deref()),
        delay_ms: 0.0,
        request_id: row.request_id.take(),
        source_line: Some(number),
    };
    Ok(TraceTurn {
        session_id: row.session_id.take(),
        timestamp_ms: row.timestamp,
        delay_ms: row.delay,
        output_token_ids: row.output_token_ids.take(),
        ..TraceTurn::of(turn)
    })
}

/// Generated blocks are a request's own, unless the trace records the tokens: then two requests with
/// the same prompt and the same recorded output hold the same tokens.
pub(super) fn with_recorded_output(
    identity: PromptIdentity,
    input_tokens: u32,
    output_ids: Option<&[u32]>,
) -> PromptIdentity {
    let Some(output_ids) = output_ids else { return identity };
    let prompt = match &identity.shared {
        SharedPrefix::Trace { chain, .. } => chain.last().copied().unwrap_or_default(),
        _ => identity.stream,
    };
    let start = mix(prompt, u64::from(input_tokens));
    let stream = output_ids.iter().fold(start, |state, &id| mix(state, u64::from(id)));
    PromptIdentity { stream, ..identity }
}

/// A length as the simulator counts it.
pub(super) fn token_count(field: &str, tokens: u64) -> Result<u32, String> {
    if tokens > MAX_TOKENS {
        return Err(format!("{field}: {tokens} tokens are more than the {MAX_TOKENS} that a request may have"));
    }
    Ok(tokens as u32)
}
