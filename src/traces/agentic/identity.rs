//! What makes two graphs the same.

use std::collections::BTreeSet;

use dynosim_schemas::trace::agentic::{Dependency, GraphSource};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::{Graph, GraphNode};

/// What two equal graphs have in common, whatever files they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What the graph was made from.
    pub source: GraphSource,
    /// BLAKE3 hash, in hexadecimal, of the graph's canonical JSON.
    pub graph_digest: String,
    /// Tokens per hash id.
    pub block_size: u64,
    /// Number of requests.
    pub requests: usize,
    /// Number of plays.
    pub plays: usize,
    /// The models that were recorded, sorted.
    pub models: Vec<Box<str>>,
}

impl Identity {
    /// The identity of a graph.
    #[must_use]
    pub fn of(graph: &Graph) -> Self {
        let nodes = graph.nodes();
        let distinct = |field: fn(&GraphNode) -> &str| nodes.iter().map(field).collect::<BTreeSet<_>>();
        Self {
            source: graph.source.clone(),
            graph_digest: digest(graph),
            block_size: graph.block_size,
            requests: nodes.len(),
            plays: distinct(|node| &node.row.play_id).len(),
            models: distinct(|node| &node.row.model).into_iter().map(Box::from).collect(),
        }
    }

    /// The identity as it stands in a report.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "source": self.source,
            "graph_digest": self.graph_digest,
            "block_size": self.block_size,
            "requests": self.requests,
            "plays": self.plays,
            "models": self.models,
        })
    }
}

/// The canonical JSON is the reference's, field by field, so that its digests can be compared with ours.
#[derive(Serialize)]
struct CanonicalGraph<'a> {
    block_size: u64,
    #[serde(serialize_with = "canonical_nodes")]
    nodes: &'a [GraphNode],
}

#[derive(Serialize)]
struct CanonicalNode<'a> {
    request_id: &'a str,
    play_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_play_ordinal: Option<u64>,
    session_id: &'a str,
    model: &'a str,
    input_length: u64,
    max_output_tokens: u64,
    output_token_ids: Option<&'a [u32]>,
    replay_key: Option<&'a str>,
    hash_ids: &'a [u64],
    not_before_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_api_time_ms: Option<f64>,
    priority: i32,
    strict_priority: u32,
    policy_class: Option<&'a str>,
    dependencies: Vec<&'a Dependency>,
}

fn canonical_nodes<S: Serializer>(nodes: &[GraphNode], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(nodes.iter().map(|GraphNode { row, .. }| {
        let mut dependencies: Vec<&Dependency> = row.dependencies.iter().collect();
        dependencies.sort_by(|a, b| {
            let kind = |edge: &Dependency| (edge.trigger, edge.relation);
            let by_name = a.request_id.cmp(&b.request_id);
            by_name.then(kind(a).cmp(&kind(b))).then(a.delay_ms.total_cmp(&b.delay_ms))
        });
        CanonicalNode {
            request_id: &row.request_id,
            play_id: &row.play_id,
            source_play_ordinal: row.source_play_ordinal,
            session_id: &row.session_id,
            model: &row.model,
            input_length: row.input_length,
            max_output_tokens: row.output_length,
            output_token_ids: row.output_token_ids.as_deref(),
            replay_key: row.output_token_ids.as_ref().map(|_| &*row.request_id),
            hash_ids: &row.hash_ids,
            not_before_ms: row.not_before_ms,
            recorded_api_time_ms: row.recorded_api_time_ms,
            priority: row.priority,
            strict_priority: row.strict_priority,
            policy_class: row.policy_class.as_deref(),
            dependencies,
        }
    }))
}

fn digest(graph: &Graph) -> String {
    let mut hasher = blake3::Hasher::new();
    let canonical = CanonicalGraph { block_size: graph.block_size, nodes: graph.nodes() };
    // Neither a hasher nor these types can fail.
    let written = serde_json::to_writer(&mut hasher, &canonical);
    debug_assert!(written.is_ok());
    hasher.finalize().to_hex().to_string()
}
