//! A worker's pool of KV blocks: allocation, prefix cache and eviction.

use bevy_ecs::prelude::*;

use super::prefix_tree::PrefixTree;
use super::release_order::{Oldest, ReleaseOrder};
use super::{BlockTable, BlockUse, Blocks, KvEvents};
use crate::prefix::Run;

/// The pool of one worker (of one rank, under attention data parallelism).
///
/// Every block is in exactly one state: *free*, *active* (somebody holds it) or *cached* (complete,
/// held by nobody, findable if published). Of the cached blocks the one released longest ago is
/// evicted first.
#[derive(Component, Clone, Debug)]
pub struct KvPool {
    first_row: usize,
    capacity: u32,
    /// Blocks that nobody holds and nobody can find: the free ones, and the cached ones that were
    /// never published. They are all alike; the last one given back is the first to be used again,
    /// while it is still in the processor's cache.
    spare_rows: Vec<u32>,
    /// Rows from here on have never been used.
    untouched: u32,
    cached: u32,
    /// Of the cached blocks, those that nobody can find.
    unfindable: u32,
    release_order: ReleaseOrder,
    tree: PrefixTree,
    activity: KvActivity,
    events: KvEvents,
}

/// Counts of what a pool has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvActivity {
    /// Blocks given out.
    pub allocated: u64,
    /// Blocks found by a lookup and held again.
    pub reused: u64,
    /// Blocks made findable.
    pub published: u64,
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
            spare_rows: Vec::new(),
            untouched: 0,
            cached: 0,
            unfindable: 0,
            release_order: ReleaseOrder::default(),
            tree: PrefixTree::default(),
            activity: KvActivity::default(),
            events: KvEvents::default(),
        }
    }

    /// What the pool has done so far.
    #[must_use]
    pub const fn activity(&self) -> KvActivity {
        self.activity
    }

    /// What the pool tells the router.
    pub const fn events(&mut self) -> &mut KvEvents {
        &mut self.events
    }

    /// Checks the pool's counts against the blocks themselves; `usage` is the column of all blocks.
    ///
    /// # Errors
    /// What does not add up.
    pub fn audit(&self, usage: &[BlockUse]) -> Result<(), String> {
        let own = &usage[self.first_row..self.first_row + self.capacity as usize];
        let active = own.iter().filter(|block| block.references > 0).count() as u32;
        let cached = own.iter().filter(|block| block.references == 0 && block.is_published()).count() as u32;
        let counted = self.usage();
        if (active, cached + self.unfindable) == (counted.active, counted.cached) {
            return Ok(());
        }
        Err(format!(
            "{active} blocks are held and {cached} findable ones cached (and {} others), but the pool counts {counted:?}",
            self.unfindable
        ))
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
    pub fn usage(&self) -> KvPoolUsage {
        let free = self.free();
        KvPoolUsage { free, active: self.capacity - free - self.cached, cached: self.cached }
    }

    /// Blocks that can be given out: free ones, and cached ones after eviction.
    #[must_use]
    #[inline]
    pub fn available(&self) -> u32 {
        self.free() + self.cached
    }

    fn free(&self) -> u32 {
        self.spare_rows.len() as u32 + (self.capacity - self.untouched) - self.unfindable
    }

    /// Finds the leading blocks that are resident, writing their rows to `hit_rows`.
    pub fn look_up(&self, runs: impl Iterator<Item = Run>, blocks: &Blocks<'_>, hit_rows: &mut Vec<u32>) -> PrefixHit {
        hit_rows.clear();
        self.tree.look_up(runs, blocks, hit_rows);
        let active = hit_rows.iter().filter(|&&row| blocks.usage[row as usize].references > 0).count();
        PrefixHit { blocks: hit_rows.len() as u32, active: active as u32 }
    }

    /// Adds a holder to the resident blocks `rows`, and puts them first into an empty table, with
    /// room for `expected` blocks in total.
    pub fn pin(&mut self, rows: &[u32], expected: u32, blocks: &mut Blocks<'_>, table: &mut BlockTable) {
        debug_assert!(table.rows.is_empty());
        if table.rows.capacity() == 0 {
            table.rows = self.release_order.spare_list();
        }
        table.rows.reserve(expected.min(self.capacity) as usize);
        for &row in rows {
            let block = &mut blocks.usage[row as usize];
            self.cached -= u32::from(block.references == 0);
            block.references += 1;
            table.rows.push(row);
        }
        table.published = rows.len() as u32;
        self.activity.reused += rows.len() as u64;
    }

    /// Gives out `count` blocks at the end of `rows`, evicting cached ones once no free one is
    /// left; gives out none and returns `false` if there are not enough.
    #[must_use]
    pub fn allocate(&mut self, count: u32, blocks: &mut Blocks<'_>, rows: &mut Vec<u32>) -> bool {
        if count > self.available() {
            return false;
        }
        self.activity.allocated += u64::from(count);
        rows.reserve(count as usize);
        let mut missing = count - self.take_spare(count.min(self.free()), blocks.usage, rows);
        while missing > 0 {
            missing -= self.evict_oldest(missing, blocks, rows);
        }
        true
    }

    /// Makes a request's blocks findable, from the first unpublished one on, run by run.
    pub fn publish(&mut self, runs: impl Iterator<Item = Run>, blocks: &mut Blocks<'_>, table: &mut BlockTable) {
        for run in runs {
            debug_assert_eq!(run.blocks.start, table.published);
            let is_resident = self.publish_run(&run, blocks, table);
            if is_resident {
                self.events.note(run.key, run.first_place + (run.blocks.end - run.blocks.start));
            }
            table.published = run.blocks.end;
            self.activity.published += u64::from(run.blocks.end - run.blocks.start);
        }
    }

    /// Publishes the blocks of one run. Returns whether the last of them is the only copy.
    fn publish_run(&mut self, run: &Run, blocks: &mut Blocks<'_>, table: &BlockTable) -> bool {
        let rows = &table.rows[run.blocks.start as usize..run.blocks.end as usize];
        for (place, &row) in (run.first_place..).zip(rows) {
            let block = &mut blocks.usage[row as usize];
            (block.published, block.key) = (place, run.key);
        }
        let mut before = (run.first_place > 0).then(|| table.rows[run.blocks.start as usize - 1]);
        for (index, &row) in rows.iter().enumerate() {
            let is_new = match before {
                Some(before) => self.tree.publish_next(row, before, blocks.nodes),
                None => self.tree.publish_first(row, run.key, blocks),
            };
            if is_new {
                // Nothing can be behind a block that was not there a moment ago.
                self.tree.publish_behind_new(row, &rows[index + 1..], blocks.nodes);
                return true;
            }
            let oldest = blocks.nodes[row as usize].next_copy;
            blocks.usage[row as usize].published |= BlockUse::COPIED;
            blocks.usage[oldest as usize].published |= BlockUse::COPIED;
            before = Some(row);
        }
        false
    }

    /// Takes a request's hold off all its blocks and empties its table.
    ///
    /// The first `complete` blocks stay cached when nobody else holds them, the last of them to be
    /// evicted first; the rest become free.
    pub fn release(&mut self, complete: u32, blocks: &mut Blocks<'_>, table: &mut BlockTable) {
        let mut rows = std::mem::take(&mut table.rows);
        let published = std::mem::take(&mut table.published);
        let unfindable = complete - published;
        // What was never published was never shared.
        for &row in &rows[published as usize..] {
            let block = &mut blocks.usage[row as usize];
            debug_assert!(block.references == 1 && !block.is_published());
            block.references = 0;
        }
        self.spare_rows.extend_from_slice(&rows[published as usize..]);
        self.unfindable += unfindable;
        self.cached += unfindable;
        rows.truncate(published as usize);
        let number = self.release_order.next_number();
        for &row in &rows {
            let block = &mut blocks.usage[row as usize];
            debug_assert!(block.references > 0, "only a held block can be released");
            block.references -= 1;
            block.last_release = number;
            self.cached += u32::from(block.references == 0);
        }
        self.release_order.append(rows, unfindable);
        self.release_order.tidy(self.capacity as usize, blocks.usage);
    }

    /// Gives out `count` blocks that nobody can find. Returns their number.
    fn take_spare(&mut self, count: u32, usage: &mut [BlockUse], rows: &mut Vec<u32>) -> u32 {
        let first = rows.len();
        let kept = self.spare_rows.len().saturating_sub(count as usize);
        rows.extend(self.spare_rows.drain(kept..).rev());
        let untouched = count - (rows.len() - first) as u32;
        rows.extend(self.untouched..self.untouched + untouched);
        self.untouched += untouched;
        for &row in &rows[first..] {
            usage[row as usize].references = 1;
        }
        count
    }

    /// Evicts the block that was released longest ago, or up to `most` of them where they are alike,
    /// and gives them out. Returns their number.
    fn evict_oldest(&mut self, most: u32, blocks: &mut Blocks<'_>, rows: &mut Vec<u32>) -> u32 {
        let first = rows.len();
        let taken = match self.release_order.take_oldest(most, blocks.usage, rows) {
            Some(Oldest::Alone(count)) => {
                self.evict_alone(&rows[first..], blocks);
                count
            }
            Some(Oldest::Copy) => self.evict_copy(rows[first], blocks),
            Some(Oldest::Void) => 0,
            Some(Oldest::Unfindable(count)) => {
                self.unfindable -= count;
                self.take_spare(count, blocks.usage, rows)
            }
            None => {
                debug_assert!(false, "as many blocks are cached as are counted");
                return most;
            }
        };
        self.cached -= taken;
        taken
    }

    /// Gives out findable blocks without copies, whole runs from their ends but for the last.
    fn evict_alone(&mut self, rows: &[u32], blocks: &mut Blocks<'_>) {
        for (index, &row) in rows.iter().enumerate() {
            let block = &mut blocks.usage[row as usize];
            let (place, key) = (block.place(), block.key);
            (block.references, block.published) = (1, BlockUse::UNPUBLISHED);
            if place == 0 || index + 1 == rows.len() {
                self.tree.unpublish_from(row, place, blocks);
                self.events.note(key, place);
            }
        }
    }

    /// Gives out a block of which there may be copies.
    fn evict_copy(&mut self, row: u32, blocks: &mut Blocks<'_>) -> u32 {
        let block = &mut blocks.usage[row as usize];
        let place = block.place();
        (block.references, block.published) = (1, BlockUse::UNPUBLISHED);
        if self.tree.unpublish(row, place, blocks) {
            self.events.note(blocks.usage[row as usize].key, place);
        }
        1
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
            (start < end).then(|| Run { key, first_place: start - 2 * run, blocks: start..end })
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
        let mut table = BlockTable::default();
        f.on_pool(|pool, columns| pool.pin(&rows, 1, columns, &mut table));
        assert_eq!(f.pool.usage(), KvPoolUsage { free: 0, active: 1, cached: 1 });
        assert!(!f.on_pool(|pool, columns| pool.allocate(2, columns, &mut Vec::new())));
        let _b = f.hold(2, 0, 1);
        assert_eq!(f.hit(1, 2).0.blocks, 1);
    }
}
