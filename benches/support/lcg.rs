//! Numbers that look random and are the same on every machine.

/// A linear congruential generator (Knuth's MMIX constants).
pub struct Lcg(u64);

impl Lcg {
    /// A generator that starts at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high bits are the good ones.
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
