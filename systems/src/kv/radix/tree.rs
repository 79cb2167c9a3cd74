//! The tree of cached pages: which prefixes are there, who keeps them, and what is evicted next.

use std::collections::BTreeSet;

use fxhash::FxHashMap;
use slotmap::{SlotMap, new_key_type};

use crate::kv::KvEvents;
use crate::prefix::Run;

new_key_type! {
    /// Name of a node of a radix tree.
    pub struct RadixNode;
}

/// When a page was last locked or inserted. Later operations on a tree have higher stamps.
///
/// The caller gives the stamps, so that it can put off what a request does at every token and still
/// leave the tree as if it had been done in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The pass of the rank.
    pub pass: u64,
    /// Order of the operation within the pass.
    pub order: u64,
}

/// A stretch of pages of one run: always found together, kept together and touched together.
///
/// The stretches of a run that are in the tree are always its leading ones, because a page is evicted
/// after those that follow it.
#[derive(Clone, Debug)]
struct Node {
    /// Key of the run.
    run: u64,
    /// Place in the run of the first page.
    first_place: u32,
    /// Length in pages.
    pages: u32,
    /// Requests that hold a path through this node.
    locks: u32,
    /// Stretches that follow: of this run, at most one, and the first ones of other runs.
    children: u32,
    /// The stretch before it; none at the start of a prompt.
    parent: Option<RadixNode>,
    /// The next stretch of the same run.
    next: Option<RadixNode>,
    /// When it was last locked or inserted. While it is locked, its holders may know better.
    touched: Stamp,
}

/// How far a look-up came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Leading pages that are there.
    pub pages: u32,
    /// The stretch that holds the last of them.
    node: Option<RadixNode>,
    /// Pages of that stretch behind the last found one.
    beyond: u32,
}

/// The cached pages of a rank.
#[derive(Debug, Default)]
pub struct RadixTree {
    nodes: SlotMap<RadixNode, Node>,
    /// The first stretch of each run. A run's key stands for everything before it as well, so it is
    /// unique in the tree.
    heads: FxHashMap<u64, RadixNode>,
    /// Leaves that nobody locks, by the time of their last touch.
    evictable_leaves: BTreeSet<(Stamp, RadixNode)>,
    locked: u32,
    evictable: u32,
    pub(super) events: KvEvents,
}

impl RadixTree {
    /// Pages on the path of a request.
    pub const fn locked(&self) -> u32 {
        self.locked
    }

    /// Pages that no request needs.
    pub const fn evictable(&self) -> u32 {
        self.evictable
    }

    /// Finds the leading pages that are in the tree.
    pub fn find(&self, runs: impl Iterator<Item = Run>) -> Found {
        let mut found = Found::default();
        for run in runs {
            let step = self.follow(found.node, &run);
            if step.pages == 0 {
                break;
            }
            debug_assert_eq!(found.beyond, 0, "another run can only follow the end of a stretch");
            found = Found { pages: found.pages + step.pages, ..step };
            if step.pages < run_pages(&run) {
                break;
            }
        }
        found
    }

    /// Puts a lock on all that was found, and touches it. Returns the last node of the path.
    pub fn lock_found(&mut self, found: Found, at: Stamp) -> Option<RadixNode> {
        let last = self.end_of(found);
        self.lock(last, None, at);
        last
    }

    /// Inserts `runs` behind `from`, the last node of a path that the caller has locked, and moves the
    /// lock to their end. Returns the node there and how many of the pages were in the tree already.
    pub fn insert(
        &mut self,
        from: Option<RadixNode>,
        runs: impl Iterator<Item = Run>,
        at: Stamp,
    ) -> (Option<RadixNode>, u32) {
        let (mut last, mut present) = (from, 0);
        for run in runs {
            let found = self.follow(last, &run);
            let node = self.end_of(found);
            self.lock(node, last, at);
            last = node;
            present += found.pages;
            let missing = run_pages(&run) - found.pages;
            if missing > 0 {
                last = Some(self.append(last, run.key, run.first_place + found.pages, missing, at));
            }
        }
        (last, present)
    }

    /// Takes a request's lock off the path that ends at `last`, touching it as of `at`.
    pub fn unlock(&mut self, last: Option<RadixNode>, at: Stamp) {
        let mut up = last;
        while let Some(node) = up {
            let stretch = &mut self.nodes[node];
            stretch.locks -= 1;
            stretch.touched = stretch.touched.max(at);
            if stretch.locks == 0 {
                self.locked -= stretch.pages;
                self.evictable += stretch.pages;
            }
            up = stretch.parent;
            self.enlist(node);
        }
    }

    /// Evicts `pages` pages, of which there must be as many: the leaf touched longest ago goes first,
    /// from its end.
    pub fn evict(&mut self, mut pages: u32) {
        debug_assert!(pages <= self.evictable);
        while pages > 0 {
            let Some(&(stamp, node)) = self.evictable_leaves.first() else {
                debug_assert!(false, "as many pages are evictable as are counted");
                return;
            };
            let stretch = &mut self.nodes[node];
            let taken = stretch.pages.min(pages);
            stretch.pages -= taken;
            self.events.note(stretch.run, stretch.first_place + stretch.pages);
            self.evictable -= taken;
            pages -= taken;
            if stretch.pages == 0 {
                self.evictable_leaves.remove(&(stamp, node));
                self.remove(node);
            }
        }
    }

    /// Follows one run, of which all before its first given page ends at `parent`.
    fn follow(&self, parent: Option<RadixNode>, run: &Run) -> Found {
        let mut found = Found { pages: 0, node: parent, beyond: 0 };
        let mut next = match run.first_place {
            0 => self.heads.get(&run.key).copied(),
            _ => parent.and_then(|node| self.nodes[node].next),
        };
        let wanted = run_pages(run);
        while let Some(node) = next
            && found.pages < wanted
        {
            let stretch = &self.nodes[node];
            debug_assert_eq!((stretch.run, stretch.first_place), (run.key, run.first_place + found.pages));
            let used = stretch.pages.min(wanted - found.pages);
            found = Found { pages: found.pages + used, node: Some(node), beyond: stretch.pages - used };
            next = stretch.next;
        }
        found
    }

    /// The node whose last page is the last that was found; splits a stretch if there is none yet.
    fn end_of(&mut self, found: Found) -> Option<RadixNode> {
        match found.node {
            Some(node) if found.beyond > 0 => Some(self.split(node, found.beyond)),
            node => node,
        }
    }

    /// Cuts off the last `beyond` pages of a stretch, and returns the node of those before them.
    ///
    /// The end keeps the name, so that whoever holds a path up to that end need not know.
    fn split(&mut self, node: RadixNode, beyond: u32) -> RadixNode {
        let end = &mut self.nodes[node];
        let kept = end.pages - beyond;
        let start = Node { pages: kept, children: 1, next: Some(node), ..end.clone() };
        end.first_place += kept;
        end.pages = beyond;
        let (run, first_place, parent) = (start.run, start.first_place, start.parent);
        let start = self.nodes.insert(start);
        self.nodes[node].parent = Some(start);
        self.link(run, first_place, parent, Some(start));
        start
    }

    /// Adds pages behind `parent`, locked by whoever has locked the path up to there and nobody else.
    fn append(&mut self, parent: Option<RadixNode>, run: u64, first_place: u32, pages: u32, at: Stamp) -> RadixNode {
        self.locked += pages;
        self.events.note(run, first_place + pages);
        if let Some(node) = parent {
            let stretch = &mut self.nodes[node];
            // A request that grows page by page makes one stretch longer.
            if first_place > 0 && stretch.locks == 1 && stretch.children == 0 {
                stretch.pages += pages;
                stretch.touched = stretch.touched.max(at);
                return node;
            }
            stretch.children += 1;
        }
        let stretch = Node { run, first_place, pages, locks: 1, children: 0, parent, next: None, touched: at };
        let node = self.nodes.insert(stretch);
        self.link(run, first_place, parent, Some(node));
        node
    }

    /// Forgets a leaf that has no pages left.
    fn remove(&mut self, node: RadixNode) {
        let Some(Node { run, first_place, parent, .. }) = self.nodes.remove(node) else { return };
        self.link(run, first_place, parent, None);
        if let Some(parent) = parent {
            self.nodes[parent].children -= 1;
            self.enlist(parent);
        }
    }

    /// Makes `node` what is found at this place of a run, behind `parent`.
    fn link(&mut self, run: u64, first_place: u32, parent: Option<RadixNode>, node: Option<RadixNode>) {
        match (first_place, node, parent) {
            (0, Some(node), _) => drop(self.heads.insert(run, node)),
            (0, None, _) => drop(self.heads.remove(&run)),
            (_, node, Some(parent)) => self.nodes[parent].next = node,
            (_, _, None) => debug_assert!(false, "only the start of a run has nothing before it"),
        }
    }

    /// Locks the path that ends at `last`, up to the node `above`, which is locked already.
    fn lock(&mut self, last: Option<RadixNode>, above: Option<RadixNode>, at: Stamp) {
        let mut up = last;
        while up != above {
            let Some(node) = up else { return };
            let in_order = self.is_evictable_leaf(node);
            let stretch = &mut self.nodes[node];
            if in_order {
                self.evictable_leaves.remove(&(stretch.touched, node));
            }
            if stretch.locks == 0 {
                self.evictable -= stretch.pages;
                self.locked += stretch.pages;
            }
            stretch.locks += 1;
            stretch.touched = stretch.touched.max(at);
            up = stretch.parent;
        }
    }

    fn is_evictable_leaf(&self, node: RadixNode) -> bool {
        self.nodes[node].locks == 0 && self.nodes[node].children == 0
    }

    /// Puts a node in the order of eviction if its turn can come.
    fn enlist(&mut self, node: RadixNode) {
        if self.is_evictable_leaf(node) {
            self.evictable_leaves.insert((self.nodes[node].touched, node));
        }
    }
}

/// Pages of a run.
fn run_pages(run: &Run) -> u32 {
    run.blocks.end - run.blocks.start
}

/// What the audit of a tree checks.
impl RadixTree {
    /// Whether counts, links and order of eviction agree with the nodes.
    ///
    /// # Errors
    ///
    /// What does not agree.
    pub fn check(&self) -> Result<(), String> {
        let (mut locked, mut evictable, mut leaves, mut heads) = (0, 0, 0, 0);
        for (name, node) in &self.nodes {
            *if node.locks > 0 { &mut locked } else { &mut evictable } += node.pages;
            heads += usize::from(node.first_place == 0);
            leaves += usize::from(self.is_evictable_leaf(name));
            if self.is_evictable_leaf(name) && !self.evictable_leaves.contains(&(node.touched, name)) {
                return Err(format!("leaf {name:?} is not in the order of eviction: {node:?}"));
            }
            self.check_links(name, node)?;
        }
        let counted = (self.locked, self.evictable, self.evictable_leaves.len(), self.heads.len());
        let there = (locked, evictable, leaves, heads);
        if counted != there {
            return Err(format!("(locked, evictable, leaves, runs): counted {counted:?}, there are {there:?}"));
        }
        Ok(())
    }

    fn check_links(&self, name: RadixNode, node: &Node) -> Result<(), String> {
        let parent = node.parent.map(|parent| &self.nodes[parent]);
        let linked = match node.first_place {
            0 => self.heads.get(&node.run).copied(),
            _ => parent.and_then(|parent| parent.next),
        };
        let continues = parent.is_some_and(|parent| {
            parent.run == node.run && parent.first_place + parent.pages == node.first_place && node.first_place > 0
        });
        let is_kept = parent.is_none_or(|parent| parent.locks >= node.locks && parent.children > 0);
        let is_sound = linked == Some(name) && (continues || node.first_place == 0) && is_kept && node.pages > 0;
        if is_sound { Ok(()) } else { Err(format!("node {name:?} is out of place: {node:?} behind {parent:?}")) }
    }
}
