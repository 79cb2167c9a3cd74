//! One row per request: what its user felt, and why.
//!
//! [`COLUMNS`] is the single description of the per-request table. The Parquet and JSON Lines
//! writers and the generated documentation (`docs/requests.md`) all read it.

use smallvec::SmallVec;

use crate::config::Role;
use crate::table::{BOOL, Cell, Column, FLOAT, INT, TEXT, TableRow, column, count};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStatus {
    /// Served to its last token.
    Completed,
    /// Refused before any work was done on it.
    Rejected,
    /// Started, and given up by the worker.
    Failed,
    /// Still waiting or running when the simulation was cut off.
    Unfinished,
}

impl RequestStatus {
    /// The value in the `status` column.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Unfinished => "unfinished",
        }
    }
}

/// Why a request ended as it did, where the status alone does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusReason {
    /// Rejected: the prompt leaves no room for output within `engine.context_length`.
    PromptExceedsContextLength,
    /// Rejected: the prompt needs more KV blocks than the worker's pool has.
    PromptExceedsKvPool,
    /// Rejected: prompt and output need more KV than the worker's pool has.
    OutputExceedsKvPool,
    /// Failed: no decode worker can hold the prompt.
    PromptExceedsDecodeKvPool,
    /// Failed: prompt and generated tokens together outgrew the worker's KV pool.
    OutgrewKvPool,
    /// Completed with fewer tokens than asked for: `engine.context_length` was reached.
    StoppedAtContextLength,
    /// Completed with fewer tokens than asked for: the worker's KV pool was full.
    StoppedAtKvPool,
    /// Completed without a token, because none was asked for.
    NoOutputRequested,
    /// Unfinished: `traffic.stop.max_virtual_time_seconds` came first.
    VirtualTimeLimit,
}

impl StatusReason {
    /// The value in the `reason` column.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PromptExceedsContextLength => "prompt_exceeds_context_length",
            Self::PromptExceedsKvPool => "prompt_exceeds_kv_pool",
            Self::PromptExceedsDecodeKvPool => "prompt_exceeds_decode_kv_pool",
            Self::OutgrewKvPool => "outgrew_kv_pool",
            Self::StoppedAtContextLength => "stopped_at_context_length",
            Self::OutputExceedsKvPool => "output_exceeds_kv_pool",
            Self::StoppedAtKvPool => "stopped_at_kv_pool",
            Self::NoOutputRequested => "no_output_requested",
            Self::VirtualTimeLimit => "virtual_time_limit",
        }
    }
}

/// One admission of a request to a worker's running batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// What the worker is for.
    pub role: Role,
    /// Start of the pass that admitted it, in ms of virtual time.
    pub at_ms: f64,
    /// The worker's id.
    pub worker_id: u32,
    /// Tokens whose KV was found in the worker's prefix cache.
    pub reused_tokens: u64,
}

/// Where a router sent a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    /// The worker's id within its pool.
    pub worker_id: u32,
    /// The data-parallel attention rank of the worker.
    pub rank: u32,
    /// When the router sent it there, in ms of virtual time.
    pub placed_ms: f64,
    /// Leading blocks of the prompt that the router believed to be cached there.
    pub overlap_blocks: u32,
}

/// How a request went from a prefill to a decode worker; times in ms of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HandoffRow {
    /// Where its prompt was computed.
    pub prefill: Option<Placement>,
    /// When the prompt was computed.
    pub source_held_ms: Option<f64>,
    /// When the decode worker had set room aside.
    pub destination_reserved_ms: Option<f64>,
    /// When the KV had arrived at the decode worker.
    pub destination_activated_ms: Option<f64>,
    /// When the prefill worker let go of the KV.
    pub source_released_ms: Option<f64>,
    /// Prompt tokens that the decode worker had cached.
    pub destination_reused_tokens: Option<u64>,
}

/// Everything that is known about one request when it leaves the simulation.
///
/// Times are milliseconds of virtual time, measured from the start of the simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRow {
    /// Order of arrival, from 0.
    pub request_index: u64,
    /// The trace's own name for the request.
    pub request_id: Option<Box<str>>,
    /// The trace's own name for the session.
    pub session_id: Option<Box<str>>,
    /// Order of the session in its source, from 0. An independent request is a session of one turn.
    pub session_index: u64,
    /// Turn within the session, from 0.
    pub turn_index: u32,
    /// The play that it belongs to, in the order of plays, from 0.
    pub play_index: Option<u32>,
    /// Line of the trace file that the request comes from, from 1.
    pub source_line: Option<u64>,
    /// Where its tokens were generated.
    pub placement: Option<Placement>,
    /// How it got there, where prompts are computed somewhere else.
    pub handoff: Option<Box<HandoffRow>>,
    /// How it ended.
    pub status: RequestStatus,
    /// Why it ended so.
    pub reason: Option<StatusReason>,
    /// When it reached the deployment.
    pub arrival_ms: f64,
    /// When its first token reached the user.
    pub first_token_ms: Option<f64>,
    /// When its second token reached the user.
    pub second_token_ms: Option<f64>,
    /// When its last token reached the user.
    pub last_token_ms: Option<f64>,
    /// When it ended, in whatever way.
    pub end_ms: Option<f64>,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Output tokens asked for.
    pub requested_output_tokens: u64,
    /// Output tokens produced.
    pub output_tokens: u64,
    /// Times it lost its KV blocks to another request and had to start over.
    pub preemptions: u32,
    /// Whether the workload says what its prompts share. Where it does not, nothing is known of reuse.
    pub knows_prefixes: bool,
    /// Every admission, in order of time.
    pub admissions: SmallVec<[Admission; 1]>,
    /// Whether it met every bound of `evaluation.sla`; `None` without an SLA or unless completed.
    pub sla_met: Option<bool>,
}

impl RequestRow {
    /// Time from arrival to the start of the pass that first admitted it, in ms.
    #[must_use]
    pub fn queue_ms(&self) -> Option<f64> {
        self.admissions.first().map(|a| a.at_ms - self.arrival_ms)
    }

    /// Time to first token, in ms.
    #[must_use]
    pub fn ttft_ms(&self) -> Option<f64> {
        self.first_token_ms.map(|t| t - self.arrival_ms)
    }

    /// Time from the first to the second token, in ms.
    #[must_use]
    pub fn ttst_ms(&self) -> Option<f64> {
        Some(self.second_token_ms? - self.first_token_ms?)
    }

    /// Mean time per output token after the first, in ms; needs two tokens.
    #[must_use]
    pub fn tpot_ms(&self) -> Option<f64> {
        (self.output_tokens >= 2)
            .then(|| Some((self.last_token_ms? - self.first_token_ms?) / (self.output_tokens - 1) as f64))
            .flatten()
    }

    /// End-to-end latency, from arrival to the last token, in ms.
    #[must_use]
    pub fn e2e_ms(&self) -> Option<f64> {
        self.last_token_ms.map(|t| t - self.arrival_ms)
    }

    /// Tokens found in the prefix cache at the first admission.
    #[must_use]
    pub fn first_admission_reused_tokens(&self) -> Option<u64> {
        self.admissions.first().map(|a| a.reused_tokens).filter(|_| self.knows_prefixes)
    }

    /// The most tokens that any admission found in the prefix cache, on the workers that compute
    /// prompts.
    #[must_use]
    pub fn reused_tokens(&self) -> Option<u64> {
        let of_prompts = self.admissions.iter().filter(|a| a.role != Role::Decode).map(|a| a.reused_tokens);
        of_prompts.max().filter(|_| self.knows_prefixes)
    }

    /// Time from arrival until the router sent it to where its prompt is computed, in ms.
    #[must_use]
    pub fn router_queue_ms(&self) -> Option<f64> {
        self.entry_placement().map(|placement| placement.placed_ms - self.arrival_ms)
    }

    /// Where its prompt was computed.
    #[must_use]
    pub fn entry_placement(&self) -> Option<Placement> {
        match &self.handoff {
            Some(handoff) => handoff.prefill,
            None => self.placement,
        }
    }

    /// Prompt tokens that the decode worker had cached.
    fn destination_reused_tokens(&self) -> Option<u64> {
        self.handoff_value(|h| h.destination_reused_tokens).filter(|_| self.knows_prefixes)
    }

    fn handoff_value<T>(&self, of: impl Fn(&HandoffRow) -> Option<T>) -> Option<T> {
        self.handoff.as_deref().and_then(of)
    }

    /// Start of the pass that first admitted it to a worker of that role, in ms.
    fn admitted_to_ms(&self, role: Role) -> Option<f64> {
        self.admissions.iter().find(|a| a.role == role).map(|a| a.at_ms)
    }
}

/// The columns of `requests.parquet`, in order.
#[rustfmt::skip]
pub const COLUMNS: &[Column<RequestRow>] = &[
    column("request_index", INT, false, "-", "Order of arrival, from 0. Rows are sorted by it.", |r| count(Some(r.request_index))),
    column("request_id", TEXT, true, "-", "The trace's `request_id`; null when the source gives none.", |r| Cell::Text(r.request_id.as_deref())),
    column("session_id", TEXT, true, "-", "The trace's `session_id`; null when the source gives none.", |r| Cell::Text(r.session_id.as_deref())),
    column("session_index", INT, false, "-", "Order of the session in its source, from 0. An independent request is a session of one turn.", |r| count(Some(r.session_index))),
    column("turn_index", INT, false, "-", "Turn within the session, from 0.", |r| count(Some(r.turn_index.into()))),
    column("play_index", INT, true, "-", "The play that it belongs to, as in `plays.parquet`; null unless the workload is one of agents.", |r| count(r.play_index.map(Into::into))),
    column("source_line", INT, true, "-", "Line of the trace file that the request comes from, from 1; null for synthetic traffic.", |r| count(r.source_line)),
    column("worker_id", INT, true, "-", "The worker that generated its tokens (the decode worker, if disaggregated), by its number among its kind, from 0; null if the request never got that far.", |r| count(r.placement.map(|p| p.worker_id.into()))),
    column("rank", INT, true, "-", "The worker's data-parallel attention rank that served it, from 0; null likewise.", |r| count(r.placement.map(|p| p.rank.into()))),
    column("prefill_worker_id", INT, true, "-", "The prefill worker that computed its prompt, from 0; null unless disaggregated.", |r| count(r.handoff_value(|h| h.prefill).map(|p| p.worker_id.into()))),
    column("prefill_rank", INT, true, "-", "The rank of the prefill worker, from 0; null unless disaggregated.", |r| count(r.handoff_value(|h| h.prefill).map(|p| p.rank.into()))),
    column("router_queue_ms", FLOAT, true, "ms", "From arrival until the router sent it to where its prompt is computed; null if it never did.", |r| Cell::Float(r.router_queue_ms())),
    column("router_overlap_blocks", INT, true, "blocks", "Leading blocks of the prompt that the router believed to be cached where it sent the prompt; 0 under `round_robin`, which does not look.", |r| count(r.entry_placement().map(|p| p.overlap_blocks.into()))),
    column("status", TEXT, false, "-", "`completed`, `rejected`, `failed` or `unfinished`.", |r| Cell::Text(Some(r.status.as_str()))),
    column("reason", TEXT, true, "-", "Why the request ended as it did, where the status alone does not say (see the list of reasons).", |r| Cell::Text(r.reason.map(StatusReason::as_str))),
    column("arrival_ms", FLOAT, false, "ms", "Virtual time at which the request reached the deployment.", |r| Cell::Float(Some(r.arrival_ms))),
    column("first_admit_ms", FLOAT, true, "ms", "Virtual start of the pass that first admitted it; null if it never ran.", |r| Cell::Float(r.admissions.first().map(|a| a.at_ms))),
    column("first_token_ms", FLOAT, true, "ms", "Virtual time of the first output token; null if there was none.", |r| Cell::Float(r.first_token_ms)),
    column("second_token_ms", FLOAT, true, "ms", "Virtual time of the second output token; null with fewer than two.", |r| Cell::Float(r.second_token_ms)),
    column("last_token_ms", FLOAT, true, "ms", "Virtual time of the last output token; null if there was none.", |r| Cell::Float(r.last_token_ms)),
    column("end_ms", FLOAT, true, "ms", "Virtual time at which it was completed, rejected or failed; null if unfinished.", |r| Cell::Float(r.end_ms)),
    column("queue_ms", FLOAT, true, "ms", "From arrival to the first admission; null if it never ran.", |r| Cell::Float(r.queue_ms())),
    column("ttft_ms", FLOAT, true, "ms", "Time to first token: `first_token_ms - arrival_ms`; null if there was no token.", |r| Cell::Float(r.ttft_ms())),
    column("ttst_ms", FLOAT, true, "ms", "Time from the first to the second token; null with fewer than two.", |r| Cell::Float(r.ttst_ms())),
    column("tpot_ms", FLOAT, true, "ms", "Time per output token after the first: `(last_token_ms - first_token_ms) / (output_tokens - 1)`; the request's mean inter-token latency. Null with fewer than two tokens.", |r| Cell::Float(r.tpot_ms())),
    column("e2e_ms", FLOAT, true, "ms", "End-to-end latency: `last_token_ms - arrival_ms`; null if there was no token.", |r| Cell::Float(r.e2e_ms())),
    column("prefill_admit_ms", FLOAT, true, "ms", "Virtual start of the pass that admitted it on its prefill worker; null unless disaggregated.", |r| Cell::Float(r.admitted_to_ms(Role::Prefill))),
    column("source_held_ms", FLOAT, true, "ms", "Virtual time at which its prompt was computed and its KV waited on the prefill worker; null unless disaggregated.", |r| Cell::Float(r.handoff_value(|h| h.source_held_ms))),
    column("destination_reserved_ms", FLOAT, true, "ms", "Virtual time at which the decode worker had set room aside; null unless disaggregated.", |r| Cell::Float(r.handoff_value(|h| h.destination_reserved_ms))),
    column("destination_activated_ms", FLOAT, true, "ms", "Virtual time at which its KV was on the decode worker, ready to run; null unless disaggregated.", |r| Cell::Float(r.handoff_value(|h| h.destination_activated_ms))),
    column("source_released_ms", FLOAT, true, "ms", "Virtual time at which the prefill worker let go of its KV; null unless disaggregated.", |r| Cell::Float(r.handoff_value(|h| h.source_released_ms))),
    column("decode_admit_ms", FLOAT, true, "ms", "Virtual start of the pass that first admitted it on its decode worker; null unless disaggregated.", |r| Cell::Float(r.admitted_to_ms(Role::Decode))),
    column("decode_reused_tokens", INT, true, "tokens", "Prompt tokens that the decode worker had cached, so that it needed no room for them; null unless disaggregated, or where the trace does not say what prompts share.", |r| count(r.destination_reused_tokens())),
    column("input_tokens", INT, false, "tokens", "Prompt length.", |r| count(Some(r.input_tokens))),
    column("requested_output_tokens", INT, false, "tokens", "Output length that the workload asked for.", |r| count(Some(r.requested_output_tokens))),
    column("output_tokens", INT, false, "tokens", "Output tokens produced.", |r| count(Some(r.output_tokens))),
    column("first_admission_reused_tokens", INT, true, "tokens", "Tokens found in the prefix cache at the first admission; null if it never ran, or where the trace does not say what prompts share.", |r| count(r.first_admission_reused_tokens())),
    column("reused_tokens", INT, true, "tokens", "The most tokens that any admission found in the prefix cache; null likewise. After a preemption this can be more than `input_tokens`, since generated tokens are found again.", |r| count(r.reused_tokens())),
    column("admissions", INT, false, "-", "Times it entered a running batch; more than one after a preemption.", |r| count(Some(r.admissions.len() as u64))),
    column("preemptions", INT, false, "-", "Times it lost its KV blocks to another request and had to start over.", |r| count(Some(r.preemptions.into()))),
    column("sla_met", BOOL, true, "-", "Whether it met every bound of `evaluation.sla`; null without an SLA, or unless completed.", |r| Cell::Bool(r.sla_met)),
];

impl TableRow for RequestRow {
    const NAME: &'static str = "request";
    const COLUMNS: &'static [Column<Self>] = COLUMNS;
    const SORTED_BY: &'static str = "request_index";
    const UNIQUE_TEXT: &'static [&'static str] = &["request_id"];
}

/// Every value of the `reason` column, with its meaning, for the documentation.
#[rustfmt::skip]
pub const REASONS: &[(StatusReason, RequestStatus, &str)] = &[
    (StatusReason::PromptExceedsContextLength, RequestStatus::Rejected, "The prompt leaves no room for output within `engine.context_length`."),
    (StatusReason::PromptExceedsKvPool, RequestStatus::Rejected, "The prompt needs more KV blocks than the worker's pool has."),
    (StatusReason::OutputExceedsKvPool, RequestStatus::Rejected, "Prompt and output (4,096 tokens of it at the most) need more KV than the worker's pool has, so SGLang would never start it."),
    (StatusReason::PromptExceedsDecodeKvPool, RequestStatus::Failed, "The prompt was computed, but needs more KV blocks than a decode worker's pool has."),
    (StatusReason::OutgrewKvPool, RequestStatus::Failed, "Prompt and generated tokens together need more KV blocks than the worker's pool has."),
    (StatusReason::StoppedAtContextLength, RequestStatus::Completed, "Ended early: prompt and output reached `engine.context_length`."),
    (StatusReason::StoppedAtKvPool, RequestStatus::Completed, "Ended early: TensorRT-LLM cuts the output so that prompt and output fit into the worker's KV pool."),
    (StatusReason::NoOutputRequested, RequestStatus::Completed, "Prefill only: the workload asked for no output token, so there is no TTFT."),
    (StatusReason::VirtualTimeLimit, RequestStatus::Unfinished, "Still waiting or running at `traffic.stop.max_virtual_time_seconds`."),
];
