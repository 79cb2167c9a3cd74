//! The `qwen_bailian` format: one JSON object a line, each a request with its complete prompt, times in seconds.
//!
//! Every request comes at its recorded time: a prompt holds all that was said before, and its user did not wait for
//! our answer.

use dynosim_schemas::trace::qwen::QwenRow;
use dynosim_systems::prefix::PromptIdentity;
use dynosim_systems::traffic::Turn;

use super::json;
use super::mooncake::{TraceTurn, token_count};
use super::rows::{Parsed, RowLayout};
use super::time::seconds_as_ms;

pub(super) struct QwenRows {
    pub tokens_per_id: u32,
}

impl RowLayout for QwenRows {
    fn parse(&mut self, line: &str, number: u64) -> Result<Parsed, String> {
        let row: QwenRow = json::decode(line)?;
        Ok(Parsed::Row(TraceTurn {
            timestamp_ms: Some(seconds_as_ms("timestamp", row.timestamp)?),
            ..TraceTurn::of(self.turn(&row, number)?)
        }))
    }
}

impl QwenRows {
    fn turn(&self, row: &QwenRow, number: u64) -> Result<Turn, String> {
        if row.input_length == 0 {
            return Err("input_length: is 0; a prompt has at least one token".to_owned());
        }
        let input_tokens = token_count("input_length", row.input_length)?;
        let tokens_per_id = self.tokens_per_id;
        let (given, complete) = (row.hash_ids.len() as u64, input_tokens / tokens_per_id);
        if given < u64::from(complete) {
            return Err(format!(
                "hash_ids: has {given} ids, but a prompt of {input_tokens} tokens has {complete} complete blocks of \
                 {tokens_per_id}; is `traffic.source.block_size` the block size of this trace?"
            ));
        }
        // What no id stands for is nobody else's.
        let named = (given * u64::from(tokens_per_id)).min(u64::from(input_tokens)) as u32;
        Ok(Turn {
            input_tokens,
            output_tokens: token_count("output_length", row.output_length)?,
            identity: PromptIdentity::from_trace_ids(&row.hash_ids, tokens_per_id, named, number),
            delay_ms: 0.0,
            request_id: row.chat_id.map(|id| id.to_string().into()),
            source_line: Some(number),
        })
    }
}
