//! Samples of one quantity, and what is reported of them.

use dynosim_schemas::summary::Distribution;

/// Bits of the mantissa that tell the buckets of a sketch apart.
const SKETCH_BITS: u32 = 13;

/// The same for the histogram that only finds where to look.
const LOCATING_BITS: u32 = 8;

/// A percentile from a sketch is off by at most this share of its value: half a bucket.
pub const SKETCH_RELATIVE_ERROR: f64 = 1.0 / (1 << (SKETCH_BITS + 1)) as f64;

/// A growing multiset of non-negative samples.
///
/// Up to a limit of distinct samples its percentiles are exact; beyond, they come from a sketch.
#[derive(Clone, Debug)]
pub struct Samples {
    exact_limit: usize,
    moments: Moments,
    values: Vec<f64>,
    /// How often each value counts; empty while each counts once.
    weights: Vec<u32>,
    /// Used once there are too many distinct samples to keep them all.
    sketch: Option<LogHistogram<SKETCH_BITS>>,
}

impl Samples {
    /// No samples yet; exact up to `exact_limit` distinct ones.
    #[must_use]
    pub const fn exact_up_to(exact_limit: usize) -> Self {
        Self { exact_limit, moments: Moments::NONE, values: Vec::new(), weights: Vec::new(), sketch: None }
    }

    /// Adds `weight` samples of `value`.
    pub fn add(&mut self, value: f64, mut weight: u64) {
        debug_assert!(value >= 0.0 && value.is_finite());
        self.moments.add(value, weight);
        while weight > 0 {
            if let Some(sketch) = &mut self.sketch {
                return sketch.add(value, weight);
            }
            let part = u32::try_from(weight).unwrap_or(u32::MAX);
            self.push(value, part);
            weight -= u64::from(part);
        }
    }

    /// Number of samples.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.moments.weight
    }

    /// Whether percentiles come from all samples rather than from a sketch.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.sketch.is_none()
    }

    /// The statistics of the report.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.moments.distribution(self.values_at(self.ranks()))
    }

    /// The statistics of the report, and those of 1000 / sample over the samples above zero.
    #[must_use]
    pub fn distribution_and_rates(&self) -> (Distribution, Distribution) {
        let mut rates = Moments::NONE;
        self.for_each(|value, weight| {
            if value > 0.0 {
                rates.add(1000.0 / value, weight);
            }
        });
        let [p50, p75, p90, p95, p99] = self.ranks();
        // The largest rate is that of the smallest sample.
        let [r50, r75, r90, r95, r99] = PERCENTILES.map(|p| self.count().saturating_sub(1 + rank(rates.weight, p)));
        let values = self.values_at([p50, p75, p90, p95, p99, r50, r75, r90, r95, r99]);
        let [p50, p75, p90, p95, p99, rated @ ..] = values;
        let plain = self.moments.distribution([p50, p75, p90, p95, p99]);
        (plain, rates.distribution(rated.map(|value| 1000.0 / value)))
    }

    fn ranks(&self) -> [u64; PERCENTILES.len()] {
        PERCENTILES.map(|p| rank(self.count(), p))
    }

    fn push(&mut self, value: f64, weight: u32) {
        if self.values.len() == self.exact_limit {
            self.make_room();
        }
        if let Some(sketch) = &mut self.sketch {
            return sketch.add(value, u64::from(weight));
        }
        if weight != 1 && self.weights.is_empty() {
            self.weights = vec![1; self.values.len()];
        }
        if weight != 1 || !self.weights.is_empty() {
            self.weights.push(weight);
        }
        self.values.push(value);
    }

    fn entries(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let weights = self.weights.iter().copied().chain(std::iter::repeat(1));
        self.values.iter().copied().zip(weights.map(u64::from))
    }

    fn for_each(&self, mut visit: impl FnMut(f64, u64)) {
        match &self.sketch {
            Some(sketch) => sketch.for_each(visit),
            None => self.entries().for_each(|(value, weight)| visit(value, weight)),
        }
    }

    /// Merges equal samples; falls back to the sketch where that does not help.
    fn make_room(&mut self) {
        let mut entries: Vec<(f64, u64)> = self.entries().collect();
        entries.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        entries.dedup_by(|later, earlier| {
            let equal = later.0 == earlier.0;
            earlier.1 += if equal { later.1 } else { 0 };
            equal
        });
        (self.values, self.weights) = (Vec::new(), Vec::new());
        if entries.len() > self.exact_limit / 2 {
            let mut sketch = LogHistogram::default();
            entries.iter().for_each(|&(value, weight)| sketch.add(value, weight));
            self.sketch = Some(sketch);
            return;
        }
        for (value, mut weight) in entries {
            while weight > 0 {
                let part = u32::try_from(weight).unwrap_or(u32::MAX);
                self.push(value, part);
                weight -= u64::from(part);
            }
        }
    }

    /// The sorted samples at the given ranks.
    fn values_at<const N: usize>(&self, ranks: [u64; N]) -> [f64; N] {
        if self.count() == 0 {
            return [0.0; N];
        }
        if let Some(sketch) = &self.sketch {
            return ranks.map(|rank| sketch.middle(sketch.locate(rank).0));
        }
        // Find each rank's bucket, then sort the few samples in those buckets only.
        let mut histogram = LogHistogram::<LOCATING_BITS>::default();
        self.entries().for_each(|(value, weight)| histogram.add(value, weight));
        let located = ranks.map(|rank| histogram.locate(rank));
        let mut wanted = vec![false; histogram.counts.len() + 1];
        located.iter().for_each(|&(bucket, _)| wanted[bucket] = true);
        let bucket = |value: f64| LogHistogram::<LOCATING_BITS>::bucket(value);
        let mut candidates: Vec<(f64, u64)> = self.entries().filter(|&(value, _)| wanted[bucket(value)]).collect();
        candidates.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        located.map(|(in_bucket, within)| {
            let mut left = within;
            let start = candidates.partition_point(|&(value, _)| bucket(value) < in_bucket);
            for &(value, weight) in &candidates[start..] {
                if left < weight {
                    return value;
                }
                left -= weight;
            }
            debug_assert!(false, "a located rank lies in its bucket");
            0.0
        })
    }
}

const PERCENTILES: [u64; 5] = [50, 75, 90, 95, 99];

/// Index of a percentile among `count` sorted samples: `round((count - 1) * p / 100)`, half away
/// from zero, in whole numbers.
fn rank(count: u64, percentile: u64) -> u64 {
    let scaled = u128::from(count.saturating_sub(1)) * u128::from(percentile);
    ((scaled + 50) / 100) as u64
}

/// Mean and deviation, from sums of the distances to the first sample: far from zero a sum of plain
/// squares would lose the deviation in the mean.
#[derive(Clone, Copy, Debug)]
struct Moments {
    weight: u64,
    first: f64,
    distances: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Moments {
    const NONE: Self = Self { weight: 0, first: 0.0, distances: 0.0, squares: 0.0, min: 0.0, max: 0.0 };

    fn add(&mut self, value: f64, weight: u64) {
        if weight == 0 {
            return;
        }
        if self.weight == 0 {
            (self.first, self.min, self.max) = (value, value, value);
        }
        self.weight += weight;
        let distance = value - self.first;
        let weighted = weight as f64 * distance;
        self.distances += weighted;
        self.squares += weighted * distance;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn distribution(&self, [median, p75, p90, p95, p99]: [f64; 5]) -> Distribution {
        if self.weight == 0 {
            return Distribution::default();
        }
        let weight = self.weight as f64;
        let mean_distance = self.distances / weight;
        let std = (self.squares / weight - mean_distance * mean_distance).max(0.0).sqrt();
        let Self { weight: count, min, max, .. } = *self;
        Distribution { count, mean: self.first + mean_distance, min, max, median, p75, p90, p95, p99, std }
    }
}

/// Counts by magnitude, with 2^BITS buckets for every power of two.
#[derive(Clone, Debug, Default)]
struct LogHistogram<const BITS: u32> {
    counts: Vec<u64>,
    zeros: u64,
}

/// Values below this count as zero in a sketch: a thousandth of a nanosecond, in ms.
const SMALLEST: f64 = 1e-9;

impl<const BITS: u32> LogHistogram<BITS> {
    /// 0 for zero, else one more than the place in `counts`.
    fn bucket(value: f64) -> usize {
        if value < SMALLEST {
            return 0;
        }
        let place = (value.to_bits() >> (52 - BITS)) - (SMALLEST.to_bits() >> (52 - BITS));
        place as usize + 1
    }

    fn middle(&self, bucket: usize) -> f64 {
        let Some(place) = bucket.checked_sub(1) else { return 0.0 };
        let first = SMALLEST.to_bits() >> (52 - BITS);
        let half = 1 << (52 - BITS - 1);
        f64::from_bits(((first + place as u64) << (52 - BITS)) + half)
    }

    fn add(&mut self, value: f64, weight: u64) {
        let Some(place) = Self::bucket(value).checked_sub(1) else {
            self.zeros += weight;
            return;
        };
        if place >= self.counts.len() {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += weight;
    }

    /// The bucket of the sample with this rank, and its rank within the bucket.
    fn locate(&self, rank: u64) -> (usize, u64) {
        if rank < self.zeros {
            return (0, rank);
        }
        let mut left = rank - self.zeros;
        for (place, &count) in self.counts.iter().enumerate() {
            if left < count {
                return (place + 1, left);
            }
            left -= count;
        }
        debug_assert!(false, "ranks are below the number of samples");
        (self.counts.len(), 0)
    }

    fn for_each(&self, mut visit: impl FnMut(f64, u64)) {
        if self.zeros > 0 {
            visit(0.0, self.zeros);
        }
        for (place, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            visit(self.middle(place + 1), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::mix;

    const LIMIT: usize = 1 << 14;

    fn sorted_by_hand(samples: &[(f64, u64)]) -> Vec<f64> {
        let mut all: Vec<f64> =
            samples.iter().flat_map(|&(value, weight)| std::iter::repeat_n(value, weight as usize)).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn pick(sorted: &[f64], percentile: u64) -> f64 {
        sorted[((sorted.len() - 1) as f64 * percentile as f64 / 100.0).round() as usize]
    }

    #[test]
    fn percentiles_are_the_sorted_samples_at_their_index() {
        for count in [1, 2, 3, 10, 101, 5000] {
            let samples: Vec<(f64, u64)> =
                (0..count).map(|i| ((mix(i, 9) % 100_000) as f64 / 7.0, mix(i, 3) % 4 + 1)).collect();
            let mut pool = Samples::exact_up_to(LIMIT);
            samples.iter().for_each(|&(value, weight)| pool.add(value, weight));
            let sorted = sorted_by_hand(&samples);
            let d = pool.distribution();
            for (p, got) in [(50, d.median), (75, d.p75), (90, d.p90), (95, d.p95), (99, d.p99)] {
                assert_eq!(got, pick(&sorted, p), "p{p} of {count}");
            }
            let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
            let variance = sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / sorted.len() as f64;
            assert!((d.mean - mean).abs() <= 1e-9 * mean.max(1.0));
            assert!((d.std - variance.sqrt()).abs() <= 1e-6 * variance.sqrt().max(1.0));
        }
    }

    #[test]
    fn rates_leave_zero_gaps_out() {
        let mut pool = Samples::exact_up_to(LIMIT);
        for (gap, weight) in [(0.0, 5), (10.0, 3), (20.0, 1)] {
            pool.add(gap, weight);
        }
        let (_, rates) = pool.distribution_and_rates();
        assert_eq!((rates.count, rates.median, rates.min, rates.max), (4, 100.0, 50.0, 100.0));
        assert_eq!(rates.mean, (3.0 * 100.0 + 50.0) / 4.0);
        assert_eq!(Samples::exact_up_to(LIMIT).distribution_and_rates().1, Distribution::default());
    }

    #[test]
    fn a_long_stream_of_few_values_stays_exact() {
        let mut pool = Samples::exact_up_to(LIMIT);
        (0..3 * LIMIT as u64).for_each(|i| pool.add((i % 1024) as f64, 1));
        assert!(pool.is_exact());
        assert_eq!(pool.distribution().median, 512.0);
    }

    #[test]
    fn a_sketch_keeps_its_error_bound() {
        let mut pool = Samples::exact_up_to(LIMIT);
        let count = 2 * LIMIT as u64;
        let value = |i: u64| 0.5 + i as f64 * 1e-3;
        (0..count).for_each(|i| pool.add(value(mix(i, 0) % count), 1));
        assert!(!pool.is_exact());
        let mut exact: Vec<f64> = (0..count).map(|i| value(mix(i, 0) % count)).collect();
        exact.sort_by(f64::total_cmp);
        let d = pool.distribution();
        for (p, got) in [(50, d.median), (99, d.p99)] {
            let want = pick(&exact, p);
            assert!((got - want).abs() <= SKETCH_RELATIVE_ERROR * want, "p{p}: {got} for {want}");
        }
    }
}
