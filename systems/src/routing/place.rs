//! Gives requests their places.

use bevy_ecs::prelude::*;
use dynosim_schemas::decision_row::DecisionRow;

use super::kv_router::Decision;
use super::policy::Released;
use super::{Arrival, Placed, RouterFeed, Routers};
use crate::clock::Clock;
use crate::fleet::{Fleet, Rank, Role};
use crate::prefix::PromptIdentity;
use crate::scheduling::{Sequence, Timeline, WaitingQueue};
use crate::time::VirtualTime;
use crate::traffic::RequestInfo;

/// Requests on their way to a rank, in order.
#[derive(Resource, Debug, Default)]
pub struct Placements {
    /// Whether requests get room on a decode rank before they go anywhere.
    pub destination_first: bool,
    /// Those that have arrived and need room on a decode rank first.
    pub arrived: Vec<Entity>,
    /// Those that may be placed where prompts are computed.
    pub ready: Vec<Entity>,
    /// Those that have left a router's own queue.
    pub released: Vec<Released>,
}

impl Placements {
    /// Whether nobody can be placed now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.released.is_empty()
    }

    /// Lets a request in.
    pub fn arrive(&mut self, request: Entity) {
        let list = if self.destination_first { &mut self.arrived } else { &mut self.ready };
        list.push(request);
    }
}

/// A router's choice for a request, as it was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteTaken {
    /// The rank, as its place in the fleet.
    pub fleet_rank: u32,
    /// The worker, by its id within its pool.
    pub worker_id: u32,
    /// The rank of the worker.
    pub rank: u32,
    /// When it was placed.
    pub at: VirtualTime,
    /// Leading blocks of the prompt that the router believed to be cached there.
    pub overlap_blocks: u32,
}

impl RouteTaken {
    /// The record of a choice that led to `rank`.
    #[must_use]
    pub fn new(rank: &Rank, placed: Placed, at: VirtualTime) -> Self {
        Self {
            fleet_rank: rank.index,
            worker_id: rank.worker_id,
            rank: rank.rank,
            at,
            overlap_blocks: placed.overlap_blocks,
        }
    }
}

/// Where a request went.
#[derive(Component, Clone, Copy, Debug, Default, PartialEq)]
pub struct Route {
    /// Where its prompt is computed, if tokens are generated somewhere else.
    pub prefill: Option<RouteTaken>,
    /// Where its tokens are generated.
    pub serving: Option<RouteTaken>,
}

/// Places the requests that are ready, and those that have left a router's queue.
pub fn place_ready(
    clock: Res<Clock>,
    mut placements: ResMut<Placements>,
    mut routers: ResMut<Routers>,
    mut feed: ResMut<RouterFeed>,
    mut fleet: ResMut<Fleet>,
    mut requests: Query<(&PromptIdentity, &Sequence, &Timeline, &mut Route)>,
    mut ranks: Query<(&Rank, &mut WaitingQueue)>,
) {
    let Placements { ready, released, .. } = &mut *placements;
    routers.catch_up(&mut feed, released);
    for sent in released.drain(..) {
        if let Ok((.., mut route)) = requests.get_mut(sent.0) {
            send(sent, &mut route, &mut fleet, &mut ranks, clock.now);
        }
    }
    let role = fleet.entry_role();
    for request in ready.drain(..) {
        let Ok((identity, sequence, timeline, mut route)) = requests.get_mut(request) else { continue };
        let arrival =
            Arrival { request, prompt_tokens: sequence.prompt_tokens, identity, arrival_ms: timeline.arrival_ms };
        if let Some((rank, placed)) = routers.place(role, &arrival, clock.now) {
            send((request, rank, placed), &mut route, &mut fleet, &mut ranks, clock.now);
        }
    }
}

/// Queues a request on the rank that was chosen for it.
fn send(
    (request, rank, placed): Released,
    route: &mut Route,
    fleet: &mut Fleet,
    ranks: &mut Query<(&Rank, &mut WaitingQueue)>,
    now: VirtualTime,
) {
    let Ok((rank_data, mut queue)) = ranks.get_mut(fleet.ranks[rank as usize]) else { return };
    let taken = RouteTaken::new(rank_data, placed, now);
    *(if fleet.is_disaggregated() { &mut route.prefill } else { &mut route.serving }) = Some(taken);
    queue.requests.push_back(request);
    fleet.wake(rank);
}

/// Decisions that wait to be taken out of the world, in order.
#[derive(Resource, Debug, Default)]
pub struct DecisionOutbox {
    /// The rows.
    pub rows: Vec<DecisionRow>,
    decisions: u64,
}

impl DecisionOutbox {
    /// Writes a decision down, row by row.
    fn add(&mut self, pool: Role, at: VirtualTime, request_index: u64, decision: &Decision) {
        let decision_index = self.decisions;
        self.decisions += 1;
        self.rows.extend(decision.candidates.iter().map(|candidate| DecisionRow {
            decision_index,
            request_index,
            at_ms: at.ms(),
            pool,
            queued_at_ms: decision.queued_at_ms,
            worker_id: candidate.worker_id,
            rank: candidate.rank,
            overlap_blocks: candidate.overlap_blocks,
            prefill_tokens: candidate.prefill_tokens,
            decode_blocks: candidate.decode_blocks,
            cost: candidate.cost,
            chosen: candidate.target == decision.target,
        }));
    }
}

/// Writes down the decisions of routers that record them.
pub fn record_decisions(
    mut routers: ResMut<Routers>,
    mut outbox: ResMut<DecisionOutbox>,
    requests: Query<&RequestInfo>,
) {
    if !routers.record_decisions() {
        return;
    }
    for (role, at, decision) in routers.take_decisions() {
        if let Ok(info) = requests.get(decision.request) {
            outbox.add(role, at, info.request_index, &decision);
        }
    }
}
