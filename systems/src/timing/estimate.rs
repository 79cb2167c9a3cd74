//! How well an operator's time is known.

use std::sync::atomic::{AtomicU8, Ordering};

/// What an operator's time comes from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// A closed form: simple kernels that move memory, point-to-point transfers.
    Formula,
    /// A row of a table.
    Measured,
    /// Rows on both sides of it.
    Interpolated,
    /// The utilisation of the nearest rows, beyond the range of the table or at a shape that it lacks.
    Held,
    /// Peak rates and a typical utilisation: nothing like it was measured.
    SpeedOfLight,
}

impl Basis {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Formula, Self::Measured, Self::Interpolated, Self::Held, Self::SpeedOfLight];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Formula => "formula",
            Self::Measured => "measured",
            Self::Interpolated => "interpolated",
            Self::Held => "held",
            Self::SpeedOfLight => "speed_of_light",
        }
    }
}

/// A time and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In ms.
    pub ms: f64,
    /// What it comes from.
    pub basis: Basis,
}

impl Estimate {
    /// A time of that basis.
    #[must_use]
    pub fn new(ms: f64, basis: Basis) -> Self {
        Self { ms, basis }
    }
}

/// The kinds of operators that a report tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// Matrix products.
    Gemm,
    /// Attention of prompts.
    ContextAttention,
    /// Attention of a decode step.
    GenerationAttention,
    /// Routed experts.
    Moe,
    /// All-reduce between tensor-parallel ranks.
    AllReduce,
    /// Collectives between attention ranks and experts.
    Dispatch,
    /// Embedding, norms, activations.
    Elementwise,
    /// Transfers between pipeline stages.
    PointToPoint,
}

impl Operator {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Gemm,
        Self::ContextAttention,
        Self::GenerationAttention,
        Self::Moe,
        Self::AllReduce,
        Self::Dispatch,
        Self::Elementwise,
        Self::PointToPoint,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::ContextAttention => "context_attention",
            Self::GenerationAttention => "generation_attention",
            Self::Moe => "moe",
            Self::AllReduce => "all_reduce",
            Self::Dispatch => "dispatch",
            Self::Elementwise => "elementwise",
            Self::PointToPoint => "point_to_point",
        }
    }
}

/// Which operators had to be estimated in which way so far.
#[derive(Debug, Default)]
pub struct Bases([AtomicU8; Operator::ALL.len()]);

impl Bases {
    /// Notes an estimate and gives its time, in ms.
    #[inline]
    pub fn note(&self, operator: Operator, estimate: Estimate) -> f64 {
        if let Some(seen) = self.0.get(operator as usize) {
            let bit = 1 << estimate.basis as u8;
            // Nearly always set already, and a look is cheaper than a write.
            if seen.load(Ordering::Relaxed) & bit == 0 {
                seen.fetch_or(bit, Ordering::Relaxed);
            }
        }
        estimate.ms
    }

    /// What was seen of each operator that came up, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<(Operator, Vec<Basis>)> {
        let of = |seen: &AtomicU8| {
            let bits = seen.load(Ordering::Relaxed);
            Basis::ALL.into_iter().filter(|basis| bits & (1 << *basis as u8) != 0).collect::<Vec<_>>()
        };
        let all = Operator::ALL.into_iter().zip(self.0.iter().map(of));
        all.filter(|(_, bases)| !bases.is_empty()).collect()
    }
}
