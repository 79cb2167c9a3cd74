//! One row per request: what its user felt, and why.
//!
//! [`COLUMNS`] is the single description of the per-request table. The Parquet and JSON Lines
//! writers and the generated documentation (`docs/requests.md`) all read it.

use smallvec::SmallVec;

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
    /// Failed: prompt and generated tokens together outgrew the worker's KV pool.
    OutgrewKvPool,
    /// Completed with fewer tokens than asked for: `engine.context_length` was reached.
    StoppedAtContextLength,
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
            Self::OutgrewKvPool => "outgrew_kv_pool",
            Self::StoppedAtContextLength => "stopped_at_context_length",
            Self::NoOutputRequested => "no_output_requested",
            Self::VirtualTimeLimit => "virtual_time_limit",
        }
    }
}

/// One admission of a request to a worker's running batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// Start of the pass that admitted it, in ms of virtual time.
    pub at_ms: f64,
    /// The worker's id.
    pub worker_id: u32,
    /// Tokens whose KV was found in the worker's prefix cache.
    pub reused_tokens: u64,
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
    /// Line of the trace file that the request comes from, from 1.
    pub source_line: Option<u64>,
    /// The worker that served it.
    pub worker_id: Option<u32>,
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
        self.admissions.first().map(|a| a.reused_tokens)
    }

    /// The most tokens that any admission found in the prefix cache.
    #[must_use]
    pub fn reused_tokens(&self) -> Option<u64> {
        self.admissions.iter().map(|a| a.reused_tokens).max()
    }
}

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// A count or an index.
    Int(Option<i64>),
    /// A time or a rate.
    Float(Option<f64>),
    /// A name.
    Text(Option<&'a str>),
    /// A yes or no.
    Bool(Option<bool>),
}

/// A column's type, as pandas and DuckDB see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// 64-bit signed integer.
    Int,
    /// 64-bit float.
    Float,
    /// UTF-8 text.
    Text,
    /// Boolean.
    Bool,
}

/// One column of the per-request table.
pub struct Column {
    /// Its name; the unit comes last.
    pub name: &'static str,
    /// Its type.
    pub kind: ColumnKind,
    /// Whether it can be null.
    pub nullable: bool,
    /// Its unit, or `-`.
    pub unit: &'static str,
    /// What it means, and when it is null.
    pub meaning: &'static str,
    /// Reads the value from a row.
    pub read: fn(&RequestRow) -> Cell<'_>,
}

/// Shorthand for the table below: `nullable` is the only thing that a kind does not imply.
const fn column(
    name: &'static str,
    kind: ColumnKind,
    nullable: bool,
    unit: &'static str,
    meaning: &'static str,
    read: fn(&RequestRow) -> Cell<'_>,
) -> Column {
    Column { name, kind, nullable, unit, meaning, read }
}

const INT: ColumnKind = ColumnKind::Int;
const FLOAT: ColumnKind = ColumnKind::Float;
const TEXT: ColumnKind = ColumnKind::Text;
const BOOL: ColumnKind = ColumnKind::Bool;

fn count(value: Option<u64>) -> Cell<'static> {
    Cell::Int(value.map(|v| v as i64))
}

/// The columns of `requests.parquet`, in order.
#[rustfmt::skip]
pub const COLUMNS: &[Column] = &[
    column("request_index", INT, false, "-", "Order of arrival, from 0. Rows are sorted by it.", |r| count(Some(r.request_index))),
    column("request_id", TEXT, true, "-", "The trace's `request_id`; null when the source gives none.", |r| Cell::Text(r.request_id.as_deref())),
    column("session_id", TEXT, true, "-", "The trace's `session_id`; null when the source gives none.", |r| Cell::Text(r.session_id.as_deref())),
    column("session_index", INT, false, "-", "Order of the session in its source, from 0. An independent request is a session of one turn.", |r| count(Some(r.session_index))),
    column("turn_index", INT, false, "-", "Turn within the session, from 0.", |r| count(Some(r.turn_index.into()))),
    column("source_line", INT, true, "-", "Line of the trace file that the request comes from, from 1; null for synthetic traffic.", |r| count(r.source_line)),
    column("worker_id", INT, true, "-", "The worker that the router chose, from 0; null if the request was never placed.", |r| count(r.worker_id.map(u64::from))),
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
    column("input_tokens", INT, false, "tokens", "Prompt length.", |r| count(Some(r.input_tokens))),
    column("requested_output_tokens", INT, false, "tokens", "Output length that the workload asked for.", |r| count(Some(r.requested_output_tokens))),
    column("output_tokens", INT, false, "tokens", "Output tokens produced.", |r| count(Some(r.output_tokens))),
    column("first_admission_reused_tokens", INT, true, "tokens", "Tokens found in the prefix cache at the first admission; null if it never ran.", |r| count(r.first_admission_reused_tokens())),
    column("reused_tokens", INT, true, "tokens", "The most tokens that any admission found in the prefix cache; null if it never ran. After a preemption this can be more than `input_tokens`, since generated tokens are found again.", |r| count(r.reused_tokens())),
    column("admissions", INT, false, "-", "Times it entered a running batch; more than one after a preemption.", |r| count(Some(r.admissions.len() as u64))),
    column("preemptions", INT, false, "-", "Times it lost its KV blocks to another request and had to start over.", |r| count(Some(r.preemptions.into()))),
    column("sla_met", BOOL, true, "-", "Whether it met every bound of `evaluation.sla`; null without an SLA, or unless completed.", |r| Cell::Bool(r.sla_met)),
];

/// Every value of the `reason` column, with its meaning, for the documentation.
#[rustfmt::skip]
pub const REASONS: &[(StatusReason, RequestStatus, &str)] = &[
    (StatusReason::PromptExceedsContextLength, RequestStatus::Rejected, "The prompt leaves no room for output within `engine.context_length`."),
    (StatusReason::PromptExceedsKvPool, RequestStatus::Rejected, "The prompt needs more KV blocks than the worker's pool has."),
    (StatusReason::OutgrewKvPool, RequestStatus::Failed, "Prompt and generated tokens together need more KV blocks than the worker's pool has."),
    (StatusReason::StoppedAtContextLength, RequestStatus::Completed, "Ended early: prompt and output reached `engine.context_length`."),
    (StatusReason::NoOutputRequested, RequestStatus::Completed, "Prefill only: the workload asked for no output token, so there is no TTFT."),
    (StatusReason::VirtualTimeLimit, RequestStatus::Unfinished, "Still waiting or running at `traffic.stop.max_virtual_time_seconds`."),
];
