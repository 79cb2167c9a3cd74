//! KV blocks and their pool: who holds which block, which prefix is cached, what is evicted next.
//!
//! A worker's blocks are entities that spawn together and lie in contiguous rows of one table, so
//! the pool addresses them by row and every operation takes the columns as slices.

mod events;
mod index;
mod pool;
mod prefix_tree;
mod radix;
mod release_order;

pub use events::{KvEvent, KvEvents};
pub use pool::{KvActivity, KvPool, KvPoolUsage, PrefixHit};
pub use radix::{RadixCache, RadixHold, RadixUsage, Stamp};

use bevy_ecs::prelude::*;

/// "No block" in a link.
pub const NO_BLOCK: u32 = u32::MAX;

/// Who uses a KV block, and for what: all that its eviction has to know.
///
/// Packed, it takes 20 bytes instead of 24: pools are larger than the processor's nearest caches.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub struct BlockUse {
    /// Requests that hold the block.
    pub references: u32,
    /// Which release of its pool last left it without a holder; meaningful while it is cached.
    pub last_release: u32,
    /// Its place in its run, and whether there may be copies of it, if a lookup can find it; else
    /// [`BlockUse::UNPUBLISHED`].
    pub published: u32,
    /// Key of the run that it lies in, if it is published; with its place in the run, the identity of
    /// the prefix.
    pub key: u64,
}

impl BlockUse {
    /// What stands for a block that no lookup can find.
    pub const UNPUBLISHED: u32 = u32::MAX;
    /// The bit of a block that has, or has had, copies.
    pub const COPIED: u32 = 1 << 31;

    /// Whether a lookup can find the block.
    #[must_use]
    pub const fn is_published(&self) -> bool {
        self.published != Self::UNPUBLISHED
    }

    /// Whether the block is certainly the only copy.
    #[must_use]
    pub const fn is_alone(&self) -> bool {
        self.published & Self::COPIED == 0
    }

    /// Place of a published block in its run.
    #[must_use]
    pub const fn place(&self) -> u32 {
        self.published & !Self::COPIED
    }
}

impl Default for BlockUse {
    fn default() -> Self {
        Self { references: 0, last_release: 0, published: Self::UNPUBLISHED, key: 0 }
    }
}

/// The place of a published KV block in its pool's tree of cached prefixes.
///
/// Blocks that hold the same prefix form a ring, oldest first. Only the oldest has a parent and a
/// child; it stands for all of them.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixNode {
    /// The block before it in its run, [`PrefixNode::FIRST`] at the start of a run, or none in a
    /// younger copy.
    pub parent: u32,
    /// The block behind it in its run.
    pub child: u32,
    /// Neighbours in the ring of copies.
    pub next_copy: u32,
    /// See `next_copy`.
    pub previous_copy: u32,
}

impl PrefixNode {
    /// The parent of a block that starts a run: it is found by its key.
    pub const FIRST: u32 = NO_BLOCK - 1;

    /// The node of a block at `row` without copies, behind `parent` and before nothing.
    const fn alone(row: u32, parent: u32) -> Self {
        Self { parent, child: NO_BLOCK, next_copy: row, previous_copy: row }
    }
}

impl Default for PrefixNode {
    fn default() -> Self {
        Self { parent: NO_BLOCK, child: NO_BLOCK, next_copy: NO_BLOCK, previous_copy: NO_BLOCK }
    }
}

/// The columns of a stretch of blocks.
#[derive(Debug)]
pub struct Blocks<'a> {
    /// Who uses them.
    pub usage: &'a mut [BlockUse],
    /// Where they are in the tree of cached prefixes.
    pub nodes: &'a mut [PrefixNode],
}

/// The blocks that a request holds, first to last, as rows within its worker's pool.
#[derive(Component, Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// Rows within the pool.
    pub rows: Vec<u32>,
    /// How many of the leading blocks are published: a lookup can find them.
    pub published: u32,
    /// What it holds instead where blocks are pages that nobody can tell apart.
    pub pages: RadixHold,
}
