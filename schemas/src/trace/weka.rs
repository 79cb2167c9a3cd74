//! Weka traces (kv-cache-tester, AgentX): one play as one JSON object.

use serde::Deserialize;

/// A play: the requests of an agent and of those that it started.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct WekaTrace {
    /// Name of the play.
    pub id: Box<str>,
    /// Tokens per hash id.
    pub block_size: u64,
    /// Must be `local`.
    pub hash_id_scope: Box<str>,
    /// The models of all requests.
    #[serde(default)]
    pub models: Option<Vec<Box<str>>>,
    /// Requests and subagents.
    pub requests: Vec<WekaEntry>,
}

/// A request (`type` `n` or `s`), or a subagent (`type` `subagent`) with its requests. Which fields have to be there
/// depends on the type.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub struct WekaEntry {
    /// `n`, `s` or `subagent`.
    #[serde(rename = "type")]
    pub kind: Box<str>,
    /// Start, in seconds.
    pub t: f64,
    /// The model that served it.
    #[serde(default)]
    pub model: Option<Box<str>>,
    /// Prompt tokens.
    #[serde(default, rename = "in")]
    pub input_tokens: Option<u64>,
    /// Output tokens.
    #[serde(default, rename = "out")]
    pub output_tokens: Option<u64>,
    /// Ids of the prompt's complete blocks.
    #[serde(default)]
    pub hash_ids: Vec<u64>,
    /// How long it took, in seconds.
    #[serde(default)]
    pub api_time: Option<f64>,
    /// Name of the subagent.
    #[serde(default)]
    pub agent_id: Option<Box<str>>,
    /// Kind of subagent.
    #[serde(default)]
    pub subagent_type: Option<Box<str>>,
    /// `completed` if its result was waited for, `async_launched` if not.
    #[serde(default)]
    pub status: Option<Box<str>>,
    /// How long the subagent ran, in ms.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// The subagent's requests.
    #[serde(default)]
    pub requests: Option<Vec<WekaEntry>>,
}
