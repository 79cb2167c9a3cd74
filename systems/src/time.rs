//! The virtual clock's unit.

use std::cmp::Ordering;

/// A point in virtual time, in milliseconds from the start of the simulation.
///
/// Always finite or `+inf` ("never"), never NaN, so that it is totally ordered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VirtualTime(f64);

impl VirtualTime {
    /// The start of the simulation.
    pub const ZERO: Self = Self(0.0);
    /// Later than any event.
    pub const NEVER: Self = Self(f64::INFINITY);

    /// The time `ms` milliseconds after the start.
    #[must_use]
    pub fn from_ms(ms: f64) -> Self {
        debug_assert!(!ms.is_nan(), "virtual time is never NaN");
        Self(ms)
    }

    /// Milliseconds from the start.
    #[must_use]
    pub const fn ms(self) -> f64 {
        self.0
    }
}

impl Eq for VirtualTime {}

impl PartialOrd for VirtualTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for VirtualTime {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}
