//! Running statistics of a simulation.

use bevy_ecs::prelude::*;
use dynosim_schemas::request_row::{RequestRow, RequestStatus};
use dynosim_schemas::summary::{Goodput, Summary};

use super::Samples;
use crate::timing::round_whole;

/// Up to this many completed requests their percentiles are exact.
pub const EXACT_REQUESTS: usize = 1 << 20;

/// Up to this many forward passes that close gaps between tokens, percentiles of the gaps are exact; beyond, as
/// long as at most half as many gaps differ.
pub const EXACT_GAPS: usize = 1 << 20;

/// What is counted pass by pass.
#[derive(Resource, Debug)]
pub struct PassStatistics {
    /// Tokens computed for requests with prompt work, in completed passes.
    pub prefill_tokens: u64,
    gaps_ms: Samples,
}

impl Default for PassStatistics {
    fn default() -> Self {
        Self { prefill_tokens: 0, gaps_ms: Samples::exact_up_to(EXACT_GAPS) }
    }
}

impl PassStatistics {
    /// Adds `count` gaps between consecutive tokens. Gaps are whole nanoseconds.
    pub fn add_gap(&mut self, gap_ms: f64, count: u64) {
        self.gaps_ms.add(round_whole(gap_ms * 1e6).max(0.0) / 1e6, count);
    }
}

/// Bounds that a request has to meet to count as good, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlaBounds {
    /// On the time to first token.
    pub ttft_ms: Option<f64>,
    /// On the request's mean inter-token latency.
    pub itl_ms: Option<f64>,
    /// On the end-to-end latency.
    pub e2e_ms: Option<f64>,
}

impl SlaBounds {
    /// Whether a completed request meets every bound.
    ///
    /// Without a token only a lone end-to-end bound can be met, by the time of completion; with a
    /// single token there is no inter-token latency to miss.
    #[must_use]
    pub fn met_by(&self, row: &RequestRow) -> bool {
        let within = |value: Option<f64>, bound: f64| value.is_some_and(|value| value <= bound);
        if row.output_tokens == 0 {
            let total_ms = row.end_ms.map(|end_ms| end_ms - row.arrival_ms);
            return self.ttft_ms.is_none() && self.itl_ms.is_none() && self.e2e_ms.is_some_and(|b| within(total_ms, b));
        }
        self.ttft_ms.is_none_or(|bound| within(row.ttft_ms(), bound))
            && self.e2e_ms.is_none_or(|bound| within(row.e2e_ms(), bound))
            && self.itl_ms.is_none_or(|bound| row.output_tokens < 2 || within(row.tpot_ms(), bound))
    }
}

/// What is counted request by request.
#[derive(Resource, Debug)]
pub struct RequestStatistics {
    /// The SLA, if there is one.
    pub sla: Option<SlaBounds>,
    /// By status: completed, rejected, failed, unfinished.
    completed: u64,
    rejected: u64,
    failed: u64,
    unfinished: u64,
    preemptions: u64,
    input_tokens: u64,
    output_tokens: u64,
    reused_tokens: u64,
    first_admission_reused_tokens: u64,
    duration_ms: f64,
    good: u64,
    good_output_tokens: u64,
    ttft_ms: Samples,
    ttst_ms: Samples,
    tpot_ms: Samples,
    e2e_ms: Samples,
}

impl RequestStatistics {
    /// Empty statistics; requests are held against `sla` if there is one.
    #[must_use]
    pub fn new(sla: Option<SlaBounds>) -> Self {
        let samples = || Samples::exact_up_to(EXACT_REQUESTS);
        Self {
            sla,
            completed: 0,
            rejected: 0,
            failed: 0,
            unfinished: 0,
            preemptions: 0,
            input_tokens: 0,
            output_tokens: 0,
            reused_tokens: 0,
            first_admission_reused_tokens: 0,
            duration_ms: 0.0,
            good: 0,
            good_output_tokens: 0,
            ttft_ms: samples(),
            ttst_ms: samples(),
            tpot_ms: samples(),
            e2e_ms: samples(),
        }
    }

    /// Adds a request that has ended, or that the end of the simulation caught.
    pub fn add(&mut self, row: &RequestRow) {
        self.preemptions += u64::from(row.preemptions);
        match row.status {
            RequestStatus::Completed => self.add_completed(row),
            RequestStatus::Rejected => self.rejected += 1,
            RequestStatus::Failed => self.failed += 1,
            RequestStatus::Unfinished => self.unfinished += 1,
        }
    }

    fn add_completed(&mut self, row: &RequestRow) {
        self.completed += 1;
        self.input_tokens += row.input_tokens;
        self.output_tokens += row.output_tokens;
        self.reused_tokens += row.reused_tokens().unwrap_or(0);
        self.first_admission_reused_tokens += row.first_admission_reused_tokens().unwrap_or(0);
        self.duration_ms = self.duration_ms.max(row.end_ms.unwrap_or(0.0));
        let samples = [
            (&mut self.ttft_ms, row.ttft_ms()),
            (&mut self.ttst_ms, row.ttst_ms()),
            (&mut self.tpot_ms, row.tpot_ms()),
            (&mut self.e2e_ms, row.e2e_ms()),
        ];
        for (samples, value) in samples {
            if let Some(value) = value {
                samples.add(value.max(0.0), 1);
            }
        }
        if row.sla_met == Some(true) {
            self.good += 1;
            self.good_output_tokens += row.output_tokens;
        }
    }

    /// Requests that have ended.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.completed + self.rejected + self.failed
    }

    /// The summary, as far as it can be known from requests and passes alone. Worker times are the
    /// caller's to fill in.
    #[must_use]
    pub fn summary(&self, passes: &PassStatistics) -> Summary {
        let (itl_ms, output_token_throughput_per_user) = passes.gaps_ms.distribution_and_rates();
        let per_second = |amount: u64| amount as f64 / (self.duration_ms / 1000.0).max(1e-9);
        let of_input =
            |tokens: u64| if self.input_tokens == 0 { 0.0 } else { tokens as f64 / self.input_tokens as f64 };
        Summary {
            num_requests: self.completed + self.rejected + self.failed + self.unfinished,
            completed_requests: self.completed,
            rejected_requests: self.rejected,
            failed_requests: self.failed,
            unfinished_requests: self.unfinished,
            total_input_tokens: self.input_tokens,
            total_output_tokens: self.output_tokens,
            duration_ms: self.duration_ms,
            request_throughput_rps: per_second(self.completed),
            input_throughput_tok_s: per_second(self.input_tokens),
            output_throughput_tok_s: per_second(self.output_tokens),
            total_throughput_tok_s: per_second(self.input_tokens + self.output_tokens),
            prefix_cache_reused_ratio: Some(of_input(self.reused_tokens)),
            first_admission_prefix_cache_reused_ratio: Some(of_input(self.first_admission_reused_tokens)),
            committed_prefill_tokens: passes.prefill_tokens,
            preemptions: self.preemptions,
            ttft_ms: self.ttft_ms.distribution(),
            ttst_ms: self.ttst_ms.distribution(),
            tpot_ms: self.tpot_ms.distribution(),
            itl_ms,
            e2e_latency_ms: self.e2e_ms.distribution(),
            output_token_throughput_per_user,
            goodput: self.sla.map(|_| Goodput {
                completed_requests: self.good,
                request_throughput_rps: per_second(self.good),
                output_throughput_tok_s: per_second(self.good_output_tokens),
            }),
            ..Summary::default()
        }
    }

    /// The names of the pools whose percentiles come from a sketch, because they grew too large.
    #[must_use]
    pub fn sketched(&self, passes: &PassStatistics) -> Vec<&'static str> {
        [
            ("ttft_ms", &self.ttft_ms),
            ("ttst_ms", &self.ttst_ms),
            ("tpot_ms", &self.tpot_ms),
            ("e2e_latency_ms", &self.e2e_ms),
            ("itl_ms", &passes.gaps_ms),
            ("output_token_throughput_per_user", &passes.gaps_ms),
        ]
        .into_iter()
        .filter_map(|(name, samples)| (!samples.is_exact()).then_some(name))
        .collect()
    }
}
