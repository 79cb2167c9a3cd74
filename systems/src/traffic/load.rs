//! When units of load start.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::time::VirtualTime;

/// The pattern in which units of load start.
#[derive(Clone, Debug)]
pub enum Load {
    /// A closed loop: so many units are in progress at any time.
    Concurrency {
        /// How many.
        units: u64,
    },
    /// One unit every `gap_ms`, the first at 0.
    ConstantRate {
        /// Time between starts, in ms.
        gap_ms: f64,
        /// Start of the next unit, in ms.
        next_ms: f64,
    },
    /// Exponential gaps, the first unit at 0.
    Poisson {
        /// Mean time between starts, in ms.
        mean_gap_ms: f64,
        /// Start of the next unit, in ms.
        next_ms: f64,
        /// The stream of draws for arrivals; nothing else draws from it.
        draws: Xoshiro256PlusPlus,
    },
    /// As recorded, `speedup` times as fast.
    TraceTimestamps {
        /// Divides starts and the delays between turns.
        speedup: f64,
    },
}

impl Load {
    /// A constant rate, in units per second.
    #[must_use]
    pub fn constant_rate(units_per_second: f64) -> Self {
        Self::ConstantRate { gap_ms: 1000.0 / units_per_second, next_ms: 0.0 }
    }

    /// A Poisson process, in units per second.
    #[must_use]
    pub fn poisson(units_per_second: f64, seed: u64) -> Self {
        let draws = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self::Poisson { mean_gap_ms: 1000.0 / units_per_second, next_ms: 0.0, draws }
    }

    /// When the next unit starts, given its recorded start; `None` in a closed loop.
    pub fn next_start(&mut self, recorded_ms: f64) -> Option<VirtualTime> {
        let ms = match self {
            Self::Concurrency { .. } => return None,
            Self::ConstantRate { gap_ms, next_ms } => {
                let start_ms = *next_ms;
                *next_ms += *gap_ms;
                start_ms
            }
            Self::Poisson { mean_gap_ms, next_ms, draws } => {
                let start_ms = *next_ms;
                *next_ms += exponential(draws) * *mean_gap_ms;
                start_ms
            }
            Self::TraceTimestamps { speedup } => recorded_ms / *speedup,
        };
        Some(VirtualTime::from_ms(ms))
    }

    /// The wait before a later turn, in ms, given the recorded one.
    #[must_use]
    pub fn turn_delay_ms(&self, recorded_ms: f64) -> f64 {
        match self {
            Self::TraceTimestamps { speedup } => recorded_ms / speedup,
            _ => recorded_ms,
        }
    }
}

/// A draw from the exponential distribution with mean 1: `-ln(1 - u)` for u uniform in [0, 1).
fn exponential(draws: &mut Xoshiro256PlusPlus) -> f64 {
    let uniform = (draws.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
    -(1.0 - uniform).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_gaps_have_the_mean_that_was_asked_for_and_repeat() {
        let starts = |seed| {
            let mut load = Load::poisson(4.0, seed);
            (0..20_000).map(|_| load.next_start(0.0).map_or(0.0, VirtualTime::ms)).collect::<Vec<f64>>()
        };
        let a = starts(42);
        assert_eq!(a[0], 0.0);
        assert!(a.is_sorted());
        assert!((a[19_999] / 19_999.0 - 250.0).abs() < 5.0);
        assert_eq!(a, starts(42));
        assert_ne!(a, starts(43));
    }

    #[test]
    fn speedup_divides_starts_and_delays() {
        let mut load = Load::TraceTimestamps { speedup: 4.0 };
        assert_eq!(load.next_start(100.0), Some(VirtualTime::from_ms(25.0)));
        assert_eq!(load.turn_delay_ms(10.0), 2.5);
        assert_eq!(Load::Concurrency { units: 3 }.turn_delay_ms(10.0), 10.0);
    }
}
