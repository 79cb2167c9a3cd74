//! Measured times over one quantity.

use super::estimate::{Basis, Estimate};

/// Measured times over one quantity, ascending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    xs: Vec<u64>,
    ms: Vec<f64>,
}

/// Where a value lies among ascending keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this one.
    At(usize),
    /// After this one, before the next.
    After(usize),
    /// Below or above all.
    Outside,
}

/// Where `x` lies among `keys`, which ascend.
#[inline]
#[must_use]
pub fn place(keys: &[u64], x: u64) -> Place {
    let next = keys.partition_point(|&key| key < x);
    match keys.get(next) {
        Some(&key) if key == x => Place::At(next),
        Some(_) if next > 0 => Place::After(next - 1),
        _ => Place::Outside,
    }
}

/// Between `a` and `b`, at share `t` of the way.
#[inline]
#[must_use]
pub fn blend(a: f64, b: f64, t: f64) -> f64 {
    a + (b - a) * t
}

/// How far `x` is on its way from `from` to `to`.
#[inline]
#[must_use]
pub fn share(from: u64, to: u64, x: u64) -> f64 {
    (x - from) as f64 / (to - from) as f64
}

impl Curve {
    /// A curve through points in any order; of equal keys the first counts.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (u64, f64)>) -> Self {
        let mut points: Vec<(u64, f64)> = points.into_iter().collect();
        points.sort_by_key(|&(x, _)| x);
        points.dedup_by_key(|&mut (x, _)| x);
        let (xs, ms) = points.into_iter().unzip();
        Self { xs, ms }
    }

    /// Whether `x` is within what was measured.
    #[must_use]
    pub fn covers(&self, x: u64) -> bool {
        self.xs.first().is_some_and(|&first| first <= x) && self.xs.last().is_some_and(|&last| x <= last)
    }

    /// The value within the range, linear between points; `None` outside.
    #[inline]
    #[must_use]
    pub fn inside(&self, x: u64) -> Option<Estimate> {
        match place(&self.xs, x) {
            Place::At(at) => Some(Estimate::new(*self.ms.get(at)?, Basis::Measured)),
            Place::After(at) => {
                let (&[from, to], &[a, b]) = (self.xs.get(at..at + 2)?, self.ms.get(at..at + 2)?) else { return None };
                Some(Estimate::new(blend(a, b, share(from, to, x)), Basis::Interpolated))
            }
            Place::Outside => None,
        }
    }

    /// The value; beyond the range the speed of light at the median utilisation of the `edge` last points.
    #[must_use]
    pub fn at(&self, x: u64, speed_of_light_ms: impl Fn(u64) -> f64, edge: usize) -> Option<Estimate> {
        if let Some(estimate) = self.inside(x) {
            return Some(estimate);
        }
        let count = edge.min(self.xs.len());
        let below = self.xs.first().is_some_and(|&first| x < first);
        let range = if below { 0..count } else { self.xs.len() - count..self.xs.len() };
        let points = self.xs.get(range.clone())?.iter().zip(self.ms.get(range)?);
        let mut utilisations: Vec<f64> = points.map(|(&x, &ms)| speed_of_light_ms(x) / ms).collect();
        utilisations.sort_by(f64::total_cmp);
        let middle = utilisations.len() / 2;
        let upper = *utilisations.get(middle)?;
        let median = if utilisations.len() % 2 == 1 { upper } else { (*utilisations.get(middle - 1)? + upper) / 2.0 };
        Some(Estimate::new(speed_of_light_ms(x) / median, Basis::Held))
    }

    /// Its points.
    pub fn points(&self) -> impl Iterator<Item = (u64, f64)> + '_ {
        self.xs.iter().copied().zip(self.ms.iter().copied())
    }
}
