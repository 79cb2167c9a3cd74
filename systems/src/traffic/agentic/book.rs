//! What is to be played.

use std::ops::Range;

use dynosim_schemas::trace::agentic::Trigger;

use crate::traffic::Turn;

/// An outgoing edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Successor {
    /// The node that waits, by its index.
    pub node: u32,
    /// When the edge fires.
    pub trigger: Trigger,
    /// Wait after that, in ms.
    pub delay_ms: f64,
}

/// A request that waits for others.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayNode {
    /// The request; `None` once it has been sent.
    pub turn: Option<Turn>,
    /// Its session, by its index in [`PlayBook::sessions`].
    pub session: u32,
    /// The earliest start, in ms from the start of the workload.
    pub floor_ms: f64,
    /// Incoming edges. A root has none.
    pub waits: u32,
    /// Outgoing edges.
    pub successors: Vec<Successor>,
}

/// A trajectory: requests that depend on each other, and on nobody else.
#[derive(Clone, Debug, PartialEq)]
pub struct Play {
    /// Its name.
    pub play_id: Box<str>,
    /// Its nodes, by their indices.
    pub nodes: Range<u32>,
}

/// Every play, in the order in which they are played. The nodes of a play stand together, in the same order.
///
/// Edges stay within a play and have no cycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlayBook {
    /// The plays.
    pub plays: Vec<Play>,
    /// The nodes.
    pub nodes: Vec<PlayNode>,
    /// Names of sessions.
    pub sessions: Vec<Box<str>>,
}

impl PlayBook {
    /// The earliest start of any node, in ms.
    pub(super) fn earliest_floor_ms(&self) -> f64 {
        let floors = self.nodes.iter().map(|node| node.floor_ms);
        floors.min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// The earliest start of any root of a play, in ms.
    pub(super) fn earliest_root_ms(&self, play: usize) -> f64 {
        let roots =
            self.plays[play].nodes.clone().map(|node| &self.nodes[node as usize]).filter(|node| node.waits == 0);
        roots.map(|node| node.floor_ms).min_by(f64::total_cmp).unwrap_or(0.0)
    }
}
