//! KV blocks and their pool: who holds which block, which prefix is cached, what is evicted next.
//!
//! A worker's blocks are entities that spawn together and lie in contiguous rows of one table, so
//! the pool addresses them by row and every operation below takes the column as a slice.

mod index;
mod pool;

pub use index::BlockIndex;
pub use pool::{KvPool, KvPoolUsage, PrefixHit};

use bevy_ecs::prelude::*;

/// "No block" in a link.
pub const NO_BLOCK: u32 = u32::MAX;

/// The state of one KV block. 32 bytes: two to a cache line.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvBlock {
    /// Identity of the cached prefix that ends with this block; meaningful while `indexed`.
    pub hash: u64,
    /// Requests that hold the block.
    pub references: u32,
    /// Neighbours in the list of cached blocks that nobody holds, released earlier and later. A
    /// free block's `released_later` is the next free block.
    pub released_earlier: u32,
    /// See `released_earlier`.
    pub released_later: u32,
    /// Neighbours in the ring of blocks with the same hash, oldest first.
    pub next_copy: u32,
    /// See `next_copy`.
    pub previous_copy: u32,
    /// Whether a lookup can find the block.
    pub indexed: bool,
}

impl Default for KvBlock {
    fn default() -> Self {
        Self {
            hash: 0,
            references: 0,
            released_earlier: NO_BLOCK,
            released_later: NO_BLOCK,
            next_copy: NO_BLOCK,
            previous_copy: NO_BLOCK,
            indexed: false,
        }
    }
}

/// The worker that a block belongs to.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOf(pub Entity);

/// The blocks that a request holds, first to last, as rows within its worker's pool.
#[derive(Component, Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockTable {
    /// Rows within the pool.
    pub rows: Vec<u32>,
    /// How many of the leading blocks are published: a lookup can find them.
    pub published: u32,
}
