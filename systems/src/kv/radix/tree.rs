//! The tree of cached pages: which prefixes are there, who keeps them, and what is evicted next.

use std::collections::BTreeSet;

use fxhash::FxHashMap;
use slotmap::{SlotMap, new_key_type};
use smallvec::SmallVec;

use super::node::{Node, PageId, Segment};
use crate::kv::KvEvents;
use crate::prefix::Run;

new_key_type! {
    /// Name of a node of a radix tree.
    pub struct RadixNode;
}

/// When pages were last locked or inserted. Later operations on a tree have higher stamps.
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

/// How far a look-up came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Leading pages that are there, counted from where the look-up began.
    pub pages: u32,
    /// The node that holds the last page before here.
    node: Option<RadixNode>,
    /// Pages of the node up to here.
    inside: u32,
    /// Segments of the node up to here.
    segments: usize,
}

/// The cached pages of a rank.
#[derive(Debug, Default)]
pub struct RadixTree {
    nodes: SlotMap<RadixNode, Node>,
    /// Nodes by their first page. A page's identity stands for everything before it as well, so it is
    /// unique in the tree.
    by_first_page: FxHashMap<PageId, RadixNode>,
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
            if self.follow(&run, &mut found) < run_pages(&run) {
                break;
            }
        }
        found
    }

    /// Puts a lock on all that was found, and touches it. Returns the last node of the locked path.
    pub fn lock_found(&mut self, found: Found, at: Stamp) -> Option<RadixNode> {
        let (last, untouched) = self.end_path(found);
        self.lock(last, None);
        self.touch(last, untouched, at);
        last
    }

    /// Inserts `runs` behind `from`, the last node of a path that the caller has locked, and moves the
    /// lock to their end. Returns the node there, and how many of the pages were in the tree already.
    pub fn insert(
        &mut self,
        from: Option<RadixNode>,
        runs: impl Iterator<Item = Run>,
        at: Stamp,
    ) -> (Option<RadixNode>, u32) {
        let mut found = self.whole(from);
        let mut missing = SmallVec::new();
        for run in runs {
            let followed = if missing.is_empty() { self.follow(&run, &mut found) } else { 0 };
            let rest = run_pages(&run) - followed;
            if rest > 0 {
                missing.push(Segment { run: run.key, first_place: run.first_place + followed, pages: rest });
            }
        }
        let (mut last, untouched) = self.end_path(found);
        self.lock(last, from);
        if missing.is_empty() {
            self.touch(last, untouched, at);
        } else {
            last = Some(self.append(last, missing, at));
            self.touch(last, None, at);
        }
        (last, found.pages)
    }

    /// Takes a request's lock off the path that ends with `last`.
    pub fn unlock(&mut self, last: Option<RadixNode>) {
        let mut up = last;
        while let Some(name) = up {
            let node = &mut self.nodes[name];
            node.locks -= 1;
            if node.locks == 0 {
                self.locked -= node.pages;
                self.evictable += node.pages;
            }
            up = node.parent;
            self.enlist(name);
        }
    }

    /// Evicts `pages` pages, of which there must be as many: the leaf touched longest ago goes first,
    /// from its end.
    pub fn evict(&mut self, mut pages: u32) {
        debug_assert!(pages <= self.evictable);
        while pages > 0 {
            let Some(&(stamp, name)) = self.evictable_leaves.first() else {
                debug_assert!(false, "as many pages are evictable as are counted");
                return;
            };
            let node = &mut self.nodes[name];
            let taken = node.pages.min(pages);
            self.evictable -= taken;
            pages -= taken;
            if taken == node.pages {
                self.evictable_leaves.remove(&(stamp, name));
                self.remove(name);
            } else {
                node.truncate(taken, &mut self.events);
            }
        }
    }

    /// The end of a node, as a place where a look-up can go on.
    fn whole(&self, node: Option<RadixNode>) -> Found {
        let Some(name) = node else { return Found::default() };
        let Node { pages, segments, .. } = &self.nodes[name];
        Found { pages: 0, node, inside: *pages, segments: segments.len() }
    }

    /// Follows a run from where a look-up stands, and returns how many pages of it are there.
    fn follow(&self, run: &Run, found: &mut Found) -> u32 {
        let wanted = run_pages(run);
        let mut followed = 0;
        while followed < wanted {
            let page = PageId { run: run.key, place: run.first_place + followed };
            let Some(segment) = self.enter(page, found) else { break };
            let used = segment.pages.min(wanted - followed);
            followed += used;
            found.pages += used;
            found.inside += used;
            found.segments += usize::from(used == segment.pages);
        }
        followed
    }

    /// The segment that goes on with this page, if one does.
    fn enter(&self, page: PageId, found: &mut Found) -> Option<&Segment> {
        if found.node.is_none_or(|name| found.inside == self.nodes[name].pages) {
            let name = *self.by_first_page.get(&page)?;
            debug_assert_eq!(self.nodes[name].parent, found.node, "a page stands for all before it");
            *found = Found { pages: found.pages, node: Some(name), inside: 0, segments: 0 };
        }
        let segment = &self.nodes[found.node?].segments[found.segments];
        (segment.first_page() == page).then_some(segment)
    }

    /// The node that ends where a look-up has ended. If one has to be cut in two for that, the part up
    /// to there is returned again: a node is touched when all of it is found, and not by being cut.
    fn end_path(&mut self, found: Found) -> (Option<RadixNode>, Option<RadixNode>) {
        match found.node {
            Some(name) if found.inside < self.nodes[name].pages => {
                let start = self.split(name, found.inside);
                (Some(start), Some(start))
            }
            whole => (whole, None),
        }
    }

    /// Cuts a node behind `pages` pages, and returns the name of that part.
    ///
    /// The rest keeps the old name, so that whoever holds a path up to its end need not know.
    fn split(&mut self, name: RadixNode, pages: u32) -> RadixNode {
        let rest = &mut self.nodes[name];
        let start = rest.split_off_start(pages);
        let (first, first_of_rest) = (start.first_page(), rest.first_page());
        let start = self.nodes.insert(start);
        self.nodes[name].parent = Some(start);
        self.by_first_page.insert(first, start);
        self.by_first_page.insert(first_of_rest, name);
        start
    }

    /// Adds pages behind `parent`, locked by whoever has locked the path up to there and nobody else.
    ///
    /// They make a leaf longer that nobody else has locked: so does a request that decodes.
    fn append(&mut self, parent: Option<RadixNode>, segments: SmallVec<[Segment; 1]>, at: Stamp) -> RadixNode {
        let mut pages = 0;
        for segment in &segments {
            pages += segment.pages;
            self.events.note(segment.run, segment.end_place());
        }
        self.locked += pages;
        if let Some(name) = parent {
            let node = &mut self.nodes[name];
            if node.locks == 1 && node.children == 0 {
                node.extend(segments);
                return name;
            }
            node.children += 1;
        }
        let node = Node { segments, pages, locks: 1, children: 0, parent, touched: at };
        let first = node.first_page();
        let name = self.nodes.insert(node);
        self.by_first_page.insert(first, name);
        name
    }

    /// Forgets a leaf.
    fn remove(&mut self, name: RadixNode) {
        let Some(mut node) = self.nodes.remove(name) else { return };
        self.by_first_page.remove(&node.first_page());
        node.truncate(node.pages, &mut self.events);
        if let Some(parent) = node.parent {
            self.nodes[parent].children -= 1;
            self.enlist(parent);
        }
    }

    /// Locks the path that ends with `last`, up to the node `above`, which is locked already.
    fn lock(&mut self, last: Option<RadixNode>, above: Option<RadixNode>) {
        let mut up = last;
        while up != above {
            let Some(name) = up else { return };
            let node = &mut self.nodes[name];
            if node.locks == 0 {
                if node.children == 0 {
                    self.evictable_leaves.remove(&(node.touched, name));
                }
                self.evictable -= node.pages;
                self.locked += node.pages;
            }
            node.locks += 1;
            up = node.parent;
        }
    }

    /// Touches the path that ends with `last`, which is locked, but for the node `except`.
    fn touch(&mut self, last: Option<RadixNode>, except: Option<RadixNode>, at: Stamp) {
        let mut up = last;
        while let Some(name) = up {
            let node = &mut self.nodes[name];
            debug_assert!(node.locks > 0, "the order of eviction does not know of this");
            if up != except {
                node.touched = node.touched.max(at);
            }
            up = node.parent;
        }
    }

    /// Puts a node in the order of eviction if its turn can come.
    fn enlist(&mut self, name: RadixNode) {
        let node = &self.nodes[name];
        if node.is_evictable_leaf() {
            self.evictable_leaves.insert((node.touched, name));
        }
    }

    /// Audits the tree: whether counts, links and order of eviction agree with the nodes.
    ///
    /// # Errors
    ///
    /// What does not agree.
    pub fn check(&self) -> Result<(), String> {
        let (mut locked, mut evictable, mut leaves) = (0, 0, 0);
        for (name, node) in &self.nodes {
            self.check_node(name, node)?;
            *if node.locks > 0 { &mut locked } else { &mut evictable } += node.pages;
            leaves += usize::from(node.is_evictable_leaf());
        }
        let counted = (self.locked, self.evictable, self.evictable_leaves.len(), self.by_first_page.len());
        let there = (locked, evictable, leaves, self.nodes.len());
        if counted != there {
            return Err(format!("(locked, evictable, leaves, nodes): counted {counted:?}, there are {there:?}"));
        }
        self.check_children()
    }

    fn check_node(&self, name: RadixNode, node: &Node) -> Result<(), String> {
        if !node.is_sound() || self.by_first_page.get(&node.first_page()) != Some(&name) {
            return Err(format!("node {name:?} cannot be found as it is: {node:?}"));
        }
        if node.is_evictable_leaf() && !self.evictable_leaves.contains(&(node.touched, name)) {
            return Err(format!("leaf {name:?} is not in the order of eviction: {node:?}"));
        }
        Ok(())
    }

    fn check_children(&self) -> Result<(), String> {
        let mut below: FxHashMap<RadixNode, (u32, u32)> = FxHashMap::default();
        for node in self.nodes.values() {
            if let Some(parent) = node.parent {
                let (children, locks) = below.entry(parent).or_default();
                (*children, *locks) = (*children + 1, *locks + node.locks);
            }
        }
        for (name, node) in &self.nodes {
            let (children, locks) = below.get(&name).copied().unwrap_or_default();
            if children != node.children || locks > node.locks {
                return Err(format!("{children} nodes with {locks} locks are behind {name:?}: {node:?}"));
            }
        }
        Ok(())
    }
}

/// Pages of a run.
fn run_pages(run: &Run) -> u32 {
    run.blocks.end - run.blocks.start
}
