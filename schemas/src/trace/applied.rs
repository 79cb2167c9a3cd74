//! Rows of `applied_compute_agentic` traces.

use serde::Deserialize;

/// One conversation of an agent with its tools.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct AppliedRow {
    /// Turns that end with a tool call; one more follows.
    pub num_turns: u64,
    /// Tokens of the first prompt.
    pub input_prompt_length: u64,
    /// Output tokens of each turn that ends with a tool call.
    pub assistant_response_length: Vec<u64>,
    /// Tokens that each tool call adds to the conversation.
    pub tool_call_output_length: Vec<u64>,
    /// How long each tool call takes, in seconds.
    pub tool_call_latency: Vec<f64>,
    /// Output tokens of the last turn.
    pub final_assistant_response_length: u64,
}
