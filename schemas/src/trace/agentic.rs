//! Rows of `agentic_mooncake` traces: version 1 (`wait_for`) and version 2 (typed edges behind a header).

use serde::{Deserialize, Serialize};

/// The `schema` of a version 2 header.
pub const AGENTIC_SCHEMA: &str = "dynamo.agentic_mooncake";
/// The version that has a header.
pub const AGENTIC_VERSION: u64 = 2;
/// The only `hash_id_scope`: ids mean something within their file alone.
pub const LOCAL_SCOPE: &str = "local";

/// What the first line of a file has to say about the rest. A version 1 file has no such line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct SchemaProbe {
    /// [`AGENTIC_SCHEMA`] in a header.
    #[serde(default)]
    pub schema: Option<serde_json::Value>,
}

/// The header of version 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct AgenticHeader {
    /// [`AGENTIC_SCHEMA`].
    pub schema: String,
    /// [`AGENTIC_VERSION`].
    pub version: u64,
    /// Tokens per hash id.
    pub block_size: u64,
    /// [`LOCAL_SCOPE`].
    pub hash_id_scope: String,
    /// What the file was made from.
    pub source: GraphSource,
}

/// What a graph was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct GraphSource {
    /// Name of the format.
    pub format: String,
    /// Digest of the content.
    pub digest: String,
}

/// When an edge fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// When the predecessor is handed to the router.
    Dispatch,
    /// When the predecessor has completed.
    Completion,
}

/// Why a request waits for another. It does not change when it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The next turn of the same conversation.
    Sequence,
    /// An agent that the predecessor started.
    Spawn,
    /// The result of an agent that was waited for.
    Join,
    /// An order that was only seen in the recorded times.
    ReplayBarrier,
}

/// An incoming edge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct Dependency {
    /// The predecessor.
    pub request_id: Box<str>,
    /// When the edge fires.
    pub trigger: Trigger,
    /// Wait after that, in ms.
    pub delay_ms: f64,
    /// Why there is an edge.
    pub relation: Relation,
}

/// A request of version 2, as it stands in a line and as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub struct AgenticRow {
    /// Unique name.
    pub request_id: Box<str>,
    /// The trajectory that it belongs to.
    pub play_id: Box<str>,
    /// Place of the play among all, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_play_ordinal: Option<u64>,
    /// Identity for caches and routers; it gives no order.
    pub session_id: Box<str>,
    /// The model that served it.
    pub model: Box<str>,
    /// Prompt tokens.
    #[serde(alias = "input_tokens")]
    pub input_length: u64,
    /// Output tokens.
    #[serde(alias = "output_tokens")]
    pub output_length: u64,
    /// The generated tokens, if they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_token_ids: Option<Vec<u32>>,
    /// One id for each block of the prompt, the last partial one included.
    pub hash_ids: Vec<u64>,
    /// The earliest start, in ms.
    pub not_before_ms: f64,
    /// How long it took when it was recorded, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded_api_time_ms: Option<f64>,
    /// Priority for the router.
    #[serde(default, skip_serializing_if = "is_zero_i32")]
    pub priority: i32,
    /// Strict priority for the router.
    #[serde(default, skip_serializing_if = "is_zero_u32")]
    pub strict_priority: u32,
    /// Policy class for the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_class: Option<Box<str>>,
    /// What it waits for; a root waits for nothing.
    #[serde(default)]
    pub dependencies: Vec<Dependency>,
}

/// A request of version 1.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct WaitForRow {
    /// Unique name.
    pub request_id: Box<str>,
    /// One id for each block of the prompt, the last partial one included.
    pub hash_ids: Vec<u64>,
    /// Prompt tokens.
    #[serde(alias = "input_tokens")]
    pub input_length: u64,
    /// Output tokens.
    #[serde(alias = "output_tokens")]
    pub output_length: u64,
    /// The requests whose end it waits for; a root waits for none.
    #[serde(default)]
    pub wait_for: Vec<Box<str>>,
    /// Wait after the last of them, in ms.
    #[serde(default)]
    pub delay: Option<f64>,
    /// Another name of `delay`; only one may be given.
    #[serde(default)]
    pub delay_ms: Option<f64>,
    /// Wait for a tool, in ms, on top of the delay.
    #[serde(default)]
    pub tool_wait_ms: Option<f64>,
    /// Start of a root, in ms.
    #[serde(default, alias = "created_time")]
    pub timestamp: Option<f64>,
    /// Identity for caches and routers.
    #[serde(default)]
    pub session_id: Option<Box<str>>,
    /// The generated tokens, if they were recorded.
    #[serde(default)]
    pub output_token_ids: Option<Vec<u32>>,
    /// Priority for the router.
    #[serde(default)]
    pub priority: i32,
    /// Strict priority for the router.
    #[serde(default)]
    pub strict_priority: u32,
    /// Policy class for the router.
    #[serde(default)]
    pub policy_class: Option<Box<str>>,
}

fn is_zero_i32(value: &i32) -> bool {
    *value == 0
}

fn is_zero_u32(value: &u32) -> bool {
    *value == 0
}
