//! A worker's pool of KV blocks: allocation, prefix cache and eviction.

use bevy_ecs::prelude::*;

use super::prefix_tree::PrefixTree;
use super::{BlockTable, BlockUse, Blocks, NO_BLOCK};
use crate::prefix::Run;

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
    tree: PrefixTree,
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
            tree: PrefixTree::new(capacity),
        }
    }

    /// This pool's part of the columns of all blocks.
    #[must_use]
    #[inline]
    pub fn own_rows<'a>(&self, all: &'a mut Blocks<'_>) -> Blocks<'a> {
        let rows = self.first_row..self.first_row + self.capacity as usize;
        Blocks { usage: &mut all.usage[rows.clone()], nodes: &mut all.nodes[rows] }
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

    /// Finds the leading blocks that are resident, writing their rows to `hit_rows`.
    pub fn look_up(&self, runs: impl Iterator<Item = Run>, blocks: &Blocks<'_>, hit_rows: &mut Vec<u32>) -> PrefixHit {
        hit_rows.clear();
        self.tree.look_up(runs, blocks.nodes, hit_rows);
        let active = hit_rows.iter().filter(|&&row| blocks.usage[row as usize].references > 0).count();
        PrefixHit { blocks: hit_rows.len() as u32, active: active as u32 }
    }

    /// Adds a holder to resident blocks.
    pub fn pin(&mut self, rows: &[u32], blocks: &mut Blocks<'_>) {
        for &row in rows {
            if blocks.usage[row as usize].references == 0 {
                self.unlink_cached(row, blocks.usage);
            }
            blocks.usage[row as usize].references += 1;
        }
    }

    /// Gives out `count` blocks at the end of `rows`, evicting cached ones once no free one is
    /// left; gives out none and returns `false` if there are not enough.
    #[must_use]
    pub fn allocate(&mut self, count: u32, blocks: &mut Blocks<'_>, rows: &mut Vec<u32>) -> bool {
        if count > self.available() {
            return false;
        }
        rows.reserve(count as usize);
        for _ in 0..count {
            let row = self.take_free(blocks.usage).unwrap_or_else(|| self.evict_oldest(blocks));
            blocks.usage[row as usize].references = 1;
            rows.push(row);
        }
        true
    }

    /// Makes a request's blocks findable, from the first unpublished one on, run by run.
    pub fn publish(&mut self, runs: impl Iterator<Item = Run>, blocks: &mut Blocks<'_>, table: &mut BlockTable) {
        for run in runs {
            debug_assert_eq!(run.blocks.start, table.published);
            for block in run.blocks.clone() {
                let row = table.rows[block as usize];
                blocks.usage[row as usize].published = true;
                if run.starts && block == run.blocks.start {
                    self.tree.publish_first(row, run.key, blocks.nodes);
                } else {
                    self.tree.publish_next(row, table.rows[block as usize - 1], blocks.nodes);
                }
            }
            table.published = run.blocks.end;
        }
    }

    /// Takes a request's hold off all its blocks, last to first, and empties its table.
    ///
    /// The first `complete` blocks stay cached when nobody else holds them; the rest become free.
    pub fn release(&mut self, complete: u32, blocks: &mut Blocks<'_>, table: &mut BlockTable) {
        for (block, &row) in table.rows.iter().enumerate().rev() {
            let state = &mut blocks.usage[row as usize];
            debug_assert!(state.references > 0, "only a held block can be released");
            state.references -= 1;
            if state.references > 0 {
                continue;
            }
            if (block as u32) < complete {
                self.append_cached(row, blocks.usage);
            } else {
                self.give_free(row, blocks.usage);
            }
        }
        table.rows.clear();
        table.published = 0;
    }

    fn take_free(&mut self, usage: &[BlockUse]) -> Option<u32> {
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
        self.free_head = usage[row as usize].released_later;
        Some(row)
    }

    fn give_free(&mut self, row: u32, usage: &mut [BlockUse]) {
        debug_assert!(!usage[row as usize].published, "an incomplete block is never published");
        usage[row as usize].released_later = self.free_head;
        self.free_head = row;
        self.free += 1;
    }

    fn evict_oldest(&mut self, blocks: &mut Blocks<'_>) -> u32 {
        let row = self.cached_oldest;
        debug_assert_ne!(row, NO_BLOCK, "callers check that enough blocks are available");
        self.unlink_cached(row, blocks.usage);
        if blocks.usage[row as usize].published {
            blocks.usage[row as usize].published = false;
            self.tree.unpublish(row, blocks.nodes);
        }
        row
    }

    fn append_cached(&mut self, row: u32, usage: &mut [BlockUse]) {
        let newest = self.cached_newest;
        let block = &mut usage[row as usize];
        block.released_earlier = newest;
        block.released_later = NO_BLOCK;
        match newest {
            NO_BLOCK => self.cached_oldest = row,
            _ => usage[newest as usize].released_later = row,
        }
        self.cached_newest = row;
        self.cached += 1;
    }

    fn unlink_cached(&mut self, row: u32, usage: &mut [BlockUse]) {
        let BlockUse { released_earlier, released_later, .. } = usage[row as usize];
        match released_earlier {
            NO_BLOCK => self.cached_oldest = released_later,
            earlier => usage[earlier as usize].released_later = released_later,
        }
        match released_later {
            NO_BLOCK => self.cached_newest = released_earlier,
            later => usage[later as usize].released_earlier = released_earlier,
        }
        self.cached -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::PrefixNode;

    struct Fixture {
        pool: KvPool,
        usage: Vec<BlockUse>,
        nodes: Vec<PrefixNode>,
    }

    /// A prompt of `count` blocks, cut into runs of two.
    fn runs(prompt: u64, from: u32, count: u32) -> impl Iterator<Item = Run> {
        (0..count.div_ceil(2)).filter_map(move |run| {
            let (start, end) = ((2 * run).max(from), (2 * run + 2).min(count));
            let key = prompt * 1000 + u64::from(run);
            (start < end).then(|| Run { key, starts: start == 2 * run, blocks: start..end })
        })
    }

    impl Fixture {
        fn new(capacity: u32) -> Self {
            let rows = capacity as usize;
            Self {
                pool: KvPool::new(0, capacity),
                usage: vec![BlockUse::default(); rows],
                nodes: vec![PrefixNode::default(); rows],
            }
        }

        fn on_pool<T>(&mut self, act: impl FnOnce(&mut KvPool, &mut Blocks<'_>) -> T) -> T {
            act(&mut self.pool, &mut Blocks { usage: &mut self.usage, nodes: &mut self.nodes })
        }

        /// A request that holds and publishes `blocks` new blocks, and holds `extra` more.
        fn hold(&mut self, prompt: u64, blocks: u32, extra: u32) -> BlockTable {
            let mut table = BlockTable::default();
            self.on_pool(|pool, columns| {
                assert!(pool.allocate(blocks + extra, columns, &mut table.rows));
                pool.publish(runs(prompt, 0, blocks), columns, &mut table);
            });
            table
        }

        fn hit(&mut self, prompt: u64, blocks: u32) -> (PrefixHit, Vec<u32>) {
            let mut rows = Vec::new();
            let hit = self.on_pool(|pool, columns| pool.look_up(runs(prompt, 0, blocks), columns, &mut rows));
            (hit, rows)
        }

        fn release(&mut self, mut table: BlockTable) {
            let complete = table.published;
            self.on_pool(|pool, columns| pool.release(complete, columns, &mut table));
        }
    }

    #[test]
    fn cached_blocks_are_found_until_they_are_evicted_suffix_first() {
        let mut f = Fixture::new(4);
        let a = f.hold(1, 3, 1);
        assert_eq!(f.pool.usage(), KvPoolUsage { free: 0, active: 4, cached: 0 });
        assert_eq!(f.hit(1, 2).0, PrefixHit { blocks: 2, active: 2 });
        f.release(a);
        assert_eq!(f.pool.usage(), KvPoolUsage { free: 1, active: 0, cached: 3 });
        assert_eq!(f.hit(1, 4).0, PrefixHit { blocks: 3, active: 0 });
        let _b = f.hold(2, 0, 2);
        assert_eq!(f.hit(1, 3).0.blocks, 2, "the last block of the prompt went first");
        let _c = f.hold(2, 0, 1);
        assert_eq!(f.hit(1, 3).0.blocks, 1, "then the one before it, within the run");
    }

    #[test]
    fn allocation_is_all_or_nothing() {
        let mut f = Fixture::new(3);
        let _held = f.hold(1, 1, 0);
        let mut rows = Vec::new();
        assert!(!f.on_pool(|pool, columns| pool.allocate(3, columns, &mut rows)));
        assert!(rows.is_empty());
        assert!(f.on_pool(|pool, columns| pool.allocate(2, columns, &mut rows)));
        assert_eq!(f.pool.usage().active, 3);
    }

    #[test]
    fn the_oldest_surviving_copy_answers() {
        for blocks in [1, 2] {
            let mut f = Fixture::new(3 * blocks);
            let (a, b, c) = (f.hold(7, blocks, 0), f.hold(7, blocks, 0), f.hold(7, blocks, 0));
            let rows = [a.rows.clone(), b.rows.clone(), c.rows.clone()];
            assert_eq!(f.hit(7, blocks).1, rows[0]);
            f.release(b);
            let _d = f.hold(8, 0, blocks);
            assert_eq!(f.hit(7, blocks).1, rows[0], "a middle copy leaves without a trace");
            f.release(a);
            let _e = f.hold(8, 0, blocks);
            assert_eq!(f.hit(7, blocks).1, rows[2]);
            f.release(c);
            let _f = f.hold(8, 0, blocks);
            assert_eq!(f.hit(7, blocks).0.blocks, 0);
        }
    }

    #[test]
    fn a_prefix_goes_on_behind_whichever_copy_its_request_holds() {
        let mut f = Fixture::new(8);
        let _a = f.hold(1, 1, 0);
        let mut b = f.hold(1, 1, 1);
        // `b` holds the younger copy of the first block, and is the first to complete the second.
        f.on_pool(|pool, columns| pool.publish(runs(1, 1, 2), columns, &mut b));
        assert_eq!(f.hit(1, 2).0.blocks, 2);
    }

    #[test]
    fn a_pinned_block_is_not_evicted() {
        let mut f = Fixture::new(2);
        let a = f.hold(1, 2, 0);
        f.release(a);
        let (_, rows) = f.hit(1, 1);
        f.on_pool(|pool, columns| pool.pin(&rows, columns));
        assert_eq!(f.pool.usage(), KvPoolUsage { free: 0, active: 1, cached: 1 });
        assert!(!f.on_pool(|pool, columns| pool.allocate(2, columns, &mut Vec::new())));
        let _b = f.hold(2, 0, 1);
        assert_eq!(f.hit(1, 2).0.blocks, 1);
    }
}
