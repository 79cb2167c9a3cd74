//! A node of a radix tree.

use smallvec::SmallVec;

use super::tree::{RadixNode, Stamp};
use crate::kv::KvEvents;

/// A page by all that is in it and before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageId {
    /// Key of its run.
    pub run: u64,
    /// Its place in the run.
    pub place: u32,
}

/// Consecutive pages of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Key of the run.
    pub run: u64,
    /// Place in the run of the first page.
    pub first_place: u32,
    /// Length in pages.
    pub pages: u32,
}

impl Segment {
    /// The page that it begins with.
    pub const fn first_page(&self) -> PageId {
        PageId { run: self.run, place: self.first_place }
    }

    /// The place in the run behind its last page.
    pub const fn end_place(&self) -> u32 {
        self.first_place + self.pages
    }

    /// Cuts it behind `pages` pages, and returns the rest.
    const fn split_off(&mut self, pages: u32) -> Self {
        let rest = Self { first_place: self.first_place + pages, pages: self.pages - pages, ..*self };
        self.pages = pages;
        rest
    }
}

/// Pages that follow each other, and that are locked and touched together.
#[derive(Clone, Debug)]
pub struct Node {
    /// The pages, run by run; never empty.
    pub segments: SmallVec<[Segment; 1]>,
    /// Length in pages.
    pub pages: u32,
    /// Requests that hold a path through this node.
    pub locks: u32,
    /// Nodes that follow.
    pub children: u32,
    /// The node before it; none at the start of a prompt.
    pub parent: Option<RadixNode>,
    /// When it was last touched.
    pub touched: Stamp,
}

impl Node {
    /// The page that it begins with.
    pub fn first_page(&self) -> PageId {
        self.segments[0].first_page()
    }

    /// Whether nobody needs it, be it for what follows.
    pub const fn is_evictable_leaf(&self) -> bool {
        self.locks == 0 && self.children == 0
    }

    /// Whether its lengths fit together.
    pub fn is_sound(&self) -> bool {
        let pages: u32 = self.segments.iter().map(|segment| segment.pages).sum();
        pages == self.pages && self.segments.iter().all(|segment| segment.pages > 0)
    }

    /// Takes out the first `pages` pages, as a node whose only child is the rest.
    pub fn split_off_start(&mut self, pages: u32) -> Self {
        let mut start = self.segments.clone();
        let mut left = pages;
        let whole = start.iter().take_while(|segment| take_whole(segment, &mut left)).count();
        self.segments.drain(..whole);
        start.truncate(whole);
        if left > 0 {
            let rest = self.segments[0].split_off(left);
            start.push(std::mem::replace(&mut self.segments[0], rest));
        }
        self.pages -= pages;
        Self { segments: start, pages, children: 1, ..*self }
    }

    /// Adds pages at the end.
    pub fn extend(&mut self, segments: impl IntoIterator<Item = Segment>) {
        for segment in segments {
            self.pages += segment.pages;
            match self.segments.last_mut() {
                Some(last) if last.run == segment.run => last.pages += segment.pages,
                _ => self.segments.push(segment),
            }
        }
    }

    /// Drops the last `pages` pages.
    pub fn truncate(&mut self, pages: u32, events: &mut KvEvents) {
        let mut left = pages;
        while let Some(last) = self.segments.last_mut()
            && left > 0
        {
            let taken = last.pages.min(left);
            last.pages -= taken;
            left -= taken;
            events.note(last.run, last.end_place());
            if last.pages == 0 {
                self.segments.pop();
            }
        }
        self.pages -= pages;
    }
}

/// Whether a segment is within the first `left` pages; if so, takes its pages off them.
const fn take_whole(segment: &Segment, left: &mut u32) -> bool {
    let is_whole = segment.pages <= *left;
    if is_whole {
        *left -= segment.pages;
    }
    is_whole
}
