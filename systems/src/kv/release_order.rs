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

/// What has been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oldest {
    /// That many of the blocks that nobody can find.
    Unfindable(u32),
    /// That many findable blocks of which there are no copies, whole runs of them but for the last. Their rows
    /// have been appended.
    Alone(u32),
    /// One block of which there may be copies; its row has been appended.
    Copy,
    /// Nothing: what was there is void.
    Void,
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

    /// Takes up to `most` of the blocks that were released longest ago, where they are alike or belong
    /// together. Rows of findable blocks go to `rows`.
    pub fn take_oldest(&mut self, most: u32, usage: &[BlockUse], rows: &mut Vec<u32>) -> Option<Oldest> {
        let oldest = self.releases.front_mut()?;
        if oldest.unfindable > 0 {
            let taken = oldest.unfindable.min(most);
            oldest.unfindable -= taken;
            return Some(Oldest::Unfindable(taken));
        }
        let number = oldest.number;
        let entries = oldest.rows.len();
        let valid = oldest.rows.iter().rposition(|&row| is_valid(&usage[row as usize], number));
        oldest.rows.truncate(valid.map_or(0, |index| index + 1));
        self.entries -= entries - oldest.rows.len();
        let Some(&last) = oldest.rows.last() else {
            self.drop_oldest();
            return Some(Oldest::Void);
        };
        if !usage[last as usize].is_alone() {
            rows.extend(oldest.rows.pop());
            self.entries -= 1;
            return Some(Oldest::Copy);
        }
        // Nothing but looking, so that the processor looks at many blocks at once: they are in no cache by now.
        let stretch = &oldest.rows[oldest.rows.len().saturating_sub(most as usize)..];
        let may_go = |&&row: &&u32| is_valid(&usage[row as usize], number) && usage[row as usize].is_alone();
        let count = stretch.iter().rev().take_while(may_go).count();
        rows.extend(stretch[stretch.len() - count..].iter().rev());
        oldest.rows.truncate(oldest.rows.len() - count);
        self.entries -= count;
        Some(Oldest::Alone(count as u32))
    }

    fn drop_oldest(&mut self) {
        if let Some(release) = self.releases.pop_front() {
            self.keep_spare(release.rows);
        }
    }

    /// Drops void entries once they outnumber the `capacity` blocks that can have a valid one.
    pub fn tidy(&mut self, capacity: usize, usage: &[BlockUse]) {
        if self.entries <= 2 * capacity {
            return;
        }
        for release in &mut self.releases {
            release.rows.retain(|&row| is_valid(&usage[row as usize], release.number));
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

#[inline]
fn is_valid(block: &BlockUse, number: u32) -> bool {
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

    fn rows(order: &mut ReleaseOrder, usage: &[BlockUse]) -> Vec<u32> {
        let mut rows = Vec::new();
        while order.take_oldest(1, usage, &mut rows).is_some() {}
        rows
    }

    #[test]
    fn the_earliest_release_goes_first_and_its_last_block_first_of_all() {
        let mut usage = vec![BlockUse::default(); 5];
        let mut order = ReleaseOrder::default();
        release(&mut order, &[0, 1, 2], &mut usage);
        release(&mut order, &[3, 4], &mut usage);
        assert_eq!(rows(&mut order, &usage), [2, 1, 0, 4, 3]);
    }

    #[test]
    fn a_block_that_was_held_again_counts_from_its_last_release() {
        let mut usage = vec![BlockUse::default(); 4];
        let mut order = ReleaseOrder::default();
        release(&mut order, &[0, 1, 2], &mut usage);
        release(&mut order, &[0, 3], &mut usage);
        usage[1].references = 1;
        assert_eq!(rows(&mut order, &usage), [2, 3, 0]);
    }

    #[test]
    fn unfindable_blocks_go_before_the_findable_ones_that_they_follow() {
        let usage = vec![BlockUse { published: 0, ..BlockUse::default() }; 1];
        let mut order = ReleaseOrder::default();
        order.append(vec![0], 2);
        let mut rows = Vec::new();
        assert_eq!(order.take_oldest(1, &usage, &mut rows), Some(Oldest::Unfindable(1)));
        assert_eq!(order.take_oldest(5, &usage, &mut rows), Some(Oldest::Unfindable(1)));
        assert_eq!(order.take_oldest(5, &usage, &mut rows), Some(Oldest::Alone(1)));
        assert_eq!(rows, [0]);
        assert_eq!(order.take_oldest(5, &usage, &mut rows), Some(Oldest::Void));
        assert_eq!(order.take_oldest(5, &usage, &mut rows), None);
    }

    #[test]
    fn runs_go_together_from_their_end_up_to_a_block_with_copies() {
        let mut usage = vec![BlockUse::default(); 6];
        let mut order = ReleaseOrder::default();
        // Two runs of three blocks each; the second block of the first has a copy.
        release(&mut order, &[0, 1, 2, 3, 4, 5], &mut usage);
        for (row, place) in [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2)] {
            usage[row].published = place;
        }
        usage[1].published |= BlockUse::COPIED;
        let mut rows = Vec::new();
        assert_eq!(order.take_oldest(9, &usage, &mut rows), Some(Oldest::Alone(4)));
        assert_eq!(order.take_oldest(9, &usage, &mut rows), Some(Oldest::Copy));
        assert_eq!(order.take_oldest(9, &usage, &mut rows), Some(Oldest::Alone(1)));
        assert_eq!(rows, [5, 4, 3, 2, 1, 0]);
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
        assert_eq!(rows(&mut order, &usage).len(), 3);
    }
}
