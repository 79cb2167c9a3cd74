//! From the identity of a run of blocks to its first block.

use super::PrefixNode;

/// An open-addressing table from key to the oldest block that starts a run with that key.
///
/// The table grows with its entries, so that it stays as small as it can in the processor's cache. It
/// is at most half full and holds eight bytes an entry: the low half of the key, which also gives
/// the entry's place, and the block's row. A lookup confirms the whole key at the block itself.
/// Removal shifts entries back, so that no tombstones pile up.
#[derive(Clone, Debug)]
pub struct RunIndex {
    slots: Vec<Slot>,
    mask: usize,
    entries: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    tag: u32,
    row: u32,
}

const EMPTY: Slot = Slot { tag: 0, row: u32::MAX };

/// Slots of an empty index; a power of two, as always.
const FIRST_SLOTS: usize = 64;

impl Default for RunIndex {
    fn default() -> Self {
        Self { slots: vec![EMPTY; FIRST_SLOTS], mask: FIRST_SLOTS - 1, entries: 0 }
    }
}

impl RunIndex {
    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The oldest block with this key.
    #[inline]
    pub fn get(&self, key: u64, nodes: &[PrefixNode]) -> Option<u32> {
        self.find(key, nodes).ok().map(|slot| self.slots[slot].row)
    }

    /// Makes the block at `row` findable under its key; `Err` gives the oldest block that has the
    /// key already.
    pub fn insert(&mut self, row: u32, nodes: &[PrefixNode]) -> Result<(), u32> {
        let key = nodes[row as usize].key;
        match self.find(key, nodes) {
            Ok(slot) => Err(self.slots[slot].row),
            Err(slot) => {
                self.slots[slot] = Slot { tag: key as u32, row };
                self.entries += 1;
                if 2 * self.entries > self.slots.len() {
                    self.grow();
                }
                Ok(())
            }
        }
    }

    /// Lets `successor` take the place of the block at `row`.
    pub fn replace(&mut self, row: u32, successor: u32, nodes: &[PrefixNode]) {
        match self.find(nodes[row as usize].key, nodes) {
            Ok(slot) => self.slots[slot].row = successor,
            Err(_) => debug_assert!(false, "the oldest block of a run is in the index"),
        }
    }

    /// Forgets the block at `row`.
    pub fn remove(&mut self, row: u32, nodes: &[PrefixNode]) {
        let Ok(mut hole) = self.find(nodes[row as usize].key, nodes) else {
            debug_assert!(false, "the oldest block of a run is in the index");
            return;
        };
        debug_assert_eq!(self.slots[hole].row, row);
        self.entries -= 1;
        let mut slot = hole;
        loop {
            slot = (slot + 1) & self.mask;
            let entry = self.slots[slot];
            if entry == EMPTY {
                break;
            }
            // An entry may move back to the hole unless its own place lies between the two.
            let home = entry.tag as usize & self.mask;
            if (slot.wrapping_sub(home) & self.mask) >= (slot.wrapping_sub(hole) & self.mask) {
                self.slots[hole] = entry;
                hole = slot;
            }
        }
        self.slots[hole] = EMPTY;
    }

    fn grow(&mut self) {
        let doubled = vec![EMPTY; 2 * self.slots.len()];
        let slots = std::mem::replace(&mut self.slots, doubled);
        self.mask = self.slots.len() - 1;
        for entry in slots.into_iter().filter(|&entry| entry != EMPTY) {
            let mut slot = entry.tag as usize & self.mask;
            while self.slots[slot] != EMPTY {
                slot = (slot + 1) & self.mask;
            }
            self.slots[slot] = entry;
        }
    }

    /// The slot with this key, or the empty slot where it would go.
    #[inline]
    fn find(&self, key: u64, nodes: &[PrefixNode]) -> Result<usize, usize> {
        let tag = key as u32;
        let mut slot = tag as usize & self.mask;
        loop {
            let entry = self.slots[slot];
            if entry == EMPTY {
                return Err(slot);
            }
            if entry.tag == tag && nodes[entry.row as usize].key == key {
                return Ok(slot);
            }
            slot = (slot + 1) & self.mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::prefix::mix;

    #[test]
    fn agrees_with_a_map_through_inserts_and_removals() {
        let count = 200_u32;
        let mut nodes = vec![PrefixNode::default(); count as usize];
        let mut held = vec![false; count as usize];
        let mut index = RunIndex::default();
        let mut model = BTreeMap::new();
        for step in 0..5_000_u64 {
            let row = (mix(step, 1) % u64::from(count)) as u32;
            if held[row as usize] {
                index.remove(row, &nodes);
                model.remove(&nodes[row as usize].key);
            } else {
                // Few tags, so that entries collide; the high half tells them apart.
                nodes[row as usize].key = (u64::from(row) << 32) | (mix(step, 2) % 7);
                assert_eq!(index.insert(row, &nodes), Ok(()));
                model.insert(nodes[row as usize].key, row);
            }
            held[row as usize] = !held[row as usize];
            for (&key, &row) in &model {
                assert_eq!(index.get(key, &nodes), Some(row));
            }
        }
        assert_eq!(index.get(u64::MAX, &nodes), None);
    }
}
