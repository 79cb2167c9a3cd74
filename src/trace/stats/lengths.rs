//! How often there is which length, in classes that double.

use std::collections::BTreeMap;

/// Lengths by their number of binary digits.
#[derive(Clone, Debug, Default)]
pub(super) struct LengthClasses(BTreeMap<u32, u64>);

/// Lengths from one power of two to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LengthClass {
    /// The least of the class, in tokens.
    pub from: u64,
    /// Less than this, in tokens.
    pub below: u64,
    /// How many there are.
    pub count: u64,
}

impl LengthClasses {
    /// Adds a length.
    pub fn add(&mut self, tokens: u64) {
        *self.0.entry(u64::BITS - tokens.leading_zeros()).or_insert(0) += 1;
    }

    /// The classes from the first to the last that has a length in it.
    pub fn classes(&self) -> Vec<LengthClass> {
        let (Some((&first, _)), Some((&last, _))) = (self.0.first_key_value(), self.0.last_key_value()) else {
            return Vec::new();
        };
        let bound = |digits: u32| if digits == 0 { 0 } else { 1_u64 << (digits - 1) };
        let class = |digits: u32| LengthClass {
            from: bound(digits),
            below: bound(digits + 1),
            count: self.0.get(&digits).copied().unwrap_or(0),
        };
        (first..=last).map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_double_and_have_no_holes() {
        let mut classes = LengthClasses::default();
        [0, 4, 7, 8, 33].into_iter().for_each(|tokens| classes.add(tokens));
        let counts: Vec<_> = classes.classes().iter().map(|class| (class.from, class.below, class.count)).collect();
        let wanted = [(0, 1, 1), (1, 2, 0), (2, 4, 0), (4, 8, 2), (8, 16, 1), (16, 32, 0), (32, 64, 1)];
        assert_eq!(counts, wanted);
        assert_eq!(LengthClasses::default().classes(), []);
    }
}
