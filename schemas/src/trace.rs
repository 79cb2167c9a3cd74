//! Rows of trace files, as their producers write them.

pub mod agentic;
pub mod applied;
pub mod dynamo;
pub mod qwen;
pub mod weka;

use serde::{Deserialize, Serialize};

/// A row of a `mooncake` trace: one request with its complete prompt.
///
/// Unknown fields are ignored; a field together with its alias is refused as a duplicate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct MooncakeRow {
    /// Arrival, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "created_time")]
    pub timestamp: Option<f64>,
    /// Wait after the end of the session's turn before, in ms; wins over the difference of timestamps.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "delay_ms")]
    pub delay: Option<f64>,
    /// Prompt tokens; without it, as many as the ids stand for.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "input_tokens")]
    pub input_length: Option<u64>,
    /// Output tokens.
    #[serde(alias = "output_tokens")]
    pub output_length: u64,
    /// One id for each block of prompt tokens; equal ids in front of equal ids are equal tokens.
    pub hash_ids: Vec<u64>,
    /// Rows with the same session are its turns, in file order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Box<str>>,
    /// A name for the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Box<str>>,
    /// The tokens that were generated, if they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_token_ids: Option<Vec<u32>>,
}
