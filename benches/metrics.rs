//! `systems/src/metrics`: samples and their distributions.

#[path = "support/lcg.rs"]
mod lcg;
#[path = "support/measure.rs"]
mod measure;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput};
use dynosim_systems::metrics::Samples;

use lcg::Lcg;

/// Latencies from a few ms to a second.
fn latencies(count: usize) -> Vec<f64> {
    let mut numbers = Lcg::new(1);
    (0..count).map(|_| 5.0 + numbers.unit() * 1000.0).collect()
}

fn samples(exact_up_to: usize, values: &[f64]) -> Samples {
    let mut samples = Samples::exact_up_to(exact_up_to);
    for &value in values {
        samples.add(value, 1);
    }
    samples
}

/// Adding 65,536 samples, while they are all kept and once they go into the sketch.
fn add(c: &mut Criterion) {
    const COUNT: usize = 1 << 16;
    let values = latencies(COUNT);
    let mut group = c.benchmark_group("metrics/add");
    group.throughput(Throughput::Elements(COUNT as u64));
    for (name, warm) in [("exact", samples(2 * COUNT, &[])), ("sketch", samples(COUNT / 2, &values))] {
        assert_eq!(warm.is_exact(), name == "exact");
        let fresh = || {
            let mut samples = warm.clone();
            samples.add(5.0, 1);
            samples
        };
        let fill = |samples: &mut Samples| values.iter().for_each(|&value| samples.add(black_box(value), 3));
        group.bench_function(name, |b| b.iter_batched_ref(fresh, fill, BatchSize::LargeInput));
    }
    group.finish();
}

/// Mean, deviation and percentiles of what was collected.
fn distribution(c: &mut Criterion) {
    let mut group = c.benchmark_group("metrics/distribution");
    for (name, count, limit) in
        [("exact_64k", 1 << 16, 1 << 20), ("exact_1M", 1 << 20, 1 << 20), ("sketch_1M", 1 << 20, 1 << 16)]
    {
        let samples = samples(limit, &latencies(count));
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(name, |b| b.iter(|| black_box(&samples).distribution()));
    }
    group.finish();
}

fn main() {
    measure::run(&[add, distribution]);
}
