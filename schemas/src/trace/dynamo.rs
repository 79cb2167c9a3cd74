//! Records of the Dynamo frontend (`dynamo.request.trace.v1`).

use serde::Deserialize;

use super::agentic::{Relation, Trigger};

/// The `schema` of every record.
pub const DYNAMO_SCHEMA: &str = "dynamo.request.trace.v1";

/// What kind of record a line is. A record may stand by itself or under `event`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct RecordProbe {
    /// [`DYNAMO_SCHEMA`].
    #[serde(default)]
    pub schema: Option<Box<str>>,
    /// What happened.
    #[serde(default)]
    pub event_type: Option<Box<str>>,
    /// The record, where the line only wraps it.
    #[serde(default)]
    pub event: Option<Box<RecordProbe>>,
}

/// A line that wraps its record.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct Wrapped<T> {
    /// The record.
    pub event: T,
}

/// A `request_end`: a request that was served.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct RequestEnd {
    /// When it ended, in ms since 1970.
    pub event_time_unix_ms: u64,
    /// The agent that sent it.
    #[serde(default)]
    pub agent_context: Option<AgentContext>,
    /// The request.
    pub request: ServedRequest,
}

/// The agent that sent a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "an object")]
pub struct AgentContext {
    /// Its session.
    pub session_id: Box<str>,
    /// The session of the agent that started it.
    #[serde(default)]
    pub parent_session_id: Option<Box<str>>,
}

/// What was served.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct ServedRequest {
    /// Unique name.
    pub request_id: Box<str>,
    /// Output tokens.
    pub output_tokens: u64,
    /// When it arrived, in ms since 1970.
    #[serde(default)]
    pub request_received_ms: Option<u64>,
    /// How long it took, in ms.
    #[serde(default)]
    pub total_time_ms: Option<f64>,
    /// The model that served it.
    #[serde(default)]
    pub model: Option<Box<str>>,
    /// What it takes to send it again.
    pub replay: Replay,
}

/// What it takes to send a request again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct Replay {
    /// Tokens per hash.
    pub trace_block_size: u64,
    /// Prompt tokens.
    pub input_length: u64,
    /// One hash for each block of the prompt.
    pub input_sequence_hashes: Vec<u64>,
    /// What it waited for.
    #[serde(default)]
    pub dependencies: Vec<ReplayDependency>,
}

/// An edge that was recorded. Its delay follows from the recorded times.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct ReplayDependency {
    /// The predecessor.
    pub request_id: Box<str>,
    /// Why there is an edge.
    pub relation: Relation,
    /// When it fires.
    pub trigger: Trigger,
}

/// A `tool_end` or `tool_error`: a tool that an agent has used.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct ToolEnd {
    /// The agent that used it.
    pub agent_context: AgentContext,
    /// The tool.
    pub tool: Tool,
}

/// The use of a tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct Tool {
    /// Name of the use.
    pub tool_call_id: Box<str>,
    /// Kind of tool.
    pub tool_class: Box<str>,
    /// Start, in ms since 1970.
    #[serde(default)]
    pub started_at_unix_ms: Option<u64>,
    /// End, in ms since 1970.
    #[serde(default)]
    pub ended_at_unix_ms: Option<u64>,
    /// The agent that the tool was, if it was one.
    #[serde(default)]
    pub claude: Option<ChildAgent>,
}

/// An agent that was started as a tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct ChildAgent {
    /// The request that started it.
    pub source_request_id: Box<str>,
    /// The request that took its result.
    #[serde(default)]
    pub consumer_request_id: Option<Box<str>>,
    /// Its session.
    #[serde(default)]
    pub child_session_id: Option<Box<str>>,
    /// Whether the result was waited for.
    pub execution_mode: ExecutionMode,
}

/// Whether an agent's result is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    /// It is.
    Blocking,
    /// It is not.
    Background,
}
