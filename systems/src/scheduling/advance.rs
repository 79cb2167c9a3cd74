//! Moves every worker through its passes up to the next instant at which workers meet the world.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bevy_ecs::prelude::*;

use super::components::{Ending, PassClock, Phase, TokenRun, WorkerData, WorkerDataItem};
use super::vllm::{Requests, Scratch, begin_pass};
use crate::clock::Clock;
use crate::kv::{BlockUse, Blocks, PrefixNode};
use crate::metrics::PassStatistics;
use crate::time::VirtualTime;
use crate::timing::{DecodeBatch, whole_ns_ms};

/// Passes after which [`run_passes`] returns even if no instant was reached, so that a long quiet
/// stretch can be watched and interrupted.
const PASSES_PER_RUN: u64 = 1 << 16;

/// The workers, by id.
#[derive(Resource, Debug, Default)]
pub struct Fleet {
    /// `workers[id]` is the entity of worker `id`.
    pub workers: Vec<Entity>,
    /// Workers that got something to do while no pass was in flight.
    pub woken: Vec<u32>,
}

/// How far workers may go on their own.
#[derive(Resource, Clone, Copy, Debug)]
pub struct PassHorizon {
    /// The next arrival that is known of, or the cut-off if it comes first.
    pub next_arrival: VirtualTime,
    /// No pass starts after this time, and none that ends after it counts.
    pub cutoff: VirtualTime,
    /// Whether the end of a request can cause an arrival. If so, no worker passes such an end.
    pub reacts_to_endings: bool,
}

/// Passes in flight: (end, worker id), earliest first, ties by worker id.
#[derive(Resource, Debug, Default)]
pub struct PassQueue {
    heap: BinaryHeap<Reverse<(VirtualTime, u32)>>,
}

impl PassQueue {
    /// When the first of them ends.
    #[must_use]
    pub fn earliest_end(&self) -> VirtualTime {
        self.heap.peek().map_or(VirtualTime::NEVER, |Reverse((end, _))| *end)
    }
}

/// The end of a request's time on a worker, announced at the end of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The request.
    pub request: Entity,
    /// The worker.
    pub worker_id: u32,
    /// When.
    pub at: VirtualTime,
    /// How.
    pub ending: Ending,
}

/// Signals that nobody has handled yet, in order of time, worker and announcement.
#[derive(Resource, Debug, Default)]
pub struct Signals(pub Vec<Signal>);

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
    mut statistics: ResMut<PassStatistics>,
    mut scratch: Local<Scratch>,
    mut workers: Query<WorkerData>,
    mut requests: Requests,
    mut all_blocks: Query<(&mut BlockUse, &mut PrefixNode)>,
) {
    // Every block is in one table; its rows follow the order in which the pools were spawned.
    let mut tables = all_blocks.contiguous_iter_mut().into_iter().flatten();
    let mut columns = tables.next();
    let blocks = match &mut columns {
        Some((usage, nodes)) => {
            Blocks { usage: usage.bypass_change_detection(), nodes: nodes.bypass_change_detection() }
        }
        None => Blocks { usage: &mut [], nodes: &mut [] },
    };

    let mut run = PassRun {
        horizon: *horizon,
        limit: horizon.next_arrival.min(horizon.cutoff),
        passes_left: PASSES_PER_RUN,
        clock: &mut clock,
        fleet: &mut fleet,
        queue: &mut queue,
        signals: &mut signals,
        statistics: &mut statistics,
        scratch: &mut scratch,
        workers: &mut workers,
        requests: &mut requests,
        blocks,
    };
    run.start_woken();
    run.advance();
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
    statistics: &'a mut PassStatistics,
    scratch: &'a mut Scratch,
    workers: &'a mut Query<'ww, 'ws, WorkerData>,
    requests: &'a mut Requests<'rw, 'rs>,
    blocks: Blocks<'a>,
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
        while self.queue.earliest_end() == end {
            let Some(Reverse((_, worker))) = self.queue.heap.pop() else { break };
            self.complete(worker, end);
            done.push(worker);
        }
        if self.horizon.reacts_to_endings && !self.signals.0.is_empty() {
            self.limit = self.limit.min(end);
        }
        if end < self.limit {
            self.start_all(&done, end);
            done.clear();
        }
        self.fleet.woken = done;
    }

    /// Starts the next passes of idle workers at `at`.
    fn start_all(&mut self, workers: &[u32], at: VirtualTime) {
        for (index, &worker) in workers.iter().enumerate() {
            // Another worker's pass may announce an ending, and that may cause an arrival here.
            let others = match self.horizon.reacts_to_endings {
                false => VirtualTime::NEVER,
                true if index + 1 < workers.len() => at,
                true => self.queue.earliest_end(),
            };
            self.start(worker, at, self.limit.min(others));
        }
    }

    /// Applies the end of a worker's pass.
    fn complete(&mut self, worker: u32, at: VirtualTime) {
        let Ok(mut data) = self.workers.get_mut(self.fleet.workers[worker as usize]) else { return };
        let passes = &mut *data.passes;
        self.statistics.prefill_tokens += std::mem::take(&mut passes.prefill_tokens);
        let mut endings = std::mem::take(&mut passes.endings);
        for (request, ending) in endings.drain(..) {
            match ending {
                Ending::Finished => finish_timeline(request, passes, self.requests, self.statistics),
                Ending::Failed(_) | Ending::Rejected(_) => {
                    if let Ok(mut data) = self.requests.get_mut(request) {
                        data.timeline.look_up_token_times(&passes.log);
                    }
                }
            }
            self.signals.0.push(Signal { request, worker_id: worker, at, ending });
        }
        passes.endings = endings;
        passes.in_flight = false;
        passes.number += 1;
        if passes.log.wants_cut() {
            cut_log(&mut data, self.requests, self.statistics);
        }
    }

    /// Starts a worker's next pass at `at`, if it has anything to do; quiet passes go on until one
    /// ends at or after `limit`.
    fn start(&mut self, worker: u32, at: VirtualTime, limit: VirtualTime) {
        let Ok(mut data) = self.workers.get_mut(self.fleet.workers[worker as usize]) else { return };
        if data.passes.in_flight || (data.batch.members.is_empty() && data.queue.requests.is_empty()) {
            return;
        }
        let quiet = quiet_passes(&data);
        let passes = if quiet > 0 {
            let (passes, last_start) = run_quiet(&mut data, at, limit, quiet.min(self.passes_left.max(1)));
            self.clock.note(last_start);
            passes
        } else {
            let blocks = data.pool.own_rows(&mut self.blocks);
            begin_pass(&mut data, self.requests, blocks, self.scratch, at.ms());
            if data.passes.stalled {
                self.clock.stalled_worker = Some(worker);
                self.passes_left = 0;
            }
            1
        };
        self.passes_left = self.passes_left.saturating_sub(passes);
        let end = VirtualTime::from_ms(data.passes.log.newest_end_ms());
        self.queue.heap.push(Reverse((end, worker)));
    }
}

/// How many of the worker's next passes serve just the members that decode, with nobody due.
fn quiet_passes(data: &WorkerDataItem<'_, '_>) -> u64 {
    let blocked = data.queue.requests.is_empty()
        || data.batch.members.len() as u64 >= u64::from(data.spec.max_sequences)
        || data.queue.head_needs.is_some_and(|needs| needs > data.pool.available());
    match data.batch.calendar.next_pass() {
        Some(due) if blocked && data.batch.prefilling.is_none() => due - data.passes.number,
        _ => 0,
    }
}

/// Runs up to `count` quiet passes from `at`, none starting at or after `limit`. The last one is
/// left in flight. Returns their number, at least one, and the start of the last.
fn run_quiet(data: &mut WorkerDataItem<'_, '_>, at: VirtualTime, limit: VirtualTime, count: u64) -> (u64, VirtualTime) {
    let timing = data.spec.timing;
    let pool_tokens = data.spec.pool_tokens();
    let batch = &mut *data.batch;
    let passes = &mut *data.passes;
    let mut decode = DecodeBatch { requests: batch.decoding, context_tokens: batch.decoding_tokens };
    let (mut start_ms, mut end_ms) = (at.ms(), at.ms());
    let mut done = 0;
    while done < count {
        start_ms = end_ms;
        end_ms += whole_ns_ms(timing.decode_ms(&decode, pool_tokens));
        passes.log.push(end_ms);
        decode.context_tokens += decode.requests;
        done += 1;
        if end_ms >= limit.ms() {
            break;
        }
    }
    passes.number += done - 1;
    passes.in_flight = true;
    batch.decoding_tokens = decode.context_tokens;
    (done, VirtualTime::from_ms(start_ms))
}

/// Looks up when a finished request got its tokens, and counts the gaps between them.
fn finish_timeline(
    request: Entity,
    passes: &mut PassClock,
    requests: &mut Requests<'_, '_>,
    statistics: &mut PassStatistics,
) {
    let Ok(mut data) = requests.get_mut(request) else { return };
    let sequence = &mut *data.sequence;
    if sequence.phase == Phase::Decoding {
        data.timeline.runs.push(TokenRun { first_pass: sequence.run_start, last_pass: passes.number });
        sequence.generated = sequence.generated_at(passes.number) + 1;
        sequence.phase = Phase::Waiting;
    }
    data.timeline.look_up_token_times(&passes.log);
    let runs = &data.timeline.runs;
    for (index, run) in runs.iter().enumerate() {
        passes.log.count_gaps(*run);
        if let Some(next) = runs.get(index + 1) {
            statistics.add_gap(passes.log.end_ms(next.first_pass) - passes.log.end_ms(run.last_pass), 1);
        }
    }
}

/// Cuts the log behind the oldest run of tokens that a living request may still ask for.
fn cut_log(data: &mut WorkerDataItem<'_, '_>, requests: &Requests<'_, '_>, statistics: &mut PassStatistics) {
    let number = data.passes.number;
    let first_run = |request: Entity| {
        let request = requests.get(request).ok()?;
        let open = (request.sequence.phase == Phase::Decoding).then_some(request.sequence.run_start);
        request.timeline.runs.first().map(|run| run.first_pass).or(open)
    };
    let in_batch = data.batch.members.iter().filter_map(|member| first_run(member.request));
    // Preempted requests stand before all that never ran.
    let was_preempted = |request: Entity| requests.get(request).is_ok_and(|r| r.timeline.preemptions > 0);
    let preempted = data.queue.requests.iter().copied().take_while(|&r| was_preempted(r)).filter_map(first_run);
    let oldest = in_batch.chain(preempted).min().unwrap_or(number);
    data.passes.log.cut_before(oldest, |gap_ms, count| statistics.add_gap(gap_ms, count));
}

/// Gives what is left of every worker's log to the statistics, at the end of a simulation.
pub fn flush_logs(mut workers: Query<WorkerData>, mut statistics: ResMut<PassStatistics>) {
    for mut data in &mut workers {
        data.passes.log.cut_before(u64::MAX, |gap_ms, count| statistics.add_gap(gap_ms, count));
    }
}
