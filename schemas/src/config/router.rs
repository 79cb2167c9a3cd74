//! `router`: how requests are spread over workers.

use schemars::JsonSchema;
use serde::Serialize;

use super::Problem;
use super::fields::{At, Bound, Choice, Fields};
use super::limits::MAX_NUMBER;
use super::schema::default_tag;

const KNOWN: [&str; 12] = [
    "policy",
    "prefill_load_model",
    "overlap_score_credit",
    "overlap_score_credit_decay",
    "prefill_load_scale",
    "decode_active_request_weight",
    "temperature",
    "seed",
    "assume_kv_reuse",
    "track_active_blocks",
    "track_prefill_tokens",
    "queue",
];

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
        /// How fast the weight of cached blocks falls on a worker whose prefill load is above the least, in
        /// prompts of the request's size. Not in the reference's file.
        #[schemars(default, range(min = 0.0, max = MAX_NUMBER))]
        overlap_score_credit_decay: f64,
        /// Cost of each request that a worker has, in blocks. Not in the reference's file.
        #[schemars(default, range(min = 0.0, max = MAX_NUMBER))]
        decode_active_request_weight: f64,
        /// Seed of the choice between equally good workers, and of the choice at a temperature above 0. Not in the
        /// reference's file.
        #[schemars(default = "default_seed")]
        seed: u64,
        /// Whether requests with a common prefix count its blocks once. Not in the reference's file.
        #[schemars(default = "yes")]
        assume_kv_reuse: bool,
        /// Whether the prompt blocks of running requests count as load. Not in the reference's file.
        #[schemars(default = "yes")]
        track_active_blocks: bool,
        /// Whether prompt tokens that are still to be computed count as load. Not in the reference's file.
        #[schemars(default = "yes")]
        track_prefill_tokens: bool,
        /// When requests wait in the router. Null: never. Not in the reference's file.
        #[schemars(default)]
        queue: Option<RouterQueue>,
    },
}

/// The router's own queue: requests wait in it while every worker is busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RouterQueue {
    /// A worker is busy while more prompt tokens than this many times `max_batched_tokens` wait to be computed there.
    #[schemars(range(min = 0.0, max = MAX_NUMBER))]
    pub threshold: f64,
    /// Who goes first.
    #[schemars(default)]
    pub policy: QueuePolicy,
}

/// Who leaves the router's queue first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueuePolicy {
    /// Who came first.
    #[default]
    Fcfs,
    /// Who came last.
    Lcfs,
    /// Who has the fewest prompt tokens that no worker has cached.
    Wspt,
}

impl Choice for QueuePolicy {
    const WHAT: &'static str = "queue policy";
    const ALL: &'static [(&'static str, Self)] = &[("fcfs", Self::Fcfs), ("lcfs", Self::Lcfs), ("wspt", Self::Wspt)];
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
    const ALL: &'static [(&'static str, Self)] = &[("none", Self::None), ("aic", Self::Aic), ("ais", Self::Aic)];
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
        match policy {
            Policy::RoundRobin => read_round_robin(&fields, prefill_load_model),
            Policy::KvRouter => read_kv_router(&fields, prefill_load_model),
        }
    }
}

fn read_kv_router(fields: &Fields<'_>, prefill_load_model: PrefillLoadModel) -> Result<Router, Problem> {
    let number = |key, default| Ok(fields.number(key, Bound::NonNegative)?.unwrap_or(default));
    let flag = |key| Ok(fields.flag(key)?.unwrap_or(true));
    let queue = fields.value("queue").filter(|at| !at.value.is_null()).map(RouterQueue::read).transpose()?;
    let router = Router::KvRouter {
        prefill_load_model,
        overlap_score_credit: number("overlap_score_credit", 1.0)?,
        prefill_load_scale: number("prefill_load_scale", 1.0)?,
        temperature: number("temperature", 0.0)?,
        overlap_score_credit_decay: number("overlap_score_credit_decay", 0.0)?,
        decode_active_request_weight: number("decode_active_request_weight", 0.0)?,
        seed: fields.int("seed", 0..=u64::MAX)?.unwrap_or_else(default_seed),
        assume_kv_reuse: flag("assume_kv_reuse")?,
        track_active_blocks: flag("track_active_blocks")?,
        track_prefill_tokens: flag("track_prefill_tokens")?,
        queue,
    };
    match router {
        Router::KvRouter { track_prefill_tokens: false, .. } if prefill_load_model != PrefillLoadModel::None => {
            Err(Problem::at(fields.path(), "a `prefill_load_model` has nothing to estimate without prefill tokens")
                .help("set `track_prefill_tokens: true`, or `prefill_load_model: {type: none}`"))
        }
        router => Ok(router),
    }
}

impl RouterQueue {
    fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &["threshold", "policy"])?;
        let threshold = fields.required("threshold")?.number(Bound::NonNegative)?;
        Ok(Self { threshold, policy: fields.choice("policy")?.unwrap_or_default() })
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

fn yes() -> bool {
    true
}

fn default_seed() -> u64 {
    42
}
