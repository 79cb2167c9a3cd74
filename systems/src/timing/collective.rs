//! Collectives between ranks.

use std::collections::BTreeMap;
use std::sync::Arc;

use dynosim_schemas::hardware::Hardware;
use dynosim_schemas::perf_table::TableKind;

use super::curve::Curve;
use super::estimate::{Basis, Estimate};
use super::tables::{Tables, table_rows};

/// Bytes of an element.
const ELEMENT_BYTES: f64 = 2.0;

/// A collective: times over the number of elements, for each number of ranks.
#[derive(Clone, Debug)]
pub struct Collective {
    ranks: Arc<BTreeMap<u64, Curve>>,
    links: [f64; 2],
    gpus_per_node: u64,
    /// How often each element goes round the ring.
    rounds: f64,
}

impl Collective {
    /// The engine's own all-reduce.
    #[must_use]
    pub fn all_reduce(tables: &Tables, hardware: &Hardware) -> Self {
        Self::new(tables, hardware, (TableKind::AllReduce, &[]), 2.0)
    }

    /// A collective of NCCL by its name there.
    #[must_use]
    pub fn nccl(tables: &Tables, hardware: &Hardware, name: &str) -> Self {
        let rounds = if name == "all_reduce" { 2.0 } else { 1.0 };
        Self::new(tables, hardware, (TableKind::Nccl, &["half", name]), rounds)
    }

    fn new(tables: &Tables, hardware: &Hardware, (kind, words): (TableKind, &[&str]), rounds: f64) -> Self {
        let mut ranks: BTreeMap<u64, Vec<(u64, f64)>> = BTreeMap::new();
        table_rows(tables, kind, |row, numbers, ms| {
            if row == words
                && let &[count, elements] = numbers
                && count > 1
            {
                ranks.entry(count).or_default().push((elements, ms));
            }
        });
        let ranks = ranks.into_iter().map(|(count, points)| (count, Curve::new(points))).collect();
        let links = [hardware.intra_node_bytes_per_second, hardware.inter_node_bytes_per_second];
        Self { ranks: Arc::new(ranks), links, gpus_per_node: hardware.gpus_per_node, rounds }
    }

    /// The time for `elements` elements between `ranks` ranks. Between more ranks than were measured it grows with what
    /// a ring has to move and with the slower links.
    #[must_use]
    pub fn at(&self, elements: u64, ranks: u64) -> Estimate {
        if ranks <= 1 {
            return Estimate::new(0.0, Basis::Formula);
        }
        let measured = self.ranks.range(..=ranks).next_back().and_then(|(&count, curve)| {
            let there = curve.at(elements, |elements| elements as f64, 1)?;
            if count == ranks {
                return Some(there);
            }
            Some(Estimate::new(there.ms * self.ring(ranks) / self.ring(count), Basis::Held))
        });
        measured.unwrap_or_else(|| {
            let bytes = ELEMENT_BYTES * elements as f64 * self.rounds;
            Estimate::new(bytes * self.ring(ranks) * 1e3, Basis::SpeedOfLight)
        })
    }

    /// Seconds for a byte to go round.
    fn ring(&self, ranks: u64) -> f64 {
        let [within, beyond] = self.links;
        let link = if ranks <= self.gpus_per_node { within } else { beyond };
        (ranks - 1) as f64 / ranks as f64 / link
    }
}
