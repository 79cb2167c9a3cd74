//! Routed experts.

use std::collections::BTreeMap;

use dynosim_schemas::dtype::Dtype;
use dynosim_schemas::hardware::Hardware;
use dynosim_schemas::perf_table::TableKind;

use super::curve::Curve;
use super::estimate::{Basis, Estimate};
use super::roofline::{ExpertLight, ExpertShape};
use super::tables::{Tables, table_rows, unmeasured};

/// How unevenly tokens are spread over experts, by the names of measured distributions: in general, where the router was
/// trained to balance them, and when nothing better was measured.
pub const SKEWED: &str = "power_law_1.2";
pub const BALANCED: &str = "power_law_1.01";
const EVEN: &str = "uniform";

/// The distributions that are asked for.
pub const EXPERT_DISTRIBUTIONS: [&str; 3] = [SKEWED, BALANCED, EVEN];

/// A layer of routed experts.
#[derive(Clone, Debug)]
pub struct ExpertLayer {
    dtype: Dtype,
    light: ExpertLight,
    shape: ExpertShape,
    /// The shape that was measured, and its times over the number of tokens.
    measured: Option<(ExpertShape, Curve)>,
}

type Shapes = BTreeMap<ExpertShape, Vec<(u64, f64)>>;

impl ExpertLayer {
    /// The layer of that shape. Tokens are spread over experts by the `distribution` of that name or, if it was not
    /// measured, evenly. Where the shape was not measured, the nearest one spread over as many ranks answers for it.
    #[must_use]
    pub fn new(tables: &Tables, hardware: &Hardware, dtype: Dtype, distribution: &str, shape: ExpertShape) -> Self {
        let mut shapes = Shapes::new();
        for distribution in [distribution, EVEN] {
            if shapes.is_empty() {
                shapes = rows_of(tables, dtype, distribution, shape);
            }
        }
        let nearest = shapes.into_iter().min_by(|(a, _), (b, _)| apart(a, &shape).total_cmp(&apart(b, &shape)));
        let measured = nearest.map(|(shape, points)| (shape, Curve::new(points)));
        Self { dtype, light: ExpertLight::new(hardware, dtype), shape, measured }
    }

    /// The time for `tokens` tokens.
    #[must_use]
    pub fn at(&self, tokens: u64) -> Estimate {
        let own_light = self.light.ms(self.shape, tokens);
        let known = self.measured.as_ref().and_then(|(shape, curve)| {
            let there = curve.at(tokens, |tokens| self.light.ms(*shape, tokens), 1)?;
            if *shape == self.shape {
                return Some(there);
            }
            Some(Estimate::new(own_light * there.ms / self.light.ms(*shape, tokens), Basis::Held))
        });
        known.unwrap_or_else(|| unmeasured(own_light, self.dtype))
    }
}

/// Rows of that format and distribution, of shapes spread over the same ranks.
fn rows_of(tables: &Tables, dtype: Dtype, distribution: &str, shape: ExpertShape) -> Shapes {
    let mut shapes = Shapes::new();
    table_rows(tables, TableKind::Moe, |words, numbers, ms| {
        if words == [dtype.name(), distribution]
            && let &[top_k, experts, hidden, inter, tensor, expert, tokens] = numbers
            && (tensor, expert) == (shape.tensor, shape.expert)
        {
            let shape = ExpertShape { top_k, experts, hidden, inter, tensor, expert };
            shapes.entry(shape).or_default().push((tokens, ms));
        }
    });
    shapes
}

/// How far two shapes are apart, in squared octaves.
fn apart(a: &ExpertShape, b: &ExpertShape) -> f64 {
    let pairs = [(a.top_k, b.top_k), (a.experts, b.experts), (a.hidden, b.hidden), (a.inter, b.inter)];
    pairs.iter().map(|&(a, b)| ((a as f64).log2() - (b as f64).log2()).powi(2)).sum()
}
