//! Moves every worker through its passes up to the next instant at which workers meet the world.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemParam;

use super::components::{Ending, RankData, RankDataItem};
use super::endings::{close_request, cut_log};
use super::quiet::{QuietRun, quiet_passes, run_quiet, run_quiet_rank};
use super::scheduler;
use super::vllm::{PassStart, Requests, Scratch};
use crate::clock::Clock;
use crate::fleet::{Fleet, Role};
use crate::kv::{BlockUse, Blocks, PrefixNode};
use crate::metrics::PassStatistics;
use crate::routing::{RouterFeed, RouterNote};
use crate::time::VirtualTime;

/// Passes after which [`run_passes`] returns even if no instant was reached, so that a long quiet
/// stretch can be watched and interrupted.
const PASSES_PER_RUN: u64 = 1 << 16;

/// How far workers may go on their own.
#[derive(Resource, Clone, Copy, Debug)]
pub struct PassHorizon {
    /// The next arrival that is known of.
    pub next_arrival: VirtualTime,
    /// When the next transfer of KV is complete.
    pub next_transfer: VirtualTime,
    /// No pass starts after this time, and none that ends after it counts.
    pub cutoff: VirtualTime,
    /// Whether the end of a request can cause an arrival or a placement. If so, no worker passes
    /// such an end.
    pub reacts_to_endings: bool,
    /// Whether a first token can cause a placement, likewise.
    pub reacts_to_first_tokens: bool,
}

impl PassHorizon {
    /// The earliest event that is known of, other than the end of a pass.
    #[must_use]
    pub fn next_event(&self) -> VirtualTime {
        self.next_arrival.min(self.next_transfer)
    }
}

/// Passes in flight: (end, worker), earliest first, ties by worker. Workers are meant by their places
/// in [`Fleet::workers`].
#[derive(Resource, Debug, Default)]
pub struct PassQueue {
    prefill: BinaryHeap<Reverse<(VirtualTime, u32)>>,
    others: BinaryHeap<Reverse<(VirtualTime, u32)>>,
}

impl PassQueue {
    /// When the first of them ends.
    #[must_use]
    pub fn earliest_end(&self) -> VirtualTime {
        self.earliest_prefill_end().min(earliest(&self.others))
    }

    /// When the first pass of a prefill worker ends.
    fn earliest_prefill_end(&self) -> VirtualTime {
        earliest(&self.prefill)
    }

    fn push(&mut self, end: VirtualTime, worker: u32, role: Role) {
        let heap = if role == Role::Prefill { &mut self.prefill } else { &mut self.others };
        heap.push(Reverse((end, worker)));
    }

    fn pop_at(&mut self, end: VirtualTime) -> Option<u32> {
        let heap = if self.earliest_prefill_end() == end { &mut self.prefill } else { &mut self.others };
        if earliest(heap) != end {
            return None;
        }
        heap.pop().map(|Reverse((_, worker))| worker)
    }
}

fn earliest(heap: &BinaryHeap<Reverse<(VirtualTime, u32)>>) -> VirtualTime {
    heap.peek().map_or(VirtualTime::NEVER, |Reverse((end, _))| *end)
}

/// The end of a request's time on a rank, announced at the end of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The request.
    pub request: Entity,
    /// The rank, as its place in [`Fleet::ranks`].
    pub rank: u32,
    /// When.
    pub at: VirtualTime,
    /// How.
    pub ending: Ending,
}

/// Signals that nobody has handled yet, in order of time, worker and announcement.
#[derive(Resource, Debug, Default)]
pub struct Signals {
    /// Requests that have ended.
    pub ended: Vec<Signal>,
    /// Requests whose prompt is computed and has to be handed over.
    pub prefilled: Vec<Signal>,
    /// Whether a rank has come to the end of a pass and has something to do for hand-overs.
    pub desks_are_due: bool,
}

/// Everything that changes when passes run or KV moves: ranks, requests and blocks.
#[derive(SystemParam)]
pub struct Engine<'w, 's> {
    /// The ranks.
    pub ranks: Query<'w, 's, RankData>,
    /// The requests.
    pub requests: Requests<'w, 's>,
    /// The blocks of all pools.
    pub blocks: AllBlocks<'w, 's>,
}

/// The blocks of all pools.
pub type AllBlocks<'w, 's> = Query<'w, 's, (&'static mut BlockUse, &'static mut PrefixNode)>;

/// Gives the columns of all blocks to `act`. They are in one table, whose rows follow the order of
/// the pools.
pub fn with_block_columns<T>(blocks: &mut AllBlocks<'_, '_>, act: impl FnOnce(Blocks<'_>) -> T) -> T {
    match blocks.contiguous_iter_mut().into_iter().flatten().next() {
        Some((mut usage, mut nodes)) => {
            act(Blocks { usage: usage.bypass_change_detection(), nodes: nodes.bypass_change_detection() })
        }
        None => act(Blocks { usage: &mut [], nodes: &mut [] }),
    }
}

/// Runs passes up to the next instant and sets the clock to it.
///
/// At an instant all passes that end there are completed, and none is started: arrivals of the same
/// instant are placed first. [`Fleet::woken`] workers start at the beginning of the next run.
#[expect(clippy::too_many_arguments, reason = "a system names what it touches")]
pub fn run_passes(
    mut clock: ResMut<Clock>,
    horizon: Res<PassHorizon>,
    mut fleet: ResMut<Fleet>,
    mut queue: ResMut<PassQueue>,
    mut signals: ResMut<Signals>,
    mut feed: ResMut<RouterFeed>,
    mut statistics: ResMut<PassStatistics>,
    mut scratch: Local<Scratch>,
    mut engine: Engine,
) {
    if !signals.ended.is_empty() {
        // Something ended after this instant's endings were handled; they come first.
        return;
    }
    let Engine { ranks, requests, blocks } = &mut engine;
    with_block_columns(blocks, |blocks| {
        let mut run = PassRun {
            horizon: *horizon,
            limit: horizon.next_event().min(horizon.cutoff),
            passes_left: PASSES_PER_RUN,
            clock: &mut clock,
            fleet: &mut fleet,
            queue: &mut queue,
            signals: &mut signals,
            feed: &mut feed,
            statistics: &mut statistics,
            scratch: &mut scratch,
            ranks,
            requests,
            blocks,
        };
        run.start_woken();
        run.advance();
    });
}

struct PassRun<'a, 'ww, 'ws, 'rw, 'rs> {
    horizon: PassHorizon,
    /// The earliest instant known of: passes that end by it complete, none starts at or after it.
    limit: VirtualTime,
    passes_left: u64,
    clock: &'a mut Clock,
    fleet: &'a mut Fleet,
    queue: &'a mut PassQueue,
    signals: &'a mut Signals,
    feed: &'a mut RouterFeed,
    statistics: &'a mut PassStatistics,
    scratch: &'a mut Scratch,
    ranks: &'a mut Query<'ww, 'ws, RankData>,
    requests: &'a mut Requests<'rw, 'rs>,
    blocks: Blocks<'a>,
}

/// What starting a worker came to.
struct Started {
    passes: u64,
    end: VirtualTime,
}

impl PassRun<'_, '_, '_, '_, '_> {
    fn start_woken(&mut self) {
        let mut woken = std::mem::take(&mut self.fleet.woken);
        woken.sort_unstable();
        woken.dedup();
        self.start_all(&woken, self.clock.now);
        woken.clear();
        self.fleet.woken = woken;
    }

    /// Takes the passes in flight in order of their ends, until the next instant.
    fn advance(&mut self) {
        while self.passes_left > 0 {
            let end = self.queue.earliest_end();
            if end > self.limit || end == VirtualTime::NEVER {
                self.clock.reach(self.limit);
                return;
            }
            self.complete_all_at(end);
        }
    }

    /// Completes every pass that ends at `end`; workers go straight on if nothing can interfere.
    fn complete_all_at(&mut self, end: VirtualTime) {
        self.clock.process(end);
        let mut done = std::mem::take(&mut self.fleet.woken);
        while let Some(worker) = self.queue.pop_at(end) {
            self.complete(worker, end);
            done.push(worker);
        }
        if end < self.limit {
            done.sort_unstable();
            self.start_all(&done, end);
            done.clear();
        }
        self.fleet.woken = done;
    }

    /// Starts the next passes of idle workers at `at`.
    fn start_all(&mut self, workers: &[u32], at: VirtualTime) {
        for (index, &worker) in workers.iter().enumerate() {
            let others = self.earliest_interference(worker, index + 1 < workers.len(), at);
            self.start(worker, at, self.limit.min(others));
        }
    }

    /// Before when no other worker's pass can have anything to do with this worker. `more_start`
    /// tells whether other workers are about to start at `at`.
    fn earliest_interference(&self, worker: u32, more_start: bool, at: VirtualTime) -> VirtualTime {
        if self.horizon.reacts_to_endings || self.horizon.reacts_to_first_tokens {
            // Another worker's pass may announce an ending, and that may cause an arrival here.
            return if more_start { at } else { self.queue.earliest_end() };
        }
        match self.fleet.workers[worker as usize].role {
            // A prefill worker may send it a request; those have started already.
            Role::Decode => self.queue.earliest_prefill_end(),
            Role::Aggregated | Role::Prefill => VirtualTime::NEVER,
        }
    }

    /// Applies the end of a worker's pass.
    fn complete(&mut self, worker: u32, at: VirtualTime) {
        let worker = &mut self.fleet.workers[worker as usize];
        worker.in_pass = false;
        for rank in worker.ranks.clone() {
            self.complete_rank(rank, at);
        }
    }

    fn complete_rank(&mut self, rank: u32, at: VirtualTime) {
        let Ok(mut data) = self.ranks.get_mut(self.fleet.ranks[rank as usize]) else { return };
        let passes = &mut *data.passes;
        if !passes.in_flight {
            return;
        }
        let mut meets_world = data.desk.wants_attention();
        data.desk.attempt_is_due |= meets_world;
        self.signals.desks_are_due |= meets_world;
        self.statistics.prefill_tokens += std::mem::take(&mut passes.prefill_tokens);
        self.feed.publish(rank, at, data.pool.events());
        let mut endings = std::mem::take(&mut passes.endings);
        for (request, ending) in endings.drain(..) {
            close_request(request, ending, passes, self.requests, self.statistics);
            let signal = Signal { request, rank, at, ending };
            match ending {
                Ending::Prefilled => {
                    self.feed.note(rank, at, RouterNote::Prefilled(request));
                    self.signals.prefilled.push(signal);
                    meets_world = true;
                }
                Ending::Finished | Ending::Rejected(_) | Ending::Failed(_) => {
                    self.feed.note(rank, at, RouterNote::Ended(request));
                    self.signals.ended.push(signal);
                    meets_world |= self.horizon.reacts_to_endings;
                }
            }
        }
        passes.endings = endings;
        meets_world |= self.horizon.reacts_to_first_tokens && !passes.first_tokens.is_empty();
        for request in passes.first_tokens.drain(..) {
            self.feed.note(rank, at, RouterNote::Prefilled(request));
        }
        passes.in_flight = false;
        passes.number += u64::from(passes.logged);
        if passes.log.wants_cut() {
            cut_log(&mut data, self.requests, self.statistics);
        }
        if meets_world {
            self.limit = self.limit.min(at);
        }
    }

    /// Starts a worker's next pass at `at`, if it has anything to do; quiet passes go on until one
    /// ends at or after `limit`.
    fn start(&mut self, worker: u32, at: VirtualTime, limit: VirtualTime) {
        let state = &self.fleet.workers[worker as usize];
        if state.in_pass {
            return;
        }
        let (ranks, role) = (state.ranks.clone(), state.role);
        let started =
            if ranks.len() == 1 { self.start_rank(ranks.start, at, limit) } else { self.start_group(ranks, at, limit) };
        let state = &mut self.fleet.workers[worker as usize];
        let Some(started) = started else {
            state.passes_since_idle = 0;
            return;
        };
        (state.in_pass, state.pass_end) = (true, started.end);
        state.passes_since_idle += started.passes;
        self.passes_left = self.passes_left.saturating_sub(started.passes);
        self.queue.push(started.end, worker, role);
    }

    /// Starts the pass of a worker's only rank.
    fn start_rank(&mut self, rank: u32, at: VirtualTime, limit: VirtualTime) -> Option<Started> {
        let start = self.pass_start(rank, at);
        let mut data = self.ranks.get_mut(self.fleet.ranks[rank as usize]).ok()?;
        if !data.has_work() {
            return None;
        }
        let quiet = quiet_passes(&data);
        if quiet == 0 {
            let end = begin_pass(&mut data, self.requests, &mut self.blocks, self.scratch, start);
            if data.passes.stalled {
                self.stall(rank);
            }
            return end.map(|end| Started { passes: 1, end });
        }
        let stretch = run_quiet_rank(&mut data, at, limit, quiet.min(self.passes_left.max(1)));
        self.clock.note(stretch.last_start);
        Some(Started { passes: stretch.passes, end: stretch.end })
    }

    /// Starts a pass of all ranks of a worker that have work. They end together, with the last.
    fn start_group(&mut self, ranks: Range<u32>, at: VirtualTime, limit: VirtualTime) -> Option<Started> {
        let mut busy = std::mem::take(&mut self.scratch.busy_ranks);
        busy.clear();
        let mut quiet = self.passes_left.max(1);
        for rank in ranks {
            let Ok(data) = self.ranks.get_mut(self.fleet.ranks[rank as usize]) else { continue };
            if data.has_work() {
                busy.push(rank);
                quiet = quiet.min(quiet_passes(&data));
            }
        }
        let started = match quiet {
            _ if busy.is_empty() => None,
            0 => self.begin_group_pass(&busy, at).map(|end| Started { passes: 1, end }),
            _ => Some(self.run_quiet_group(&busy, at, limit, quiet)),
        };
        self.scratch.busy_ranks = busy;
        started
    }

    fn pass_start(&self, rank: u32, at: VirtualTime) -> PassStart {
        PassStart {
            now_ms: at.ms(),
            passes_since_idle: self.fleet.worker_of(rank).passes_since_idle,
            notes_first_tokens: self.feed.is_enabled(),
        }
    }

    /// Notes a rank that can get nothing done, and stops.
    fn stall(&mut self, rank: u32) {
        self.clock.stalled_rank = Some(rank);
        self.passes_left = 0;
    }

    /// Starts a pass of a rank, if there is anything that it can do now. Returns its end.
    fn begin_pass(&mut self, rank: u32, at: VirtualTime) -> Option<VirtualTime> {
        let start = self.pass_start(rank, at);
        let mut data = self.ranks.get_mut(self.fleet.ranks[rank as usize]).ok()?;
        let end = begin_pass(&mut data, self.requests, &mut self.blocks, self.scratch, start);
        if data.passes.stalled {
            self.stall(rank);
        }
        end
    }

    fn begin_group_pass(&mut self, busy: &[u32], at: VirtualTime) -> Option<VirtualTime> {
        let end = busy.iter().filter_map(|&rank| self.begin_pass(rank, at)).max()?;
        for &rank in busy {
            let Ok(mut data) = self.ranks.get_mut(self.fleet.ranks[rank as usize]) else { continue };
            if data.passes.in_flight {
                data.passes.end_at(end.ms());
            }
        }
        Some(end)
    }

    fn run_quiet_group(&mut self, busy: &[u32], at: VirtualTime, limit: VirtualTime, count: u64) -> Started {
        let mut ends_ms = std::mem::take(&mut self.scratch.ends_ms);
        ends_ms.clear();
        let entity = |rank: u32| self.fleet.ranks[rank as usize];
        let mut runs: Vec<QuietRun> = busy
            .iter()
            .filter_map(|&rank| self.ranks.get_mut(entity(rank)).ok().map(|data| QuietRun::of(&data)))
            .collect();
        let stretch = run_quiet(at, limit, count, |start_ms| {
            let end_ms = runs.iter_mut().map(|run| start_ms + run.next_ms()).fold(start_ms, f64::max);
            ends_ms.push(end_ms);
            end_ms
        });
        for (&rank, run) in busy.iter().zip(runs) {
            let Ok(mut data) = self.ranks.get_mut(entity(rank)) else { continue };
            for &end_ms in &ends_ms {
                data.passes.log.push(end_ms);
            }
            run.settle(&mut data, stretch.passes, stretch.end.ms());
        }
        self.scratch.ends_ms = ends_ms;
        self.clock.note(stretch.last_start);
        Started { passes: stretch.passes, end: stretch.end }
    }
}

/// Starts a pass of a rank, if there is anything that it can do now. Returns its end.
fn begin_pass(
    data: &mut RankDataItem<'_, '_>,
    requests: &mut Requests<'_, '_>,
    blocks: &mut Blocks<'_>,
    scratch: &mut Scratch,
    start: PassStart,
) -> Option<VirtualTime> {
    let own_blocks = data.pool.own_rows(blocks);
    (scheduler(data.spec.backend).begin_pass)(data, requests, own_blocks, scratch, start);
    data.passes.in_flight.then(|| VirtualTime::from_ms(data.passes.end_ms))
}
