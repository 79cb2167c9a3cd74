//! How long a forward pass takes.
//!
//! A pass is priced from the aggregate state of its batch, never from its single requests. Times
//! are rounded to whole nanoseconds, as the reference does, so that results agree to the last digit.

mod attention;
mod collective;
mod curve;
mod estimate;
mod experts;
mod gemm;
mod grid;
mod layout;
mod memo;
mod memory;
mod operators;
mod prices;
mod roofline;
mod tables;

use std::time::Duration;

pub use self::estimate::{Basis, Operator};
pub use self::experts::EXPERT_DISTRIBUTIONS;
pub use self::layout::Served;
pub use self::memory::{KvBytes, Memory};
pub use self::operators::OperatorModel;
pub use self::prices::MeasuredTiming;
pub use self::tables::Tables;

/// The prefill part of a pass: requests that compute prompt tokens in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefillBatch {
    /// Requests.
    pub requests: u64,
    /// Sum over them of the prompt tokens computed before this pass (cached ones included).
    pub prefix_tokens: u64,
    /// Sum over them of the prompt tokens computed by the end of this pass.
    pub context_tokens: u64,
}

impl PrefillBatch {
    /// Adds a request that goes from `before` to `after` computed prompt tokens.
    pub fn add(&mut self, before: u32, after: u32) {
        debug_assert!(before < after);
        self.requests += 1;
        self.prefix_tokens += u64::from(before);
        self.context_tokens += u64::from(after);
    }

    /// New tokens of the batch, as the reference counts them: batch size times the difference of
    /// the floored means.
    #[must_use]
    pub fn new_tokens(&self) -> u64 {
        self.means().map_or(0, |(new, _)| self.requests * new)
    }

    /// Floored means over the requests, as the reference has them: new tokens, and tokens before them. `None` if there
    /// is nothing to compute.
    #[must_use]
    pub fn means(&self) -> Option<(u64, u64)> {
        let prefix = self.prefix_tokens.checked_div(self.requests)?;
        let new = self.context_tokens / self.requests - prefix;
        (new > 0).then_some((new, prefix))
    }
}

/// The decode part of a pass: requests that get a token from a decode step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeBatch {
    /// Requests.
    pub requests: u64,
    /// Sum of their lengths (prompt and generated tokens) before the step.
    pub context_tokens: u64,
}

/// A timing model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PassTiming {
    /// Constant times, in ms.
    Fixed {
        /// Of a pass with prefill work.
        prefill_ms: f64,
        /// Of a pass with decode work.
        decode_ms: f64,
    },
    /// The reference's built-in fit, which knows neither model nor GPU.
    Polynomial,
    /// From measured operators.
    Measured(MeasuredTiming),
}

impl PassTiming {
    /// Prefill time in ms.
    ///
    /// Polynomial: a quadratic in the new tokens; coefficients measured on the reference
    /// (aisimulate-core 0.13.0).
    #[must_use]
    pub fn prefill_ms(&self, batch: &PrefillBatch) -> f64 {
        let new_tokens = batch.new_tokens();
        if new_tokens == 0 {
            return 0.0;
        }
        match *self {
            Self::Fixed { prefill_ms, .. } => prefill_ms,
            Self::Polynomial => {
                let x = new_tokens as f64;
                (4.209_989e-7 * x * x + 1.518_344e-2 * x + 16.501_42).max(0.0)
            }
            Self::Measured(prices) => prices.prefill_ms(batch),
        }
    }

    /// Decode time in ms, with `pool_tokens` the capacity of the worker's KV pool.
    ///
    /// Polynomial: a quadratic in the share of the pool that the batch reads; coefficients measured
    /// on the reference (aisimulate-core 0.13.0).
    #[must_use]
    #[inline]
    pub fn decode_ms(&self, batch: &DecodeBatch, pool_tokens: f64) -> f64 {
        if batch.requests == 0 {
            return 0.0;
        }
        match *self {
            Self::Fixed { decode_ms, .. } => decode_ms,
            Self::Polynomial => {
                let u = (batch.context_tokens as f64 / pool_tokens).min(1.0);
                (-25.74 * u * u + 54.01 * u + 5.74).max(1.0)
            }
            Self::Measured(prices) => prices.decode_ms(batch),
        }
    }

    /// A pass that does both, one after the other, in ms, with whole nanoseconds for each part.
    #[must_use]
    pub fn pass_ms(&self, prefill: &PrefillBatch, decode: &DecodeBatch, pool_tokens: f64) -> (f64, f64) {
        if let Self::Measured(prices) = self
            && let Some(ms) = prices.fused_ms(prefill, decode)
        {
            return (whole_ns_ms(ms), 0.0);
        }
        (whole_ns_ms(self.prefill_ms(prefill)), whole_ns_ms(self.decode_ms(decode, pool_tokens)))
    }
}

/// Rounds a duration in ms to whole nanoseconds (ties to even on the exact binary value of the
/// seconds) and gives it back in ms, the way the reference's clock adds it.
///
/// Durations beyond [`LONGEST_PASS_MS`] are cut to it.
#[must_use]
#[inline]
pub fn whole_ns_ms(ms: f64) -> f64 {
    let seconds = ms.min(LONGEST_PASS_MS) / 1000.0;
    let ns = seconds * 1e9;
    if ns < 1e9 {
        let whole = round_whole(ns);
        // The product is itself rounded; near a tie only the exact path may decide.
        if ((ns - whole).abs() - 0.5).abs() > 1e-6 {
            return whole / 1e9 * 1000.0;
        }
    }
    exactly_whole_ns_ms(seconds)
}

/// The same by the library, for the few durations that the short way cannot decide.
#[cold]
fn exactly_whole_ns_ms(seconds: f64) -> f64 {
    Duration::from_secs_f64(seconds).as_secs_f64() * 1000.0
}

/// Rounds a value below 2^51 to a whole number, ties to even.
///
/// Adding and taking away 2^52 leaves no room for a fraction. Unlike `f64::round_ties_even` it
/// needs no call on processors without that instruction.
#[must_use]
#[inline]
pub fn round_whole(value: f64) -> f64 {
    const NO_FRACTION: f64 = (1_u64 << 52) as f64;
    debug_assert!(value < NO_FRACTION / 2.0);
    (value + NO_FRACTION) - NO_FRACTION
}

/// About thirty years: longer than any pass, short enough for [`Duration`].
pub const LONGEST_PASS_MS: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixed_pass_of_the_reference() {
        // spec: one request of 100 tokens, then decode steps at 101, 102 and 103 tokens of 1,048,576.
        let mut prefill = PrefillBatch::default();
        prefill.add(0, 100);
        let polynomial = PassTiming::Polynomial;
        assert!((polynomial.prefill_ms(&prefill) - 18.023_974).abs() < 1e-6);
        for (context_tokens, expected_ms) in [(101, 5.745_202), (102, 5.745_254), (103, 5.745_305)] {
            let batch = DecodeBatch { requests: 1, context_tokens };
            let ms = whole_ns_ms(polynomial.decode_ms(&batch, 1_048_576.0));
            assert!((ms - expected_ms).abs() < 1e-9, "{ms}");
        }
    }

    #[test]
    fn prefill_counts_floored_means() {
        let mut batch = PrefillBatch::default();
        batch.add(0, 256);
        batch.add(192, 256);
        assert_eq!(batch.new_tokens(), 320);
        batch.add(0, 1);
        assert_eq!(batch.new_tokens(), 3 * (513 / 3 - 192 / 3));
    }

    #[test]
    fn rounding_agrees_with_the_exact_path() {
        let mut state = 1_u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let ms = (state >> 33) as f64 / 1e6 + (state & 0xffff) as f64 / 1e10;
            let exact = Duration::from_secs_f64(ms / 1000.0).as_secs_f64() * 1000.0;
            assert_eq!(whole_ns_ms(ms).to_bits(), exact.to_bits(), "{ms}");
        }
    }

    #[test]
    fn ties_go_to_even_and_huge_values_stay_finite() {
        assert_eq!(whole_ns_ms(0.0), 0.0);
        assert!(whole_ns_ms(1e300).is_finite());
        let tie_ms = 1000.0 / 1024.0 / 1e6;
        assert_eq!(whole_ns_ms(tie_ms), Duration::from_secs_f64(tie_ms / 1000.0).as_secs_f64() * 1000.0);
    }
}
