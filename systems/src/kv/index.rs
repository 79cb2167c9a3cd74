//! From a block's hash to the block.

use super::KvBlock;

/// An open-addressing table from hash to the oldest block with that hash.
///
/// The table is sized once for its pool, at most half full, and holds eight bytes an entry: the low
/// half of the hash, which also gives the entry's place, and the block's row. A lookup confirms the
/// whole hash at the block itself. Removal shifts entries back, so that no tombstones pile up.
#[derive(Clone, Debug)]
pub struct BlockIndex {
    slots: Vec<Slot>,
    mask: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    tag: u32,
    row: u32,
}

const EMPTY: Slot = Slot { tag: 0, row: u32::MAX };

impl BlockIndex {
    /// An index for a pool of `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        let slots = (blocks as usize * 2).next_power_of_two().max(2);
        Self { slots: vec![EMPTY; slots], mask: slots - 1 }
    }

    /// The oldest block with this hash.
    #[must_use]
    #[inline]
    pub fn get(&self, hash: u64, blocks: &[KvBlock]) -> Option<u32> {
        self.find(hash, blocks).ok().map(|slot| self.slots[slot].row)
    }

    /// Makes the block at `row` findable under its hash; `Err` gives the oldest block that has the
    /// hash already.
    pub fn insert(&mut self, row: u32, blocks: &[KvBlock]) -> Result<(), u32> {
        let hash = blocks[row as usize].hash;
        match self.find(hash, blocks) {
            Ok(slot) => Err(self.slots[slot].row),
            Err(slot) => {
                self.slots[slot] = Slot { tag: hash as u32, row };
                Ok(())
            }
        }
    }

    /// Lets `successor` take the place of the block at `row`, if that is the one on record.
    pub fn replace(&mut self, row: u32, successor: u32, blocks: &[KvBlock]) {
        if let Ok(slot) = self.find(blocks[row as usize].hash, blocks)
            && self.slots[slot].row == row
        {
            self.slots[slot].row = successor;
        }
    }

    /// Forgets the block at `row`.
    pub fn remove(&mut self, row: u32, blocks: &[KvBlock]) {
        let Ok(mut hole) = self.find(blocks[row as usize].hash, blocks) else {
            debug_assert!(false, "an indexed block is in the index");
            return;
        };
        debug_assert_eq!(self.slots[hole].row, row);
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

    /// The slot with this hash, or the empty slot where it would go.
    #[inline]
    fn find(&self, hash: u64, blocks: &[KvBlock]) -> Result<usize, usize> {
        let tag = hash as u32;
        let mut slot = tag as usize & self.mask;
        loop {
            let entry = self.slots[slot];
            if entry == EMPTY {
                return Err(slot);
            }
            if entry.tag == tag && blocks[entry.row as usize].hash == hash {
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
        let count = 64_u32;
        let mut blocks = vec![KvBlock::default(); count as usize];
        let mut index = BlockIndex::new(count);
        let mut model = BTreeMap::new();
        for step in 0..20_000_u64 {
            let row = (mix(step, 1) % u64::from(count)) as u32;
            // Few tags, so that entries collide; the high half tells them apart.
            let hash = (u64::from(row) << 32) | (mix(step, 2) % 7);
            let block = &mut blocks[row as usize];
            if block.indexed {
                block.indexed = false;
                index.remove(row, &blocks);
                model.remove(&blocks[row as usize].hash);
            } else {
                block.hash = hash;
                block.indexed = true;
                assert_eq!(index.insert(row, &blocks), Ok(()));
                model.insert(hash, row);
            }
            for (&hash, &row) in &model {
                assert_eq!(index.get(hash, &blocks), Some(row));
            }
        }
        assert_eq!(index.get(u64::MAX, &blocks), None);
    }
}
