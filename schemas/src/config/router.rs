//! `router`: how requests are spread over workers.

use schemars::JsonSchema;
use serde::Serialize;

use super::Problem;
use super::fields::{At, Bound, Choice, Fields};
use super::limits::MAX_NUMBER;
use super::schema::default_tag;

const KV_NUMBERS: [&str; 3] = ["overlap_score_credit", "prefill_load_scale", "temperature"];
const KNOWN: [&str; 5] = ["policy", "prefill_load_model", KV_NUMBERS[0], KV_NUMBERS[1], KV_NUMBERS[2]];

/// How requests are spread over workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "policy", rename_all = "snake_case")]
#[schemars(deny_unknown_fields, transform = default_tag("policy", "round_robin"))]
pub enum Router {
    /// Each worker in turn.
    RoundRobin {
        /// Takes no estimate of prefill load: only `none`.
        #[schemars(default, extend("properties" = { "type": { "const": "none" } }))]
        prefill_load_model: PrefillLoadModel,
    },
    /// The worker with the least work left, after the cached part of the prompt.
    KvRouter {
        /// How the load of running prefills is estimated.
        #[schemars(default)]
        prefill_load_model: PrefillLoadModel,
        /// Weight of cached prompt blocks.
        #[schemars(default = "one", range(min = 0.0, max = MAX_NUMBER))]
        overlap_score_credit: f64,
        /// Weight of prefill load against decode load.
        #[schemars(default = "one", range(min = 0.0, max = MAX_NUMBER))]
        prefill_load_scale: f64,
        /// Randomness of the choice; 0 takes the best.
        #[schemars(default, range(min = 0.0, max = MAX_NUMBER))]
        temperature: f64,
    },
}

/// How the router estimates the load of running prefills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(deny_unknown_fields, transform = default_tag("type", "none"))]
pub enum PrefillLoadModel {
    /// Not at all.
    #[default]
    None,
    /// From the estimated duration of each prefill.
    Aic,
}

#[derive(Clone, Copy, Default)]
enum Policy {
    #[default]
    RoundRobin,
    KvRouter,
}

impl Choice for Policy {
    const WHAT: &'static str = "router policy";
    const ALL: &'static [(&'static str, Self)] = &[("round_robin", Self::RoundRobin), ("kv_router", Self::KvRouter)];
}

impl Choice for PrefillLoadModel {
    const WHAT: &'static str = "prefill load model";
    const ALL: &'static [(&'static str, Self)] = &[("none", Self::None), ("aic", Self::Aic)];
}

impl Default for Router {
    fn default() -> Self {
        Self::RoundRobin { prefill_load_model: PrefillLoadModel::None }
    }
}

impl Router {
    pub(super) fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &KNOWN)?;
        let policy = fields.choice("policy")?.unwrap_or_default();
        let prefill_load_model = fields.section("prefill_load_model", &["type"])?.choice("type")?.unwrap_or_default();
        let [overlap_score_credit, prefill_load_scale, temperature] = KV_NUMBERS;
        let overlap_score_credit = fields.number(overlap_score_credit, Bound::NonNegative)?;
        let prefill_load_scale = fields.number(prefill_load_scale, Bound::NonNegative)?;
        let temperature = fields.number(temperature, Bound::NonNegative)?;
        match policy {
            Policy::RoundRobin => read_round_robin(&fields, prefill_load_model),
            Policy::KvRouter => Ok(Self::KvRouter {
                prefill_load_model,
                overlap_score_credit: overlap_score_credit.unwrap_or_else(one),
                prefill_load_scale: prefill_load_scale.unwrap_or_else(one),
                temperature: temperature.unwrap_or_default(),
            }),
        }
    }
}

fn read_round_robin(fields: &Fields<'_>, prefill_load_model: PrefillLoadModel) -> Result<Router, Problem> {
    fields.only_for("round_robin", &["policy", "prefill_load_model"])?;
    if prefill_load_model != PrefillLoadModel::None {
        return Err(Problem::at(fields.path(), "`round_robin` does not look at load")
            .help("set `prefill_load_model: {type: none}`, or `policy: kv_router`"));
    }
    Ok(Router::RoundRobin { prefill_load_model })
}

fn one() -> f64 {
    1.0
}
