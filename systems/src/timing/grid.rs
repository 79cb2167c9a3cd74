//! Measured times over three numbers, with ragged edges.

use super::curve::{Curve, Place, blend, place, share};
use super::estimate::{Basis, Estimate};
use super::roofline::Roofline;

/// Measured points whose utilisation answers for a place outside the grid.
const ANCHORS: usize = 4;
/// Lines that are looked at first for them.
const FIRST_LINES: usize = 12;
/// Keeps weights finite at distance zero.
const TINY: f64 = 1e-12;

/// Measured times over three numbers.
#[derive(Clone, Debug)]
pub struct Grid {
    firsts: Vec<u64>,
    planes: Vec<Plane>,
    lines: Vec<HeldLine>,
    roofline: Roofline,
    /// Whether times are blended by their square roots along the second number: attention grows with its square.
    blends_roots: bool,
}

#[derive(Clone, Debug)]
struct Plane {
    seconds: Vec<u64>,
    lines: Vec<Curve>,
}

/// The points that differ in their third number only, by that number.
#[derive(Clone, Debug)]
struct HeldLine {
    log2: [f64; 2],
    points: Vec<HeldPoint>,
}

#[derive(Clone, Copy, Debug)]
struct HeldPoint {
    log2: f64,
    utilisation: f64,
    /// Its place in the table, which decides between equally near ones.
    row: usize,
}

impl Grid {
    /// A grid of rows in the order of their table; of equal keys the first counts. `None` without rows.
    #[must_use]
    pub fn new(rows: &[([u64; 3], f64)], roofline: Roofline, blends_roots: bool) -> Option<Self> {
        let mut sorted: Vec<(usize, [u64; 3], f64)> =
            rows.iter().enumerate().map(|(row, &(at, ms))| (row, at, ms)).collect();
        sorted.sort_by_key(|&(_, at, _)| at);
        sorted.dedup_by_key(|&mut (_, at, _)| at);
        let (mut firsts, mut planes, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for plane in sorted.chunk_by(|(_, [a, ..], _), (_, [b, ..], _)| a == b) {
            firsts.extend(plane.first().map(|(_, [first, ..], _)| *first));
            let (mut seconds, mut lines) = (Vec::new(), Vec::new());
            for line in plane.chunk_by(|(_, [_, a, _], _), (_, [_, b, _], _)| a == b) {
                seconds.extend(line.first().map(|(_, [_, second, _], _)| *second));
                lines.push(Curve::new(line.iter().map(|&(_, [_, _, third], ms)| (third, ms))));
                held.extend(HeldLine::new(line, &roofline));
            }
            planes.push(Plane { seconds, lines });
        }
        (!planes.is_empty()).then_some(Self { firsts, planes, lines: held, roofline, blends_roots })
    }

    /// The time at these three numbers.
    #[must_use]
    pub fn at(&self, at: [u64; 3]) -> Estimate {
        self.inside(at).unwrap_or_else(|| self.held(at))
    }

    /// The third numbers at which the time for these first two may change its slope, ascending.
    #[must_use]
    pub fn knots(&self, [first, second]: [u64; 2]) -> Vec<u64> {
        let curves = self.around(&[first, second]);
        let mut knots: Vec<u64> = curves.iter().flat_map(|curve| curve.points().map(|(x, _)| x)).collect();
        knots.sort_unstable();
        knots.dedup();
        knots
    }

    /// Whether everything that the time for these first two numbers is blended from was measured at `third`.
    #[must_use]
    pub fn is_complete_at(&self, [first, second]: [u64; 2], third: u64) -> bool {
        let curves = self.around(&[first, second]);
        !curves.is_empty() && curves.iter().all(|curve| curve.covers(third))
    }

    /// The curves around the first two numbers; none where these are out of range.
    fn around(&self, &[first, second]: &[u64; 2]) -> Vec<&Curve> {
        let mut curves = Vec::new();
        for plane in between(place(&self.firsts, first)).filter_map(|index| self.planes.get(index)) {
            let lines = between(place(&plane.seconds, second));
            let before = curves.len();
            curves.extend(lines.filter_map(|line| plane.lines.get(line)));
            if curves.len() == before {
                return Vec::new();
            }
        }
        curves
    }

    fn inside(&self, at: [u64; 3]) -> Option<Estimate> {
        let [first, second, third] = at;
        match place(&self.firsts, first) {
            Place::At(index) => self.in_plane(index, at),
            Place::After(index) => {
                let (low, high) = (*self.firsts.get(index)?, *self.firsts.get(index + 1)?);
                let (a, b) = (self.in_plane(index, at), self.in_plane(index + 1, at));
                let (at_low, at_high) = ([low, second, third], [high, second, third]);
                self.between(at, (a, at_low), (b, at_high), share(low, high, first), false)
            }
            Place::Outside => None,
        }
    }

    #[inline]
    fn in_plane(&self, index: usize, at: [u64; 3]) -> Option<Estimate> {
        let plane = self.planes.get(index)?;
        let [first, second, third] = at;
        match place(&plane.seconds, second) {
            Place::At(line) => plane.lines.get(line)?.inside(third),
            Place::After(line) => {
                let (low, high) = (*plane.seconds.get(line)?, *plane.seconds.get(line + 1)?);
                let (a, b) = (plane.lines.get(line)?.inside(third), plane.lines.get(line + 1)?.inside(third));
                let (at_low, at_high) = ([first, low, third], [first, high, third]);
                self.between(at, (a, at_low), (b, at_high), share(low, high, second), self.blends_roots)
            }
            Place::Outside => None,
        }
    }

    /// Between two neighbours. If only one is known, it goes along with the speed of light.
    #[inline]
    fn between(
        &self,
        at: [u64; 3],
        (a, at_a): (Option<Estimate>, [u64; 3]),
        (b, at_b): (Option<Estimate>, [u64; 3]),
        t: f64,
        roots: bool,
    ) -> Option<Estimate> {
        let along = |known: Estimate, from: [u64; 3]| {
            Estimate::new(known.ms * self.roofline.ms(at) / self.roofline.ms(from), Basis::Held)
        };
        match (a, b) {
            (Some(a), Some(b)) => {
                let ms = if roots { blend(a.ms.sqrt(), b.ms.sqrt(), t).powi(2) } else { blend(a.ms, b.ms, t) };
                Some(Estimate::new(ms, a.basis.max(b.basis).max(Basis::Interpolated)))
            }
            (Some(a), None) => Some(along(a, at_a)),
            (None, Some(b)) => Some(along(b, at_b)),
            (None, None) => None,
        }
    }

    /// The speed of light at the utilisation of the nearest points, by distance in octaves. The weights fall to zero at
    /// the distance of the fifth, so that the answer has no steps.
    fn held(&self, at: [u64; 3]) -> Estimate {
        let mut nearest = self.nearest(at);
        let radius = nearest.get(ANCHORS).map(|near| near.distance);
        nearest.truncate(ANCHORS);
        let weight = |distance: f64| match radius {
            Some(radius) => ((radius - distance) / (radius * distance + TINY)).powi(2),
            None => 1.0 / (distance * distance + TINY),
        };
        let mut weights: Vec<f64> = nearest.iter().map(|near| weight(near.distance)).collect();
        if weights.iter().all(|&weight| weight <= 0.0) {
            weights.iter_mut().for_each(|weight| *weight = 1.0);
        }
        let total: f64 = weights.iter().sum();
        let utilisation: f64 = weights.iter().zip(&nearest).map(|(weight, near)| weight * near.utilisation).sum();
        Estimate::new(self.roofline.ms(at) * total / utilisation, Basis::Held)
    }

    /// The nearest points, one more than anchors, the nearest first. Lines that lie too far apart are not looked at.
    fn nearest(&self, at: [u64; 3]) -> Vec<Near> {
        let [x, y, z] = at.map(|x| (x as f64).log2());
        let mut nearest: Vec<Near> = Vec::with_capacity(ANCHORS + 2);
        let apart = |line: &HeldLine| {
            let [a, b] = line.log2;
            (a - x).powi(2) + (b - y).powi(2)
        };
        let mut lines: Vec<(f64, &HeldLine)> = self.lines.iter().map(|line| (apart(line), line)).collect();
        // A few lines nearly always do, so that the others need no order.
        let order = |(a, _): &(f64, &HeldLine), (b, _): &(f64, &HeldLine)| a.total_cmp(b);
        let first = FIRST_LINES.min(lines.len());
        if first < lines.len() {
            lines.select_nth_unstable_by(first, order);
        }
        let (near, far) = lines.split_at_mut(first);
        near.sort_unstable_by(order);
        if !look_at(near, z, &mut nearest) {
            far.sort_unstable_by(order);
            look_at(far, z, &mut nearest);
        }
        nearest
    }
}

/// Adds the nearest points of lines, the nearest line first; whether all others lie too far apart.
fn look_at(lines: &[(f64, &HeldLine)], z: f64, nearest: &mut Vec<Near>) -> bool {
    for (apart, line) in lines {
        if nearest.get(ANCHORS).is_some_and(|last| last.distance < apart.sqrt()) {
            return true;
        }
        line.add_near(*apart, z, nearest);
    }
    false
}

#[derive(Clone, Copy, Debug)]
struct Near {
    distance: f64,
    row: usize,
    utilisation: f64,
}

impl HeldLine {
    fn new(line: &[(usize, [u64; 3], f64)], roofline: &Roofline) -> Option<Self> {
        let (_, [first, second, _], _) = line.first()?;
        let points = line.iter().map(|&(row, at, ms)| {
            let [_, _, third] = at;
            HeldPoint { log2: (third as f64).log2(), utilisation: roofline.ms(at) / ms, row }
        });
        Some(Self { log2: [(*first as f64).log2(), (*second as f64).log2()], points: points.collect() })
    }

    /// Adds those of its points that are among the nearest; it is as far `apart` (squared) in the first two numbers.
    fn add_near(&self, apart: f64, z: f64, nearest: &mut Vec<Near>) {
        let start = self.points.partition_point(|point| point.log2 < z);
        let (below, above) = self.points.split_at(start);
        for side in [&mut below.iter().rev() as &mut dyn Iterator<Item = &HeldPoint>, &mut above.iter()] {
            for point in side {
                let distance = (apart + (point.log2 - z).powi(2)).sqrt();
                let key = |near: &Near| (near.distance, near.row) <= (distance, point.row);
                let rank = nearest.partition_point(key);
                if rank > ANCHORS {
                    break;
                }
                nearest.insert(rank, Near { distance, row: point.row, utilisation: point.utilisation });
                nearest.truncate(ANCHORS + 1);
            }
        }
    }
}

/// The neighbours of a place.
fn between(place: Place) -> std::ops::Range<usize> {
    match place {
        Place::At(index) => index..index + 1,
        Place::After(index) => index..index + 2,
        Place::Outside => 0..0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::roofline::{GridOperator, HeadShape};
    use super::*;

    fn light() -> Roofline {
        let shape = HeadShape { kv_heads: None, head_dim: 64, window: 0 };
        Roofline { operator: GridOperator::Generation(shape), flops: 1e12, bandwidth: 1e11, kv_bytes: 2.0 }
    }

    /// A grid whose longest lines get shorter with the second number, in an order that is not sorted.
    fn rows() -> Vec<([u64; 3], f64)> {
        let mut rows = Vec::new();
        for heads in [8, 4, 16] {
            for (step, requests) in [1, 2, 4, 8].into_iter().enumerate() {
                for power in (1..12 - 2 * step as u32).rev() {
                    let tokens = 1 << power;
                    let wobble = 1.0 + (heads * requests + tokens) as f64 % 7.0 / 10.0;
                    rows.push(([heads, requests, tokens], light().ms([heads, requests, tokens]) * 2.0 * wobble));
                }
            }
        }
        rows
    }

    /// The nearest points by looking at every one.
    fn nearest_of_all(rows: &[([u64; 3], f64)], at: [u64; 3]) -> Vec<(f64, usize)> {
        let log2 = |at: [u64; 3]| at.map(|x| (x as f64).log2());
        let [x, y, z] = log2(at);
        let distance = |[a, b, c]: [f64; 3]| ((a - x).powi(2) + (b - y).powi(2) + (c - z).powi(2)).sqrt();
        let mut all: Vec<(f64, usize)> =
            rows.iter().enumerate().map(|(row, (at, _))| (distance(log2(*at)), row)).collect();
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all.truncate(ANCHORS + 1);
        all
    }

    #[test]
    fn the_nearest_are_found_without_looking_at_all_and_ties_go_by_row() {
        let rows = rows();
        let grid = Grid::new(&rows, light(), false).unwrap();
        for heads in [1, 3, 8, 40] {
            for requests in [1, 3, 8, 100] {
                for tokens in [1, 2, 63, 4096, 100_000] {
                    let at = [heads, requests, tokens];
                    let found: Vec<(f64, usize)> =
                        grid.nearest(at).iter().map(|near| (near.distance, near.row)).collect();
                    assert_eq!(found, nearest_of_all(&rows, at), "{at:?}");
                }
            }
        }
    }

    #[test]
    fn exact_rows_stay_and_neighbours_are_blended() {
        let grid = Grid::new(&rows(), light(), false).unwrap();
        let ms = |at| rows().into_iter().find(|(key, _)| *key == at).unwrap().1;
        assert_eq!(grid.at([8, 2, 64]), Estimate::new(ms([8, 2, 64]), Basis::Measured));
        let between = grid.at([8, 3, 96]);
        let mean = (ms([8, 2, 64]) + ms([8, 2, 128]) + ms([8, 4, 64]) + ms([8, 4, 128])) / 4.0;
        assert_eq!(between.basis, Basis::Interpolated);
        assert!((between.ms / mean - 1.0).abs() < 1e-12);
    }

    #[test]
    fn where_one_neighbour_ends_the_other_goes_along_with_light() {
        let grid = Grid::new(&rows(), light(), false).unwrap();
        // Lines of 2 requests go up to 512 tokens, those of 4 up to 128.
        let alone = grid.at([8, 3, 512]);
        let known = grid.at([8, 2, 512]);
        let expected = known.ms * light().ms([8, 3, 512]) / light().ms([8, 2, 512]);
        assert_eq!(alone, Estimate::new(expected, Basis::Held));
        assert!(!grid.is_complete_at([8, 3], 512) && grid.is_complete_at([8, 3], 128));
        assert_eq!(grid.at([8, 3, 1024]).basis, Basis::Held);
    }
}
