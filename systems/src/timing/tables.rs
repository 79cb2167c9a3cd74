//! Rows of measured tables, and what stands in for them.

use std::collections::BTreeMap;

use dynosim_schemas::dtype::Dtype;
use dynosim_schemas::perf_table::{PerfTable, TableKind};

use super::estimate::{Basis, Estimate};
use super::grid::Grid;
use super::roofline::Roofline;

/// Tables by kind.
pub type Tables = BTreeMap<TableKind, PerfTable>;

/// Calls `each` with the words, the whole numbers and the ms of every row of a table.
pub fn table_rows<'t>(tables: &'t Tables, kind: TableKind, mut each: impl FnMut(&[&'t str], &[u64], f64)) {
    let Some(table) = tables.get(&kind) else { return };
    let (mut words, mut numbers) = (Vec::new(), Vec::new());
    for (row, &ms) in table.latency_ms.iter().enumerate() {
        words.clear();
        words.extend(table.words.iter().map(|column| column.get(row)));
        numbers.clear();
        numbers.extend(table.row(row).map(u64::from));
        each(&words, &numbers, f64::from(ms));
    }
}

/// Utilisation of peak rates where nothing like it was measured.
fn typical_utilisation(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bfloat16 => 0.70,
        Dtype::Fp8 | Dtype::Fp8Block | Dtype::W4a16Mxfp4 | Dtype::Int4Weights => 0.45,
        Dtype::Nvfp4 => 0.30,
    }
}

/// A time from peak rates alone.
#[must_use]
pub fn unmeasured(speed_of_light_ms: f64, dtype: Dtype) -> Estimate {
    Estimate::new(speed_of_light_ms / typical_utilisation(dtype), Basis::SpeedOfLight)
}

/// A grid, or nothing but peak rates.
#[derive(Clone, Debug)]
pub struct Slice {
    grid: Option<Grid>,
    roofline: Roofline,
    dtype: Dtype,
}

impl Slice {
    /// The rows as a grid.
    #[must_use]
    pub fn new(rows: &[([u64; 3], f64)], roofline: Roofline, dtype: Dtype, blends_roots: bool) -> Self {
        Self { grid: Grid::new(rows, roofline, blends_roots), roofline, dtype }
    }

    /// The rows, if there are any.
    #[must_use]
    pub fn grid(&self) -> Option<&Grid> {
        self.grid.as_ref()
    }

    /// The time at these numbers.
    #[inline]
    #[must_use]
    pub fn at(&self, at: [u64; 3]) -> Estimate {
        match &self.grid {
            Some(grid) => grid.at(at),
            None => unmeasured(self.roofline.ms(at), self.dtype),
        }
    }
}
