//! `systems/src/scheduling`: passes of one worker in steady state. One iteration is one pass.

#[path = "support/measure.rs"]
mod measure;
#[path = "support/worlds.rs"]
mod worlds;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use dynosim_systems::prefix::PromptIdentity;
use dynosim_systems::simulation::Simulation;
use dynosim_systems::timing::PassTiming;
use dynosim_systems::traffic::{Load, Script, SourceError, SyntheticRequests, Traffic, Turn, Unit, UnitSource};

/// A simulation that is stepped on and on, and built anew before it leaves its steady state.
struct Steady<B: Fn() -> Simulation> {
    build: B,
    simulation: Simulation,
    /// Passes after which the simulation is no longer in the state that is to be measured.
    passes_at_most: u64,
}

impl<B: Fn() -> Simulation> Steady<B> {
    /// `build` gives a warm simulation.
    fn new(build: B, passes_at_most: u64) -> Self {
        Self { simulation: build(), build, passes_at_most }
    }

    /// Time of `count` passes. A step plays as many as there are until the next instant, so their
    /// time is scaled.
    fn time(&mut self, count: u64) -> Duration {
        let (mut elapsed, mut done) = (Duration::ZERO, 0);
        while done < count {
            let before = self.simulation.work_done().passes;
            if before > self.passes_at_most {
                self.simulation = (self.build)();
                continue;
            }
            let steps = if self.passes_at_most == u64::MAX { 256 } else { 1 };
            let start = Instant::now();
            for _ in 0..steps {
                step(&mut self.simulation);
            }
            elapsed += start.elapsed();
            done += self.simulation.work_done().passes - before;
            drop(self.simulation.take_rows());
        }
        elapsed.mul_f64(count as f64 / done as f64)
    }
}

fn step(simulation: &mut Simulation) {
    assert!(matches!(simulation.step(), Ok(true)), "a steady state goes on");
}

/// Steps until `is_warm` holds.
fn warm(mut simulation: Simulation, is_warm: impl Fn(&mut Simulation) -> bool) -> Simulation {
    while !is_warm(&mut simulation) {
        step(&mut simulation);
        drop(simulation.take_rows());
    }
    simulation
}

/// Requests whose prompts differ by one token each, so that they cross block boundaries by turns.
struct Staggered {
    made: u32,
    count: u32,
}

impl UnitSource for Staggered {
    fn next_unit(&mut self) -> Result<Option<Unit>, SourceError> {
        if self.made == self.count {
            return Ok(None);
        }
        self.made += 1;
        let turn = Turn {
            input_tokens: self.made,
            output_tokens: 1 << 24,
            identity: PromptIdentity::unique(u64::from(self.made)),
            delay_ms: 0.0,
            request_id: None,
            source_line: None,
        };
        Ok(Some(Unit { start_ms: 0.0, session_id: None, script: Script::single(turn) }))
    }

    fn has_sessions(&self) -> bool {
        false
    }
}

fn decoding(requests: u32, num_blocks: u32, block_size: u32, timing: PassTiming) -> Simulation {
    let load = Load::Concurrency { units: u64::from(requests) };
    let traffic = Traffic::new(Box::new(Staggered { made: 0, count: requests }), load, worlds::NO_LIMITS);
    let simulation = Simulation::new(worlds::deployment(1, num_blocks, block_size, timing), traffic);
    warm(simulation, |simulation| simulation.work_done().passes > 1000)
}

/// Passes in which nobody needs anything: 64 requests decode, and no block ends.
fn quiet(c: &mut Criterion) {
    let mut group = c.benchmark_group("scheduling/quiet_pass");
    group.throughput(Throughput::Elements(1));
    for (name, timing) in [("fixed", worlds::FIXED), ("polynomial", PassTiming::Polynomial)] {
        let mut steady = Steady::new(|| decoding(64, 64, 1 << 24, timing), 1 << 20);
        group.bench_function(name, |b| b.iter_custom(|count| steady.time(count)));
    }
    group.finish();
}

/// 64 requests decode and each needs a block every `block_size` passes.
fn boundaries(c: &mut Criterion) {
    let mut group = c.benchmark_group("scheduling/pass_with_block_boundaries");
    for (name, block_size, blocks) in [("1_of_64", 64, 1 << 18), ("4_of_64", 16, 1 << 20)] {
        group.throughput(Throughput::Elements(u64::from(64 / block_size)));
        let mut steady = Steady::new(|| decoding(64, blocks, block_size, worlds::FIXED), 2 << 16);
        group.bench_function(name, |b| b.iter_custom(|count| steady.time(count)));
    }
    group.finish();
}

/// A closed loop of 16 unique requests of 2048/128 tokens over a pool that is full of cached blocks:
/// equal work, more and more resident blocks. The whole instant is measured, not scheduling alone.
fn resident_blocks(c: &mut Criterion) {
    let mut group = c.benchmark_group("scheduling/pass_by_resident_blocks");
    group.throughput(Throughput::Elements(1));
    for (name, num_blocks) in [("1k", 1 << 10), ("16k", 1 << 14), ("128k", 1 << 17), ("1M", 1 << 20)] {
        let build = move || {
            let source = SyntheticRequests::new(2048, 128, u64::MAX);
            let traffic = Traffic::new(Box::new(source), Load::Concurrency { units: 16 }, worlds::NO_LIMITS);
            let simulation = Simulation::new(worlds::deployment(1, num_blocks, 64, worlds::FIXED), traffic);
            let is_full = move |s: &mut Simulation| s.work_done().blocks_allocated > 2 * u64::from(num_blocks);
            warm(simulation, is_full)
        };
        let mut steady = Steady::new(build, u64::MAX);
        group.bench_function(BenchmarkId::from_parameter(name), |b| b.iter_custom(|count| steady.time(count)));
    }
    group.finish();
}

fn main() {
    measure::run(&[quiet, boundaries, resident_blocks]);
}
