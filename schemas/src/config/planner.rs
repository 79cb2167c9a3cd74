//! `planner`: scaling of the deployment while it runs.

use schemars::JsonSchema;
use serde::Serialize;

use super::Problem;
use super::fields::{At, Bound, Choice, Fields};
use super::limits::{MAX_COUNT, MAX_REPLICAS, MAX_SECONDS};
use super::schema::positive;

const KNOWN: [&str; 22] = [
    "policy",
    "target",
    "enable_throughput_scaling",
    "enable_load_scaling",
    "throughput_adjustment_interval_seconds",
    "load_adjustment_interval_seconds",
    "max_throughput_scaling_replicas",
    "max_num_fpm_samples",
    "fpm_sample_bucket_size",
    "load_scaling_down_sensitivity",
    "load_min_observations",
    "load_predictor",
    "load_predictor_log1p",
    "prophet_window_size",
    "kalman_q_level",
    "kalman_q_trend",
    "kalman_r",
    "kalman_min_points",
    "max_num_gpus",
    "min_workers",
    "prefill_min_workers",
    "decode_min_workers",
];

/// Scaling of the deployment while it runs.
///
/// A disabled planner ignores its other fields, so they then hold their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields, default)]
pub struct Planner {
    /// Whether there is a planner.
    pub policy: PlannerPolicy,
    /// What it scales for. Targets other than `sla` scale by load alone, whatever the two switches say.
    pub target: PlannerTarget,
    /// Scale to the predicted traffic. Needs target `sla` and bounds on TTFT and ITL.
    pub enable_throughput_scaling: bool,
    /// Scale to the load of the moment.
    pub enable_load_scaling: bool,
    /// Time between two decisions by throughput.
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub throughput_adjustment_interval_seconds: u64,
    /// Time between two decisions by load.
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub load_adjustment_interval_seconds: u64,
    /// Most workers that one decision by throughput adds or removes.
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub max_throughput_scaling_replicas: u64,
    /// Forward passes that the planner remembers.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    pub max_num_fpm_samples: u64,
    /// Buckets among which it spreads them: a perfect square.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    pub fpm_sample_bucket_size: u64,
    /// How readily it scales down, in percent.
    #[schemars(range(min = 0.0, max = 100.0))]
    pub load_scaling_down_sensitivity: f64,
    /// Observations that it needs before it trusts its model.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    pub load_min_observations: u64,
    /// How future traffic is predicted.
    pub load_predictor: LoadPredictor,
    /// Whether prediction works on the logarithm of the traffic.
    pub load_predictor_log1p: bool,
    /// Windows that `prophet` looks at.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    pub prophet_window_size: u64,
    /// Variance of the level in `kalman`.
    #[schemars(transform = positive)]
    pub kalman_q_level: f64,
    /// Variance of the trend in `kalman`.
    #[schemars(transform = positive)]
    pub kalman_q_trend: f64,
    /// Variance of the measurement in `kalman`.
    #[schemars(transform = positive)]
    pub kalman_r: f64,
    /// Windows that `kalman` needs before it predicts.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    pub kalman_min_points: u64,
    /// Most GPUs that the deployment may hold.
    #[schemars(range(min = 1, max = MAX_COUNT))]
    pub max_num_gpus: u64,
    /// Fewest workers of every role.
    #[schemars(range(max = MAX_REPLICAS))]
    pub min_workers: u64,
    /// Fewest prefill workers, instead of `min_workers` (disaggregated only).
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub prefill_min_workers: Option<u64>,
    /// Fewest decode workers, instead of `min_workers` (disaggregated only).
    #[schemars(range(min = 1, max = MAX_REPLICAS))]
    pub decode_min_workers: Option<u64>,
}

/// Whether there is a planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannerPolicy {
    /// The deployment stays as it is.
    #[default]
    Disabled,
    /// The planner adds and removes workers.
    Enabled,
}

/// What the planner scales for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannerTarget {
    /// Keep workers busy.
    #[default]
    Throughput,
    /// Keep queues short.
    Latency,
    /// Keep the bounds of `evaluation.sla`.
    Sla,
    /// Keep load between fixed thresholds.
    Load,
}

/// How future traffic is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadPredictor {
    /// As the last window.
    Constant,
    /// Autoregression.
    #[default]
    Arima,
    /// Trend and season.
    Prophet,
    /// Local trend, filtered.
    Kalman,
}

impl Choice for PlannerPolicy {
    const WHAT: &'static str = "planner policy";
    const ALL: &'static [(&'static str, Self)] = &[("disabled", Self::Disabled), ("enabled", Self::Enabled)];
}

impl Choice for PlannerTarget {
    const WHAT: &'static str = "target";
    const ALL: &'static [(&'static str, Self)] =
        &[("throughput", Self::Throughput), ("latency", Self::Latency), ("sla", Self::Sla), ("load", Self::Load)];
}

impl Choice for LoadPredictor {
    const WHAT: &'static str = "load predictor";
    const ALL: &'static [(&'static str, Self)] =
        &[("constant", Self::Constant), ("arima", Self::Arima), ("prophet", Self::Prophet), ("kalman", Self::Kalman)];
}

impl Default for Planner {
    fn default() -> Self {
        Self {
            policy: PlannerPolicy::Disabled,
            target: PlannerTarget::Throughput,
            enable_throughput_scaling: true,
            enable_load_scaling: false,
            throughput_adjustment_interval_seconds: 180,
            load_adjustment_interval_seconds: 5,
            max_throughput_scaling_replicas: 8,
            max_num_fpm_samples: 64,
            fpm_sample_bucket_size: 16,
            load_scaling_down_sensitivity: 80.0,
            load_min_observations: 5,
            load_predictor: LoadPredictor::Arima,
            load_predictor_log1p: false,
            prophet_window_size: 50,
            kalman_q_level: 1.0,
            kalman_q_trend: 0.1,
            kalman_r: 10.0,
            kalman_min_points: 5,
            max_num_gpus: 8,
            min_workers: 1,
            prefill_min_workers: None,
            decode_min_workers: None,
        }
    }
}

impl Planner {
    pub(super) fn read(at: At<'_>) -> Result<Self, Problem> {
        let fields = Fields::open_known(at, &KNOWN)?;
        let mut planner = Self::default();
        planner.read_scaling(&fields)?;
        planner.read_samples(&fields)?;
        planner.read_predictor(&fields)?;
        planner.read_limits(&fields)?;
        if planner.policy == PlannerPolicy::Disabled {
            return Ok(Self::default());
        }
        if planner.target != PlannerTarget::Sla {
            planner.enable_throughput_scaling = false;
            planner.enable_load_scaling = true;
        }
        planner.check(&fields)?;
        Ok(planner)
    }

    fn read_scaling(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        put(&mut self.policy, fields.choice("policy")?);
        put(&mut self.target, fields.choice("target")?);
        put(&mut self.enable_throughput_scaling, fields.flag("enable_throughput_scaling")?);
        put(&mut self.enable_load_scaling, fields.flag("enable_load_scaling")?);
        let seconds = |key| fields.int(key, 1..=MAX_SECONDS);
        put(&mut self.throughput_adjustment_interval_seconds, seconds("throughput_adjustment_interval_seconds")?);
        put(&mut self.load_adjustment_interval_seconds, seconds("load_adjustment_interval_seconds")?);
        let replicas = fields.int("max_throughput_scaling_replicas", 1..=MAX_REPLICAS)?;
        put(&mut self.max_throughput_scaling_replicas, replicas);
        Ok(())
    }

    fn read_samples(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        put(&mut self.max_num_fpm_samples, fields.int("max_num_fpm_samples", 1..=MAX_COUNT)?);
        put(&mut self.fpm_sample_bucket_size, read_square(fields, "fpm_sample_bucket_size")?);
        let sensitivity = fields.number("load_scaling_down_sensitivity", Bound::Between(0.0, 100.0))?;
        put(&mut self.load_scaling_down_sensitivity, sensitivity);
        put(&mut self.load_min_observations, fields.int("load_min_observations", 1..=MAX_COUNT)?);
        Ok(())
    }

    fn read_predictor(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        put(&mut self.load_predictor, fields.choice("load_predictor")?);
        put(&mut self.load_predictor_log1p, fields.flag("load_predictor_log1p")?);
        put(&mut self.prophet_window_size, fields.int("prophet_window_size", 1..=MAX_COUNT)?);
        put(&mut self.kalman_q_level, fields.number("kalman_q_level", Bound::Positive)?);
        put(&mut self.kalman_q_trend, fields.number("kalman_q_trend", Bound::Positive)?);
        put(&mut self.kalman_r, fields.number("kalman_r", Bound::Positive)?);
        put(&mut self.kalman_min_points, fields.int("kalman_min_points", 1..=MAX_COUNT)?);
        Ok(())
    }

    fn read_limits(&mut self, fields: &Fields<'_>) -> Result<(), Problem> {
        put(&mut self.max_num_gpus, fields.int("max_num_gpus", 1..=MAX_COUNT)?);
        put(&mut self.min_workers, fields.int("min_workers", 0..=MAX_REPLICAS)?);
        self.prefill_min_workers = fields.int_or_null("prefill_min_workers", 1..=MAX_REPLICAS)?;
        self.decode_min_workers = fields.int_or_null("decode_min_workers", 1..=MAX_REPLICAS)?;
        Ok(())
    }

    fn check(&self, fields: &Fields<'_>) -> Result<(), Problem> {
        if !self.enable_throughput_scaling && !self.enable_load_scaling {
            return Err(Problem::at(fields.path(), "both kinds of scaling are off")
                .help("turn on `enable_throughput_scaling` or `enable_load_scaling`, or set `policy: disabled`"));
        }
        let both = self.enable_throughput_scaling && self.enable_load_scaling;
        if both && self.load_adjustment_interval_seconds >= self.throughput_adjustment_interval_seconds {
            return Err(Problem::at(fields.path(), "decisions by load must come more often than by throughput")
                .help("make `load_adjustment_interval_seconds` less than `throughput_adjustment_interval_seconds`"));
        }
        Ok(())
    }
}

fn read_square(fields: &Fields<'_>, key: &str) -> Result<Option<u64>, Problem> {
    match fields.int(key, 1..=MAX_COUNT)? {
        Some(number) if number.isqrt() * number.isqrt() != number => {
            Err(Problem::at(fields.required(key)?.path, format!("{number} is not a perfect square"))
                .help("use 1, 4, 9, 16, 25, ..."))
        }
        number => Ok(number),
    }
}

fn put<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}
