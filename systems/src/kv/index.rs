//! From the identity of a run of blocks to its first block.

use super::BlockUse;

/// An open-addressing table from key to the oldest block that starts a run with that key.
///
/// The table grows with its entries, so that it stays as small as it can in the processor's cache. It
/// is at most half full and holds eight bytes an entry: the low half of the key, which also gives
/// the entry's place, and the block's row. A lookup confirms the whole key at the block itself; an
/// entry whose row is known needs no such confirmation.
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
    pub fn get(&self, key: u64, usage: &[BlockUse]) -> Option<u32> {
        self.find(key, usage).ok().map(|slot| self.slots[slot].row)
    }

    /// Makes the block at `row` findable under its key; `Err` gives the oldest block that has the
    /// key already.
    pub fn insert(&mut self, row: u32, key: u64, usage: &[BlockUse]) -> Result<(), u32> {
        match self.find(key, usage) {
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

    /// Lets `successor` take the place of the block at `row`, which has this key.
    pub fn replace(&mut self, row: u32, successor: u32, key: u64) {
        match self.find_row(row, key) {
            Some(slot) => self.slots[slot].row = successor,
            None => debug_assert!(false, "the oldest block of a run is in the index"),
        }
    }

    /// Forgets the block at `row`, which has this key.
    pub fn remove(&mut self, row: u32, key: u64) {
        let Some(mut hole) = self.find_row(row, key) else {
            debug_assert!(false, "the oldest block of a run is in the index");
            return;
        };
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
    fn find(&self, key: u64, usage: &[BlockUse]) -> Result<usize, usize> {
        let tag = key as u32;
        let mut slot = tag as usize & self.mask;
        loop {
            let entry = self.slots[slot];
            if entry == EMPTY {
                return Err(slot);
            }
            if entry.tag == tag && usage[entry.row as usize].key == key {
                return Ok(slot);
            }
            slot = (slot + 1) & self.mask;
        }
    }

    /// The slot of the block at `row`, which has this key.
    #[inline]
    fn find_row(&self, row: u32, key: u64) -> Option<usize> {
        let mut slot = key as usize & self.mask;
        loop {
            match self.slots[slot] {
                EMPTY => return None,
                entry if entry.row == row => return Some(slot),
                _ => slot = (slot + 1) & self.mask,
            }
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
        let mut usage = vec![BlockUse::default(); count as usize];
        let mut held = vec![false; count as usize];
        let mut index = RunIndex::default();
        let mut model = BTreeMap::new();
        for step in 0..5_000_u64 {
            let row = (mix(step, 1) % u64::from(count)) as u32;
            if held[row as usize] {
                let key = usage[row as usize].key;
                index.remove(row, key);
                model.remove(&key);
            } else {
                // Few tags, so that entries collide; the high half tells them apart.
                let key = (u64::from(row) << 32) | (mix(step, 2) % 7);
                usage[row as usize].key = key;
                assert_eq!(index.insert(row, key, &usage), Ok(()));
                model.insert(key, row);
            }
            held[row as usize] = !held[row as usize];
            for (&key, &row) in &model {
                assert_eq!(index.get(key, &usage), Some(row));
            }
        }
        assert_eq!(index.get(u64::MAX, &usage), None);
    }
}
