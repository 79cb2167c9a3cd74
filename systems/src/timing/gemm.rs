//! Matrix products.

use std::collections::BTreeMap;
use std::sync::Arc;

use dynosim_schemas::dtype::Dtype;
use dynosim_schemas::hardware::Hardware;
use dynosim_schemas::perf_table::TableKind;

use super::curve::Curve;
use super::estimate::{Basis, Estimate};
use super::roofline::GemmLight;
use super::tables::{Tables, table_rows, unmeasured};

/// Rows at an edge whose median utilisation goes on beyond it.
const EDGE: usize = 3;
/// Farthest shape that says anything, in octaves.
const FARTHEST_SITE: f64 = 2.0;
/// Shapes that answer for one that was not measured.
const SITES: usize = 4;

/// Measured matrix products of one number format.
#[derive(Clone, Debug)]
pub struct Gemms {
    dtype: Dtype,
    light: GemmLight,
    /// Shapes in the order of the table, which decides between equally near ones.
    sites: Arc<[Site]>,
    places: BTreeMap<(u64, u64), usize>,
}

/// Times over numbers of rows.
type Points = Vec<(u64, f64)>;

#[derive(Clone, Debug)]
struct Site {
    n: u64,
    k: u64,
    curve: Curve,
}

/// The products of one shape, whatever their number of rows.
#[derive(Clone, Debug)]
pub struct Product {
    dtype: Dtype,
    light: GemmLight,
    n: u64,
    k: u64,
    sites: Arc<[Site]>,
    answers: Answers,
}

/// Who answers for a shape.
#[derive(Clone, Debug)]
enum Answers {
    /// Its own measurements.
    Own(usize),
    /// Others: how far they are, in octaves, the nearest first.
    Others(Vec<(f64, usize)>),
}

impl Gemms {
    /// The rows of that format.
    #[must_use]
    pub fn new(tables: &Tables, hardware: &Hardware, dtype: Dtype) -> Self {
        let light = GemmLight::new(hardware, dtype);
        let mut sites: Vec<(u64, u64, Points)> = Vec::new();
        let mut places = BTreeMap::new();
        table_rows(tables, TableKind::Gemm, |words, numbers, ms| {
            let (&[word], &[n, k, m]) = (words, numbers) else { return };
            if word != dtype.name() {
                return;
            }
            // Nothing is faster than light: such rows are noise.
            let point = (m, ms.max(light.ms(m, n, k)));
            match sites.last_mut() {
                // Rows of a shape nearly always follow each other.
                Some((last_n, last_k, points)) if (*last_n, *last_k) == (n, k) => points.push(point),
                _ => {
                    let place = *places.entry((n, k)).or_insert(sites.len());
                    match sites.get_mut(place) {
                        Some((.., points)) => points.push(point),
                        None => sites.push((n, k, vec![point])),
                    }
                }
            }
        });
        let sites = sites.into_iter().map(|(n, k, points)| Site { n, k, curve: Curve::new(points) }).collect();
        Self { dtype, light, sites, places }
    }

    /// The products of rows of length `k` with a matrix of `k` by `n`.
    #[must_use]
    pub fn product(&self, n: u64, k: u64) -> Product {
        let answers = match self.places.get(&(n, k)) {
            Some(&place) => Answers::Own(place),
            None => {
                let apart = |site: &Site| octaves(site.n, n).hypot(octaves(site.k, k));
                let mut others: Vec<(f64, usize)> =
                    self.sites.iter().enumerate().map(|(place, site)| (apart(site), place)).collect();
                others.sort_by(|(a, _), (b, _)| a.total_cmp(b));
                Answers::Others(others)
            }
        };
        Product { dtype: self.dtype, light: self.light, n, k, sites: Arc::clone(&self.sites), answers }
    }
}

fn octaves(a: u64, b: u64) -> f64 {
    (a as f64).log2() - (b as f64).log2()
}

impl Product {
    /// The time for `m` rows.
    #[must_use]
    pub fn at(&self, m: u64) -> Estimate {
        let estimate = match &self.answers {
            Answers::Own(place) => self.sites.get(*place).and_then(|site| self.on_site(site, m)),
            Answers::Others(others) => self.borrowed(others, m),
        };
        estimate.unwrap_or_else(|| unmeasured(self.light.ms(m, self.n, self.k), self.dtype))
    }

    fn on_site(&self, site: &Site, m: u64) -> Option<Estimate> {
        site.curve.at(m, |m| self.light.ms(m, site.n, site.k), EDGE)
    }

    /// At the utilisation of the nearest measured shapes.
    fn borrowed(&self, others: &[(f64, usize)], m: u64) -> Option<Estimate> {
        let is_covered = self.sites.iter().any(|site| site.curve.covers(m));
        let all = || others.iter().filter_map(|&(distance, place)| Some((distance, self.sites.get(place)?)));
        let usable = || all().filter(|(_, site)| !is_covered || site.curve.covers(m));
        let mut near: Vec<(f64, &Site)> =
            usable().take_while(|(distance, _)| *distance <= FARTHEST_SITE).take(SITES).collect();
        if near.is_empty() {
            // A huge vocabulary: only the other side has to be near.
            let above_n = usable().all(|(_, site)| site.n < self.n);
            let above_k = usable().all(|(_, site)| site.k < self.k);
            let beside = |site: &Site| match (above_n, above_k) {
                (true, false) => octaves(site.k, self.k).abs() <= FARTHEST_SITE,
                (false, true) => octaves(site.n, self.n).abs() <= FARTHEST_SITE,
                _ => false,
            };
            near = usable().filter(|(_, site)| beside(site)).take(SITES).collect();
        }
        let (mut weights, mut sum) = (0.0, 0.0);
        for (distance, site) in near {
            let weight = 1.0 / (distance * distance + 1e-12);
            sum += weight * self.light.ms(m, site.n, site.k) / self.on_site(site, m)?.ms;
            weights += weight;
        }
        let ms = self.light.ms(m, self.n, self.k) * weights / sum;
        (weights > 0.0).then_some(Estimate::new(ms, Basis::Held))
    }
}
