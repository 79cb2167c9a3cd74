//! Groups of things that hang together.

use std::cmp::Ordering;

/// A partition of `0..n` that grows coarser (union-find).
pub(super) struct Components {
    parents: Vec<usize>,
}

impl Components {
    /// Everything by itself.
    pub fn new(count: usize) -> Self {
        Self { parents: (0..count).collect() }
    }

    /// Puts the groups of `a` and `b` together.
    pub fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b)] = a.min(b);
    }

    fn root(&mut self, mut index: usize) -> usize {
        while self.parents[index] != index {
            // Halves the way for whoever comes next.
            self.parents[index] = self.parents[self.parents[index]];
            index = self.parents[index];
        }
        index
    }

    /// For each thing the least of its group.
    pub fn name_after(mut self, compare: impl Fn(usize, usize) -> Ordering) -> Vec<usize> {
        let mut least: Vec<usize> = (0..self.parents.len()).collect();
        for index in 0..self.parents.len() {
            let root = self.root(index);
            if compare(index, least[root]) == Ordering::Less {
                least[root] = index;
            }
        }
        (0..self.parents.len()).map(|index| least[self.root(index)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_named_after_its_least() {
        let mut groups = Components::new(6);
        groups.join(4, 1);
        groups.join(5, 4);
        groups.join(2, 3);
        let names = groups.name_after(|a, b| b.cmp(&a));
        assert_eq!(names, [0, 5, 3, 3, 5, 5]);
    }
}
