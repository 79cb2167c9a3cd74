//! `systems/src/order.rs`: what an instant costs in which nothing happens, that is, the ECS itself.

#[path = "support/measure.rs"]
mod measure;
#[path = "support/worlds.rs"]
mod worlds;

use criterion::{BenchmarkId, Criterion};
use dynosim_systems::order::Stage;
use dynosim_systems::simulation::Simulation;
use dynosim_systems::traffic::{Load, SyntheticRequests, Traffic};

/// A world whose workload is over: it has served requests, so that every table and cache is warm.
fn idle_world(workers: u32) -> Simulation {
    let source = SyntheticRequests::new(2048, 128, 64);
    let traffic = Traffic::new(Box::new(source), Load::Concurrency { units: 16 }, worlds::NO_LIMITS);
    let mut simulation = Simulation::new(worlds::deployment(workers, 4096, 64, worlds::FIXED), traffic);
    while matches!(simulation.step(), Ok(true)) {}
    for stage in Stage::ALL {
        simulation.run_stage(stage);
    }
    simulation
}

/// The whole schedule of an instant.
fn instant(c: &mut Criterion) {
    let mut group = c.benchmark_group("schedule_run/empty_instant");
    for workers in [1, 4, 64] {
        let mut simulation = idle_world(workers);
        group.bench_function(BenchmarkId::new("workers", workers), |b| {
            b.iter(|| Stage::ALL.map(|stage| simulation.run_stage(stage)));
        });
    }
    group.finish();
}

/// Each stage by itself, in a schedule of its own (as `--profile` runs them).
fn stages(c: &mut Criterion) {
    let mut group = c.benchmark_group("schedule_run/empty_stage");
    let mut simulation = idle_world(4);
    for stage in Stage::ALL {
        group.bench_function(format!("{stage:?}").to_lowercase(), |b| {
            b.iter(|| simulation.run_stage(stage));
        });
    }
    group.finish();
}

fn main() {
    measure::run(&[instant, stages]);
}
