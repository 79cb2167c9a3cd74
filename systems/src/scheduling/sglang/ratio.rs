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
