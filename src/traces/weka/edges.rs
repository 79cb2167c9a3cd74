//! Who waits for whom in a play.

use dynosim_schemas::trace::agentic::{Relation, Trigger};

use super::EPSILON_S;
use super::play::{RecordedPlay, RecordedRequest, Subagent};
use super::streams::{Scope, Stream};

/// An incoming edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Edge {
    /// The predecessor, by its index in the play.
    pub from: usize,
    pub trigger: Trigger,
    pub relation: Relation,
    pub delay_s: f64,
}

/// The incoming edges of every request of a play.
pub(super) fn incoming(play: &RecordedPlay<'_>, scopes: &[Scope<'_>]) -> Vec<Vec<Edge>> {
    let mut edges = Edges { requests: &play.requests, incoming: vec![Vec::new(); play.requests.len()] };
    for scope in scopes {
        scope.streams.iter().for_each(|stream| edges.add_sequence(stream));
    }
    for scope in scopes {
        let owner = scope.subagent.and_then(|subagent| owner(play, subagent));
        for (index, stream) in scope.streams.iter().enumerate() {
            let owner = owner.filter(|_| index == 0);
            if let (Some(parent), Some(&first)) = (stream.fork_of.or(owner), stream.requests.first()) {
                edges.add_spawn(parent, first);
            }
        }
        if let (Some(subagent), Some(owner), Some(outer)) = (scope.subagent, owner, scopes.first()) {
            edges.add_joins(subagent, &scope.streams, owner, outer);
        }
    }
    scopes.iter().for_each(|scope| edges.add_barriers(&scope.streams));
    edges.tie_loose_streams(scopes);
    edges.incoming
}

/// The outer request that is taken for the one that started a subagent: the last before it in the file.
fn owner(play: &RecordedPlay<'_>, subagent: &Subagent) -> Option<usize> {
    let outer = play.requests.iter().take(play.outer).enumerate();
    outer.filter(|(_, request)| request.position < subagent.position).map(|(index, _)| index).next_back()
}

struct Edges<'a> {
    requests: &'a [RecordedRequest],
    incoming: Vec<Vec<Edge>>,
}

impl Edges<'_> {
    fn add(&mut self, to: usize, edge: Edge) {
        let incoming = &mut self.incoming[to];
        let twin =
            |other: &Edge| (other.from, other.trigger, other.relation) == (edge.from, edge.trigger, edge.relation);
        if !incoming.iter().any(twin) {
            incoming.push(edge);
        }
    }

    /// An edge from the end of a request to the start of a later one.
    fn add_completion(&mut self, from: usize, to: usize, relation: Relation) {
        let delay_s = (self.requests[to].t_s - self.requests[from].end_s).max(0.0);
        self.add(to, Edge { from, trigger: Trigger::Completion, relation, delay_s });
    }

    fn add_sequence(&mut self, stream: &Stream) {
        for pair in stream.requests.windows(2) {
            self.add_completion(pair[0], pair[1], Relation::Sequence);
        }
    }

    /// Ties the first request of a stream to the one that it came from: to its start if that was still going on.
    fn add_spawn(&mut self, parent: usize, first: usize) {
        let (before, after) = (&self.requests[parent], &self.requests[first]);
        if after.t_s < before.end_s {
            let delay_s = (after.t_s - before.t_s).max(0.0);
            self.add(first, Edge { from: parent, trigger: Trigger::Dispatch, relation: Relation::Spawn, delay_s });
        } else {
            self.add_completion(parent, first, Relation::Spawn);
        }
    }

    /// The stream that started a blocking subagent goes on once that has ended.
    fn add_joins(&mut self, subagent: &Subagent, streams: &[Stream], owner: usize, outer: &Scope<'_>) {
        if !subagent.is_blocking {
            return;
        }
        let latest_s = || {
            let ends = self.requests[subagent.requests.clone()].iter().map(|request| request.end_s);
            ends.fold(subagent.marker_s, f64::max)
        };
        let end_s = subagent.duration_s.map_or_else(latest_s, |duration_s| subagent.marker_s + duration_s);
        let owners = outer.streams.iter().find(|stream| stream.requests.contains(&owner));
        let is_after = |index: &usize| {
            let request = &self.requests[*index];
            request.position > subagent.position && request.t_s + EPSILON_S >= end_s
        };
        // The first in the file, which need not be the first in time.
        let after = owners.into_iter().flat_map(|stream| stream.requests.iter().copied().filter(is_after));
        let Some(target) = after.min_by_key(|&index| self.requests[index].position) else { return };
        for last in streams.iter().filter_map(|stream| stream.requests.last()) {
            self.add_completion(*last, target, Relation::Join);
        }
    }

    /// What had ended elsewhere in a scope when a request started is taken to have been waited for.
    fn add_barriers(&mut self, streams: &[Stream]) {
        for (index, stream) in streams.iter().enumerate() {
            let others = || streams.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, other)| other);
            for &request in &stream.requests {
                let ended: Vec<usize> = others().filter_map(|other| self.latest_before(other, request)).collect();
                let is_last = |&from: &usize| !ended.iter().any(|&other| self.is_before(from, other));
                for from in ended.iter().copied().filter(is_last).collect::<Vec<_>>() {
                    let edge =
                        Edge { from, trigger: Trigger::Completion, relation: Relation::ReplayBarrier, delay_s: 0.0 };
                    self.add(request, edge);
                }
            }
        }
    }

    /// Whether a request started and ended before another started.
    fn is_before(&self, index: usize, other: usize) -> bool {
        let (before, after) = (&self.requests[index], &self.requests[other]);
        before.t_s < after.t_s && before.end_s <= after.t_s + EPSILON_S
    }

    /// The request of a stream that ended last of those before `request`.
    fn latest_before(&self, stream: &Stream, request: usize) -> Option<usize> {
        let before = stream.requests.iter().copied().filter(|&index| self.is_before(index, request));
        before.max_by(|&a, &b| self.requests[a].end_s.total_cmp(&self.requests[b].end_s))
    }

    /// Streams that nothing leads to start with the play's first request.
    fn tie_loose_streams(&mut self, scopes: &[Scope<'_>]) {
        let Some(&root) = scopes.first().and_then(|outer| outer.streams.first()?.requests.first()) else { return };
        for stream in scopes.iter().flat_map(|scope| &scope.streams) {
            let Some(&first) = stream.requests.first() else { continue };
            if first != root && self.incoming[first].is_empty() {
                let delay_s = (self.requests[first].t_s - self.requests[root].t_s).max(0.0);
                self.add(first, Edge { from: root, trigger: Trigger::Dispatch, relation: Relation::Spawn, delay_s });
            }
        }
    }
}
