//! The `applied_compute_agentic` format: conversations of agents with tools, without times and without hash ids.

use std::collections::VecDeque;

use dynosim_schemas::config::limits::{MAX_NUMBER, MAX_TOKENS, MAX_TURNS};
use dynosim_schemas::trace::applied::AppliedRow;
use dynosim_systems::prefix::{PromptIdentity, SharedPrefix, mix, stream};
use dynosim_systems::traffic::{Script, Turn, Unit};

use super::files::{FileReport, each_line, some_requests};
use super::{TraceError, json};
use crate::interrupt::Interrupt;

/// Reads a file; every row is a session.
pub(super) fn read(path: &str, interrupt: &Interrupt) -> Result<(Vec<Unit>, FileReport), TraceError> {
    let mut units = Vec::new();
    let report = each_line(path, interrupt, |line, number| {
        let row: AppliedRow = json::decode(line)?;
        check(&row)?;
        let script = Script::Listed(turns(&row, number)?);
        units.push(Unit { start_ms: 0.0, session_id: None, script });
        Ok(true)
    })?;
    some_requests(std::slice::from_ref(&report))?;
    Ok((units, report))
}

fn check(row: &AppliedRow) -> Result<(), String> {
    if row.num_turns > MAX_TURNS {
        return Err(format!("num_turns: {} is more than the {MAX_TURNS} that a session may have", row.num_turns));
    }
    for (field, length) in [
        ("assistant_response_length", row.assistant_response_length.len()),
        ("tool_call_output_length", row.tool_call_output_length.len()),
        ("tool_call_latency", row.tool_call_latency.len()),
    ] {
        if length as u64 != row.num_turns {
            return Err(format!("{field}: has {length} entries, but num_turns is {}", row.num_turns));
        }
    }
    if row.input_prompt_length == 0 {
        return Err("input_prompt_length: is 0; a prompt has at least one token".to_owned());
    }
    match row.tool_call_latency.iter().position(|seconds| !(0.0..=MAX_NUMBER / 1000.0).contains(seconds)) {
        Some(index) => {
            let seconds = row.tool_call_latency[index];
            Err(format!("tool_call_latency[{index}]: {seconds} s is out of range; write 0 or more seconds"))
        }
        None => Ok(()),
    }
}

/// Every prompt is all that was said before. What a prompt holds, the prompts after it hold as well; outputs are made
/// anew each time, so that nobody finds them in a cache.
fn turns(row: &AppliedRow, number: u64) -> Result<VecDeque<Turn>, String> {
    let mut turns = VecDeque::with_capacity(row.num_turns as usize + 1);
    let outputs = row.assistant_response_length.iter().copied().chain([row.final_assistant_response_length]);
    let tools = row.tool_call_output_length.iter().copied().chain([0]);
    let waits = [0.0].into_iter().chain(row.tool_call_latency.iter().map(|seconds| seconds * 1000.0));
    let mut context = row.input_prompt_length;
    for (index, ((output, tool), delay_ms)) in (0_u64..).zip(outputs.zip(tools).zip(waits)) {
        if context > MAX_TOKENS || output > MAX_TOKENS {
            return Err(format!("turn {index} has more than the {MAX_TOKENS} tokens that a request may have"));
        }
        turns.push_back(Turn {
            input_tokens: context as u32,
            output_tokens: output as u32,
            identity: PromptIdentity {
                shared: SharedPrefix::Group { key: number, tokens: context as u32 },
                stream: stream(mix(number, index)),
                continued: false,
            },
            delay_ms,
            request_id: None,
            source_line: Some(number),
        });
        context = context.saturating_add(output).saturating_add(tool);
    }
    Ok(turns)
}
