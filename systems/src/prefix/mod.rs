//! Prefix identity: which KV blocks of two requests hold the same tokens.
//!
//! A block's KV depends on every token up to its end, so a block is identified by its position and
//! by all tokens before its end. Nothing here looks at tokens one by one: a trace gives an id for
//! each run of tokens, and what a workload makes up is unique by construction.

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

    /// The identities of blocks `from..to`, in order.
    pub fn block_hashes(&self, block_size: u32, from: u32, to: u32) -> impl Iterator<Item = u64> + '_ {
        let shared = self.shared_blocks(block_size).clamp(from, to);
        let trace = TraceHashes::new(&self.shared, block_size, from, shared);
        let key = if let SharedPrefix::Group { key, .. } = self.shared { key } else { 0 };
        let group_end = if matches!(self.shared, SharedPrefix::Group { .. }) { shared } else { from };
        let group = (from..group_end).map(move |block| mix(key ^ GROUP_SALT, u64::from(block)));
        let own = (shared..to).map(move |block| mix(self.stream, u64::from(block)));
        trace.chain(group).chain(own)
    }
}

/// Identity of the stream of tokens with this number.
#[must_use]
pub const fn stream(number: u64) -> u64 {
    mix(STREAM_SALT, number)
}

/// Walks the blocks of a trace prompt, stepping from id to id without a division for each block.
struct TraceHashes<'a> {
    chain: &'a [u64],
    block_size: u64,
    tokens_per_id: u64,
    block: u32,
    end: u32,
    /// The id that holds the last token of `block`, and the first token behind that id.
    id: usize,
    id_end: u64,
}

impl<'a> TraceHashes<'a> {
    fn new(shared: &'a SharedPrefix, block_size: u32, from: u32, to: u32) -> Self {
        let block_size = u64::from(block_size);
        let SharedPrefix::Trace { chain, tokens_per_id, .. } = shared else {
            return Self { chain: &[], block_size, tokens_per_id: 1, block: 0, end: 0, id: 0, id_end: 0 };
        };
        let tokens_per_id = u64::from(*tokens_per_id);
        let id = u64::from(from) * block_size / tokens_per_id;
        Self {
            chain,
            block_size,
            tokens_per_id,
            block: from,
            end: to,
            id: id as usize,
            id_end: (id + 1) * tokens_per_id,
        }
    }
}

impl Iterator for TraceHashes<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.block >= self.end {
            return None;
        }
        let block_end = (u64::from(self.block) + 1) * self.block_size;
        while self.id_end < block_end {
            self.id += 1;
            self.id_end += self.tokens_per_id;
        }
        let hash = mix(self.chain[self.id], u64::from(self.block));
        self.block += 1;
        Some(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(identity: &PromptIdentity, block_size: u32, to: u32) -> Vec<u64> {
        identity.block_hashes(block_size, 0, to).collect()
    }

    #[test]
    fn equal_ids_give_equal_blocks_and_the_first_different_id_ends_the_sharing() {
        let a = PromptIdentity::from_trace_ids(&[1, 2, 3], 100, 250, 0);
        let b = PromptIdentity::from_trace_ids(&[1, 2, 4], 100, 250, 1);
        let (a, b) = (hashes(&a, 64, 3), hashes(&b, 64, 3));
        assert_eq!(a[..3], b[..3], "192 tokens lie within ids 1 and 2");
        let c = PromptIdentity::from_trace_ids(&[1, 2, 4], 90, 250, 2);
        assert_ne!(a[2], hashes(&c, 64, 3)[2]);
    }

    #[test]
    fn a_block_depends_on_everything_before_it() {
        let a = PromptIdentity::from_trace_ids(&[1, 7], 64, 128, 0);
        let b = PromptIdentity::from_trace_ids(&[2, 7], 64, 128, 1);
        assert_ne!(hashes(&a, 64, 2)[1], hashes(&b, 64, 2)[1]);
    }

    #[test]
    fn blocks_behind_the_prompt_belong_to_the_request() {
        let a = PromptIdentity::from_trace_ids(&[1], 64, 64, 0);
        let b = PromptIdentity::from_trace_ids(&[1], 64, 64, 1);
        let (a, b) = (hashes(&a, 32, 4), hashes(&b, 32, 4));
        assert_eq!(a[..2], b[..2]);
        assert_ne!(a[2], b[2]);
        assert_ne!(a[3], b[3]);
    }

    #[test]
    fn a_walk_from_the_middle_gives_the_same_identities() {
        for (tokens_per_id, block_size) in [(512, 64), (100, 64), (64, 512), (48, 36), (7, 5)] {
            let ids: Vec<u64> = (0..40).collect();
            let identity = PromptIdentity::from_trace_ids(&ids, tokens_per_id, 40 * tokens_per_id, 3);
            let blocks = identity.shared_blocks(block_size) + 3;
            let whole = hashes(&identity, block_size, blocks);
            for from in 0..blocks {
                let rest: Vec<u64> = identity.block_hashes(block_size, from, blocks).collect();
                assert_eq!(rest, whole[from as usize..]);
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
        let (a, b) = (hashes(&turn(1), 64, 4), hashes(&turn(2), 64, 4));
        assert_eq!(a[..2], b[..2]);
        assert_ne!(a[2], b[2]);
    }
}
