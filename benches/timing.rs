//! `systems/src/timing`: the price of a pass.

#[path = "support/measure.rs"]
mod measure;

use std::hint::black_box;

use criterion::Criterion;
use dynosim_systems::timing::{DecodeBatch, PassTiming, PrefillBatch, whole_ns_ms};

const POOL_TOKENS: f64 = 16_384.0 * 64.0;
const TIMINGS: [(&str, PassTiming); 2] =
    [("fixed", PassTiming::Fixed { prefill_ms: 30.0, decode_ms: 8.0 }), ("polynomial", PassTiming::Polynomial)];

/// A decode pass, rounded to whole nanoseconds.
fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("timing/decode_pass");
    for (name, timing) in TIMINGS {
        let mut batch = DecodeBatch { requests: 64, context_tokens: 64 * 2048 };
        group.bench_function(name, |b| {
            b.iter(|| {
                batch.context_tokens = (batch.context_tokens + batch.requests) & 0xf_ffff;
                whole_ns_ms(black_box(timing).decode_ms(&batch, black_box(POOL_TOKENS)))
            });
        });
    }
    group.finish();
}

/// The prefill part of a pass with four prompts.
fn prefill(c: &mut Criterion) {
    let mut group = c.benchmark_group("timing/prefill_pass");
    for (name, timing) in TIMINGS {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut batch = PrefillBatch::default();
                for before in [0, 512, 1024, 64] {
                    batch.add(black_box(before), 2048);
                }
                whole_ns_ms(black_box(timing).prefill_ms(&batch))
            });
        });
    }
    group.finish();
}

fn main() {
    measure::run(&[decode, prefill]);
}
