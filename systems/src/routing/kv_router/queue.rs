//! Where requests wait while every target has enough to compute.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bevy_ecs::prelude::*;
pub use dynosim_schemas::config::QueuePolicy;

use super::index::PromptRun;

/// When requests wait in the router, and in which order they leave it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueSpec {
    /// A target is busy when its prefill load is above this many full passes.
    pub threshold: f64,
    /// The order.
    pub policy: QueuePolicy,
    /// Tokens of a full pass of a target.
    pub max_batched_tokens: u64,
}

impl QueueSpec {
    /// Whether a target with this prefill load is busy.
    pub(super) fn is_busy(&self, prefill_tokens: u64) -> bool {
        prefill_tokens as f64 > self.threshold * self.max_batched_tokens as f64
    }
}

/// How soon a waiting request is placed: by score, the highest first; among equals by time of waiting.
///
/// First come, first served: `max(0, priority) - arrival_s`. Last come, first served:
/// `max(0, priority) + arrival_s`. Weighted shortest processing time:
/// `(1 + max(0, priority)) / max(1, new_tokens)`, where the new tokens are those that the target with
/// the longest overlap at arrival would have to compute.
pub(super) fn score(policy: QueuePolicy, priority: f64, arrival_ms: f64, new_tokens: u32) -> f64 {
    let (priority, arrival_s) = (priority.max(0.0), arrival_ms / 1000.0);
    match policy {
        QueuePolicy::Fcfs => priority - arrival_s,
        QueuePolicy::Lcfs => priority + arrival_s,
        QueuePolicy::Wspt => (1.0 + priority) / f64::from(new_tokens.max(1)),
    }
}

/// A request on its way through the router.
#[derive(Clone, Debug)]
pub(super) struct Prompt {
    pub(super) request: Entity,
    pub(super) tokens: u32,
    pub(super) preferred_rank: Option<u32>,
    pub(super) runs: Vec<PromptRun>,
    /// While it waits: the overlap in blocks with each target when it arrived.
    pub(super) arrival_overlap: Vec<u32>,
    /// While it waits: since when, in ms.
    pub(super) queued_at_ms: Option<f64>,
}

/// The place of a request in the queue; the least is the next.
#[derive(Clone, Copy, Debug)]
struct Place {
    score: f64,
    sequence: u64,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.sequence.cmp(&other.sequence))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Place {}

/// Requests that wait in the router.
#[derive(Clone, Debug, Default)]
pub(super) struct RouterQueue {
    waiting: BTreeMap<Place, Prompt>,
    /// Requests that have ever waited.
    sequence: u64,
}

impl RouterQueue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, score: f64, prompt: Prompt) {
        self.waiting.insert(Place { score, sequence: self.sequence }, prompt);
        self.sequence += 1;
    }

    pub(super) fn pop(&mut self) -> Option<Prompt> {
        self.waiting.pop_first().map(|(_, prompt)| prompt)
    }
}
