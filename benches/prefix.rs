//! `systems/src/prefix`: what a prompt's blocks are.

#[path = "support/measure.rs"]
mod measure;

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use dynosim_systems::prefix::PromptIdentity;

/// Ids of a prompt of the conversation trace: its mean is 24.
const IDS: u64 = 24;
const TOKENS_PER_ID: u32 = 512;

fn prompt() -> PromptIdentity {
    let ids: Vec<u64> = (0..IDS).collect();
    PromptIdentity::from_trace_ids(&ids, TOKENS_PER_ID, IDS as u32 * TOKENS_PER_ID, 7)
}

/// From ids to chained keys, once per request.
fn chain(c: &mut Criterion) {
    let ids: Vec<u64> = (0..IDS).collect();
    let mut group = c.benchmark_group("prefix/chain");
    group.throughput(Throughput::Elements(IDS));
    group.bench_function("24_ids", |b| {
        b.iter(|| PromptIdentity::from_trace_ids(black_box(&ids), TOKENS_PER_ID, 24 * TOKENS_PER_ID, 7));
    });
    group.finish();
}

/// Going through a whole prompt, once per look-up; an element is a block.
fn runs(c: &mut Criterion) {
    let identity = prompt();
    let mut group = c.benchmark_group("prefix/runs");
    for block_size in [16, 64, 512] {
        let blocks = identity.shared_blocks(block_size);
        group.throughput(Throughput::Elements(u64::from(blocks)));
        group.bench_function(format!("24_ids_block_{block_size}"), |b| {
            b.iter(|| {
                let runs = black_box(&identity).runs(block_size, 0, blocks);
                runs.fold(0, |sum: u64, run| sum.wrapping_add(run.key) + u64::from(run.blocks.end))
            });
        });
    }
    group.finish();
}

/// The run of a single block in the middle, as a chunked prefill asks for it.
fn middle(c: &mut Criterion) {
    let identity = prompt();
    c.bench_function("prefix/run_of_one_block", |b| {
        b.iter(|| black_box(&identity).runs(64, black_box(100), 101).next());
    });
}

fn main() {
    measure::run(&[chain, runs, middle]);
}
