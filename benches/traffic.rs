//! `systems/src/traffic`: making units of load, and letting them into the world.

#[path = "support/measure.rs"]
mod measure;
#[path = "support/worlds.rs"]
mod worlds;

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use dynosim_systems::order::Stage;
use dynosim_systems::routing::Placements;
use dynosim_systems::simulation::Simulation;
use dynosim_systems::traffic::{Load, SessionShape, SyntheticRequests, SyntheticSessions, Traffic, UnitSource};

const SESSIONS: SessionShape = SessionShape {
    new_input_tokens: 256,
    output_tokens: 32,
    turns: 4,
    delay_ms: 0.0,
    shared_prefix_ratio: 0.5,
    prefix_groups: 8,
    block_size: 64,
};

/// The next unit of an endless source.
fn next_unit(c: &mut Criterion) {
    let mut group = c.benchmark_group("traffic/next_unit");
    let mut requests = SyntheticRequests::new(2048, 128, u64::MAX);
    group.bench_function("synthetic", |b| b.iter(|| requests.next_unit()));
    let mut sessions = SyntheticSessions::new(SESSIONS, u64::MAX);
    group.bench_function("synthetic_session", |b| b.iter(|| sessions.next_unit()));
    group.finish();
}

/// When the next unit starts.
fn next_start(c: &mut Criterion) {
    let mut group = c.benchmark_group("traffic/next_start");
    let mut constant = Load::constant_rate(20.0);
    group.bench_function("constant_rate", |b| b.iter(|| constant.next_start(0.0)));
    let mut poisson = Load::poisson(20.0, 42);
    group.bench_function("poisson", |b| b.iter(|| poisson.next_start(0.0)));
    group.finish();
}

/// Requests that all arrive at one instant: the stage `Traffic` spawns them.
fn arrivals(c: &mut Criterion) {
    const BURST: u64 = 1024;
    let mut group = c.benchmark_group("traffic/arrival");
    group.throughput(Throughput::Elements(BURST));
    let mut simulation = Simulation::new(worlds::deployment(4, 64, 64, worlds::FIXED), burst(0));
    group.bench_function("burst_of_1024", |b| {
        b.iter_custom(|count| {
            let mut elapsed = Duration::ZERO;
            for _ in 0..count {
                simulation.world.insert_resource(burst(BURST));
                let start = Instant::now();
                simulation.run_stage(Stage::Traffic);
                elapsed += start.elapsed();
                leave(&mut simulation, BURST);
            }
            elapsed
        });
    });
    group.finish();
}

fn burst(requests: u64) -> Traffic {
    let source = SyntheticRequests::new(2048, 128, requests);
    Traffic::new(Box::new(source), Load::TraceTimestamps { speedup: 1.0 }, worlds::NO_LIMITS)
}

/// Takes the requests that have just arrived out of the world again.
fn leave(simulation: &mut Simulation, expected: u64) {
    let arrived = std::mem::take(&mut simulation.world.resource_mut::<Placements>().ready);
    assert_eq!(arrived.len() as u64, expected);
    for request in arrived {
        simulation.world.despawn(request);
    }
}

fn main() {
    measure::run(&[next_unit, next_start, arrivals]);
}
