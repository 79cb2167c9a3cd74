//! In which order cached blocks are evicted: the one released longest ago goes first.

use std::collections::VecDeque;

use super::BlockUse;

/// Cached blocks that nobody holds, in order of release.
///
/// A request gives its blocks back together, last to first, so the order is a queue of whole
/// releases: each keeps the request's own list of rows and is used up from its end. A block that is
/// held again leaves its entry behind; the entry is void because the block no longer names that
/// release as its last.
///
/// Blocks that nobody can find again are all alike. They keep their place in the order, but only by
/// number: whichever of them is at hand can be given out in their turn.
#[derive(Clone, Debug, Default)]
pub struct ReleaseOrder {
    releases: VecDeque<Release>,
    next_number: u32,
    /// Entries, void ones included.
    entries: usize,
    /// Used-up lists, for the next requests.
    spare: Vec<Vec<u32>>,
}

#[derive(Clone, Debug)]
struct Release {
    number: u32,
    /// Findable blocks, first to last.
    rows: Vec<u32>,
    /// Blocks behind them that nobody can find.
    unfindable: u32,
}

/// What goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oldest {
    /// Findable blocks: see [`ReleaseOrder::take_findable`].
    Findable,
    /// As many of the blocks that nobody can find, which have been taken.
    Unfindable(u32),
}

/// Used-up lists that are kept.
const MAX_SPARE: usize = 64;

impl ReleaseOrder {
    /// The number that the blocks of the next release must name.
    pub const fn next_number(&self) -> u32 {
        self.next_number
    }

    /// Appends a release of the findable blocks `rows` and of `unfindable` blocks behind them, to be
    /// evicted last to first. Entries of blocks that somebody still holds are void from the start.
    pub fn append(&mut self, rows: Vec<u32>, unfindable: u32) {
        if rows.is_empty() && unfindable == 0 {
            self.keep_spare(rows);
            return;
        }
        self.entries += rows.len();
        self.releases.push_back(Release { number: self.next_number, rows, unfindable });
        self.next_number = self.next_number.wrapping_add(1);
    }

    /// Takes up to `most` of the blocks that were released longest ago if nobody can find them, and
    /// else tells that somebody can.
    pub fn take_unfindable(&mut self, most: u32) -> Option<Oldest> {
        let oldest = self.releases.front_mut()?;
        let taken = oldest.unfindable.min(most);
        oldest.unfindable -= taken;
        Some(if taken > 0 { Oldest::Unfindable(taken) } else { Oldest::Findable })
    }

    /// Gives up to `most` findable blocks of the oldest release to `take`, last to first, and returns
    /// how many it gave: none if all its entries are void. The release has no others.
    #[inline]
    pub fn take_findable(
        &mut self,
        most: u32,
        usage: &mut [BlockUse],
        mut take: impl FnMut(u32, &mut BlockUse),
    ) -> u32 {
        let Some(oldest) = self.releases.front_mut() else { return 0 };
        let number = oldest.number;
        let mut taken = 0;
        while taken < most {
            let Some(row) = oldest.rows.pop() else {
                let used_up = self.releases.pop_front();
                self.keep_spare(used_up.map(|release| release.rows).unwrap_or_default());
                break;
            };
            self.entries -= 1;
            let block = &mut usage[row as usize];
            if block.references == 0 && block.last_release == number {
                take(row, block);
                taken += 1;
            }
        }
        taken
    }

    /// Drops void entries once they outnumber the `capacity` blocks that can have a valid one.
    pub fn tidy(&mut self, capacity: usize, usage: &[BlockUse]) {
        if self.entries <= 2 * capacity {
            return;
        }
        for release in &mut self.releases {
            release.rows.retain(|&row| is_valid(row, release.number, usage));
        }
        self.releases.retain(|release| !release.rows.is_empty() || release.unfindable > 0);
        self.entries = self.releases.iter().map(|release| release.rows.len()).sum();
    }

    /// An empty list with room from an earlier request, if there is one.
    pub fn spare_list(&mut self) -> Vec<u32> {
        self.spare.pop().unwrap_or_default()
    }

    fn keep_spare(&mut self, rows: Vec<u32>) {
        if self.spare.len() < MAX_SPARE {
            self.spare.push(rows);
        }
    }
}

fn is_valid(row: u32, number: u32, usage: &[BlockUse]) -> bool {
    let block = &usage[row as usize];
    block.references == 0 && block.last_release == number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(order: &mut ReleaseOrder, rows: &[u32], usage: &mut [BlockUse]) {
        for &row in rows {
            usage[row as usize] = BlockUse { references: 0, last_release: order.next_number(), ..BlockUse::default() };
        }
        order.append(rows.to_vec(), 0);
    }

    fn rows(order: &mut ReleaseOrder, usage: &mut [BlockUse]) -> Vec<u32> {
        let mut rows = Vec::new();
        while let Some(oldest) = order.take_unfindable(1) {
            if oldest == Oldest::Findable {
                order.take_findable(1, usage, |row, _| rows.push(row));
            }
        }
        rows
    }

    #[test]
    fn the_earliest_release_goes_first_and_its_last_block_first_of_all() {
        let mut usage = vec![BlockUse::default(); 5];
        let mut order = ReleaseOrder::default();
        release(&mut order, &[0, 1, 2], &mut usage);
        release(&mut order, &[3, 4], &mut usage);
        assert_eq!(rows(&mut order, &mut usage), [2, 1, 0, 4, 3]);
    }

    #[test]
    fn a_block_that_was_held_again_counts_from_its_last_release() {
        let mut usage = vec![BlockUse::default(); 4];
        let mut order = ReleaseOrder::default();
        release(&mut order, &[0, 1, 2], &mut usage);
        release(&mut order, &[0, 3], &mut usage);
        usage[1].references = 1;
        assert_eq!(rows(&mut order, &mut usage), [2, 3, 0]);
    }

    #[test]
    fn unfindable_blocks_go_before_the_findable_ones_that_they_follow() {
        let mut usage = vec![BlockUse::default(); 1];
        let mut order = ReleaseOrder::default();
        order.append(vec![0], 2);
        assert_eq!(order.take_unfindable(1), Some(Oldest::Unfindable(1)));
        assert_eq!(order.take_unfindable(5), Some(Oldest::Unfindable(1)));
        assert_eq!(order.take_unfindable(5), Some(Oldest::Findable));
        let mut taken = Vec::new();
        assert_eq!(order.take_findable(5, &mut usage, |row, _| taken.push(row)), 1);
        assert_eq!(taken, [0]);
        assert_eq!(order.take_unfindable(5), None);
    }

    #[test]
    fn void_entries_do_not_pile_up() {
        let mut usage = vec![BlockUse::default(); 3];
        let mut order = ReleaseOrder::default();
        for _ in 0..1000 {
            release(&mut order, &[0, 1, 2], &mut usage);
            order.tidy(usage.len(), &usage);
            assert!(order.entries <= 6);
        }
        assert_eq!(rows(&mut order, &mut usage).len(), 3);
    }
}
