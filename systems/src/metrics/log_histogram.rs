//! Counts of samples by their magnitude.

/// Values below this count as zero: a thousandth of a nanosecond, in ms.
const SMALLEST: f64 = 1e-9;

/// Counts by magnitude, with 2^BITS buckets for every power of two.
///
/// Buckets are numbered from 1; 0 is for zero.
#[derive(Clone, Debug, Default)]
pub(super) struct LogHistogram<const BITS: u32> {
    /// The bucket that `counts[0]` counts.
    first: usize,
    counts: Vec<u64>,
    zeros: u64,
}

impl<const BITS: u32> LogHistogram<BITS> {
    /// The bucket of a value.
    pub fn bucket(value: f64) -> usize {
        if value < SMALLEST {
            return 0;
        }
        let place = (value.to_bits() >> (52 - BITS)) - (SMALLEST.to_bits() >> (52 - BITS));
        place as usize + 1
    }

    /// The value in the middle of a bucket.
    pub fn middle(bucket: usize) -> f64 {
        let Some(place) = bucket.checked_sub(1) else { return 0.0 };
        let first = SMALLEST.to_bits() >> (52 - BITS);
        let half = 1 << (52 - BITS - 1);
        f64::from_bits(((first + place as u64) << (52 - BITS)) + half)
    }

    /// Adds `weight` samples of `value`.
    pub fn add(&mut self, value: f64, weight: u64) {
        let bucket = Self::bucket(value);
        if bucket == 0 {
            self.zeros += weight;
            return;
        }
        if bucket.wrapping_sub(self.first) >= self.counts.len() {
            self.make_place(bucket);
        }
        self.counts[bucket - self.first] += weight;
    }

    /// The bucket of the sample with this rank, and its rank within the bucket.
    pub fn locate(&self, rank: u64) -> (usize, u64) {
        if rank < self.zeros {
            return (0, rank);
        }
        let mut left = rank - self.zeros;
        for (place, &count) in self.counts.iter().enumerate() {
            if left < count {
                return (self.first + place, left);
            }
            left -= count;
        }
        debug_assert!(false, "ranks are below the number of samples");
        (self.first + self.counts.len(), 0)
    }

    /// Gives each bucket's middle value and count to `visit`, in order, empty buckets left out.
    pub fn for_each(&self, mut visit: impl FnMut(f64, u64)) {
        if self.zeros > 0 {
            visit(0.0, self.zeros);
        }
        for (place, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            visit(Self::middle(self.first + place), count);
        }
    }

    /// Extends the counts to a bucket, by whole powers of two, so that it does not happen often.
    fn make_place(&mut self, bucket: usize) {
        let step = 1 << BITS;
        if self.counts.is_empty() {
            self.first = bucket - bucket % step;
        }
        if bucket < self.first {
            let first = bucket - bucket % step;
            self.counts.splice(..0, std::iter::repeat_n(0, self.first - first));
            self.first = first;
        } else if bucket >= self.first + self.counts.len() {
            let length = (bucket - self.first + 1).next_multiple_of(step);
            self.counts.reserve_exact(length - self.counts.len());
            self.counts.resize(length, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_grow_towards_both_ends() {
        let mut histogram = LogHistogram::<4>::default();
        for value in [100.0, 1e6, 0.0, 3e-4, 100.0, 1e-12] {
            histogram.add(value, 2);
        }
        let mut seen = Vec::new();
        histogram.for_each(|value, count| seen.push((value, count)));
        assert_eq!(seen.iter().map(|&(_, count)| count).collect::<Vec<_>>(), [4, 2, 4, 2]);
        for ((value, _), wanted) in seen.iter().zip([0.0, 3e-4, 100.0, 1e6]) {
            assert!((value - wanted).abs() <= wanted / 32.0, "{value} for {wanted}");
        }
        for (rank, (value, within)) in [(3, (0.0, 3)), (5, (3e-4, 1)), (9, (100.0, 3)), (11, (1e6, 1))] {
            assert_eq!(histogram.locate(rank), (LogHistogram::<4>::bucket(value), within));
        }
    }
}
