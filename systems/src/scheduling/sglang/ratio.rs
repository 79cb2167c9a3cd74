//! How much of their outputs running requests are expected to need.

/// SGLang's share of the running requests' remaining output that is kept free when prompts are
/// started. It falls with every decode step and rises when requests had to be sent back. Figures
/// measured on the reference (aisimulate-core 0.13.0).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewTokenRatio {
    value: f64,
    least: f64,
    decay: f64,
}

const FIRST: f64 = 0.7;
/// The least ratio, as a part of the first.
const LEAST_PART: f64 = 0.14;
const STEPS_TO_LEAST: f64 = 600.0;
/// What the first ratio is multiplied with under attention data parallelism.
const ATTENTION_DATA_PART: f64 = 0.3;

impl NewTokenRatio {
    /// The ratio at the start, on one of `ranks` attention ranks.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        let conservativeness = if ranks > 1 { ATTENTION_DATA_PART } else { 1.0 };
        let first = FIRST * conservativeness;
        let least = LEAST_PART * first;
        Self { value: first, least, decay: (first - least) / STEPS_TO_LEAST }
    }

    /// The ratio.
    #[must_use]
    pub const fn value(&self) -> f64 {
        self.value
    }

    /// Notes a decode step.
    pub fn decay(&mut self) {
        self.value = (self.value - self.decay).max(self.least);
    }

    /// Notes that requests were sent back; `requests` stay, which have generated so many tokens of so
    /// many that they may.
    pub fn after_retraction(&mut self, generated: u64, limits: u64, requests: u64) {
        self.value = ((generated + 20 * requests) as f64 / (limits + 1) as f64).min(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_to_the_least_in_600_steps() {
        let mut ratio = NewTokenRatio::new(1);
        (0..599).for_each(|_| ratio.decay());
        assert!(ratio.value() > 0.098 && ratio.value() < 0.0995);
        (0..2).for_each(|_| ratio.decay());
        assert!((ratio.value() - 0.098).abs() < 1e-12);
        assert!((NewTokenRatio::new(2).value() - 0.21).abs() < 1e-12);
    }

    /// Measured on the reference: ten requests stay, with 50 of 4,000 tokens each; in the next step the
    /// ratio rises to the least.
    #[test]
    fn a_retraction_sets_it_below_the_least_if_need_be() {
        let mut ratio = NewTokenRatio::new(1);
        ratio.after_retraction(500, 40_000, 10);
        let left = 140.0 - 400.0 * ratio.value();
        assert!(left > 133.0 && left < 133.001);
        ratio.decay();
        assert!((ratio.value() - 0.098).abs() < 1e-12);
        ratio.after_retraction(100, 101, 2);
        assert_eq!(ratio.value(), 1.0);
    }
}
