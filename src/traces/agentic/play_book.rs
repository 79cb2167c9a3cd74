//! Makes a graph ready to be played.

use std::collections::BTreeMap;

use dynosim_systems::prefix::PromptIdentity;
use dynosim_systems::traffic::Turn;
use dynosim_systems::traffic::agentic::{Play, PlayBook, PlayNode, Successor};

use super::checks::find;
use super::{Graph, GraphNode};
use crate::traces::mooncake::with_recorded_output;

/// The plays of a graph, in the order in which they are played.
#[must_use]
pub fn play_book(graph: &Graph) -> PlayBook {
    let mut book = PlayBook::default();
    let mut sessions = BTreeMap::<&str, u32>::new();
    // Where each node of the graph stands in the book.
    let mut places = vec![0; graph.nodes().len()];
    for (play_id, nodes) in graph.plays() {
        let first = book.nodes.len() as u32;
        for index in nodes {
            let node = &graph.nodes()[index];
            let session = *sessions.entry(&node.row.session_id).or_insert_with(|| {
                book.sessions.push(node.row.session_id.clone());
                book.sessions.len() as u32 - 1
            });
            places[index] = book.nodes.len() as u32;
            book.nodes.push(PlayNode {
                turn: Some(turn(node, graph.block_size as u32, index as u64)),
                session,
                floor_ms: node.row.not_before_ms,
                waits: node.row.dependencies.len() as u32,
                successors: Vec::new(),
            });
        }
        book.plays.push(Play { play_id: play_id.into(), nodes: first..book.nodes.len() as u32 });
    }
    for (index, node) in graph.nodes().iter().enumerate() {
        for edge in &node.row.dependencies {
            let Some(predecessor) = find(graph.nodes(), &edge.request_id) else { continue };
            let successor = Successor { node: places[index], trigger: edge.trigger, delay_ms: edge.delay_ms };
            book.nodes[places[predecessor] as usize].successors.push(successor);
        }
    }
    book
}

fn turn(node: &GraphNode, tokens_per_id: u32, number: u64) -> Turn {
    let row = &node.row;
    // The graph has checked that lengths are far below 2^32.
    let (input_tokens, output_tokens) = (row.input_length as u32, row.output_length as u32);
    let identity = PromptIdentity::from_trace_ids(&row.hash_ids, tokens_per_id, input_tokens, number);
    Turn {
        input_tokens,
        output_tokens,
        identity: with_recorded_output(identity, input_tokens, row.output_token_ids.as_deref()),
        delay_ms: 0.0,
        request_id: Some(row.request_id.clone()),
        source_line: node.place.line_number(),
    }
}
