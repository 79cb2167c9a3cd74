//! The workers of a deployment: what each is for, which ranks it has, and where it is in its life.

use std::ops::Range;

use bevy_ecs::prelude::*;
pub use dynosim_schemas::config::Role;

use crate::time::VirtualTime;

/// One scheduler with its own KV pool. A worker has one rank for each of its data-parallel attention
/// ranks; the ranks of a worker run their passes together.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Place in [`Fleet::ranks`].
    pub index: u32,
    /// Id of its worker within the worker's pool: what leaves the world.
    pub worker_id: u32,
    /// Place among the ranks of its worker, from 0.
    pub rank: u32,
}

/// Where a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// Asked for, and not able to serve yet.
    Starting,
    /// Serves, and gets requests.
    Ready,
    /// Serves what it has, and gets nothing new.
    Draining,
    /// Given back.
    Gone,
}

/// A worker as the router and the pass loop see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalWorker {
    /// What it is for.
    pub role: Role,
    /// Its id within its pool, from 0 in order of creation.
    pub id: u32,
    /// Its ranks, as places in [`Fleet::ranks`].
    pub ranks: Range<u32>,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// Whether a pass of its ranks is in flight.
    pub in_pass: bool,
    /// When that pass ends.
    pub pass_end: VirtualTime,
    /// Passes since it last had nothing to do.
    pub passes_since_idle: u64,
}

/// The workers that serve one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The role.
    pub role: Role,
    /// Its workers, as places in [`Fleet::workers`].
    pub workers: Range<u32>,
    /// Its ranks, as places in [`Fleet::ranks`].
    pub ranks: Range<u32>,
}

/// All workers: prefill before decode, and in order of their ids. At one instant, events of workers
/// are handled in this order.
#[derive(Resource, Debug, Default)]
pub struct Fleet {
    /// The entity of each rank.
    pub ranks: Vec<Entity>,
    /// The worker of each rank, as a place in `workers`.
    pub worker_of_rank: Vec<u32>,
    /// The workers.
    pub workers: Vec<LogicalWorker>,
    /// The workers by role.
    pub pools: Vec<Pool>,
    /// Workers that got something to do while no pass was in flight.
    pub woken: Vec<u32>,
}

impl Fleet {
    /// The pool of a role; deployments have a pool for each role that their requests pass through.
    #[must_use]
    pub fn pool(&self, role: Role) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.role == role)
    }

    /// Where requests arrive: the only pool, or the prefill pool.
    #[must_use]
    pub fn entry_role(&self) -> Role {
        self.pools.first().map_or(Role::Aggregated, |pool| pool.role)
    }

    /// Whether requests are handed over from prefill to decode workers.
    #[must_use]
    pub fn is_disaggregated(&self) -> bool {
        self.pools.len() > 1
    }

    /// The worker of a rank.
    #[must_use]
    pub fn worker_of(&self, rank: u32) -> &LogicalWorker {
        &self.workers[self.worker_of_rank[rank as usize] as usize]
    }

    /// Notes that a rank got something to do.
    #[inline]
    pub fn wake(&mut self, rank: u32) {
        self.woken.push(self.worker_of_rank[rank as usize]);
    }
}
