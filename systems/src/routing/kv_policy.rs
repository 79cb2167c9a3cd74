//! The KV-aware router as the policy of a pool.

use bevy_ecs::prelude::*;

use super::kv_router::{Decision, KvRouter, KvRouterSpec, RouteRequest, Target};
use super::{Arrival, Placed, RouterNote, RouterPolicy};
use crate::fleet::{LogicalWorker, Role};
use crate::time::VirtualTime;

/// A [`KvRouter`] behind the interface of policies.
#[derive(Debug)]
pub struct KvPolicy {
    router: KvRouter,
    wants_cache: bool,
    has_queue: bool,
    /// Decisions that nobody has taken yet, if they are recorded.
    decisions: Option<Vec<(VirtualTime, Decision)>>,
}

impl KvPolicy {
    /// The policy of the pool with these workers.
    pub fn new<'a>(
        spec: &KvRouterSpec,
        role: Role,
        workers: impl Iterator<Item = &'a LogicalWorker>,
        records: bool,
    ) -> Self {
        let spec = match role {
            Role::Aggregated => spec.clone(),
            Role::Prefill => spec.clone().for_prefill_pool(),
            Role::Decode => spec.clone().for_decode_pool(),
        };
        let (wants_cache, has_queue) = (spec.uses_overlap, spec.queue.is_some());
        let targets =
            workers.flat_map(|worker| (0..worker.ranks.len() as u32).map(|rank| Target { worker_id: worker.id, rank }));
        let mut router = KvRouter::new(spec, targets);
        router.record_decisions(records);
        Self { router, wants_cache, has_queue, decisions: records.then(Vec::new) }
    }

    fn placed(&mut self, decision: Decision, now: VirtualTime) -> Placed {
        let placed = Placed { target: decision.target as u32, overlap_blocks: decision.overlap_blocks };
        if let Some(decisions) = &mut self.decisions {
            decisions.push((now, decision));
        }
        placed
    }
}

impl RouterPolicy for KvPolicy {
    fn place(&mut self, arrival: &Arrival<'_>, now: VirtualTime) -> Option<Placed> {
        let request = RouteRequest {
            request: arrival.request,
            prompt_tokens: arrival.prompt_tokens,
            identity: arrival.identity,
            priority: 0.0,
            arrival_ms: arrival.arrival_ms,
            preferred_rank: None,
        };
        let decision = self.router.submit(&request, now.ms())?;
        Some(self.placed(decision, now))
    }

    fn set_routable(&mut self, target: u32, routable: bool) {
        self.router.set_routable(target as usize, routable);
    }

    fn wants_notes(&self) -> bool {
        true
    }

    fn has_queue(&self) -> bool {
        self.has_queue
    }

    fn note(&mut self, target: u32, at: VirtualTime, note: RouterNote) {
        match note {
            RouterNote::Prefilled(request) => self.router.prefill_completed(request, at.ms()),
            RouterNote::Ended(request) => self.router.ended(request, at.ms()),
            RouterNote::Cache(event) if self.wants_cache => self.router.apply(target as usize, event),
            RouterNote::Cache(_) => {}
        }
    }

    fn next_from_queue(&mut self, now: VirtualTime) -> Option<(Entity, Placed)> {
        let decision = self.router.next_from_queue(now.ms())?;
        let request = decision.request;
        Some((request, self.placed(decision, now)))
    }

    fn take_decisions(&mut self) -> Vec<(VirtualTime, Decision)> {
        self.decisions.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn audit(&self, requests_placed: u64) -> Result<(), String> {
        let booked = self.router.active_requests() as u64;
        if booked != requests_placed {
            return Err(format!(
                "the router has {booked} requests on its books, but {requests_placed} are with workers"
            ));
        }
        self.router.check()
    }
}
