//! A worker's pool of KV blocks: allocation, prefix cache and eviction.

use bevy_ecs::prelude::*;

use super::{BlockIndex, BlockTable, KvBlock, NO_BLOCK};

/// The pool of one worker (of one rank, under attention data parallelism).
///
/// Every block is in exactly one state: *free*, *active* (somebody holds it) or *cached* (complete,
/// held by nobody, still findable). Cached blocks wait in order of release; the one released
/// longest ago is evicted first.
#[derive(Component, Clone, Debug)]
pub struct KvPool {
    first_row: usize,
    capacity: u32,
    /// Rows below this one have been used at least once.
    touched: u32,
    free_head: u32,
    free: u32,
    cached: u32,
    cached_oldest: u32,
    cached_newest: u32,
    index: BlockIndex,
}

/// How many blocks of a pool are in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvPoolUsage {
    /// Never used, or given back without content.
    pub free: u32,
    /// Held by at least one request.
    pub active: u32,
    /// Complete and held by nobody.
    pub cached: u32,
}

/// What a prefix lookup found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixHit {
    /// Leading blocks that are resident.
    pub blocks: u32,
    /// How many of them somebody holds.
    pub active: u32,
}

impl KvPool {
    /// A pool of `capacity` blocks whose entities start at row `first_row` of their table.
    #[must_use]
    pub fn new(first_row: usize, capacity: u32) -> Self {
        Self {
            first_row,
            capacity,
            touched: 0,
            free_head: NO_BLOCK,
            free: capacity,
            cached: 0,
            cached_oldest: NO_BLOCK,
            cached_newest: NO_BLOCK,
            index: BlockIndex::new(capacity),
        }
    }

    /// This pool's part of the column of all blocks.
    #[must_use]
    #[inline]
    pub fn rows<'a>(&self, column: &'a mut [KvBlock]) -> &'a mut [KvBlock] {
        &mut column[self.first_row..self.first_row + self.capacity as usize]
    }

    /// Blocks in the pool.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Blocks in each state.
    #[must_use]
    pub const fn usage(&self) -> KvPoolUsage {
        KvPoolUsage { free: self.free, active: self.capacity - self.free - self.cached, cached: self.cached }
    }

    /// Blocks that can be given out: free ones, and cached ones after eviction.
    #[must_use]
    #[inline]
    pub const fn available(&self) -> u32 {
        self.free + self.cached
    }

    /// Walks `hashes` while blocks are resident, writing their rows to `hit_rows`.
    pub fn look_up(&self, hashes: impl Iterator<Item = u64>, blocks: &[KvBlock], hit_rows: &mut Vec<u32>) -> PrefixHit {
        hit_rows.clear();
        let mut active = 0;
        for hash in hashes {
            let Some(row) = self.index.get(hash, blocks) else { break };
            active += u32::from(blocks[row as usize].references > 0);
            hit_rows.push(row);
        }
        PrefixHit { blocks: hit_rows.len() as u32, active }
    }

    /// Adds a holder to resident blocks.
    pub fn pin(&mut self, rows: &[u32], blocks: &mut [KvBlock]) {
        for &row in rows {
            if blocks[row as usize].references == 0 {
                self.unlink_cached(row, blocks);
            }
            blocks[row as usize].references += 1;
        }
    }

    /// Gives out `count` blocks at the end of `rows`, evicting cached ones once no free one is
    /// left; gives out none and returns `false` if there are not enough.
    #[must_use]
    pub fn allocate(&mut self, count: u32, blocks: &mut [KvBlock], rows: &mut Vec<u32>) -> bool {
        if count > self.available() {
            return false;
        }
        rows.reserve(count as usize);
        for _ in 0..count {
            let row = self.take_free(blocks).unwrap_or_else(|| self.evict_oldest(blocks));
            blocks[row as usize].references = 1;
            rows.push(row);
        }
        true
    }

    /// Makes blocks `table.published..` findable under `hashes`, one hash each.
    pub fn publish(&mut self, hashes: impl Iterator<Item = u64>, blocks: &mut [KvBlock], table: &mut BlockTable) {
        for hash in hashes {
            let row = table.rows[table.published as usize];
            self.publish_block(row, hash, blocks);
            table.published += 1;
        }
    }

    /// Takes a request's hold off all its blocks, last to first, and empties its table.
    ///
    /// The first `complete` blocks stay cached when nobody else holds them; the rest become free.
    pub fn release(&mut self, complete: u32, blocks: &mut [KvBlock], table: &mut BlockTable) {
        for (block, &row) in table.rows.iter().enumerate().rev() {
            let state = &mut blocks[row as usize];
            debug_assert!(state.references > 0, "only a held block can be released");
            state.references -= 1;
            if state.references > 0 {
                continue;
            }
            if (block as u32) < complete {
                self.append_cached(row, blocks);
            } else {
                self.give_free(row, blocks);
            }
        }
        table.rows.clear();
        table.published = 0;
    }

    fn take_free(&mut self, blocks: &[KvBlock]) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        self.free -= 1;
        if self.free_head == NO_BLOCK {
            let row = self.touched;
            self.touched += 1;
            return Some(row);
        }
        let row = self.free_head;
        self.free_head = blocks[row as usize].released_later;
        Some(row)
    }

    fn give_free(&mut self, row: u32, blocks: &mut [KvBlock]) {
        debug_assert!(!blocks[row as usize].indexed, "an incomplete block is never published");
        blocks[row as usize].released_later = self.free_head;
        self.free_head = row;
        self.free += 1;
    }

    fn evict_oldest(&mut self, blocks: &mut [KvBlock]) -> u32 {
        let row = self.cached_oldest;
        debug_assert_ne!(row, NO_BLOCK, "callers check that enough blocks are available");
        self.unlink_cached(row, blocks);
        if blocks[row as usize].indexed {
            self.unpublish_block(row, blocks);
        }
        row
    }

    fn append_cached(&mut self, row: u32, blocks: &mut [KvBlock]) {
        let newest = self.cached_newest;
        let block = &mut blocks[row as usize];
        block.released_earlier = newest;
        block.released_later = NO_BLOCK;
        match newest {
            NO_BLOCK => self.cached_oldest = row,
            _ => blocks[newest as usize].released_later = row,
        }
        self.cached_newest = row;
        self.cached += 1;
    }

    fn unlink_cached(&mut self, row: u32, blocks: &mut [KvBlock]) {
        let KvBlock { released_earlier, released_later, .. } = blocks[row as usize];
        match released_earlier {
            NO_BLOCK => self.cached_oldest = released_later,
            earlier => blocks[earlier as usize].released_later = released_later,
        }
        match released_later {
            NO_BLOCK => self.cached_newest = released_earlier,
            later => blocks[later as usize].released_earlier = released_earlier,
        }
        self.cached -= 1;
    }

    fn publish_block(&mut self, row: u32, hash: u64, blocks: &mut [KvBlock]) {
        let block = &mut blocks[row as usize];
        block.hash = hash;
        block.indexed = true;
        let (next, previous) = match self.index.insert(row, blocks) {
            Ok(()) => (row, row),
            Err(oldest) => (oldest, blocks[oldest as usize].previous_copy),
        };
        blocks[row as usize].next_copy = next;
        blocks[row as usize].previous_copy = previous;
        blocks[previous as usize].next_copy = row;
        blocks[next as usize].previous_copy = row;
    }

    fn unpublish_block(&mut self, row: u32, blocks: &mut [KvBlock]) {
        let KvBlock { next_copy, previous_copy, .. } = blocks[row as usize];
        if next_copy == row {
            self.index.remove(row, blocks);
        } else {
            // The next younger copy answers lookups from now on, if this one did.
            self.index.replace(row, next_copy, blocks);
            blocks[next_copy as usize].previous_copy = previous_copy;
            blocks[previous_copy as usize].next_copy = next_copy;
        }
        blocks[row as usize].indexed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        pool: KvPool,
        blocks: Vec<KvBlock>,
    }

    impl Fixture {
        fn new(capacity: u32) -> Self {
            Self { pool: KvPool::new(0, capacity), blocks: vec![KvBlock::default(); capacity as usize] }
        }

        fn hold(&mut self, hashes: &[u64], extra: u32) -> BlockTable {
            let mut table = BlockTable::default();
            assert!(self.pool.allocate(hashes.len() as u32 + extra, &mut self.blocks, &mut table.rows));
            self.pool.publish(hashes.iter().copied(), &mut self.blocks, &mut table);
            table
        }

        fn hits(&self, hashes: &[u64]) -> PrefixHit {
            self.pool.look_up(hashes.iter().copied(), &self.blocks, &mut Vec::new())
        }

        fn release(&mut self, mut table: BlockTable) {
            let complete = table.published;
            self.pool.release(complete, &mut self.blocks, &mut table);
        }
    }

    #[test]
    fn cached_blocks_are_found_until_they_are_evicted_suffix_first() {
        let mut f = Fixture::new(4);
        let a = f.hold(&[10, 11, 12], 1);
        assert_eq!(f.pool.usage(), KvPoolUsage { free: 0, active: 4, cached: 0 });
        assert_eq!(f.hits(&[10, 11, 99]), PrefixHit { blocks: 2, active: 2 });
        f.release(a);
        assert_eq!(f.pool.usage(), KvPoolUsage { free: 1, active: 0, cached: 3 });
        assert_eq!(f.hits(&[10, 11, 12]), PrefixHit { blocks: 3, active: 0 });
        let _b = f.hold(&[], 2);
        assert_eq!(f.hits(&[10, 11, 12]).blocks, 2, "the last block of the prompt went first");
    }

    #[test]
    fn allocation_is_all_or_nothing() {
        let mut f = Fixture::new(3);
        let _held = f.hold(&[1], 0);
        let mut rows = Vec::new();
        assert!(!f.pool.allocate(3, &mut f.blocks, &mut rows));
        assert!(rows.is_empty());
        assert!(f.pool.allocate(2, &mut f.blocks, &mut rows));
        assert_eq!(f.pool.usage().active, 3);
    }

    #[test]
    fn the_oldest_surviving_copy_answers() {
        let mut f = Fixture::new(3);
        let (a, b, c) = (f.hold(&[7], 0), f.hold(&[7], 0), f.hold(&[7], 0));
        let row = |f: &Fixture| {
            let mut rows = Vec::new();
            f.pool.look_up([7].into_iter(), &f.blocks, &mut rows);
            rows[0]
        };
        let (first, second, third) = (a.rows[0], b.rows[0], c.rows[0]);
        assert_eq!(row(&f), first);
        f.release(b);
        let d = f.hold(&[], 1);
        assert_eq!((d.rows[0], row(&f)), (second, first), "a middle copy leaves without a trace");
        f.release(a);
        let _e = f.hold(&[], 1);
        assert_eq!(row(&f), third);
        f.release(c);
        let _f = f.hold(&[], 1);
        assert_eq!(f.hits(&[7]).blocks, 0);
    }

    #[test]
    fn a_pinned_block_is_not_evicted() {
        let mut f = Fixture::new(2);
        let a = f.hold(&[1, 2], 0);
        f.release(a);
        let mut rows = Vec::new();
        f.pool.look_up([1].into_iter(), &f.blocks, &mut rows);
        f.pool.pin(&rows, &mut f.blocks);
        assert_eq!(f.pool.usage(), KvPoolUsage { free: 0, active: 1, cached: 1 });
        assert!(!f.pool.allocate(2, &mut f.blocks, &mut Vec::new()));
        let _b = f.hold(&[], 1);
        assert_eq!(f.hits(&[1, 2]).blocks, 1);
    }
}
