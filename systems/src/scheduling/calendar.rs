//! The calendar of a batch: at which pass who needs attention.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Due;

/// Passes that the near part covers; a power of two. A request needs attention at every block
/// boundary at the latest, so only blocks of more tokens than this ever reach the far part.
const NEAR_PASSES: u64 = 256;

/// Bits of a word of the map of occupied buckets.
const WORD_BITS: u64 = 64;

/// "No node" in a link.
const NONE: u32 = u32::MAX;

/// Entries by pass, and by order of admission within a pass.
///
/// Most entries are a few dozen passes ahead, one or two to a pass. They lie in a ring of buckets, one for each of
/// the next passes: a push or a pop costs a few writes, where a heap compares and moves entries all the way. What
/// lies further ahead waits in a heap.
#[derive(Clone, Debug)]
pub struct Calendar {
    /// No entry is for an earlier pass. The bucket of pass `p` is `p % NEAR_PASSES`.
    from: u64,
    /// The earliest near entry's pass, or `u64::MAX`.
    earliest: u64,
    /// The last node of each bucket's list, which is a ring: its link leads to the first one.
    last: [u32; NEAR_PASSES as usize],
    /// A bit for each bucket that is not empty.
    occupied: [u64; (NEAR_PASSES / WORD_BITS) as usize],
    nodes: Vec<Node>,
    /// The first of the nodes that are not in use.
    unused: u32,
    far: BinaryHeap<Reverse<Due>>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    due: Due,
    next: u32,
}

impl Default for Calendar {
    fn default() -> Self {
        Self {
            from: 0,
            earliest: u64::MAX,
            last: [NONE; NEAR_PASSES as usize],
            occupied: [0; (NEAR_PASSES / WORD_BITS) as usize],
            nodes: Vec::new(),
            unused: NONE,
            far: BinaryHeap::new(),
        }
    }
}

impl Calendar {
    /// Adds an entry, for a pass that [`Self::pop_due`] has not been asked for yet.
    #[inline]
    pub fn push(&mut self, due: Due) {
        debug_assert!(due.pass >= self.from, "nobody looks at a pass twice");
        if due.pass - self.from >= NEAR_PASSES {
            self.far.push(Reverse(due));
            return;
        }
        self.earliest = self.earliest.min(due.pass);
        let bucket = bucket(due.pass);
        let node = self.new_node(due);
        let last = self.last[bucket];
        if last == NONE {
            self.nodes[node as usize].next = node;
            self.last[bucket] = node;
            self.occupied[bucket / WORD_BITS as usize] |= 1 << (bucket % WORD_BITS as usize);
            return;
        }
        // Mostly it is the last in order of admission. Else it goes behind those admitted before it.
        let mut before = last;
        if self.nodes[last as usize].due.ordinal < due.ordinal {
            self.last[bucket] = node;
        } else {
            while self.first_behind(before).ordinal < due.ordinal {
                before = self.nodes[before as usize].next;
            }
        }
        self.nodes[node as usize].next = self.nodes[before as usize].next;
        self.nodes[before as usize].next = node;
    }

    /// Takes the first entry for `pass` or one before it.
    #[inline]
    pub fn pop_due(&mut self, pass: u64) -> Option<Due> {
        if self.far_comes_first() {
            return self.pop_far(pass);
        }
        if self.earliest > pass {
            self.from = self.from.max(pass);
            return None;
        }
        Some(self.pop_near())
    }

    /// The earliest pass that has an entry.
    #[must_use]
    #[inline]
    pub fn next_pass(&self) -> Option<u64> {
        let far = self.far.peek().map_or(u64::MAX, |Reverse(due)| due.pass);
        let next = self.earliest.min(far);
        (next != u64::MAX).then_some(next)
    }

    fn first_behind(&self, node: u32) -> &Due {
        &self.nodes[self.nodes[node as usize].next as usize].due
    }

    fn new_node(&mut self, due: Due) -> u32 {
        let node = self.unused;
        match self.nodes.get_mut(node as usize) {
            Some(free) => {
                self.unused = free.next;
                free.due = due;
                node
            }
            None => {
                self.nodes.push(Node { due, next: NONE });
                (self.nodes.len() - 1) as u32
            }
        }
    }

    /// Takes the first entry of the earliest bucket, which is not empty.
    fn pop_near(&mut self) -> Due {
        let bucket = bucket(self.earliest);
        let last = self.last[bucket];
        let first = self.nodes[last as usize].next;
        let Node { due, next } = self.nodes[first as usize];
        self.nodes[first as usize].next = self.unused;
        self.unused = first;
        if first == last {
            self.last[bucket] = NONE;
            self.occupied[bucket / WORD_BITS as usize] &= !(1 << (bucket % WORD_BITS as usize));
            self.earliest = self.earliest_from(self.earliest);
        } else {
            self.nodes[last as usize].next = next;
        }
        due
    }

    /// The pass of the first bucket that is not empty, if `from` is not behind it.
    fn earliest_from(&self, from: u64) -> u64 {
        let start = bucket(from);
        let (start_word, start_bit) = (start / WORD_BITS as usize, start % WORD_BITS as usize);
        // The word of the start comes twice: its upper bits first, its lower bits last.
        for step in 0..=self.occupied.len() {
            let word = (start_word + step) % self.occupied.len();
            let upper = u64::MAX << start_bit;
            let mask = match step {
                0 => upper,
                _ if step == self.occupied.len() => !upper,
                _ => u64::MAX,
            };
            let found = self.occupied[word] & mask;
            if found != 0 {
                let place = word as u64 * WORD_BITS + u64::from(found.trailing_zeros());
                return from + (place.wrapping_sub(start as u64) % NEAR_PASSES);
            }
        }
        u64::MAX
    }

    #[inline]
    fn far_comes_first(&self) -> bool {
        let Some(Reverse(far)) = self.far.peek() else { return false };
        if far.pass != self.earliest {
            return far.pass < self.earliest;
        }
        far.ordinal < self.first_behind(self.last[bucket(self.earliest)]).ordinal
    }

    fn pop_far(&mut self, pass: u64) -> Option<Due> {
        match self.far.peek() {
            Some(Reverse(due)) if due.pass <= pass => self.far.pop().map(|Reverse(due)| due),
            _ => {
                self.from = self.from.max(pass);
                None
            }
        }
    }
}

const fn bucket(pass: u64) -> usize {
    (pass % NEAR_PASSES) as usize
}

#[cfg(test)]
mod tests {
    use bevy_ecs::entity::Entity;

    use super::*;
    use crate::prefix::mix;

    /// Pushes and pops as a batch does, and compares with a heap. `ahead` bounds the distances.
    fn agrees_with_a_heap(ahead: u64, members: u64, passes: u64) {
        let mut calendar = Calendar::default();
        let mut model = BinaryHeap::new();
        let mut ordinal = 0;
        for pass in 0..passes {
            // Stretches in which nothing is due are skipped, as quiet passes are.
            let skip = mix(pass, 5).is_multiple_of(3)
                && model.peek().is_none_or(|Reverse(due): &Reverse<Due>| due.pass > pass);
            if skip {
                continue;
            }
            let mut again = Vec::new();
            while let Some(due) = calendar.pop_due(pass) {
                assert_eq!(model.pop(), Some(Reverse(due)));
                again.push(due.ordinal);
            }
            assert!(model.peek().is_none_or(|Reverse(due)| due.pass > pass));
            while again.len() as u64 + (model.len() as u64) < members {
                again.push(ordinal);
                ordinal += 1;
            }
            for ordinal in again.into_iter().filter(|&ordinal| !mix(ordinal, pass).is_multiple_of(7)) {
                let due = Due { pass: pass + 1 + mix(pass, ordinal) % ahead, ordinal, request: Entity::PLACEHOLDER };
                calendar.push(due);
                model.push(Reverse(due));
            }
            assert_eq!(calendar.next_pass(), model.peek().map(|Reverse(due)| due.pass));
        }
        assert!(calendar.nodes.len() as u64 <= members, "nodes are used again");
    }

    #[test]
    fn entries_come_by_pass_and_admission() {
        for (ahead, members) in [(1, 5), (3, 40), (64, 64), (NEAR_PASSES - 1, 3), (NEAR_PASSES, 30), (900, 50)] {
            agrees_with_a_heap(ahead, members, 4000);
        }
    }

    #[test]
    fn an_empty_calendar_has_no_next_pass() {
        let mut calendar = Calendar::default();
        assert_eq!(calendar.next_pass(), None);
        assert_eq!(calendar.pop_due(1_000_000), None);
        let due = Due { pass: 1_000_001, ordinal: 7, request: Entity::PLACEHOLDER };
        calendar.push(due);
        assert_eq!(calendar.next_pass(), Some(1_000_001));
        assert_eq!(calendar.pop_due(1_000_001), Some(due));
        assert_eq!(calendar.next_pass(), None);
    }
}
