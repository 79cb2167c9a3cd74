//! Version 1 of `agentic_mooncake`: requests that name whom they wait for. It becomes a version 2 graph.

use std::collections::BTreeMap;

use dynosim_schemas::trace::agentic::{AgenticRow, Dependency, GraphSource, Relation, Trigger, WaitForRow};

use super::graph::{UNKNOWN_MODEL, check_ms};
use super::{Graph, GraphNode};
use crate::traces::components::Components;
use crate::traces::{SourcePlace, TraceError, json};

/// The session of requests that name none.
const COMMON_SESSION: &str = "agentic-session";
/// What the names of plays begin with. All these names are the reference's: they are part of digests.
const PLAY_PREFIX: &str = "legacy-play:";

/// Reads a row.
pub(super) fn read_row(line: &str) -> Result<WaitForRow, String> {
    let row: WaitForRow = json::decode(line)?;
    if row.delay.is_some() && row.delay_ms.is_some() {
        return Err("delay_ms: stands beside `delay`, which means the same; keep one".to_owned());
    }
    for (field, ms) in [
        ("delay", row.delay),
        ("delay_ms", row.delay_ms),
        ("tool_wait_ms", row.tool_wait_ms),
        ("timestamp", row.timestamp),
    ] {
        check_ms(field, ms.unwrap_or(0.0))?;
    }
    Ok(row)
}

/// Turns waits into completion edges, and groups of requests that wait for each other into plays.
pub(super) fn lower(path: &str, rows: Vec<(WaitForRow, SourcePlace)>, tokens_per_id: u64) -> Result<Graph, TraceError> {
    // There is no digest in such a file; its name and length stand in.
    let source = GraphSource { format: "legacy_agentic_mooncake".to_owned(), digest: format!("{path}:{}", rows.len()) };
    let plays = plays(&rows);
    let nodes = rows.into_iter().zip(plays).map(|((row, place), play)| GraphNode { row: node(row, play), place });
    Graph::new(source, tokens_per_id, nodes.collect())
}

fn node(row: WaitForRow, play_id: Box<str>) -> AgenticRow {
    let delay_ms = row.delay.or(row.delay_ms).unwrap_or(0.0) + row.tool_wait_ms.unwrap_or(0.0);
    let relation = if row.wait_for.len() > 1 { Relation::Join } else { Relation::Sequence };
    let not_before_ms = if row.wait_for.is_empty() { row.timestamp.unwrap_or(0.0) } else { 0.0 };
    let edge = |request_id| Dependency { request_id, trigger: Trigger::Completion, delay_ms, relation };
    AgenticRow {
        request_id: row.request_id,
        play_id,
        source_play_ordinal: None,
        session_id: row.session_id.unwrap_or_else(|| COMMON_SESSION.into()),
        model: UNKNOWN_MODEL.into(),
        input_length: row.input_length,
        output_length: row.output_length,
        output_token_ids: row.output_token_ids,
        hash_ids: row.hash_ids,
        not_before_ms,
        recorded_api_time_ms: None,
        priority: row.priority,
        strict_priority: row.strict_priority,
        policy_class: row.policy_class,
        dependencies: row.wait_for.into_iter().map(edge).collect(),
    }
}

/// Each row's play: it is named after the root of its group that starts first.
fn plays(rows: &[(WaitForRow, SourcePlace)]) -> Vec<Box<str>> {
    let indices: BTreeMap<&str, usize> =
        rows.iter().enumerate().map(|(index, (row, _))| (&*row.request_id, index)).collect();
    let mut groups = Components::new(rows.len());
    for (index, (row, _)) in rows.iter().enumerate() {
        row.wait_for.iter().filter_map(|name| indices.get(&**name)).for_each(|&other| groups.join(index, other));
    }
    let start = |index: usize| {
        let row = &rows[index].0;
        (row.timestamp.unwrap_or(0.0), &*row.request_id)
    };
    let is_root = |index: usize| rows[index].0.wait_for.is_empty();
    let names = groups.name_after(|a, b| {
        // A group without a root is a circle, which is refused later.
        is_root(b).cmp(&is_root(a)).then(start(a).0.total_cmp(&start(b).0)).then(start(a).1.cmp(start(b).1))
    });
    names.into_iter().map(|index| format!("{PLAY_PREFIX}{}", rows[index].0.request_id).into()).collect()
}
