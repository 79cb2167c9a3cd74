//! The figures of a whole run, under the names that the report uses.

use serde_json::{Map, Value, json};

use crate::play_row::{PlayRow, PlayStatus};

/// Statistics of one pooled quantity. All zero when it has no samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Number of samples.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// 50th percentile. Percentile p is the sorted sample at index `round((n - 1) * p / 100)`.
    pub median: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Population standard deviation.
    pub std: f64,
}

impl Distribution {
    /// Puts every statistic under its own name, as `p99_ttft_ms` for the stem `ttft_ms`.
    fn insert_into(&self, figures: &mut Map<String, Value>, stem: &str) {
        let statistics = [
            ("mean", self.mean),
            ("min", self.min),
            ("max", self.max),
            ("median", self.median),
            ("p75", self.p75),
            ("p90", self.p90),
            ("p95", self.p95),
            ("p99", self.p99),
            ("std", self.std),
        ];
        for (statistic, value) in statistics {
            figures.insert(format!("{statistic}_{stem}"), json!(value));
        }
    }
}

/// Goodput: completed requests that met every bound of the SLA.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Goodput {
    /// Their number.
    pub completed_requests: u64,
    /// Their number per second of simulated time.
    pub request_throughput_rps: f64,
    /// Their output tokens per second of simulated time.
    pub output_throughput_tok_s: f64,
}

/// Plays of agents.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlayFigures {
    /// Their number.
    pub num_plays: u64,
    /// Those whose every request was served.
    pub completed_plays: u64,
    /// The others.
    pub failed_plays: u64,
    /// Requests that were never sent, because another one of their play was not served.
    pub skipped_requests: u64,
    /// Time from a play's first dispatch to its last end, over completed plays.
    pub trajectory_latency_ms: Distribution,
}

impl PlayFigures {
    /// Counts a play that is over.
    pub fn add(&mut self, play: &PlayRow) {
        match play.status {
            PlayStatus::Completed => self.completed_plays += 1,
            PlayStatus::Failed => self.failed_plays += 1,
        }
        self.skipped_requests += play.skipped_requests;
    }
}

/// The summary of a run. Sums, rates and latencies are over completed requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Requests that arrived.
    pub num_requests: u64,
    /// Requests that completed.
    pub completed_requests: u64,
    /// Requests that were refused.
    pub rejected_requests: u64,
    /// Requests that a worker gave up.
    pub failed_requests: u64,
    /// Requests that the cut-off caught unfinished.
    pub unfinished_requests: u64,
    /// Prompt tokens.
    pub total_input_tokens: u64,
    /// Output tokens.
    pub total_output_tokens: u64,
    /// End of the last completed request, from the start of the simulation.
    pub duration_ms: f64,
    /// Completed requests per second.
    pub request_throughput_rps: f64,
    /// Prompt tokens per second.
    pub input_throughput_tok_s: f64,
    /// Output tokens per second.
    pub output_throughput_tok_s: f64,
    /// Prompt and output tokens per second.
    pub total_throughput_tok_s: f64,
    /// Reused tokens (the largest reuse of each request) over prompt tokens. As in the reference, generated tokens that
    /// are found again after a preemption count, so it can exceed 1. `None` where nobody knows what prompts share.
    pub prefix_cache_reused_ratio: Option<f64>,
    /// The same with the reuse at the first admission.
    pub first_admission_prefix_cache_reused_ratio: Option<f64>,
    /// Tokens scheduled for requests with prompt work, recomputation included.
    pub committed_prefill_tokens: u64,
    /// Times a request lost its KV blocks and had to start over.
    pub preemptions: u64,
    /// Provisioned prefill workers, integrated over simulated time.
    pub prefill_worker_seconds: f64,
    /// Provisioned decode (or aggregated) workers, integrated over simulated time.
    pub decode_worker_seconds: f64,
    /// GPUs of one prefill worker; 0 in aggregated mode.
    pub prefill_gpus_per_worker: u64,
    /// GPUs of one decode (or aggregated) worker.
    pub decode_gpus_per_worker: u64,
    /// GPUs provisioned, integrated over simulated time.
    pub gpu_hours: f64,
    /// Time to first token.
    pub ttft_ms: Distribution,
    /// Time from the first to the second token.
    pub ttst_ms: Distribution,
    /// Time per output token after the first, per request.
    pub tpot_ms: Distribution,
    /// Every gap between consecutive tokens of a request, pooled.
    pub itl_ms: Distribution,
    /// End-to-end latency.
    pub e2e_latency_ms: Distribution,
    /// 1000 / gap over every non-zero gap, pooled: tokens per second as one user sees them.
    pub output_token_throughput_per_user: Distribution,
    /// Only with an SLA.
    pub goodput: Option<Goodput>,
    /// Only of a workload of agents.
    pub plays: Option<PlayFigures>,
}

impl Summary {
    /// Forgets what was reused: the workload does not say what its prompts share.
    pub const fn forget_reuse(&mut self) {
        self.prefix_cache_reused_ratio = None;
        self.first_admission_prefix_cache_reused_ratio = None;
    }

    /// The distributions with the stem of their names.
    #[must_use]
    pub fn distributions(&self) -> [(&'static str, &Distribution); 6] {
        [
            ("ttft_ms", &self.ttft_ms),
            ("ttst_ms", &self.ttst_ms),
            ("tpot_ms", &self.tpot_ms),
            ("itl_ms", &self.itl_ms),
            ("e2e_latency_ms", &self.e2e_latency_ms),
            ("output_token_throughput_per_user", &self.output_token_throughput_per_user),
        ]
    }

    /// The flat object of the report: every figure under its own name, percentiles as `p99_ttft_ms`.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        let scalars = json!({
            "num_requests": self.num_requests,
            "completed_requests": self.completed_requests,
            "rejected_requests": self.rejected_requests,
            "failed_requests": self.failed_requests,
            "unfinished_requests": self.unfinished_requests,
            "total_input_tokens": self.total_input_tokens,
            "total_output_tokens": self.total_output_tokens,
            "duration_ms": self.duration_ms,
            "request_throughput_rps": self.request_throughput_rps,
            "input_throughput_tok_s": self.input_throughput_tok_s,
            "output_throughput_tok_s": self.output_throughput_tok_s,
            "total_throughput_tok_s": self.total_throughput_tok_s,
            "prefix_cache_reused_ratio": self.prefix_cache_reused_ratio,
            "first_admission_prefix_cache_reused_ratio": self.first_admission_prefix_cache_reused_ratio,
            "committed_prefill_tokens": self.committed_prefill_tokens,
            "preemptions": self.preemptions,
            "kv_eviction_policy": "lru",
            "prefill_worker_seconds": self.prefill_worker_seconds,
            "decode_worker_seconds": self.decode_worker_seconds,
            "prefill_gpus_per_worker": self.prefill_gpus_per_worker,
            "decode_gpus_per_worker": self.decode_gpus_per_worker,
            "gpu_hours": self.gpu_hours,
            "num_ttft_samples": self.ttft_ms.count,
            "num_tpot_samples": self.tpot_ms.count,
            "num_e2e_latency_samples": self.e2e_latency_ms.count,
            "power_w": null,
            "power_coverage": null,
        });
        let Value::Object(mut figures) = scalars else { unreachable!("json! of braces is an object") };
        for (stem, d) in self.distributions() {
            d.insert_into(&mut figures, stem);
        }
        if let Some(goodput) = &self.goodput {
            figures.insert("goodput_completed_requests".into(), json!(goodput.completed_requests));
            figures.insert("goodput_request_throughput_rps".into(), json!(goodput.request_throughput_rps));
            figures.insert("goodput_output_throughput_tok_s".into(), json!(goodput.output_throughput_tok_s));
        }
        if let Some(plays) = &self.plays {
            figures.insert("total_trajectories".into(), json!(plays.num_plays));
            figures.insert("completed_trajectories".into(), json!(plays.completed_plays));
            figures.insert("failed_trajectories".into(), json!(plays.failed_plays));
            figures.insert("skipped_requests".into(), json!(plays.skipped_requests));
            plays.trajectory_latency_ms.insert_into(&mut figures, "trajectory_e2e_latency_ms");
        }
        figures
    }
}
