//! A world with its clock: built from plain values, stepped instant by instant.

use bevy_ecs::prelude::*;
use dynosim_schemas::request_row::RequestRow;
use dynosim_schemas::summary::Summary;

use crate::clock::Clock;
use crate::kv::{BlockOf, BlockUse, KvPool, PrefixNode};
use crate::metrics::{Outbox, PassStatistics, RequestStatistics, SlaBounds};
use crate::order::{self, Closing, Instant, OneStage, Stage};
use crate::routing::{Placements, RoundRobin};
use crate::scheduling::{
    EngineSpec, Fleet, PassClock, PassHorizon, PassQueue, RunningBatch, Signals, WaitingQueue, Worker,
};
use crate::time::VirtualTime;
use crate::traffic::{SourceError, Traffic};

/// What is simulated, apart from the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// The engine of every worker.
    pub engine: EngineSpec,
    /// Number of workers.
    pub workers: u32,
    /// GPUs of one worker.
    pub gpus_per_worker: u64,
    /// Bounds for goodput.
    pub sla: Option<SlaBounds>,
    /// The virtual time at which the simulation is cut off.
    pub cutoff: VirtualTime,
}

/// How far a simulation has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Virtual time, in ms.
    pub now_ms: f64,
    /// Requests that have arrived.
    pub arrived: u64,
    /// Requests that have ended.
    pub ended: u64,
}

/// Counts of what the engine has done: what its time went into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// Forward passes.
    pub passes: u64,
    /// Those of them in which something was due or admitted.
    pub eventful_passes: u64,
    /// KV blocks given out.
    pub blocks_allocated: u64,
    /// KV blocks found in the prefix cache and used again.
    pub blocks_reused: u64,
    /// KV blocks made findable.
    pub blocks_published: u64,
}

/// A running simulation.
pub struct Simulation {
    /// The world: every piece of state is a component or a resource in it.
    pub world: World,
    deployment: Deployment,
    instants: u64,
}

/// Instants between two clean-ups of what bevy_ecs remembers of removed components. Nobody here asks
/// for it, and it grows with every request that leaves.
const INSTANTS_PER_CLEANUP: u64 = 1024;

impl Simulation {
    /// Builds the world of a deployment under a workload.
    #[must_use]
    pub fn new(deployment: Deployment, traffic: Traffic) -> Self {
        let mut world = World::new();
        let mut fleet = Fleet::default();
        for id in 0..deployment.workers {
            fleet.workers.push(spawn_worker(&mut world, id, deployment.engine));
        }
        spawn_blocks(&mut world, &fleet.workers, deployment.engine.num_blocks);
        world.insert_resource(fleet);
        world.insert_resource(PassHorizon {
            next_arrival: traffic.next_arrival(VirtualTime::ZERO),
            cutoff: deployment.cutoff,
            reacts_to_endings: traffic.reacts_to_endings(),
        });
        world.insert_resource(traffic);
        world.insert_resource(RequestStatistics::new(deployment.sla));
        world.init_resource::<Clock>();
        world.init_resource::<PassQueue>();
        world.init_resource::<Signals>();
        world.init_resource::<PassStatistics>();
        world.init_resource::<Outbox>();
        world.init_resource::<Placements>();
        world.init_resource::<RoundRobin>();
        order::add_schedules(&mut world);
        Self { world, deployment, instants: 0 }
    }

    /// Handles the next instant; `false` once nothing is left to happen before the cut-off.
    ///
    /// # Errors
    /// When the workload's source could not be read on, or a worker makes no progress (a bug).
    pub fn step(&mut self) -> Result<bool, SourceError> {
        self.step_by(|world| world.run_schedule(Instant))
    }

    /// Like [`Self::step`], telling after each stage that it is done.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn step_by_stages(&mut self, mut done: impl FnMut(Stage)) -> Result<bool, SourceError> {
        self.step_by(|world| {
            for stage in Stage::ALL {
                world.run_schedule(OneStage(stage));
                done(stage);
            }
        })
    }

    fn step_by(&mut self, handle_instant: impl FnOnce(&mut World)) -> Result<bool, SourceError> {
        if !self.has_more() {
            return Ok(false);
        }
        handle_instant(&mut self.world);
        self.instants += 1;
        if self.instants.is_multiple_of(INSTANTS_PER_CLEANUP) {
            self.world.clear_trackers();
        }
        if let Some(worker) = self.world.resource::<Clock>().stalled_worker {
            return Err(self.stall(worker).into());
        }
        match self.world.resource_mut::<Traffic>().take_fault() {
            Some(fault) => Err(fault),
            None => Ok(true),
        }
    }

    /// Describes a worker that would run for ever.
    fn stall(&mut self, worker: u32) -> String {
        let now_ms = self.progress().now_ms;
        let mut workers = self.world.query::<(&Worker, &RunningBatch, &WaitingQueue, &KvPool)>();
        let state = workers.iter(&self.world).find(|(found, ..)| found.id == worker);
        let state = state.map(|(_, batch, queue, pool)| {
            let usage = pool.usage();
            format!("{} running, {} waiting, {usage:?}", batch.members.len(), queue.requests.len())
        });
        format!(
            "worker {worker} gets nothing done any more at {now_ms} ms ({}); this is a bug in dynosim, please report it",
            state.unwrap_or_default()
        )
    }

    fn has_more(&self) -> bool {
        let next_pass = self.world.resource::<PassQueue>().earliest_end();
        let next = next_pass.min(self.world.resource::<PassHorizon>().next_arrival);
        let woken = !self.world.resource::<Fleet>().woken.is_empty();
        woken || (next <= self.deployment.cutoff && next != VirtualTime::NEVER)
    }

    /// Takes the rows of requests that have ended since the last call.
    pub fn take_rows(&mut self) -> Vec<RequestRow> {
        std::mem::take(&mut self.world.resource_mut::<Outbox>().0)
    }

    /// Number of rows that [`Self::take_rows`] would give.
    #[must_use]
    pub fn rows_waiting(&self) -> usize {
        self.world.resource::<Outbox>().0.len()
    }

    /// How far the simulation has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            now_ms: self.world.resource::<Clock>().now.ms(),
            arrived: self.world.resource::<Traffic>().requests_arrived(),
            ended: self.world.resource::<RequestStatistics>().ended(),
        }
    }

    /// What the engine has done so far.
    pub fn work_done(&mut self) -> WorkDone {
        let mut workers = self.world.query::<(&PassClock, &KvPool)>();
        let mut done = WorkDone::default();
        for (passes, pool) in workers.iter(&self.world) {
            let blocks = pool.activity();
            done.passes += passes.number;
            done.eventful_passes += passes.eventful;
            done.blocks_allocated += blocks.allocated;
            done.blocks_reused += blocks.reused;
            done.blocks_published += blocks.published;
        }
        done
    }

    /// Closes the books: requests that are still there become rows, and the figures are summed up.
    ///
    /// The second value names the pools whose percentiles had to come from a sketch.
    pub fn finish(&mut self) -> (Summary, Vec<&'static str>) {
        self.world.run_schedule(Closing);
        let requests = self.world.resource::<RequestStatistics>();
        let passes = self.world.resource::<PassStatistics>();
        let mut summary = requests.summary(passes);
        let provisioned_seconds = self.world.resource::<Clock>().last_event.ms() / 1000.0;
        summary.decode_gpus_per_worker = self.deployment.gpus_per_worker;
        summary.decode_worker_seconds = provisioned_seconds * f64::from(self.deployment.workers);
        summary.gpu_hours = summary.decode_worker_seconds * self.deployment.gpus_per_worker as f64 / 3600.0;
        (summary, requests.sketched(passes))
    }
}

/// Spawns a worker. Its blocks will be the `id`-th stretch of rows in the table of blocks.
fn spawn_worker(world: &mut World, id: u32, engine: EngineSpec) -> Entity {
    let first_row = id as usize * engine.num_blocks as usize;
    let worker = (
        Worker { id },
        engine,
        WaitingQueue::default(),
        RunningBatch::default(),
        PassClock::default(),
        KvPool::new(first_row, engine.num_blocks),
    );
    world.spawn(worker).id()
}

/// Spawns the blocks of all pools at once, worker by worker, so that the table is made in one piece.
fn spawn_blocks(world: &mut World, workers: &[Entity], blocks_per_worker: u32) {
    let per_worker = blocks_per_worker as usize;
    world.spawn_batch((0..workers.len() * per_worker).map(|row| {
        let worker = workers[row / per_worker];
        (BlockUse::default(), PrefixNode::default(), BlockOf(worker))
    }));
}
