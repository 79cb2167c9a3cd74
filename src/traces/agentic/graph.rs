//! A graph of requests, as every agentic format describes one.

use dynosim_schemas::config::limits::{MAX_NUMBER, MAX_TOKENS};
use dynosim_schemas::trace::agentic::{AgenticRow, GraphSource};

use super::checks;
use crate::traces::{SourcePlace, TraceError};

/// The model of requests that name none.
pub(in crate::traces) const UNKNOWN_MODEL: &str = "unknown";

/// A request of a graph, and where it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphNode {
    /// The request.
    pub row: AgenticRow,
    /// Where it stands in its source.
    pub place: SourcePlace,
}

/// A checked graph. Its nodes are in order of their `request_id`.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// What it was made from.
    pub source: GraphSource,
    /// Tokens per hash id.
    pub block_size: u64,
    /// The requests.
    nodes: Vec<GraphNode>,
}

impl Graph {
    /// Checks nodes and their edges.
    ///
    /// # Errors
    /// The first rule that is broken, at the node that breaks it.
    pub fn new(source: GraphSource, block_size: u64, mut nodes: Vec<GraphNode>) -> Result<Self, TraceError> {
        for node in &nodes {
            check_node(&node.row, block_size).map_err(|message| node.place.error(message))?;
        }
        nodes.sort_by(|a, b| a.row.request_id.cmp(&b.row.request_id));
        checks::check(&nodes)?;
        Ok(Self { source, block_size, nodes })
    }

    /// The requests, in order of their `request_id`.
    #[must_use]
    pub fn nodes(&self) -> &[GraphNode] {
        &self.nodes
    }

    /// The plays in the order in which they are played, each with the indices of its nodes.
    #[must_use]
    pub fn plays(&self) -> Vec<(&str, Vec<usize>)> {
        let mut plays = std::collections::BTreeMap::<(Option<u64>, &str), Vec<usize>>::new();
        for (index, node) in self.nodes.iter().enumerate() {
            plays.entry((node.row.source_play_ordinal, &node.row.play_id)).or_default().push(index);
        }
        plays.into_iter().map(|((_, id), nodes)| (id, nodes)).collect()
    }
}

/// What a node has to be by itself.
fn check_node(row: &AgenticRow, block_size: u64) -> Result<(), String> {
    for (field, text) in [
        ("request_id", &row.request_id),
        ("play_id", &row.play_id),
        ("session_id", &row.session_id),
        ("model", &row.model),
    ] {
        if text.trim().is_empty() {
            return Err(format!("{field}: is blank; every request needs one"));
        }
    }
    if row.input_length == 0 {
        return Err("input_length: is 0; a prompt has at least one token".to_owned());
    }
    for (field, tokens) in [("input_length", row.input_length), ("output_length", row.output_length)] {
        if tokens > MAX_TOKENS {
            return Err(format!("{field}: {tokens} tokens are more than the {MAX_TOKENS} that a request may have"));
        }
    }
    let (wanted, given) = (row.input_length.div_ceil(block_size), row.hash_ids.len() as u64);
    if given != wanted {
        return Err(format!(
            "hash_ids: has {given} ids, but a prompt of {} tokens has {wanted} blocks of {block_size}",
            row.input_length
        ));
    }
    if let Some(ids) = &row.output_token_ids
        && ids.len() as u64 != row.output_length
    {
        let (given, wanted) = (ids.len(), row.output_length);
        return Err(format!("output_token_ids: has {given} tokens, but output_length is {wanted}"));
    }
    check_ms("not_before_ms", row.not_before_ms)?;
    if let Some(ms) = row.recorded_api_time_ms {
        check_ms("recorded_api_time_ms", ms)?;
    }
    for (index, edge) in row.dependencies.iter().enumerate() {
        check_ms(&format!("dependencies[{index}].delay_ms"), edge.delay_ms)?;
    }
    Ok(())
}

/// A time that a simulation can count with.
pub(super) fn check_ms(field: &str, ms: f64) -> Result<(), String> {
    if ms < 0.0 {
        return Err(format!("{field}: {ms} ms is negative"));
    }
    if ms > MAX_NUMBER {
        return Err(format!("{field}: is beyond {MAX_NUMBER:e} ms; times are milliseconds"));
    }
    Ok(())
}
