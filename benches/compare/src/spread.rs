//! Figures of several runs as one cell of a table.

use crate::measure::Cost;

/// The costs of several runs of the same thing.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<Cost>);

impl Runs {
    /// Adds a run.
    pub fn add(&mut self, cost: Cost) {
        self.0.push(cost);
    }

    /// Wall time, in seconds.
    pub fn wall_s(&self) -> Spread {
        Spread::of(self.0.iter().map(|cost| cost.wall_s))
    }

    /// Processor time, in seconds.
    pub fn cpu_s(&self) -> Spread {
        Spread::of(self.0.iter().map(|cost| cost.cpu_s))
    }

    /// Peak memory, in MiB.
    pub fn peak_mib(&self) -> Spread {
        Spread::of(self.0.iter().map(|cost| cost.peak_mib))
    }
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the middle two.
    pub median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        let last = values.len().saturating_sub(1);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self { median: f64::midpoint(at(last / 2), at(last.div_ceil(2))), min: at(0), max: at(last) }
    }

    /// `median (min–max)`.
    pub fn cell(&self) -> String {
        let Self { median, min, max } = self;
        let digits = if *median < 10.0 { 3 } else { 1 };
        format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0].into_iter()), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([3.0, 1.0, 2.0].into_iter()), Spread { median: 2.0, min: 1.0, max: 3.0 });
    }

    #[test]
    fn large_figures_have_fewer_digits() {
        assert_eq!(Spread::of([0.5].into_iter()).cell(), "0.500 (0.500–0.500)");
        assert_eq!(Spread::of([12.34, 56.78, 20.0].into_iter()).cell(), "20.0 (12.3–56.8)");
    }
}
