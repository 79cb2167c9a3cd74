//! `systems/src/kv`: one request's way through a pool of KV blocks.
//!
//! A cycle is what a request does to its worker's pool: look up its prompt, hold what is there,
//! allocate the rest, publish it, and give everything back at its end. Pools are full of cached
//! blocks before anything is measured, so every allocation evicts.

#[path = "support/measure.rs"]
mod measure;

use criterion::{BenchmarkId, Criterion, Throughput};
use dynosim_systems::kv::{BlockTable, BlockUse, Blocks, KvPool, PrefixNode};
use dynosim_systems::prefix::{PromptIdentity, stream};

const BLOCK_SIZE: u32 = 64;
const TOKENS_PER_ID: u32 = 512;
/// Blocks of a prompt.
const PROMPT_BLOCKS: u32 = 32;
/// Blocks of a shared prompt that others hold as well: three trace ids.
const SHARED_BLOCKS: u32 = 3 * TOKENS_PER_ID / BLOCK_SIZE;
const POOLS: [(&str, u32); 3] = [("1k", 1 << 10), ("16k", 1 << 14), ("1M", 1 << 20)];

struct Fixture {
    pool: KvPool,
    usage: Vec<BlockUse>,
    nodes: Vec<PrefixNode>,
    hit_rows: Vec<u32>,
    table: BlockTable,
}

impl Fixture {
    fn new(capacity: u32) -> Self {
        Self {
            pool: KvPool::new(0, capacity),
            usage: vec![BlockUse::default(); capacity as usize],
            nodes: vec![PrefixNode::default(); capacity as usize],
            hit_rows: Vec::new(),
            table: BlockTable::default(),
        }
    }

    /// One request; gives the number of blocks that it found.
    fn cycle(&mut self, identity: &PromptIdentity) -> u32 {
        let mut blocks = Blocks { usage: &mut self.usage, nodes: &mut self.nodes };
        let hit = self.pool.look_up(identity.runs(BLOCK_SIZE, 0, PROMPT_BLOCKS), &blocks, &mut self.hit_rows);
        self.pool.pin(&self.hit_rows, PROMPT_BLOCKS, &mut blocks, &mut self.table);
        let allocated = self.pool.allocate(PROMPT_BLOCKS - hit.blocks, &mut blocks, &mut self.table.rows);
        assert!(allocated, "the pool holds one prompt");
        let new = identity.runs(BLOCK_SIZE, hit.blocks, PROMPT_BLOCKS);
        self.pool.publish(new, &mut blocks, &mut self.table);
        self.pool.release(PROMPT_BLOCKS, &mut blocks, &mut self.table);
        hit.blocks
    }

    fn is_full(&self) -> bool {
        self.pool.usage().free < PROMPT_BLOCKS
    }
}

/// Prompts that nobody shares: all look-ups fail, all blocks are new.
fn unique(c: &mut Criterion) {
    let mut group = c.benchmark_group("kv/unique_prompts");
    group.throughput(Throughput::Elements(u64::from(PROMPT_BLOCKS)));
    for (name, capacity) in POOLS {
        let mut fixture = Fixture::new(capacity);
        let mut identity = PromptIdentity::unique(0);
        let mut number = 0;
        let mut cycle = |fixture: &mut Fixture| {
            number += 1;
            identity.stream = stream(number);
            fixture.cycle(&identity)
        };
        while !fixture.is_full() {
            cycle(&mut fixture);
        }
        group.bench_function(BenchmarkId::from_parameter(name), |b| b.iter(|| cycle(&mut fixture)));
    }
    group.finish();
}

/// Prompts that take turns to start with one of a few shared prefixes: three quarters of a prompt
/// are found, the rest is new.
fn shared(c: &mut Criterion) {
    let mut group = c.benchmark_group("kv/shared_prompts");
    group.throughput(Throughput::Elements(u64::from(PROMPT_BLOCKS)));
    for (name, capacity) in POOLS {
        let mut fixture = Fixture::new(capacity);
        let mut prompts = shared_prompts(u64::from(capacity / 4 / SHARED_BLOCKS));
        let mut number = 0;
        let mut cycle = |fixture: &mut Fixture| {
            number += 1;
            let count = prompts.len() as u64;
            let identity = &mut prompts[(number % count) as usize];
            identity.stream = stream(number);
            fixture.cycle(identity)
        };
        while !fixture.is_full() {
            cycle(&mut fixture);
        }
        assert_eq!(cycle(&mut fixture), SHARED_BLOCKS, "prefixes stay resident");
        group.bench_function(BenchmarkId::from_parameter(name), |b| b.iter(|| cycle(&mut fixture)));
    }
    group.finish();
}

fn shared_prompts(count: u64) -> Vec<PromptIdentity> {
    let tokens = SHARED_BLOCKS * BLOCK_SIZE;
    let prompt = |number: u64| {
        let ids = [3 * number, 3 * number + 1, 3 * number + 2];
        PromptIdentity::from_trace_ids(&ids, TOKENS_PER_ID, tokens, number)
    };
    (0..count).map(prompt).collect()
}

fn main() {
    measure::run(&[unique, shared]);
}
