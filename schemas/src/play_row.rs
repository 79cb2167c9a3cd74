//! One row per play: how long a whole trajectory of agents took.

use crate::table::{Cell, Column, FLOAT, INT, TEXT, TableRow, column, count};

/// How a play ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayStatus {
    /// Every request was served.
    Completed,
    /// A request was not served; those that had not been sent by then never were.
    Failed,
}

impl PlayStatus {
    /// The value in the `status` column.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// Everything that is known about a play when it is over. Times are ms of virtual time.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayRow {
    /// Its place in the order of plays, from 0.
    pub play_index: u64,
    /// The trace's own name.
    pub play_id: Box<str>,
    /// The lane that played it.
    pub lane: Option<u32>,
    /// How it ended.
    pub status: PlayStatus,
    /// When its lane turned to it; without lanes 0.
    pub start_ms: f64,
    /// When its first request was handed to the router.
    pub first_dispatch_ms: Option<f64>,
    /// When its last request ended.
    pub end_ms: Option<f64>,
    /// When the workers had let go of everything of it.
    pub quiescent_ms: f64,
    /// Its requests.
    pub requests: u64,
    /// Those that were served.
    pub completed_requests: u64,
    /// Those that were sent, and rejected or given up.
    pub unserved_requests: u64,
    /// Those that were not sent, because another one was not served.
    pub skipped_requests: u64,
    /// Prompt tokens of those that were served.
    pub input_tokens: u64,
    /// Output tokens of those that were served.
    pub output_tokens: u64,
}

impl PlayRow {
    /// Time from the first dispatch to the last end, in ms.
    #[must_use]
    pub fn trajectory_latency_ms(&self) -> Option<f64> {
        Some(self.end_ms? - self.first_dispatch_ms?)
    }

    /// The same, of a play that was completed.
    #[must_use]
    pub fn completed_latency_ms(&self) -> Option<f64> {
        self.trajectory_latency_ms().filter(|_| self.status == PlayStatus::Completed)
    }
}

impl TableRow for PlayRow {
    const NAME: &'static str = "play";
    const COLUMNS: &'static [Column<Self>] = PLAY_COLUMNS;
    const SORTED_BY: &'static str = "play_index";
    const UNIQUE_TEXT: &'static [&'static str] = &["play_id"];
}

/// The columns of `plays.parquet`, in order.
#[rustfmt::skip]
pub const PLAY_COLUMNS: &[Column<PlayRow>] = &[
    column("play_index", INT, false, "-", "Its place in the order of plays, from 0, as in `requests.parquet`. Rows are sorted by it.", |r| count(Some(r.play_index))),
    column("play_id", TEXT, false, "-", "The trace's name for it.", |r| Cell::Text(Some(&r.play_id))),
    column("lane", INT, true, "-", "The lane that played it, from 0; null without `traffic.load.agentic_lanes`.", |r| count(r.lane.map(Into::into))),
    column("status", TEXT, false, "-", "`completed`: every request was served. `failed`: one was not, and those that had not been sent by then never were.", |r| Cell::Text(Some(r.status.as_str()))),
    column("start_ms", FLOAT, false, "ms", "Virtual time at which its lane turned to it; 0 without lanes.", |r| Cell::Float(Some(r.start_ms))),
    column("first_dispatch_ms", FLOAT, true, "ms", "Virtual time at which its first request was handed to the router.", |r| Cell::Float(r.first_dispatch_ms)),
    column("end_ms", FLOAT, true, "ms", "Virtual time at which the last of its requests ended.", |r| Cell::Float(r.end_ms)),
    column("quiescent_ms", FLOAT, false, "ms", "Virtual time at which the workers had let go of everything of it, KV on its way included.", |r| Cell::Float(Some(r.quiescent_ms))),
    column("trajectory_latency_ms", FLOAT, true, "ms", "Time from the first dispatch to the last end.", |r| Cell::Float(r.trajectory_latency_ms())),
    column("requests", INT, false, "-", "Its requests.", |r| count(Some(r.requests))),
    column("completed_requests", INT, false, "-", "Those that were served to their last token.", |r| count(Some(r.completed_requests))),
    column("unserved_requests", INT, false, "-", "Those that were sent, and rejected or given up.", |r| count(Some(r.unserved_requests))),
    column("skipped_requests", INT, false, "-", "Those that were never sent, because another one was not served. They have no row in `requests.parquet`.", |r| count(Some(r.skipped_requests))),
    column("input_tokens", INT, false, "tokens", "Prompt tokens of the requests that were served.", |r| count(Some(r.input_tokens))),
    column("output_tokens", INT, false, "tokens", "Output tokens of the requests that were served.", |r| count(Some(r.output_tokens))),
];
