//! Rows and outputs for the unit tests of this folder.

use std::io::{self, Write};
use std::path::Path;

use dynosim_schemas::config::Role;
use dynosim_schemas::request_row::{Admission, HandoffRow, Placement, RequestRow, RequestStatus, StatusReason};
use smallvec::smallvec;

use super::row_sink::RowFile;

/// A completed request in which every column has a value.
pub(super) fn full_row(index: u64) -> RequestRow {
    let arrival_ms = index as f64 * 0.25;
    let first = Admission { role: Role::Prefill, at_ms: arrival_ms + 1.5, worker_id: 3, reused_tokens: 64 };
    let again = Admission { role: Role::Decode, at_ms: arrival_ms + 3.0, worker_id: 5, reused_tokens: 128 };
    let placement = |worker_id| Placement { worker_id, rank: 1, placed_ms: arrival_ms + 0.5, overlap_blocks: 2 };
    let handoff = HandoffRow {
        prefill: Some(placement(3)),
        source_held_ms: Some(arrival_ms + 2.0),
        destination_reserved_ms: Some(arrival_ms + 2.25),
        destination_activated_ms: Some(arrival_ms + 2.5),
        source_released_ms: Some(arrival_ms + 2.75),
        destination_reused_tokens: Some(64),
    };
    RequestRow {
        request_index: index,
        request_id: Some(format!("request-{index}").into()),
        session_id: Some(format!("sitzung-{}-ü", index / 4).into()),
        session_index: index / 4,
        turn_index: (index % 4) as u32,
        play_index: Some((index % 3) as u32),
        source_line: Some(index + 1),
        placement: Some(placement(5)),
        handoff: Some(Box::new(handoff)),
        status: RequestStatus::Completed,
        reason: Some(StatusReason::StoppedAtContextLength),
        arrival_ms,
        first_token_ms: Some(arrival_ms + 10.5),
        second_token_ms: Some(arrival_ms + 12.0),
        last_token_ms: Some(arrival_ms + 40.5),
        end_ms: Some(arrival_ms + 40.5),
        input_tokens: 1000 + index % 7,
        requested_output_tokens: 40,
        output_tokens: 31,
        preemptions: 1,
        knows_prefixes: true,
        admissions: smallvec![first, again],
        sla_met: Some(index.is_multiple_of(2)),
    }
}

/// A rejected request, in which everything that can be null is.
pub(super) fn empty_row(index: u64) -> RequestRow {
    RequestRow {
        request_index: index,
        request_id: None,
        session_id: None,
        session_index: index,
        turn_index: 0,
        play_index: None,
        source_line: None,
        placement: None,
        handoff: None,
        status: RequestStatus::Rejected,
        reason: None,
        arrival_ms: 7.0,
        first_token_ms: None,
        second_token_ms: None,
        last_token_ms: None,
        end_ms: None,
        input_tokens: 1,
        requested_output_tokens: 2,
        output_tokens: 0,
        preemptions: 0,
        knows_prefixes: true,
        admissions: smallvec![],
        sla_met: None,
    }
}

/// Both kinds by turns, irregularly enough to mix them within every batch.
pub(super) fn mixed_row(index: u64) -> RequestRow {
    if index.is_multiple_of(3) { empty_row(index) } else { full_row(index) }
}

/// An output in memory that is full after `room` bytes.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) content: Vec<u8>,
    pub(super) room: usize,
}

impl Disk {
    pub(super) fn new(room: usize) -> Self {
        Self { content: Vec::new(), room }
    }

    pub(super) fn unlimited() -> Self {
        Self::new(usize::MAX)
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room - self.content.len());
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.content.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl RowFile for Disk {
    fn path(&self) -> &Path {
        Path::new("out/requests.parquet")
    }
}
