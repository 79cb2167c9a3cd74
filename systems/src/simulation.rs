//! A world with its clock: built from plain values, stepped instant by instant.

use bevy_ecs::prelude::*;
use dynosim_schemas::config::Backend;
use dynosim_schemas::decision_row::DecisionRow;
use dynosim_schemas::play_row::PlayRow;
use dynosim_schemas::request_row::RequestRow;
use dynosim_schemas::summary::Summary;

use crate::audit;
use crate::clock::Clock;
use crate::deployment::{Deployment, PoolSpec};
use crate::fleet::{Fleet, Lifecycle, LogicalWorker, Pool, Rank, Role};
use crate::handoff::{HandoffDesk, HandoffDesks, Transfers};
use crate::kv::{BlockUse, KvPool, PrefixNode};
use crate::metrics::{Outbox, PassStatistics, RequestStatistics};
use crate::order::{Handover, Order, Stage};
use crate::routing::{DecisionOutbox, Placements, Route, RouterFeed, Routers};
use crate::scheduling::sglang::SglangRank;
use crate::scheduling::{PassClock, PassHorizon, PassQueue, RunningBatch, Signals, WaitingQueue};
use crate::time::VirtualTime;
use crate::traffic::agentic::Playback;
use crate::traffic::{SourceError, Traffic};

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
    order: Order,
    deployment: Deployment,
    instants: u64,
}

/// The memory of a simulation that has ended.
pub struct Remains {
    _world: World,
}

/// Instants between two clean-ups of what bevy_ecs remembers of removed components. Nobody here asks
/// for it, and it grows with every request that leaves.
const INSTANTS_PER_CLEANUP: u64 = 1024;

impl Simulation {
    /// Builds the world of a deployment under a workload.
    #[must_use]
    pub fn new(deployment: Deployment, traffic: Traffic) -> Self {
        let mut world = World::new();
        let fleet = plan_fleet(&deployment.pools);
        let handover = handover(&deployment);
        let routers = Routers::new(&deployment.router, &fleet, deployment.records_decisions);
        let wants_notes = routers.want_notes();
        // Before the blocks: bevy keeps a table for each resource that is as long as the number of
        // entities before it.
        world.insert_resource(PassHorizon {
            next_arrival: traffic.next_arrival(VirtualTime::ZERO),
            next_transfer: VirtualTime::NEVER,
            cutoff: deployment.cutoff,
            reacts_to_endings: traffic.reacts_to_endings() || routers.have_queues(),
            reacts_to_first_tokens: routers.have_queues(),
        });
        world.insert_resource(deployment.token_limits());
        world.insert_resource(traffic);
        world.insert_resource(RequestStatistics::new(deployment.sla));
        world.insert_resource(RouterFeed::new(wants_notes, routers.have_queues()));
        world.insert_resource(Placements {
            destination_first: handover == Handover::DestinationFirst,
            ..Placements::default()
        });
        world.insert_resource(Transfers::new(deployment.transfer));
        world.insert_resource(routers);
        world.insert_resource(fleet);
        world.init_resource::<Clock>();
        world.init_resource::<PassQueue>();
        world.init_resource::<Signals>();
        world.init_resource::<PassStatistics>();
        world.init_resource::<Outbox>();
        world.init_resource::<HandoffDesks>();
        world.init_resource::<DecisionOutbox>();
        spawn_ranks(&mut world, &deployment.pools, wants_notes);
        let order = Order::new(handover, &mut world);
        Self { world, order, deployment, instants: 0 }
    }

    /// Handles the next instant; `false` once nothing is left to happen before the cut-off.
    ///
    /// # Errors
    /// When the workload's source could not be read on, or a worker makes no progress (a bug).
    pub fn step(&mut self) -> Result<bool, SourceError> {
        self.step_by_stages(|_| ())
    }

    /// Like [`Self::step`], telling after each stage that it is done.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn step_by_stages(&mut self, done: impl FnMut(Stage)) -> Result<bool, SourceError> {
        if !self.has_more() {
            return if self.is_stuck() {
                Err(self.stall("nothing happens any more, but requests are left"))
            } else {
                Ok(false)
            };
        }
        self.order.run_instant(&mut self.world, done);
        self.instants += 1;
        if self.instants.is_multiple_of(INSTANTS_PER_CLEANUP) {
            self.world.clear_trackers();
        }
        if let Some(rank) = self.world.resource::<Clock>().stalled_rank {
            return Err(self.stall(&format!("rank {rank} gets nothing done any more")));
        }
        match self.world.resource_mut::<Traffic>().take_fault() {
            Some(fault) => Err(fault),
            None => Ok(true),
        }
    }

    /// Whether requests are left although nothing is going to happen, and no cut-off is the reason.
    fn is_stuck(&mut self) -> bool {
        let next_pass = self.world.resource::<PassQueue>().earliest_end();
        let next = next_pass.min(self.world.resource::<PassHorizon>().next_event());
        let plays_are_left = self.world.resource::<Traffic>().playback().is_some_and(|playback| !playback.is_over());
        let requests_are_left = self.world.query::<&Route>().iter(&self.world).next().is_some();
        next == VirtualTime::NEVER && (requests_are_left || plays_are_left)
    }

    fn stall(&mut self, what: &str) -> SourceError {
        let dump = audit::state_dump(&mut self.world);
        format!("{what}; this is a bug in dynosim, please report it\n{dump}").into()
    }

    /// Moves a worker on in its life: only a ready one gets requests from now on. What it has, it serves
    /// to the end. `false` if there is no such worker, or its life does not go backwards like that.
    pub fn set_lifecycle(&mut self, role: Role, id: u32, to: Lifecycle) -> bool {
        let mut fleet = self.world.resource_mut::<Fleet>();
        let worker = fleet.workers.iter_mut().find(|worker| worker.role == role && worker.id == id);
        let Some(worker) = worker.filter(|worker| worker.lifecycle <= to) else { return false };
        worker.lifecycle = to;
        let ranks = worker.ranks.clone();
        let mut routers = self.world.resource_mut::<Routers>();
        ranks.for_each(|rank| routers.set_routable(rank, to == Lifecycle::Ready));
        true
    }

    /// Runs one stage alone, whether or not it has anything to do, for whoever measures it.
    pub fn run_stage(&mut self, stage: Stage) {
        self.order.run_stage(stage, &mut self.world);
    }

    fn has_more(&self) -> bool {
        let next_pass = self.world.resource::<PassQueue>().earliest_end();
        let next = next_pass.min(self.world.resource::<PassHorizon>().next_event());
        // What is asked last is hardly ever needed: every look at a resource costs as much as a quiet pass.
        (next <= self.deployment.cutoff && next != VirtualTime::NEVER)
            || !self.world.resource::<Fleet>().woken.is_empty()
            || !self.world.resource::<Signals>().ended.is_empty()
    }

    /// Takes the rows of requests that have ended since the last call.
    pub fn take_rows(&mut self) -> Vec<RequestRow> {
        let outbox = &mut self.world.resource_mut::<Outbox>().0;
        // As many as now are to be expected the next time.
        let next = Vec::with_capacity(outbox.len() + outbox.len() / 8);
        std::mem::replace(outbox, next)
    }

    /// A row for every play of a workload of agents, once all are over.
    #[must_use]
    pub fn play_rows(&self) -> Vec<PlayRow> {
        self.world.resource::<Traffic>().playback().map(Playback::rows).unwrap_or_default()
    }

    /// Takes the router's decisions since the last call, if they are recorded.
    pub fn take_decisions(&mut self) -> Vec<DecisionRow> {
        std::mem::take(&mut self.world.resource_mut::<DecisionOutbox>().rows)
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

    /// Checks that nothing has got lost or been made up so far.
    ///
    /// # Errors
    /// The rule that is violated, with the state of the world: a bug.
    pub fn audit(&mut self) -> Result<(), SourceError> {
        audit::audit(&mut self.world)
            .map_err(|violation| format!("{violation}this is a bug in dynosim, please report it").into())
    }

    /// Ends the simulation: drops the source of the workload, and leaves the rest for later.
    #[must_use]
    pub fn into_remains(mut self) -> Remains {
        self.world.remove_resource::<Traffic>();
        Remains { _world: self.world }
    }

    /// Closes the books: requests that are still there become rows, the last that [`Self::take_rows`] gives.
    pub fn close(&mut self) {
        self.order.close(&mut self.world);
    }

    /// Sums up the figures of a simulation that is closed.
    ///
    /// The second value names the pools whose percentiles had to come from a sketch.
    #[must_use]
    pub fn summarize(&self) -> (Summary, Vec<&'static str>) {
        let requests = self.world.resource::<RequestStatistics>();
        let passes = self.world.resource::<PassStatistics>();
        let mut summary = requests.summary(passes);
        summary.plays = self.world.resource::<Traffic>().playback().map(Playback::figures);
        let provisioned_seconds = self.world.resource::<Clock>().last_event.ms() / 1000.0;
        for pool in &self.deployment.pools {
            let worker_seconds = provisioned_seconds * f64::from(pool.workers);
            let (seconds, gpus) = match pool.engine.role {
                Role::Prefill => (&mut summary.prefill_worker_seconds, &mut summary.prefill_gpus_per_worker),
                Role::Aggregated | Role::Decode => {
                    (&mut summary.decode_worker_seconds, &mut summary.decode_gpus_per_worker)
                }
            };
            (*seconds, *gpus) = (worker_seconds, pool.gpus_per_worker);
            summary.gpu_hours += worker_seconds * pool.gpus_per_worker as f64 / 3600.0;
        }
        (summary, requests.sketched(passes))
    }
}

/// How requests move between the workers of a deployment.
fn handover(deployment: &Deployment) -> Handover {
    match deployment.pools.as_slice() {
        [_] | [] => Handover::None,
        [prefill, ..] if prefill.engine.hands_over_destination_first() => Handover::DestinationFirst,
        _ => Handover::SourceFirst,
    }
}

/// Lays out the workers, pool by pool; their ranks are still to be spawned.
fn plan_fleet(pools: &[PoolSpec]) -> Fleet {
    let mut fleet = Fleet::default();
    for spec in pools {
        let (first_worker, first_rank) = (fleet.workers.len() as u32, fleet.worker_of_rank.len() as u32);
        for id in 0..spec.workers {
            let first = fleet.worker_of_rank.len() as u32;
            fleet.worker_of_rank.extend((0..spec.ranks_per_worker).map(|_| first_worker + id));
            fleet.workers.push(LogicalWorker {
                role: spec.engine.role,
                id,
                ranks: first..first + spec.ranks_per_worker,
                lifecycle: Lifecycle::Ready,
                in_pass: false,
                pass_end: VirtualTime::ZERO,
                passes_since_idle: 0,
            });
        }
        fleet.pools.push(Pool {
            role: spec.engine.role,
            workers: first_worker..fleet.workers.len() as u32,
            ranks: first_rank..fleet.worker_of_rank.len() as u32,
        });
    }
    fleet
}

/// Spawns all ranks and their blocks, pool by pool. Those where prompts are computed tell the router of
/// their caches if it `wants_notes`.
fn spawn_ranks(world: &mut World, pools: &[PoolSpec], wants_notes: bool) {
    let mut ranks = Vec::new();
    let mut first_row = 0;
    for spec in pools {
        let tells_router = wants_notes && spec.engine.role != Role::Decode;
        for worker_id in 0..spec.workers {
            for rank in 0..spec.ranks_per_worker {
                let rank = Rank { index: ranks.len() as u32, worker_id, rank };
                let entity = spawn_rank(world, rank, spec, first_row, tells_router);
                ranks.push(entity);
                first_row += spec.engine.block_entities() as usize;
            }
        }
    }
    world.resource_mut::<Fleet>().ranks = ranks;
    // All at once, so that their table is made in one piece.
    world.spawn_batch((0..first_row).map(|_| (BlockUse::default(), PrefixNode::default())));
}

/// Spawns a rank whose blocks will start at row `first_row` of the table of blocks.
fn spawn_rank(world: &mut World, rank: Rank, spec: &PoolSpec, first_row: usize, tells_router: bool) -> Entity {
    let mut pool = KvPool::new(first_row, spec.engine.block_entities());
    let mut batch = RunningBatch::default();
    if spec.engine.backend == Backend::Sglang {
        batch.sglang = Some(Box::new(SglangRank::new(&spec.engine, spec.ranks_per_worker)));
    }
    if tells_router {
        let events = batch.sglang.as_deref_mut().map_or(pool.events(), |sglang| sglang.cache.events());
        events.enable();
    }
    let components =
        (rank, spec.engine, WaitingQueue::default(), batch, PassClock::default(), HandoffDesk::default(), pool);
    world.spawn(components).id()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::RouterSpec;
    use crate::routing::kv_router::KvRouterSpec;
    use crate::scheduling::EngineSpec;
    use crate::timing::PassTiming;
    use crate::traffic::{Load, SyntheticRequests};

    fn simulation(router: RouterSpec) -> Simulation {
        let engine = EngineSpec::vllm(64, 256, PassTiming::Fixed { prefill_ms: 10.0, decode_ms: 1.0 });
        let deployment = Deployment { router, ..Deployment::aggregated(engine, 3) };
        let source = Box::new(SyntheticRequests::new(200, 20, 30));
        let traffic = Traffic::new(source, Load::Concurrency { units: 6 }, deployment.token_limits());
        Simulation::new(deployment, traffic)
    }

    #[test]
    fn a_draining_worker_serves_what_it_has_and_gets_nothing_new() {
        for router in [RouterSpec::RoundRobin, RouterSpec::Kv(KvRouterSpec::aggregated(64))] {
            let mut simulation = simulation(router);
            while simulation.progress().ended < 6 {
                assert!(simulation.step().unwrap());
            }
            assert!(simulation.set_lifecycle(Role::Aggregated, 1, Lifecycle::Draining));
            assert!(!simulation.set_lifecycle(Role::Aggregated, 1, Lifecycle::Ready), "there is no way back");
            assert!(!simulation.set_lifecycle(Role::Decode, 0, Lifecycle::Ready), "there is no such worker");
            let drained_at_ms = simulation.progress().now_ms;
            while simulation.step().unwrap() {
                simulation.audit().unwrap();
            }
            let rows = simulation.take_rows();
            let worker = |row: &RequestRow| row.placement.map(|placement| placement.worker_id);
            assert_eq!(rows.len(), 30);
            assert!(rows.iter().any(|row| worker(row) == Some(1)));
            assert!(rows.iter().filter(|row| row.arrival_ms > drained_at_ms).all(|row| worker(row) != Some(1)));
        }
    }
}
