//! Samples of one quantity, and what is reported of them.

use dynosim_schemas::summary::Distribution;

use super::log_histogram::LogHistogram;

/// Bits of the mantissa that tell the buckets of a sketch apart.
const SKETCH_BITS: u32 = 13;

/// The same for the histogram that only finds where to look: so many that few samples share a bucket, and so few that
/// all buckets fit the processor's nearest cache.
const LOCATING_BITS: u32 = 9;

/// A percentile from a sketch is off by at most this share of its value: half a bucket.
pub const SKETCH_RELATIVE_ERROR: f64 = 1.0 / (1 << (SKETCH_BITS + 1)) as f64;

/// A growing multiset of non-negative samples.
///
/// Its percentiles are exact while it has at most a given number of samples (added together, equal ones count
/// once), and beyond, as long as at most a third as many of them differ. Else they come from a sketch.
#[derive(Clone, Debug)]
pub struct Samples {
    /// Entries of the store that there is room for.
    limit: usize,
    moments: Moments,
    store: Store,
}

/// What is kept of the samples.
#[derive(Clone, Debug)]
enum Store {
    /// All of them.
    Single(Vec<f64>),
    /// All of them, and how often each counts.
    Weighted(Vec<Weighted>),
    /// How many are of about the same size; once too many differ to keep them all.
    Sketch(LogHistogram<SKETCH_BITS>),
}

/// A sample that counts more than once. Packed, it takes twelve bytes instead of sixteen.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
struct Weighted {
    value: f64,
    weight: u32,
}

impl Samples {
    /// No samples yet; exact up to `exact_limit` of them.
    #[must_use]
    pub const fn exact_up_to(exact_limit: usize) -> Self {
        Self { limit: exact_limit, moments: Moments::NONE, store: Store::Single(Vec::new()) }
    }

    /// Adds `weight` samples of `value`.
    #[inline]
    pub fn add(&mut self, value: f64, weight: u64) {
        debug_assert!(value >= 0.0 && value.is_finite());
        self.moments.add(value, weight);
        match (&mut self.store, u32::try_from(weight)) {
            (Store::Single(values), Ok(1)) if values.len() < self.limit => values.push(value),
            (Store::Weighted(entries), Ok(weight @ 1..)) if entries.len() < self.limit => {
                entries.push(Weighted { value, weight });
            }
            _ => self.add_in_parts(value, weight),
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
        !matches!(self.store, Store::Sketch(_))
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

    /// Adds samples where one more entry of the right kind is not enough.
    fn add_in_parts(&mut self, value: f64, mut weight: u64) {
        while weight > 0 {
            self.make_room();
            match &mut self.store {
                Store::Sketch(sketch) => return sketch.add(value, weight),
                Store::Single(values) if weight == 1 => return values.push(value),
                Store::Single(values) => {
                    let entries = values.iter().map(|&value| Weighted { value, weight: 1 });
                    self.store = Store::Weighted(entries.collect());
                }
                Store::Weighted(entries) => {
                    let part = u32::try_from(weight).unwrap_or(u32::MAX);
                    entries.push(Weighted { value, weight: part });
                    weight -= u64::from(part);
                }
            }
        }
    }

    /// Merges equal samples if there is no room for more; falls back to the sketch where that does not
    /// help. Works in place: a copy would double the memory of the largest runs.
    fn make_room(&mut self) {
        match &mut self.store {
            Store::Single(values) if values.len() >= self.limit => {
                values.sort_unstable_by(f64::total_cmp);
                let merged = values.chunk_by(|a, b| a == b);
                // In the same memory there is room for two entries with weights instead of three.
                self.limit = self.limit / 3 * 2;
                if merged.clone().count() <= self.limit / 2 {
                    let merged = merged.map(|equal| Weighted { value: equal[0], weight: equal.len() as u32 });
                    self.store = Store::Weighted(merged.collect());
                    return;
                }
            }
            Store::Weighted(entries) if entries.len() >= self.limit => {
                entries.sort_unstable_by(Weighted::compare);
                entries.dedup_by(|later, earlier| earlier.absorb(later));
                if entries.len() <= self.limit / 2 {
                    return;
                }
            }
            _ => return,
        }
        let mut sketch = LogHistogram::default();
        self.for_each(|value, weight| sketch.add(value, weight));
        self.store = Store::Sketch(sketch);
    }

    /// Visits all samples with their weights, in any order.
    fn for_each(&self, mut visit: impl FnMut(f64, u64)) {
        match &self.store {
            Store::Single(values) => values.iter().for_each(|&value| visit(value, 1)),
            Store::Weighted(entries) => entries.iter().for_each(|entry| visit(entry.value, u64::from(entry.weight))),
            Store::Sketch(sketch) => sketch.for_each(visit),
        }
    }

    /// The sorted samples at the given ranks.
    fn values_at<const N: usize>(&self, ranks: [u64; N]) -> [f64; N] {
        if self.count() == 0 {
            return [0.0; N];
        }
        if let Store::Sketch(sketch) = &self.store {
            return ranks.map(|rank| LogHistogram::<SKETCH_BITS>::middle(sketch.locate(rank).0));
        }
        // Find each rank's bucket, then sort the few samples in those buckets only.
        let mut histogram = LogHistogram::<LOCATING_BITS>::default();
        self.for_each(|value, weight| histogram.add(value, weight));
        let located = ranks.map(|rank| histogram.locate(rank));
        let bucket = LogHistogram::<LOCATING_BITS>::bucket;
        let mut candidates = self.in_buckets(bucket, &located.map(|(bucket, _)| bucket));
        candidates.sort_unstable_by(Weighted::compare);
        located.map(|(in_bucket, within)| {
            let mut left = within;
            let start = candidates.partition_point(|entry| bucket(entry.value) < in_bucket);
            for entry in &candidates[start..] {
                if left < u64::from(entry.weight) {
                    return entry.value;
                }
                left -= u64::from(entry.weight);
            }
            debug_assert!(false, "a located rank lies in its bucket");
            0.0
        })
    }

    /// The samples that lie in the wanted buckets. Never asked of a sketch.
    fn in_buckets(&self, bucket: impl Fn(f64) -> usize, wanted: &[usize]) -> Vec<Weighted> {
        let lowest = wanted.iter().copied().min().unwrap_or_default();
        let highest = wanted.iter().copied().max().unwrap_or_default();
        let mut is_wanted = vec![false; highest - lowest + 1];
        wanted.iter().for_each(|&bucket| is_wanted[bucket - lowest] = true);
        let is_wanted = |value: f64| is_wanted.get(bucket(value).wrapping_sub(lowest)) == Some(&true);
        match &self.store {
            Store::Single(values) => {
                values.iter().filter(|&&value| is_wanted(value)).map(|&value| Weighted { value, weight: 1 }).collect()
            }
            Store::Weighted(entries) => entries.iter().copied().filter(|entry| is_wanted(entry.value)).collect(),
            Store::Sketch(_) => Vec::new(),
        }
    }
}

impl Weighted {
    fn compare(a: &Self, b: &Self) -> std::cmp::Ordering {
        { a.value }.total_cmp(&{ b.value })
    }

    /// Takes over the weight of an equal sample, if both weights fit in one.
    fn absorb(&mut self, other: &Self) -> bool {
        let sum = self.weight.checked_add(other.weight).filter(|_| self.value == other.value);
        self.weight = sum.unwrap_or(self.weight);
        sum.is_some()
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
    fn merging_keeps_every_weight() {
        let mut pool = Samples::exact_up_to(LIMIT);
        let huge = u64::from(u32::MAX) + 5;
        for round in 0..3 * LIMIT as u64 {
            pool.add((round % 100) as f64, if round % 100 == 7 { huge } else { 1 + round % 2 });
        }
        assert!(pool.is_exact());
        let mut sum = 0;
        pool.for_each(|value, weight| sum += if value == 7.0 { weight } else { 0 });
        assert_eq!(sum, huge * (3 * LIMIT as u64 / 100 + 1));
        assert_eq!(pool.distribution().median, 7.0);
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
