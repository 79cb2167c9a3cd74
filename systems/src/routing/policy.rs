//! What a router policy has to be able to do, and the routers of a deployment.

use bevy_ecs::prelude::*;

use super::kv_policy::KvPolicy;
use super::kv_router::{Decision, KvRouterSpec};
use super::{RoundRobin, RouterFeed, RouterNote};
use crate::fleet::{Fleet, Role};
use crate::prefix::PromptIdentity;
use crate::time::VirtualTime;

/// A request that asks for a place.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The request.
    pub request: Entity,
    /// Prompt length.
    pub prompt_tokens: u32,
    /// What its tokens are.
    pub identity: &'a PromptIdentity,
    /// When it reached the deployment, in ms.
    pub arrival_ms: f64,
}

/// A router's choice. Targets are the ranks of a pool, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The chosen target.
    pub target: u32,
    /// Leading blocks of the prompt that the router believes to be cached there.
    pub overlap_blocks: u32,
}

/// How a router spreads requests over the ranks of one pool.
///
/// A policy is told of everything in the order in which it happens, and answers from what it was
/// told alone.
pub trait RouterPolicy: Send + Sync {
    /// Chooses a target, or keeps the request in the policy's own queue.
    fn place(&mut self, arrival: &Arrival<'_>, now: VirtualTime) -> Option<Placed>;

    /// Lets a target take part, or not any more.
    fn set_routable(&mut self, target: u32, routable: bool);

    /// Whether [`Self::note`] wants to be called.
    fn wants_notes(&self) -> bool {
        false
    }

    /// Whether [`Self::next_from_queue`] can ever give anything.
    fn has_queue(&self) -> bool {
        false
    }

    /// Hears what has happened on a target.
    fn note(&mut self, _target: u32, _at: VirtualTime, _note: RouterNote) {}

    /// Takes the next request out of the policy's own queue, if its time has come.
    fn next_from_queue(&mut self, _now: VirtualTime) -> Option<(Entity, Placed)> {
        None
    }

    /// Takes the decisions that were made since the last call, with their times, if the policy records
    /// them.
    fn take_decisions(&mut self) -> Vec<(VirtualTime, Decision)> {
        Vec::new()
    }

    /// Checks the policy's books, given the requests that are neither ended nor queued here.
    ///
    /// # Errors
    /// What is wrong.
    fn audit(&self, _requests_placed: u64) -> Result<(), String> {
        Ok(())
    }
}

/// Which policy spreads requests.
#[derive(Clone, Debug, PartialEq)]
pub enum RouterSpec {
    /// Each rank in turn.
    RoundRobin,
    /// The rank with the least left to do, as the aggregated pool's router sees it; a prefill and a
    /// decode pool's routers follow from it.
    Kv(KvRouterSpec),
}

impl RouterSpec {
    /// The policy for the pool of a role.
    fn policy(&self, role: Role, fleet: &Fleet, records: bool) -> Box<dyn RouterPolicy> {
        let workers = fleet.workers.iter().filter(|worker| worker.role == role);
        match self {
            Self::RoundRobin => {
                let ranks = workers.map(|worker| worker.ranks.len() as u32);
                Box::new(RoundRobin::new(ranks, role == Role::Aggregated))
            }
            Self::Kv(spec) => Box::new(KvPolicy::new(spec, role, workers, records)),
        }
    }
}

/// The router of each pool.
#[derive(Resource)]
pub struct Routers {
    pools: Vec<PoolRouter>,
    records: bool,
}

struct PoolRouter {
    role: Role,
    /// The first rank of the pool, as its place in the fleet.
    first_rank: u32,
    policy: Box<dyn RouterPolicy>,
}

/// A request that has left a router's own queue: (request, rank as its place in the fleet, choice).
pub type Released = (Entity, u32, Placed);

impl Routers {
    /// Routers for all pools of a deployment, which record their decisions if `records`.
    #[must_use]
    pub fn new(spec: &RouterSpec, fleet: &Fleet, records: bool) -> Self {
        let pools = fleet.pools.iter().map(|pool| PoolRouter {
            role: pool.role,
            first_rank: pool.ranks.start,
            policy: spec.policy(pool.role, fleet, records),
        });
        Self { pools: pools.collect(), records }
    }

    /// Whether any policy wants to hear what happens on the ranks.
    #[must_use]
    pub fn want_notes(&self) -> bool {
        self.pools.iter().any(|pool| pool.policy.wants_notes())
    }

    /// Whether any policy keeps requests in a queue of its own.
    #[must_use]
    pub fn have_queues(&self) -> bool {
        self.pools.iter().any(|pool| pool.policy.has_queue())
    }

    /// Chooses a rank of a role's pool for a request: its place in the fleet, and the choice. `None`
    /// if the router keeps the request in its queue.
    pub fn place(&mut self, role: Role, arrival: &Arrival<'_>, now: VirtualTime) -> Option<(u32, Placed)> {
        let pool = self.pools.iter_mut().find(|pool| pool.role == role)?;
        let placed = pool.policy.place(arrival, now)?;
        Some((pool.first_rank + placed.target, placed))
    }

    /// Lets a rank, by its place in the fleet, take part or not any more.
    pub fn set_routable(&mut self, rank: u32, routable: bool) {
        if let Some(pool) = self.pools.iter_mut().rfind(|pool| pool.first_rank <= rank) {
            pool.policy.set_routable(rank - pool.first_rank, routable);
        }
    }

    /// Tells the policies what has happened; what leaves their queues because of it goes to `released`.
    pub fn catch_up(&mut self, feed: &mut RouterFeed, released: &mut Vec<Released>) {
        if !feed.is_enabled() {
            return;
        }
        let entries = feed.take();
        for entry in &entries {
            let Some(pool) = self.pools.iter_mut().rfind(|pool| pool.first_rank <= entry.rank) else { continue };
            pool.policy.note(entry.rank - pool.first_rank, entry.at, entry.note);
            if pool.policy.has_queue() && !matches!(entry.note, RouterNote::Cache(_)) {
                while let Some((request, placed)) = pool.policy.next_from_queue(entry.at) {
                    released.push((request, pool.first_rank + placed.target, placed));
                }
            }
        }
        feed.give_back(entries);
    }

    /// Whether the policies record their decisions.
    #[must_use]
    pub const fn record_decisions(&self) -> bool {
        self.records
    }

    /// Takes the decisions that were made since the last call, pool by pool, in order.
    pub fn take_decisions(&mut self) -> Vec<(Role, VirtualTime, Decision)> {
        let of_pool = |pool: &mut PoolRouter| {
            let role = pool.role;
            pool.policy.take_decisions().into_iter().map(move |(at, decision)| (role, at, decision))
        };
        self.pools.iter_mut().flat_map(of_pool).collect()
    }

    /// Checks the books of every policy; `placed` tells how many requests each role's ranks have.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self, placed: impl Fn(Role) -> u64) -> Result<(), String> {
        self.pools.iter().try_for_each(|pool| pool.policy.audit(placed(pool.role)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of ARCHITECTURE.md.
    struct LeastRequests {
        requests: Vec<u32>,
        routable: Vec<bool>,
    }

    impl RouterPolicy for LeastRequests {
        fn place(&mut self, _: &Arrival<'_>, _: VirtualTime) -> Option<Placed> {
            let routable = (0..self.requests.len()).filter(|&target| self.routable[target]);
            let target = routable.min_by_key(|&target| self.requests[target])?;
            self.requests[target] += 1;
            Some(Placed { target: target as u32, overlap_blocks: 0 })
        }

        fn set_routable(&mut self, target: u32, routable: bool) {
            self.routable[target as usize] = routable;
        }

        fn wants_notes(&self) -> bool {
            true
        }

        fn note(&mut self, target: u32, _: VirtualTime, note: RouterNote) {
            if let RouterNote::Ended(_) = note {
                self.requests[target as usize] -= 1;
            }
        }
    }

    #[test]
    fn a_policy_hears_notes_by_its_own_targets() {
        let policy = LeastRequests { requests: vec![0; 2], routable: vec![true; 2] };
        let pool = PoolRouter { role: Role::Aggregated, first_rank: 3, policy: Box::new(policy) };
        let mut routers = Routers { pools: vec![pool], records: false };
        let mut feed = RouterFeed::new(routers.want_notes(), routers.have_queues());
        let identity = PromptIdentity::unique(0);
        let request = Entity::PLACEHOLDER;
        let arrival = Arrival { request, prompt_tokens: 1, identity: &identity, arrival_ms: 0.0 };
        let mut ranks = Vec::new();
        for _ in 0..3 {
            ranks.extend(routers.place(Role::Aggregated, &arrival, VirtualTime::ZERO).map(|(rank, _)| rank));
        }
        feed.note(3, VirtualTime::ZERO, RouterNote::Ended(request));
        feed.note(3, VirtualTime::ZERO, RouterNote::Ended(request));
        routers.catch_up(&mut feed, &mut Vec::new());
        ranks.extend(routers.place(Role::Aggregated, &arrival, VirtualTime::ZERO).map(|(rank, _)| rank));
        assert_eq!(ranks, [3, 4, 3, 3]);
    }
}
