//! `systems/src/kv/radix`: one request's way through a radix cache of pages of one token.
//!
//! A cycle is what a request does to its rank: admission with a look-up, the rest of its prompt, the
//! commit of that, its output token by token, and its end. Caches are full before anything is
//! measured, so every growth evicts.

#[path = "support/measure.rs"]
mod measure;

use criterion::{BenchmarkId, Criterion};
use dynosim_systems::kv::{RadixCache, Stamp};
use dynosim_systems::prefix::PromptIdentity;

const PAGE_SIZE: u32 = 1;
const TOKENS_PER_ID: u32 = 512;
/// Trace ids of a prompt.
const IDS: u64 = 20;
const PROMPT: u32 = IDS as u32 * TOKENS_PER_ID;
/// Output tokens.
const OUTPUT: u32 = 100;
/// Tokens of the cache.
const CACHES: [(&str, u32); 3] = [("16k", 1 << 14), ("1M", 1 << 20), ("64M", 1 << 26)];

struct Fixture {
    cache: RadixCache,
    number: u64,
}

impl Fixture {
    /// A full cache of which prompts find all ids but the last `unique`.
    fn new(capacity: u32, unique: u64) -> Self {
        let mut fixture = Self { cache: RadixCache::new(capacity, true), number: 0 };
        while fixture.cache.usage().free >= PROMPT + OUTPUT {
            fixture.cycle(unique, 0);
        }
        fixture
    }

    fn stamp(&mut self) -> Stamp {
        self.number += 1;
        Stamp { pass: self.number, order: 0 }
    }

    /// A prompt of its own but for its leading ids.
    fn prompt(&self, unique: u64) -> PromptIdentity {
        let id = |place| if place + unique < IDS { place } else { self.number * IDS + place };
        let ids: Vec<u64> = (0..IDS).map(id).collect();
        PromptIdentity::from_trace_ids(&ids, TOKENS_PER_ID, PROMPT, self.number)
    }

    /// One request; gives the number of pages that it found.
    fn cycle(&mut self, unique: u64, output: u32) -> u32 {
        let at = self.stamp();
        let prompt = self.prompt(unique);
        let mut hold = self.cache.admit(prompt.runs(PAGE_SIZE, 0, PROMPT - 1), at);
        let found = hold.cached_pages();
        assert!(self.cache.grow(PROMPT - found, &mut hold), "the cache holds one request");
        self.cache.commit(prompt.runs(PAGE_SIZE, found, PROMPT), at, &mut hold);
        for token in 0..output {
            let (at, len) = (self.stamp(), PROMPT + token);
            assert!(self.cache.grow(1, &mut hold), "the cache holds one request");
            self.cache.commit(prompt.runs(PAGE_SIZE, len, len + 1), at, &mut hold);
        }
        let at = self.stamp();
        self.cache.finish([].into_iter(), at, &mut hold);
        found
    }
}

fn measure_cycles(c: &mut Criterion, name: &str, unique: u64, output: u32) {
    let mut group = c.benchmark_group(format!("radix/{name}"));
    for (name, capacity) in CACHES {
        let mut fixture = Fixture::new(capacity, unique);
        group.bench_function(BenchmarkId::from_parameter(name), |b| b.iter(|| fixture.cycle(unique, output)));
    }
    group.finish();
}

/// 10,240-token prompts that nobody shares.
fn unique(c: &mut Criterion) {
    measure_cycles(c, "unique_prompts", IDS, 0);
}

/// 10,240-token prompts that all start with the same 7,680 tokens.
fn shared(c: &mut Criterion) {
    measure_cycles(c, "shared_prompts", IDS / 4, 0);
}

/// The same with an output of 100 tokens, each given its page and committed when it comes.
fn decoding(c: &mut Criterion) {
    measure_cycles(c, "decoding_100", IDS / 4, OUTPUT);
}

fn main() {
    measure::run(&[unique, shared, decoding]);
}
