//! Rows of `qwen_bailian` traces: requests to Qwen models on Aliyun Bailian.

use serde::Deserialize;

/// One request with its complete prompt, that of earlier turns included.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct QwenRow {
    /// Name of the request.
    #[serde(default)]
    pub chat_id: Option<i64>,
    /// Arrival, in seconds.
    pub timestamp: f64,
    /// Prompt tokens.
    pub input_length: u64,
    /// Output tokens.
    pub output_length: u64,
    /// Ids of the prompt's blocks; a last, partial one may be missing.
    pub hash_ids: Vec<u64>,
}
