//! Prefix identity: which KV blocks of two requests hold the same tokens.
//!
//! A block's KV depends on every token up to its end, so a block is identified by its position and
//! by all tokens before its end. Nothing here looks at tokens one by one: a trace gives an id for
//! each run of tokens, and what a workload makes up is unique by construction.

use std::ops::Range;

use bevy_ecs::prelude::*;

/// Odd constants that keep the kinds of identity apart.
const TRACE_SALT: u64 = 0x9e6c_63d0_76cc_4a1b;
const GROUP_SALT: u64 = 0xd1b5_4a32_d192_ed03;
const STREAM_SALT: u64 = 0x8cb9_2ba7_2f3d_8dd7;

/// Mixes two words into one, so that different pairs give different words (up to 64-bit chance).
///
/// A 64×64→128 bit multiplication folded onto itself, once for each word.
#[must_use]
pub const fn mix(a: u64, b: u64) -> u64 {
    let x = fold(a ^ 0xa076_1d64_78bd_642f, b ^ 0xe703_7ed1_a0b4_28db);
    fold(x ^ b, 0x8ebc_6af0_9c88_c6e3)
}

const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The leading part of a prompt that other requests may hold as well.
#[derive(Clone, Debug, PartialEq)]
pub enum SharedPrefix {
    /// Nothing is shared.
    None,
    /// The first `tokens` tokens are those of a prefix group.
    Group {
        /// Identity of the group.
        key: u64,
        /// Length of the shared part.
        tokens: u32,
    },
    /// The first `tokens` tokens are given by ids of a trace, each standing for `tokens_per_id` tokens.
    Trace {
        /// `chain[i]` identifies ids 0 to i together.
        chain: Box<[u64]>,
        /// Tokens that one id stands for.
        tokens_per_id: u32,
        /// Length of the prompt.
        tokens: u32,
    },
}

/// What a request's tokens are, as far as prefix caching can tell.
#[derive(Component, Clone, Debug, PartialEq)]
pub struct PromptIdentity {
    /// The leading part that others may hold.
    pub shared: SharedPrefix,
    /// Identity of all tokens behind it, the generated ones included.
    pub stream: u64,
    /// Whether a later request (the session's next turn) continues this stream.
    pub continued: bool,
}

impl PromptIdentity {
    /// A prompt that nobody shares.
    #[must_use]
    pub const fn unique(stream_number: u64) -> Self {
        Self { shared: SharedPrefix::None, stream: stream(stream_number), continued: false }
    }

    /// A prompt given by trace ids.
    #[must_use]
    pub fn from_trace_ids(ids: &[u64], tokens_per_id: u32, tokens: u32, stream_number: u64) -> Self {
        let mut state = TRACE_SALT;
        let used = tokens.div_ceil(tokens_per_id) as usize;
        let chain = ids
            .iter()
            .take(used)
            .map(|&id| {
                state = mix(state, id);
                state
            })
            .collect();
        Self {
            shared: SharedPrefix::Trace { chain, tokens_per_id, tokens },
            stream: stream(stream_number),
            continued: false,
        }
    }

    /// Complete blocks of `block_size` tokens within the shared part.
    #[must_use]
    pub fn shared_blocks(&self, block_size: u32) -> u32 {
        match &self.shared {
            SharedPrefix::None => 0,
            SharedPrefix::Group { tokens, .. } | SharedPrefix::Trace { tokens, .. } => tokens / block_size,
        }
    }

    /// The runs that blocks `from..to` lie in, in order.
    pub fn runs(&self, block_size: u32, from: u32, to: u32) -> Runs<'_> {
        let blocks_per_id = match &self.shared {
            SharedPrefix::Trace { tokens_per_id, .. } if tokens_per_id % block_size == 0 => tokens_per_id / block_size,
            _ => 0,
        };
        Runs { identity: self, block_size, blocks_per_id, shared: self.shared_blocks(block_size), next: from, end: to }
    }
}

/// Consecutive blocks of a prompt, each determined by the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Identity of the run's first block, and with it of all before and of all that follow.
    pub key: u64,
    /// Place of the first of `blocks` in the run, from 0.
    pub first_place: u32,
    /// Positions of the blocks in the prompt.
    pub blocks: Range<u32>,
}

/// Iterator over the [`Run`]s of a prompt.
#[derive(Clone, Debug)]
pub struct Runs<'a> {
    identity: &'a PromptIdentity,
    block_size: u32,
    /// Blocks that an id of a trace stands for if that is a whole number, else 0.
    blocks_per_id: u32,
    shared: u32,
    next: u32,
    end: u32,
}

impl Runs<'_> {
    /// The whole run that block `block` lies in: its key and its blocks.
    fn run_of(&self, block: u32) -> (u64, Range<u32>) {
        if block >= self.shared {
            return (self.identity.stream, self.shared..u32::MAX);
        }
        match &self.identity.shared {
            SharedPrefix::Trace { chain, .. } if self.blocks_per_id > 0 => {
                let id = block / self.blocks_per_id;
                let first = id * self.blocks_per_id;
                (chain[id as usize], first..(first + self.blocks_per_id).min(self.shared))
            }
            SharedPrefix::Trace { chain, tokens_per_id, .. } => {
                let (block_size, tokens_per_id) = (u64::from(self.block_size), u64::from(*tokens_per_id));
                // A block belongs to the id that holds its last token.
                let id = ((u64::from(block) + 1) * block_size - 1) / tokens_per_id;
                let first = id * tokens_per_id / block_size;
                let behind = (id + 1) * tokens_per_id / block_size;
                (chain[id as usize], first as u32..behind.min(u64::from(self.shared)) as u32)
            }
            SharedPrefix::Group { key, .. } => (mix(GROUP_SALT, *key), 0..self.shared),
            SharedPrefix::None => (self.identity.stream, 0..u32::MAX),
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.next >= self.end {
            return None;
        }
        let (key, whole) = self.run_of(self.next);
        let run = Run { key, first_place: self.next - whole.start, blocks: self.next..whole.end.min(self.end) };
        self.next = run.blocks.end;
        Some(run)
    }
}

/// Identity of the stream of tokens with this number.
#[must_use]
pub const fn stream(number: u64) -> u64 {
    mix(STREAM_SALT, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identity of each block: its run's key and its place in the run.
    fn blocks(identity: &PromptIdentity, block_size: u32, to: u32) -> Vec<(u64, u32)> {
        let runs = identity.runs(block_size, 0, to);
        runs.flat_map(|run| {
            assert_eq!(run.first_place, 0);
            let start = run.blocks.start;
            run.blocks.map(move |block| (run.key, block - start))
        })
        .collect()
    }

    #[test]
    fn equal_ids_give_equal_blocks_and_the_first_different_id_ends_the_sharing() {
        let a = PromptIdentity::from_trace_ids(&[1, 2, 3], 100, 250, 0);
        let b = PromptIdentity::from_trace_ids(&[1, 2, 4], 100, 250, 1);
        assert_eq!(blocks(&a, 64, 3), blocks(&b, 64, 3), "192 tokens lie within ids 1 and 2");
        let (a, b) = (blocks(&a, 32, 7), blocks(&b, 32, 7));
        assert_eq!(a[..6], b[..6]);
        assert_ne!(a[6], b[6], "block 6 ends at token 224, in the third id");
    }

    #[test]
    fn a_block_depends_on_everything_before_it() {
        let a = PromptIdentity::from_trace_ids(&[1, 7], 64, 128, 0);
        let b = PromptIdentity::from_trace_ids(&[2, 7], 64, 128, 1);
        assert_ne!(blocks(&a, 64, 2)[1], blocks(&b, 64, 2)[1]);
    }

    #[test]
    fn blocks_behind_the_prompt_belong_to_the_request() {
        let a = PromptIdentity::from_trace_ids(&[1], 64, 64, 0);
        let b = PromptIdentity::from_trace_ids(&[1], 64, 64, 1);
        let (a, b) = (blocks(&a, 32, 4), blocks(&b, 32, 4));
        assert_eq!(a[..2], b[..2]);
        assert_ne!(a[2], b[2]);
        assert_ne!(a[3], b[3]);
    }

    #[test]
    fn a_shorter_prompt_ends_inside_a_run_of_the_longer_one() {
        let long = PromptIdentity::from_trace_ids(&[5, 6], 512, 1024, 0);
        let short = PromptIdentity::from_trace_ids(&[5, 6], 512, 700, 1);
        let (long, short) = (blocks(&long, 64, 16), blocks(&short, 64, 12));
        assert_eq!(long[..10], short[..10]);
        assert_ne!(long[10], short[10], "700 tokens end inside the eleventh block");
    }

    #[test]
    fn runs_from_the_middle_are_parts_of_the_same_runs() {
        for (tokens_per_id, block_size) in [(512, 64), (100, 64), (64, 512), (48, 36), (7, 5)] {
            let ids: Vec<u64> = (0..40).collect();
            let identity = PromptIdentity::from_trace_ids(&ids, tokens_per_id, 40 * tokens_per_id, 3);
            let end = identity.shared_blocks(block_size) + 3;
            let whole: Vec<Run> = identity.runs(block_size, 0, end).collect();
            assert!(whole.iter().zip(&whole[1..]).all(|(a, b)| a.blocks.end == b.blocks.start && a.key != b.key));
            for from in 0..end {
                let rest: Vec<Run> = identity.runs(block_size, from, end).collect();
                let kept: Vec<Run> = whole.iter().filter(|run| run.blocks.end > from).cloned().collect();
                assert_eq!(rest.len(), kept.len());
                for (part, whole) in rest.iter().zip(&kept) {
                    assert_eq!((part.key, part.blocks.end), (whole.key, whole.blocks.end));
                    assert_eq!(part.first_place, part.blocks.start - whole.blocks.start);
                }
            }
        }
    }

    #[test]
    fn a_prefix_group_is_shared_up_to_its_length() {
        let turn = |number| PromptIdentity {
            shared: SharedPrefix::Group { key: 5, tokens: 130 },
            stream: stream(number),
            continued: true,
        };
        let (a, b) = (blocks(&turn(1), 64, 4), blocks(&turn(2), 64, 4));
        assert_eq!(a[..2], b[..2]);
        assert_ne!(a[2], b[2]);
    }
}
