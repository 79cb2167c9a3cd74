//! The pages of a rank, and what requests do with them.

use bevy_ecs::prelude::*;

use super::tree::{RadixNode, RadixTree, Stamp};
use crate::kv::KvEvents;
use crate::prefix::Run;

/// The pages of one rank.
///
/// Every page is in exactly one state: *free*, *private* (one request has it), *locked* (in the tree,
/// on the path of at least one request) or *evictable* (in the tree, needed by nobody).
#[derive(Component, Debug)]
pub struct RadixCache {
    prefix_caching: bool,
    capacity: u32,
    free: u32,
    private: u32,
    tree: RadixTree,
}

/// How many pages of a rank are in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RadixUsage {
    /// Without content.
    pub free: u32,
    /// Of one request alone.
    pub private: u32,
    /// In the tree, and some request needs them.
    pub locked: u32,
    /// In the tree, and nobody needs them.
    pub evictable: u32,
}

/// The pages that a request holds: a path of the tree, and private ones behind it.
#[derive(Component, Clone, Debug, Default, PartialEq, Eq)]
pub struct RadixHold {
    /// The node that its path ends with.
    last_node: Option<RadixNode>,
    /// Leading pages, in the tree.
    cached_pages: u32,
    /// Pages behind them that only this request has.
    private_pages: u32,
}

impl RadixHold {
    /// Leading pages that are in the tree.
    #[must_use]
    pub const fn cached_pages(&self) -> u32 {
        self.cached_pages
    }

    /// Takes over private pages that were given out for several requests together.
    pub const fn receive(&mut self, pages: u32) {
        self.private_pages += pages;
    }

    /// All pages held.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.cached_pages + self.private_pages
    }
}

impl RadixCache {
    /// A rank with `capacity` free pages. Without prefix caching the tree stays empty.
    #[must_use]
    pub fn new(capacity: u32, prefix_caching: bool) -> Self {
        Self { prefix_caching, capacity, free: capacity, private: 0, tree: RadixTree::default() }
    }

    /// Pages of the rank.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Pages in each state.
    #[must_use]
    pub const fn usage(&self) -> RadixUsage {
        let (locked, evictable) = (self.tree.locked(), self.tree.evictable());
        RadixUsage { free: self.free, private: self.private, locked, evictable }
    }

    /// Pages that can be given out: free ones, and evictable ones after eviction.
    #[must_use]
    #[inline]
    pub const fn available(&self) -> u32 {
        self.free + self.tree.evictable()
    }

    /// What the rank tells the router.
    pub const fn events(&mut self) -> &mut KvEvents {
        &mut self.tree.events
    }

    /// Leading pages of a prompt that are in the tree. Being looked at does not keep them there longer:
    /// only an admission or a commit counts as a touch.
    #[must_use]
    pub fn look_up(&self, runs: impl Iterator<Item = Run>) -> u32 {
        self.tree.find(runs).pages
    }

    /// A request that holds the leading pages of its prompt that are in the tree, and nothing else.
    ///
    /// `runs` are those of as many pages as it may find.
    #[must_use = "the pages stay locked until the hold ends"]
    pub fn admit(&mut self, runs: impl Iterator<Item = Run>, at: Stamp) -> RadixHold {
        let found = self.tree.find(runs);
        let last_node = self.tree.lock_found(found, at);
        RadixHold { last_node, cached_pages: found.pages, private_pages: 0 }
    }

    /// Evicts until `pages` pages are free; evicts none and returns `false` if that cannot be.
    #[must_use]
    pub fn make_room(&mut self, pages: u32) -> bool {
        if pages > self.available() {
            return false;
        }
        let missing = pages.saturating_sub(self.free);
        self.tree.evict(missing);
        self.free += missing;
        true
    }

    /// Gives `pages` private pages out for several requests together, evicting where needed; changes
    /// nothing and returns `false` if there are not enough. Each request will have to
    /// [`RadixHold::receive`] its own.
    #[must_use]
    pub fn grow_all(&mut self, pages: u32) -> bool {
        let has_room = self.make_room(pages);
        if has_room {
            self.free -= pages;
            self.private += pages;
        }
        has_room
    }

    /// Gives a request `pages` more private pages, evicting where needed; changes nothing and returns
    /// `false` if there are not enough.
    #[must_use]
    pub fn grow(&mut self, pages: u32, hold: &mut RadixHold) -> bool {
        let has_room = self.grow_all(pages);
        if has_room {
            hold.receive(pages);
        }
        has_room
    }

    /// Inserts a request's completed pages, and locks them there.
    ///
    /// `runs` go from its last cached page to its last completed one. What the tree has already, it
    /// keeps: the request moves over, and its own copies become free.
    pub fn commit(&mut self, runs: impl Iterator<Item = Run>, at: Stamp, hold: &mut RadixHold) {
        let mut committed = 0;
        let from = hold.cached_pages;
        let mut runs = runs
            .inspect(|run| {
                debug_assert_eq!(run.blocks.start, from + committed, "a commit goes on where the last one ended");
                committed += run.blocks.end - run.blocks.start;
            })
            .peekable();
        // A request that has nothing to insert does not touch its path either.
        if !self.prefix_caching || runs.peek().is_none() {
            return;
        }
        let (last_node, present) = self.tree.insert(hold.last_node, runs, at);
        debug_assert!(committed <= hold.private_pages, "a request commits what it has");
        self.private -= committed;
        self.free += present;
        hold.last_node = last_node;
        hold.cached_pages += committed;
        hold.private_pages -= committed;
    }

    /// Ends a request: commits `runs`, as in [`RadixCache::commit`], and lets go of everything.
    pub fn finish(&mut self, runs: impl Iterator<Item = Run>, at: Stamp, hold: &mut RadixHold) {
        self.commit(runs, at, hold);
        self.release(hold);
    }

    /// Lets go of everything: private pages become free, those in the tree can be evicted.
    ///
    /// That is all if a request is retracted or aborted.
    pub fn release(&mut self, hold: &mut RadixHold) {
        let hold = std::mem::take(hold);
        self.private -= hold.private_pages;
        self.free += hold.private_pages;
        self.tree.unlock(hold.last_node);
    }

    /// Audits the pages, given all that requests hold, and `unlisted` pages that were given out for
    /// several of them together.
    ///
    /// # Errors
    ///
    /// What does not add up.
    pub fn check<'a>(&self, holds: impl Iterator<Item = &'a RadixHold>, unlisted: u32) -> Result<(), String> {
        let held = unlisted + holds.map(|hold| hold.private_pages).sum::<u32>();
        let RadixUsage { free, private, locked, evictable } = self.usage();
        if private != held {
            return Err(format!("{private} pages are counted as private, and requests have {held}"));
        }
        let total = u64::from(free) + u64::from(private) + u64::from(locked) + u64::from(evictable);
        if total != u64::from(self.capacity) {
            return Err(format!("{total} pages of {}: {:?}", self.capacity, self.usage()));
        }
        self.tree.check()
    }
}
