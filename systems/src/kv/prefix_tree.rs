//! Which prefixes are cached: runs of blocks, found by the key of their first block.
//!
//! Within a run every block is determined by the one before it, so only the first needs a hash
//! lookup; from there each block points to the next. That works under eviction because the cached
//! prefixes are closed: whoever holds a block holds those before it too, and gives them back later,
//! so a block is always evicted before the block it follows.

use super::index::RunIndex;
use super::{NO_BLOCK, PrefixNode};
use crate::prefix::Run;

/// The published blocks of one pool.
#[derive(Clone, Debug, Default)]
pub struct PrefixTree {
    index: RunIndex,
}

impl PrefixTree {
    /// Appends the rows of the leading blocks that are resident, the oldest copy of each.
    pub fn look_up(&self, runs: impl Iterator<Item = Run>, nodes: &[PrefixNode], rows: &mut Vec<u32>) {
        if self.index.is_empty() {
            return;
        }
        for run in runs {
            debug_assert_eq!(run.first_place, 0, "a lookup starts with the first block");
            let Some(mut row) = self.index.get(run.key, nodes) else { return };
            rows.push(row);
            for _ in run.blocks.start + 1..run.blocks.end {
                row = nodes[row as usize].child;
                if row == NO_BLOCK {
                    return;
                }
                rows.push(row);
            }
        }
    }

    /// Publishes the block at `row` as the first of a run. Returns whether it is the only copy.
    pub fn publish_first(&mut self, row: u32, key: u64, nodes: &mut [PrefixNode]) -> bool {
        nodes[row as usize] = PrefixNode { key, ..PrefixNode::default() };
        match self.index.insert(row, nodes) {
            Ok(()) => become_oldest(row, PrefixNode::FIRST, nodes),
            Err(oldest) => join_ring(row, oldest, nodes),
        }
        nodes[row as usize].next_copy == row
    }

    /// Publishes the block at `row` as the one that follows `predecessor`, which is published, in the
    /// run with this key. Returns whether it is the only copy.
    pub fn publish_next(&mut self, row: u32, key: u64, predecessor: u32, nodes: &mut [PrefixNode]) -> bool {
        let mut parent = predecessor;
        while nodes[parent as usize].parent == NO_BLOCK {
            parent = nodes[parent as usize].next_copy;
        }
        nodes[row as usize] = PrefixNode { key, ..PrefixNode::default() };
        match nodes[parent as usize].child {
            NO_BLOCK => {
                nodes[parent as usize].child = row;
                become_oldest(row, parent, nodes);
            }
            oldest => join_ring(row, oldest, nodes),
        }
        nodes[row as usize].next_copy == row
    }

    /// Publishes the blocks at `rows` as those that follow `predecessor` in its run, where that was
    /// published just before and is the only copy.
    pub fn publish_behind_new(&self, predecessor: u32, rows: &[u32], key: u64, nodes: &mut [PrefixNode]) {
        let mut parent = predecessor;
        for (index, &row) in rows.iter().enumerate() {
            let child = rows.get(index + 1).copied().unwrap_or(NO_BLOCK);
            nodes[row as usize] = PrefixNode { key, parent, child, next_copy: row, previous_copy: row };
            parent = row;
        }
        if let Some(&first) = rows.first() {
            nodes[predecessor as usize].child = first;
        }
    }

    /// Takes the block at `row` out of the tree, with those that follow it in its run. There are no copies
    /// of any of them.
    pub fn unpublish_from(&mut self, row: u32, nodes: &mut [PrefixNode]) {
        match nodes[row as usize].parent {
            PrefixNode::FIRST => self.index.remove(row, nodes),
            parent => {
                debug_assert_ne!(parent, NO_BLOCK, "a lone copy is the oldest");
                nodes[parent as usize].child = NO_BLOCK;
            }
        }
    }

    /// Takes the block at `row` out of the tree. Returns whether it was the only copy.
    #[inline]
    pub fn unpublish(&mut self, row: u32, nodes: &mut [PrefixNode]) -> bool {
        let PrefixNode { parent, child, next_copy, previous_copy, .. } = nodes[row as usize];
        if next_copy != row {
            nodes[previous_copy as usize].next_copy = next_copy;
            nodes[next_copy as usize].previous_copy = previous_copy;
            if parent != NO_BLOCK {
                self.succeed(row, next_copy, nodes);
            }
            return false;
        }
        debug_assert_eq!(child, NO_BLOCK, "a block leaves after those that follow it");
        debug_assert_ne!(parent, NO_BLOCK, "a lone copy is the oldest");
        self.unpublish_from(row, nodes);
        true
    }

    /// Puts `heir`, the next younger copy, in the place of the oldest copy `row`.
    fn succeed(&mut self, row: u32, heir: u32, nodes: &mut [PrefixNode]) {
        let PrefixNode { parent, child, .. } = nodes[row as usize];
        if parent == PrefixNode::FIRST {
            self.index.replace(row, heir, nodes);
        } else {
            nodes[parent as usize].child = heir;
        }
        if child != NO_BLOCK {
            nodes[child as usize].parent = heir;
        }
        let node = &mut nodes[heir as usize];
        (node.parent, node.child) = (parent, child);
    }
}

fn become_oldest(row: u32, parent: u32, nodes: &mut [PrefixNode]) {
    let node = &mut nodes[row as usize];
    (node.parent, node.next_copy, node.previous_copy) = (parent, row, row);
}

/// Puts the block at `row` last in the ring of `oldest`.
fn join_ring(row: u32, oldest: u32, nodes: &mut [PrefixNode]) {
    let youngest = nodes[oldest as usize].previous_copy;
    nodes[youngest as usize].next_copy = row;
    nodes[oldest as usize].previous_copy = row;
    let node = &mut nodes[row as usize];
    (node.next_copy, node.previous_copy) = (oldest, youngest);
}
