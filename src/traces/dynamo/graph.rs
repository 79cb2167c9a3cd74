//! Requests of agents as a graph: who waited for whom, as far as records say so or times suggest it.

use std::collections::{BTreeMap, BTreeSet};

use dynosim_schemas::trace::agentic::{AgenticRow, Dependency, GraphSource, Relation, Trigger};
use dynosim_schemas::trace::dynamo::{ChildAgent, DYNAMO_SCHEMA};

use super::{Served, ToolUse};
use crate::traces::agentic::{Graph, GraphNode, UNKNOWN_MODEL};
use crate::traces::components::Components;
use crate::traces::files::FileReport;
use crate::traces::{SourcePlace, TraceError};

/// What the names of plays begin with, in the reference too: they are part of digests.
const PLAY_PREFIX: &str = "dynamo-play:";

/// An edge between two requests, by their indices.
#[derive(Clone, Copy)]
struct Edge {
    from: usize,
    to: usize,
    trigger: Trigger,
    relation: Relation,
}

/// What an edge's place in the recorded times says about its delay.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlap {
    /// Nothing: a delay below 0 counts as 0.
    Clamped,
    /// That the edge cannot be true.
    Refused,
}

/// Requests in order of their start, and what is known about their sessions.
struct Sessions<'a> {
    served: &'a [Served],
    /// The requests of each session, in order of their start.
    requests: BTreeMap<&'a str, Vec<usize>>,
    by_id: BTreeMap<&'a str, usize>,
    /// Pairs of sessions whose edges are recorded, so that none are to be guessed.
    explicit: BTreeSet<(&'a str, &'a str)>,
}

/// Makes a graph of requests that all belong to agents.
pub(super) fn lower(
    served: Vec<Served>,
    tools: &[ToolUse],
    block_size: u64,
    reports: &[FileReport],
) -> Result<Graph, TraceError> {
    let mut sessions = Sessions::new(&served);
    let mut edges = sessions.sequences()?;
    edges.extend(sessions.recorded()?);
    let children = children(tools)?;
    for (child, parent) in sessions.parents()? {
        match children.get(child) {
            Some((tool, place)) => edges.extend(sessions.tool_edges(child, parent, tool, place)?),
            None => edges.extend(sessions.guessed(child, parent)?),
        }
    }
    sessions.check_tools(tools)?;
    let source = GraphSource { format: DYNAMO_SCHEMA.to_owned(), digest: corpus_digest(reports) };
    let nodes = nodes(&served, &edges);
    let nodes = nodes.into_iter().zip(served).map(|(row, one)| GraphNode {
        row: AgenticRow { hash_ids: one.request.replay.input_sequence_hashes, ..row },
        place: one.place,
    });
    Graph::new(source, block_size, nodes.collect())
}

/// A digest of all shards, whatever their order.
fn corpus_digest(reports: &[FileReport]) -> String {
    let mut digests: Vec<&str> = reports.iter().map(|report| report.digest.blake3.as_str()).collect();
    digests.sort_unstable();
    blake3::hash(digests.concat().as_bytes()).to_hex().to_string()
}

impl<'a> Sessions<'a> {
    fn new(served: &'a [Served]) -> Self {
        let mut requests = BTreeMap::<&str, Vec<usize>>::new();
        for (index, one) in served.iter().enumerate() {
            requests.entry(session(one)).or_default().push(index);
        }
        let by_id = served.iter().enumerate().map(|(index, one)| (&*one.request.request_id, index)).collect();
        Self { served, requests, by_id, explicit: BTreeSet::new() }
    }

    /// Neighbours within a session follow each other.
    fn sequences(&self) -> Result<Vec<(Edge, f64)>, TraceError> {
        let pairs = self.requests.values().flat_map(|of_session| of_session.windows(2));
        pairs
            .map(|pair| self.edge(pair[0], pair[1], Trigger::Completion, Relation::Sequence, Overlap::Refused))
            .collect()
    }

    /// Edges that requests have recorded themselves.
    fn recorded(&mut self) -> Result<Vec<(Edge, f64)>, TraceError> {
        let mut edges = Vec::new();
        for (to, one) in self.served.iter().enumerate() {
            for dependency in &one.request.replay.dependencies {
                let name = &dependency.request_id;
                let refuse = |what: &str| Err(one.place.error(format!("request.replay.dependencies: {name:?} {what}")));
                let Some(&from) = self.by_id.get(&**name) else { return refuse("is no request of this trace") };
                if self.served[from].start_ms > one.start_ms {
                    return refuse("starts later than the request that waits for it");
                }
                self.explicit.insert((session(&self.served[from]), session(one)));
                edges.push(self.edge(from, to, dependency.trigger, dependency.relation, Overlap::Clamped)?);
            }
        }
        Ok(edges)
    }

    /// Every session that was started by another, with that one.
    fn parents(&self) -> Result<Vec<(&'a str, &'a str)>, TraceError> {
        let mut parents = Vec::new();
        for (child, of_session) in &self.requests {
            let named: Vec<&Served> =
                of_session.iter().map(|&index| &self.served[index]).filter(|one| one.parent.is_some()).collect();
            let Some(first) = named.first() else { continue };
            let parent = first.parent.as_deref().unwrap_or_default();
            if let Some(other) = named.iter().find(|one| one.parent != first.parent) {
                let message = format!(
                    "agent_context.parent_session_id: is {:?}, but {parent:?} at {}",
                    other.parent.as_deref().unwrap_or_default(),
                    first.place
                );
                return Err(other.place.error(message));
            }
            if !self.requests.contains_key(parent) {
                let message = format!("agent_context.parent_session_id: {parent:?} has no requests in this trace");
                return Err(first.place.error(message));
            }
            parents.push((*child, parent));
        }
        Ok(parents)
    }

    /// How a child is tied to its parent where a tool record says so.
    fn tool_edges(
        &self,
        child: &str,
        parent: &str,
        tool: &ChildAgent,
        place: &SourcePlace,
    ) -> Result<Vec<(Edge, f64)>, TraceError> {
        let source = self.request_of(&tool.source_request_id, parent, "source_request_id", place)?;
        let of_child = &self.requests[child];
        let mut edges = Vec::new();
        if let Some(&first) = of_child.first() {
            edges.push(self.edge(source, first, Trigger::Dispatch, Relation::Spawn, Overlap::Refused)?);
        }
        if let Some(consumer) = &tool.consumer_request_id {
            let consumer = self.request_of(consumer, parent, "consumer_request_id", place)?;
            let ended = of_child.iter().copied().filter(|&index| self.ended_by(index, consumer));
            if let Some(last) = ended.max_by_key(|&index| (self.served[index].end_ms, index)) {
                edges.push(self.edge(last, consumer, Trigger::Completion, Relation::Join, Overlap::Refused)?);
            }
        }
        Ok(edges)
    }

    /// How a child is tied to its parent if nothing says so: by the times.
    fn guessed(&self, child: &str, parent: &str) -> Result<Vec<(Edge, f64)>, TraceError> {
        let (of_child, of_parent) = (&self.requests[child], &self.requests[parent]);
        let mut edges = Vec::new();
        if self.explicit.contains(&(parent, child)) || self.explicit.contains(&(child, parent)) {
            return Ok(edges);
        }
        let start_ms = |index: usize| self.served[index].start_ms;
        if let Some(&first) = of_child.first()
            && let Some(&source) = of_parent.iter().rfind(|&&index| start_ms(index) <= start_ms(first))
        {
            edges.push(self.edge(source, first, Trigger::Dispatch, Relation::Spawn, Overlap::Refused)?);
        }
        if let Some(&last) = of_child.iter().max_by_key(|&&index| (self.served[index].end_ms, index))
            && let Some(&consumer) = of_parent.iter().find(|&&index| self.ended_by(last, index))
        {
            edges.push(self.edge(last, consumer, Trigger::Completion, Relation::Join, Overlap::Refused)?);
        }
        Ok(edges)
    }

    fn ended_by(&self, index: usize, other: usize) -> bool {
        self.served[index].end_ms <= self.served[other].start_ms
    }

    /// A request that a tool record names; it has to be one of `session`.
    fn request_of(&self, name: &str, of: &str, field: &str, place: &SourcePlace) -> Result<usize, TraceError> {
        let refuse = |what: String| Err(place.error(format!("tool.claude.{field}: {name:?} {what}")));
        match self.by_id.get(name) {
            None => refuse("is no request of this trace".to_owned()),
            Some(&index) if session(&self.served[index]) != of => refuse(format!("is not of session {of:?}")),
            Some(&index) => Ok(index),
        }
    }

    /// What tool records say has to be true, whether or not an edge comes of it.
    fn check_tools(&self, tools: &[ToolUse]) -> Result<(), TraceError> {
        for (record, place) in tools {
            let Some(claude) = &record.tool.claude else { continue };
            let of = &record.agent_context.session_id;
            self.request_of(&claude.source_request_id, of, "source_request_id", place)?;
            if let Some(consumer) = &claude.consumer_request_id {
                self.request_of(consumer, of, "consumer_request_id", place)?;
            }
        }
        Ok(())
    }

    /// An edge, and its delay from the recorded times, in ms.
    fn edge(
        &self,
        from: usize,
        to: usize,
        trigger: Trigger,
        relation: Relation,
        overlap: Overlap,
    ) -> Result<(Edge, f64), TraceError> {
        let (before, after) = (&self.served[from], &self.served[to]);
        let from_ms = if trigger == Trigger::Dispatch { before.start_ms } else { before.end_ms };
        let delay_ms = after.start_ms as f64 - from_ms as f64;
        if delay_ms < 0.0 && overlap == Overlap::Refused {
            return Err(after.place.error(format!(
                "request.request_received_ms: starts {} ms before {:?}, which it has to wait for ({})",
                -delay_ms, before.request.request_id, before.place
            )));
        }
        Ok((Edge { from, to, trigger, relation }, delay_ms.max(0.0)))
    }
}

fn session(one: &Served) -> &str {
    one.session.as_deref().unwrap_or_default()
}

/// The tool record of every session that one names.
fn children(tools: &[ToolUse]) -> Result<BTreeMap<&str, (&ChildAgent, &SourcePlace)>, TraceError> {
    let mut children = BTreeMap::<&str, (&ChildAgent, &SourcePlace)>::new();
    for (record, place) in tools {
        let Some(claude) = &record.tool.claude else { continue };
        let Some(child) = claude.child_session_id.as_deref() else { continue };
        if let Some((_, first)) = children.insert(child, (claude, place)) {
            return Err(place.error(format!("tool.claude.child_session_id: {child:?} was started at {first} already")));
        }
    }
    Ok(children)
}

/// The rows of the graph, still without their hash ids.
fn nodes(served: &[Served], edges: &[(Edge, f64)]) -> Vec<AgenticRow> {
    let mut groups = Components::new(served.len());
    let mut incoming = vec![Vec::<(Edge, f64)>::new(); served.len()];
    for &(edge, delay_ms) in edges {
        groups.join(edge.from, edge.to);
        let twin = |(other, _): &(Edge, f64)| {
            (other.from, other.trigger, other.relation) == (edge.from, edge.trigger, edge.relation)
        };
        if !incoming[edge.to].iter().any(twin) {
            incoming[edge.to].push((edge, delay_ms));
        }
    }
    let earliest_ms = served.first().map_or(0, |one| one.start_ms);
    let start = |index: usize| (served[index].start_ms, &served[index].request.request_id);
    let plays = groups.name_after(|a, b| start(a).cmp(&start(b)));
    let rows = served.iter().zip(&incoming).zip(plays).map(|((one, waits), play)| AgenticRow {
        request_id: one.request.request_id.clone(),
        play_id: format!("{PLAY_PREFIX}{}", served[play].request.request_id).into(),
        source_play_ordinal: None,
        session_id: session(one).into(),
        model: one.request.model.clone().unwrap_or_else(|| UNKNOWN_MODEL.into()),
        input_length: one.request.replay.input_length,
        output_length: one.request.output_tokens,
        output_token_ids: None,
        hash_ids: Vec::new(),
        not_before_ms: if waits.is_empty() { (one.start_ms - earliest_ms) as f64 } else { 0.0 },
        recorded_api_time_ms: None,
        priority: 0,
        strict_priority: 0,
        policy_class: None,
        dependencies: waits
            .iter()
            .map(|&(edge, delay_ms)| Dependency {
                request_id: served[edge.from].request.request_id.clone(),
                trigger: edge.trigger,
                delay_ms,
                relation: edge.relation,
            })
            .collect(),
    });
    rows.collect()
}
