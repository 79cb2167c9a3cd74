//! What nodes have to be to each other: unique, known, of one play, and free of cycles.

use std::collections::BTreeMap;

use dynosim_schemas::trace::agentic::{Dependency, Relation, Trigger};

use super::GraphNode;
use crate::traces::TraceError;

/// How many requests of a cycle a message names.
const NAMED: usize = 8;

/// Checks nodes that are in order of their `request_id`.
pub(super) fn check(nodes: &[GraphNode]) -> Result<(), TraceError> {
    check_unique(nodes)?;
    for node in nodes {
        for edge in &node.row.dependencies {
            check_edge(nodes, node, edge).map_err(|message| node.place.error(message))?;
        }
    }
    check_acyclic(nodes)?;
    check_ordinals(nodes)
}

/// The index of a request among nodes that are in order.
pub(super) fn find(nodes: &[GraphNode], request_id: &str) -> Option<usize> {
    nodes.binary_search_by(|node| (*node.row.request_id).cmp(request_id)).ok()
}

fn check_unique(nodes: &[GraphNode]) -> Result<(), TraceError> {
    let twins = nodes.windows(2).find(|pair| pair[0].row.request_id == pair[1].row.request_id);
    let Some([first, second]) = twins else { return Ok(()) };
    let message = format!("request_id: {:?} is there already, at {}", second.row.request_id, first.place);
    Err(second.place.error(message))
}

fn check_edge(nodes: &[GraphNode], node: &GraphNode, edge: &Dependency) -> Result<(), String> {
    let name = &edge.request_id;
    if *name == node.row.request_id {
        return Err(format!("dependencies: {name:?} waits for itself"));
    }
    let Some(predecessor) = find(nodes, name).and_then(|index| nodes.get(index)) else {
        return Err(format!("dependencies: waits for {name:?}, and there is no such request"));
    };
    if predecessor.row.play_id != node.row.play_id {
        return Err(format!("dependencies: {name:?} is of another play, {:?}", predecessor.row.play_id));
    }
    if edge.trigger == Trigger::Dispatch && edge.relation != Relation::Spawn {
        return Err("dependencies: only a `spawn` may have the trigger `dispatch`; write `completion`".to_owned());
    }
    Ok(())
}

/// Takes away whoever waits for nobody that is left; what stays is on a cycle or behind one.
fn check_acyclic(nodes: &[GraphNode]) -> Result<(), TraceError> {
    let mut waits: Vec<usize> = nodes.iter().map(|node| node.row.dependencies.len()).collect();
    let mut successors = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for edge in &node.row.dependencies {
            if let Some(of_predecessor) = find(nodes, &edge.request_id).and_then(|found| successors.get_mut(found)) {
                of_predecessor.push(index);
            }
        }
    }
    let mut free: Vec<usize> = (0..nodes.len()).filter(|&index| waits[index] == 0).collect();
    while let Some(index) = free.pop() {
        for &successor in &successors[index] {
            waits[successor] -= 1;
            if waits[successor] == 0 {
                free.push(successor);
            }
        }
    }
    let blocked: Vec<&GraphNode> =
        nodes.iter().zip(&waits).filter(|(_, left)| **left > 0).map(|(node, _)| node).collect();
    let Some(first) = blocked.first() else { return Ok(()) };
    let names: Vec<String> = blocked.iter().take(NAMED).map(|node| format!("{:?}", node.row.request_id)).collect();
    let more = if blocked.len() > NAMED { ", ..." } else { "" };
    Err(first.place.error(format!("dependencies: go round in a circle; never ready: {}{more}", names.join(", "))))
}

/// Play ordinals: all plays have one or none has, one each, from 0 without a gap.
fn check_ordinals(nodes: &[GraphNode]) -> Result<(), TraceError> {
    let mut plays = BTreeMap::<&str, &GraphNode>::new();
    for node in nodes {
        let first = *plays.entry(&node.row.play_id).or_insert(node);
        let (own, other) = (node.row.source_play_ordinal, first.row.source_play_ordinal);
        if own != other {
            let shown = |ordinal: Option<u64>| ordinal.map_or_else(|| "none".to_owned(), |value| value.to_string());
            let message = format!(
                "source_play_ordinal: play {:?} has {} here and {} at {}",
                node.row.play_id,
                shown(own),
                shown(other),
                first.place
            );
            return Err(node.place.error(message));
        }
    }
    let mut by_ordinal: Vec<&GraphNode> = plays.into_values().collect();
    by_ordinal.sort_by_key(|node| node.row.source_play_ordinal);
    let Some(last) = by_ordinal.last().filter(|node| node.row.source_play_ordinal.is_some()) else { return Ok(()) };
    if by_ordinal.first().is_some_and(|node| node.row.source_play_ordinal.is_none()) {
        return Err(last
            .place
            .error("source_play_ordinal: other plays have none; give it to all or to none".to_owned()));
    }
    let wrong = by_ordinal.iter().zip(0..).find(|(node, wanted)| node.row.source_play_ordinal != Some(*wanted));
    match wrong {
        Some((node, wanted)) => Err(node.place.error(format!(
            "source_play_ordinal: {} stands where {wanted} is expected; plays are numbered from 0, each once",
            node.row.source_play_ordinal.unwrap_or_default()
        ))),
        None => Ok(()),
    }
}
