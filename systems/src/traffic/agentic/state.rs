//! How far a play has come.

use dynosim_schemas::play_row::{PlayRow, PlayStatus};

/// How a request of a play has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeEnd {
    /// When, in ms.
    pub at_ms: f64,
    /// When the last worker that held anything of it let go, in ms.
    pub released_ms: f64,
    /// Whether it was served to its last token.
    pub completed: bool,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Tokens that it got.
    pub output_tokens: u32,
}

/// How far a play has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PlayState {
    /// The lane that plays it.
    pub lane: Option<u32>,
    /// When it started, in ms.
    pub start_ms: f64,
    /// Nodes that have not been sent.
    pub unsent: u32,
    /// Whether a node has not been served, so that those who have not been sent never will.
    pub has_failed: bool,
    /// When nothing of it was left anywhere, in ms.
    pub quiescent_ms: f64,
    first_dispatch_ms: Option<f64>,
    end_ms: Option<f64>,
    running: u32,
    completed: u32,
    unserved: u32,
    input_tokens: u64,
    output_tokens: u64,
}

impl PlayState {
    /// A play of which no node has been sent.
    pub fn new(nodes: u32) -> Self {
        Self { unsent: nodes, ..Self::default() }
    }

    /// Notes that a node is handed to the router.
    pub fn send(&mut self, at_ms: f64) {
        self.first_dispatch_ms.get_or_insert(at_ms);
        self.unsent -= 1;
        self.running += 1;
    }

    /// Notes that a node has ended.
    pub fn end(&mut self, end: NodeEnd) {
        self.running -= 1;
        self.end_ms = Some(self.end_ms.map_or(end.at_ms, |before| before.max(end.at_ms)));
        self.quiescent_ms = self.quiescent_ms.max(end.at_ms).max(end.released_ms);
        if end.completed {
            self.completed += 1;
            self.input_tokens += u64::from(end.input_tokens);
            self.output_tokens += u64::from(end.output_tokens);
        } else {
            self.unserved += 1;
            self.has_failed = true;
        }
    }

    /// Whether nothing of it is going to happen any more.
    pub fn is_over(&self) -> bool {
        self.running == 0 && (self.has_failed || self.unsent == 0)
    }

    /// When its last request ended, in ms.
    pub fn end_ms(&self) -> f64 {
        self.end_ms.unwrap_or(self.start_ms)
    }

    /// The row of a play that is over.
    pub fn row(&self, play_index: u64, play_id: Box<str>) -> PlayRow {
        PlayRow {
            play_index,
            play_id,
            lane: self.lane,
            status: if self.has_failed { PlayStatus::Failed } else { PlayStatus::Completed },
            start_ms: self.start_ms,
            first_dispatch_ms: self.first_dispatch_ms,
            end_ms: self.end_ms,
            quiescent_ms: self.quiescent_ms,
            requests: u64::from(self.completed + self.unserved + self.running + self.unsent),
            completed_requests: u64::from(self.completed),
            unserved_requests: u64::from(self.unserved),
            skipped_requests: u64::from(self.unsent),
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
        }
    }
}
