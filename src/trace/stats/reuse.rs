//! How much of the prompts a cache that never forgets would find.

use fxhash::FxHashSet;

/// Blocks of prompts, those seen before apart from the new ones.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockReuse {
    seen: FxHashSet<u64>,
    blocks: u64,
    new_blocks: u64,
}

impl BlockReuse {
    /// A prompt whose blocks have these identities; each stands for all before it as well.
    pub fn add_ids(&mut self, chain: &[u64]) {
        self.blocks += chain.len() as u64;
        self.new_blocks += chain.iter().filter(|&&block| self.seen.insert(block)).count() as u64;
    }

    /// A prompt of which it is known how many of its blocks are new.
    pub fn add_counts(&mut self, blocks: u64, new_blocks: u64) {
        debug_assert!(new_blocks <= blocks);
        self.blocks += blocks;
        self.new_blocks += new_blocks;
    }

    /// Blocks of all prompts, and those among them that nobody had before.
    pub const fn counts(&self) -> (u64, u64) {
        (self.blocks, self.new_blocks)
    }
}
