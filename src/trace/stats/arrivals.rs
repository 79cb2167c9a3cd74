//! When requests arrive.

use std::collections::BTreeMap;

use dynosim_schemas::summary::Distribution;
use dynosim_systems::metrics::{EXACT_REQUESTS, Samples};

/// Bins that are kept; when there are more, each becomes twice as wide.
const MOST_BINS: i64 = 4096;

/// Recorded arrivals, in little memory whatever their number and span.
pub(super) struct Arrivals {
    count: u64,
    first_ms: f64,
    last_ms: f64,
    previous_ms: f64,
    in_order: bool,
    gaps_ms: Samples,
    /// Requests by time from the first row on, `floor(ms / width)`.
    bins: BTreeMap<i64, u64>,
    bin_ms: f64,
    origin_ms: f64,
}

/// What is known of arrivals.
#[derive(Clone, Debug)]
pub(super) struct ArrivalStats {
    /// Arrivals with a time.
    pub count: u64,
    /// From the first to the last, in ms.
    pub span_ms: f64,
    /// Whether they stand in the file in order of time.
    pub in_order: bool,
    /// Times between one and the next, in ms, if they are in order.
    pub gaps_ms: Option<Distribution>,
    /// Arrivals in equal stretches of the span.
    pub columns: Vec<u64>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            count: 0,
            first_ms: f64::INFINITY,
            last_ms: f64::NEG_INFINITY,
            previous_ms: f64::NEG_INFINITY,
            in_order: true,
            gaps_ms: Samples::exact_up_to(EXACT_REQUESTS),
            bins: BTreeMap::new(),
            bin_ms: 1.0,
            origin_ms: 0.0,
        }
    }
}

impl Arrivals {
    /// Adds a request.
    pub fn add(&mut self, ms: f64) {
        if self.count == 0 {
            self.origin_ms = ms;
        } else if ms < self.previous_ms {
            self.in_order = false;
        } else {
            self.gaps_ms.add(ms - self.previous_ms, 1);
        }
        self.count += 1;
        self.previous_ms = ms;
        self.first_ms = self.first_ms.min(ms);
        self.last_ms = self.last_ms.max(ms);
        while (self.last_ms - self.first_ms) / self.bin_ms >= MOST_BINS as f64 {
            self.widen();
        }
        let bin = ((ms - self.origin_ms) / self.bin_ms).floor() as i64;
        *self.bins.entry(bin).or_insert(0) += 1;
    }

    fn widen(&mut self) {
        self.bin_ms *= 2.0;
        let mut wider = BTreeMap::new();
        for (bin, count) in std::mem::take(&mut self.bins) {
            *wider.entry(bin.div_euclid(2)).or_insert(0) += count;
        }
        self.bins = wider;
    }

    /// The figures, with the span cut into `columns`; `None` if no request has a time.
    pub fn finish(self, columns: usize) -> Option<ArrivalStats> {
        if self.count == 0 {
            return None;
        }
        let span_ms = self.last_ms - self.first_ms;
        let mut heights = vec![0; columns];
        for (&bin, &count) in &self.bins {
            let middle_ms = (bin as f64 + 0.5) * self.bin_ms + self.origin_ms - self.first_ms;
            let column = if span_ms > 0.0 { (middle_ms / span_ms * columns as f64).max(0.0) as usize } else { 0 };
            heights[column.min(columns - 1)] += count;
        }
        Some(ArrivalStats {
            count: self.count,
            span_ms,
            in_order: self.in_order,
            gaps_ms: (self.in_order && self.count > 1).then(|| self.gaps_ms.distribution()),
            columns: heights,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(times_ms: &[f64], columns: usize) -> ArrivalStats {
        let mut arrivals = Arrivals::default();
        times_ms.iter().for_each(|&ms| arrivals.add(ms));
        arrivals.finish(columns).unwrap()
    }

    #[test]
    fn columns_cut_the_span_into_equal_parts() {
        let times: Vec<f64> = (0..100_000).map(|row| 5e9 + f64::from(row) * 1000.0).collect();
        let stats = stats(&times, 4);
        assert_eq!(stats.columns.iter().sum::<u64>(), 100_000);
        assert!(stats.columns.iter().all(|count| (24_900..25_100).contains(count)), "{:?}", stats.columns);
        assert_eq!((stats.span_ms, stats.in_order), (99_999_000.0, true));
        assert_eq!(stats.gaps_ms.map(|gaps| (gaps.count, gaps.mean)), Some((99_999, 1000.0)));
    }

    #[test]
    fn times_may_be_out_of_order_equal_or_missing() {
        let unsorted = stats(&[50.0, -7.0, 20.0], 3);
        assert_eq!((unsorted.in_order, unsorted.span_ms, unsorted.gaps_ms), (false, 57.0, None));
        assert_eq!(unsorted.columns, [1, 1, 1]);
        assert_eq!(stats(&[3.0, 3.0], 5).columns, [2, 0, 0, 0, 0]);
        assert!(Arrivals::default().finish(3).is_none());
    }
}
