//! `evaluation`: the service-level bounds that the report counts against.

use schemars::JsonSchema;
use serde::Serialize;

use super::Problem;
use super::fields::{At, Bound, Fields};
use super::schema::{no_null, positive};

/// Service-level bounds that the report counts against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Evaluation {
    /// Either `ttft_ms` and `itl_ms` together, or `e2e_ms` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = no_null)]
    pub sla: Option<Sla>,
}

/// Bounds that a request meets, or does not. There is at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Sla {
    /// Longest time to the first token.
    #[schemars(transform = positive)]
    pub ttft_ms: Option<f64>,
    /// Longest mean time between two tokens.
    #[schemars(transform = positive)]
    pub itl_ms: Option<f64>,
    /// Longest time to the last token.
    #[schemars(transform = positive)]
    pub e2e_ms: Option<f64>,
}

impl Evaluation {
    pub(super) fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &["sla"])?;
        let sla = fields.value("sla").map(Sla::read).transpose()?;
        Ok(Self { sla: sla.filter(|sla| *sla != Sla::default()) })
    }
}

impl Sla {
    fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &["ttft_ms", "itl_ms", "e2e_ms"])?;
        let sla = Self {
            ttft_ms: fields.number_or_null("ttft_ms", Bound::Positive)?,
            itl_ms: fields.number_or_null("itl_ms", Bound::Positive)?,
            e2e_ms: fields.number_or_null("e2e_ms", Bound::Positive)?,
        };
        let refuse = |message: &str| {
            Err(Problem::at(fields.path(), message).help("give `ttft_ms` and `itl_ms` together, or `e2e_ms` alone"))
        };
        match (sla.ttft_ms, sla.itl_ms, sla.e2e_ms) {
            (None, None, _) | (Some(_), Some(_), None) => Ok(sla),
            (_, _, Some(_)) => refuse("`e2e_ms` does not go with other bounds"),
            (Some(_), None, None) => refuse("`ttft_ms` needs `itl_ms`"),
            (None, Some(_), None) => refuse("`itl_ms` needs `ttft_ms`"),
        }
    }
}
