//! Which prefixes are cached: runs of blocks, found by the key of their first block.
//!
//! Within a run every block is determined by the one before it, so only the first needs a hash
//! lookup; from there each block points to the next. That works under eviction because the cached
//! prefixes are closed: whoever holds a block holds those before it too, and gives them back later,
//! so a block is always evicted before the block it follows.

use super::index::RunIndex;
use super::{Blocks, NO_BLOCK, PrefixNode};
use crate::prefix::Run;

/// The published blocks of one pool.
#[derive(Clone, Debug, Default)]
pub struct PrefixTree {
    index: RunIndex,
}

impl PrefixTree {
    /// Appends the rows of the leading blocks that are resident, the oldest copy of each.
    pub fn look_up(&self, runs: impl Iterator<Item = Run>, blocks: &Blocks<'_>, rows: &mut Vec<u32>) {
        if self.index.is_empty() {
            return;
        }
        for run in runs {
            debug_assert_eq!(run.first_place, 0, "a lookup starts with the first block");
            let Some(mut row) = self.index.get(run.key, blocks.usage) else { return };
            rows.push(row);
            for _ in run.blocks.start + 1..run.blocks.end {
                row = blocks.nodes[row as usize].child;
                if row == NO_BLOCK {
                    return;
                }
                rows.push(row);
            }
        }
    }

    /// Publishes the block at `row` as the first of the run with this key. Returns whether it is the only
    /// copy.
    pub fn publish_first(&mut self, row: u32, key: u64, blocks: &mut Blocks<'_>) -> bool {
        match self.index.insert(row, key, blocks.usage) {
            Ok(()) => blocks.nodes[row as usize] = PrefixNode::alone(row, PrefixNode::FIRST),
            Err(oldest) => join_ring(row, oldest, blocks.nodes),
        }
        blocks.nodes[row as usize].next_copy == row
    }

    /// Publishes the block at `row` as the one that follows `predecessor`, which is published, in its run.
    /// Returns whether it is the only copy.
    pub fn publish_next(&self, row: u32, predecessor: u32, nodes: &mut [PrefixNode]) -> bool {
        let mut parent = predecessor;
        while nodes[parent as usize].parent == NO_BLOCK {
            parent = nodes[parent as usize].next_copy;
        }
        match nodes[parent as usize].child {
            NO_BLOCK => {
                nodes[parent as usize].child = row;
                nodes[row as usize] = PrefixNode::alone(row, parent);
            }
            oldest => join_ring(row, oldest, nodes),
        }
        nodes[row as usize].next_copy == row
    }

    /// Publishes the blocks at `rows` as those that follow `predecessor` in its run, where that was
    /// published just before and is the only copy.
    pub fn publish_behind_new(&self, predecessor: u32, rows: &[u32], nodes: &mut [PrefixNode]) {
        let mut before = predecessor;
        for &row in rows {
            nodes[before as usize].child = row;
            nodes[row as usize] = PrefixNode::alone(row, before);
            before = row;
        }
    }

    /// Takes the block at `row` out of the tree, with those that follow it in its run. There are no copies
    /// of any of them; `place` is its place in the run.
    #[inline]
    pub fn unpublish_from(&mut self, row: u32, place: u32, blocks: &mut Blocks<'_>) {
        if place == 0 {
            // Its neighbours need not be looked at, and are in no cache by now.
            self.index.remove(row, blocks.usage[row as usize].key);
            return;
        }
        let parent = blocks.nodes[row as usize].parent;
        debug_assert!(parent < PrefixNode::FIRST, "a lone copy is the oldest");
        blocks.nodes[parent as usize].child = NO_BLOCK;
    }

    /// Takes the block at `row`, which has this place in its run, out of the tree. Returns whether it was the
    /// only copy.
    #[inline]
    pub fn unpublish(&mut self, row: u32, place: u32, blocks: &mut Blocks<'_>) -> bool {
        let PrefixNode { parent, child, next_copy, previous_copy } = blocks.nodes[row as usize];
        if next_copy != row {
            blocks.nodes[previous_copy as usize].next_copy = next_copy;
            blocks.nodes[next_copy as usize].previous_copy = previous_copy;
            if parent != NO_BLOCK {
                self.succeed(row, next_copy, blocks);
            }
            return false;
        }
        debug_assert_eq!(child, NO_BLOCK, "a block leaves after those that follow it");
        self.unpublish_from(row, place, blocks);
        true
    }

    /// Puts `heir`, the next younger copy, in the place of the oldest copy `row`.
    fn succeed(&mut self, row: u32, heir: u32, blocks: &mut Blocks<'_>) {
        let PrefixNode { parent, child, .. } = blocks.nodes[row as usize];
        if parent == PrefixNode::FIRST {
            self.index.replace(row, heir, blocks.usage[row as usize].key);
        } else {
            blocks.nodes[parent as usize].child = heir;
        }
        if child != NO_BLOCK {
            blocks.nodes[child as usize].parent = heir;
        }
        let node = &mut blocks.nodes[heir as usize];
        (node.parent, node.child) = (parent, child);
    }
}

/// Puts the block at `row` last in the ring of `oldest`.
fn join_ring(row: u32, oldest: u32, nodes: &mut [PrefixNode]) {
    let youngest = nodes[oldest as usize].previous_copy;
    nodes[youngest as usize].next_copy = row;
    nodes[oldest as usize].previous_copy = row;
    nodes[row as usize] = PrefixNode { next_copy: oldest, previous_copy: youngest, ..PrefixNode::default() };
}
