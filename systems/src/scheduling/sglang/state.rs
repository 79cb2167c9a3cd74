//! What an SGLang-style rank keeps beside its queue and its batch.

use super::{DecodeGrowth, NewTokenRatio};
use crate::kv::{RadixCache, Stamp};
use crate::scheduling::EngineSpec;

/// Prompt tokens of all requests of a pass, at the most.
pub const MAX_PREFILL_TOKENS: u32 = 16_384;

/// Output tokens of one request that are set aside when it starts, at the most.
pub const MAX_RESERVED_OUTPUT: u32 = 4096;

/// The state of an SGLang-style rank.
#[derive(Debug)]
pub struct SglangRank {
    /// Its pages, and the tree of those that are cached.
    pub cache: RadixCache,
    /// The share of the running requests' output that is expected to be needed.
    pub ratio: NewTokenRatio,
    /// Pages that the next decode steps need.
    pub growth: DecodeGrowth,
    /// Output that the running requests may still need.
    pub outputs: ReservedOutputs,
    /// Waiting requests that a pass has looked at, from the front.
    pub inspected: usize,
    stamp: Stamp,
}

impl SglangRank {
    /// An idle rank of a worker with `ranks` of them.
    #[must_use]
    pub fn new(spec: &EngineSpec, ranks: u32) -> Self {
        Self {
            cache: RadixCache::new(spec.num_blocks, spec.prefix_caching),
            ratio: NewTokenRatio::new(ranks),
            growth: DecodeGrowth::new(spec.block_size),
            outputs: ReservedOutputs::default(),
            inspected: 0,
            stamp: Stamp::default(),
        }
    }

    /// Notes that a pass begins, before decode step `step` or as that step.
    pub fn begin_pass(&mut self, step: u64) {
        if self.stamp.pass != step {
            self.stamp = Stamp { pass: step, order: 0 };
        }
    }

    /// The stamp of the next operation on the tree, before the tokens of the decode step are given.
    pub fn next_stamp(&mut self) -> Stamp {
        self.stamp.order += 1;
        self.stamp
    }
}

/// The stamp of what a request does to the tree when decode step `step` gives it its token: in order
/// of the batch, and after everything else that comes before the next step.
#[must_use]
pub const fn token_stamp(step: u64, ordinal: u64) -> Stamp {
    Stamp { pass: step, order: (1 << 32) + ordinal }
}

/// What the running requests may still generate, each cut at `MAX_RESERVED_OUTPUT`, summed up
/// without looking at each of them at every step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedOutputs {
    /// Requests with more than that to go.
    long: u64,
    /// The others, and what they have to go.
    short: u64,
    short_tokens: u64,
}

impl ReservedOutputs {
    /// The sum, in tokens.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.long * MAX_RESERVED_OUTPUT as u64 + self.short_tokens
    }

    /// Adds a request with `tokens` to go.
    pub const fn add(&mut self, tokens: u32) {
        if tokens > MAX_RESERVED_OUTPUT {
            self.long += 1;
        } else {
            self.short += 1;
            self.short_tokens += tokens as u64;
        }
    }

    /// Takes a request out that has `tokens` to go.
    pub const fn remove(&mut self, tokens: u32) {
        if tokens > MAX_RESERVED_OUTPUT {
            self.long -= 1;
        } else {
            self.short -= 1;
            self.short_tokens -= tokens as u64;
        }
    }

    /// Notes that a request with one token more than the cut to go gets a token with the next
    /// [`Self::step`].
    pub const fn come_down(&mut self) {
        self.long -= 1;
        self.short += 1;
        self.short_tokens += MAX_RESERVED_OUTPUT as u64 + 1;
    }

    /// Notes that every request gets a token.
    pub const fn step(&mut self) {
        self.short_tokens -= self.short;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_follows_every_request_down() {
        let mut left = [3, MAX_RESERVED_OUTPUT - 1, MAX_RESERVED_OUTPUT, MAX_RESERVED_OUTPUT + 2];
        let mut outputs = ReservedOutputs::default();
        left.iter().for_each(|&tokens| outputs.add(tokens));
        for _ in 0..3 {
            let sum: u32 = left.iter().map(|&tokens| tokens.min(MAX_RESERVED_OUTPUT)).sum();
            assert_eq!(outputs.tokens(), u64::from(sum));
            left.iter().filter(|&&tokens| tokens == MAX_RESERVED_OUTPUT + 1).for_each(|_| outputs.come_down());
            outputs.step();
            left.iter_mut().for_each(|tokens| *tokens -= 1);
        }
        left.iter().for_each(|&tokens| outputs.remove(tokens));
        assert_eq!(outputs, ReservedOutputs::default());
    }
}
