//! Quiet passes: those that give every running request a token and change nothing else.

use super::PassLog;
use super::components::RankDataItem;
use crate::time::VirtualTime;
use crate::timing::{DecodeBatch, PassTiming, whole_ns_ms};

/// How many of the rank's next passes serve just the members that decode, with nobody due.
pub fn quiet_passes(data: &RankDataItem<'_, '_>) -> u64 {
    if data.batch.sglang.is_some() {
        // Its passes are cheap one by one, and memory decides at each of them.
        return 0;
    }
    let full = data.batch.members.len() as u64 >= u64::from(data.spec.max_sequences);
    let head_waits = || data.queue.head_needs.is_some_and(|needs| needs > data.room()) || data.desk.awaits_room();
    let nobody_enters = full || (data.queue.handed_over.is_empty() && (data.queue.requests.is_empty() || head_waits()));
    match data.batch.calendar.next_pass() {
        Some(due) if nobody_enters && data.batch.prefilling.is_none() && !data.desk.wants_attention() => {
            due - data.passes.number
        }
        _ => 0,
    }
}

/// The passes of one rank while they are quiet.
#[derive(Debug)]
pub struct QuietRun {
    timing: PassTiming,
    pool_tokens: f64,
    decode: DecodeBatch,
}

impl QuietRun {
    /// The quiet passes that come next.
    pub fn of(data: &RankDataItem<'_, '_>) -> Self {
        Self {
            timing: data.spec.timing,
            pool_tokens: data.spec.pool_tokens(),
            decode: DecodeBatch { requests: data.batch.decoding, context_tokens: data.batch.decoding_tokens },
        }
    }

    /// Duration of the next pass, in ms.
    #[inline]
    pub fn next_ms(&mut self) -> f64 {
        let ms = whole_ns_ms(self.timing.decode_ms(&self.decode, self.pool_tokens));
        self.decode.context_tokens += self.decode.requests;
        ms
    }

    /// Leaves the last of `passes` passes in flight, which ends at `end_ms`.
    pub fn settle(self, data: &mut RankDataItem<'_, '_>, passes: u64, end_ms: f64) {
        data.passes.number += passes - 1;
        data.passes.in_flight = true;
        data.passes.logged = true;
        data.passes.end_ms = end_ms;
        data.batch.decoding_tokens = self.decode.context_tokens;
    }
}

/// A stretch of quiet passes that was run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuietStretch {
    /// How many there were, at least one.
    pub passes: u64,
    /// When the last of them started.
    pub last_start: VirtualTime,
    /// When it ends.
    pub end: VirtualTime,
}

/// Runs up to `count` quiet passes from `at`, none starting at or after `limit`. `next_ms` gives the
/// duration of each.
#[inline]
pub fn run_quiet(at: VirtualTime, limit: VirtualTime, count: u64, mut next_ms: impl FnMut(f64) -> f64) -> QuietStretch {
    let (mut start_ms, mut end_ms) = (at.ms(), at.ms());
    let mut passes = 0;
    while passes < count {
        start_ms = end_ms;
        end_ms = next_ms(start_ms);
        passes += 1;
        if end_ms >= limit.ms() {
            break;
        }
    }
    QuietStretch { passes, last_start: VirtualTime::from_ms(start_ms), end: VirtualTime::from_ms(end_ms) }
}

/// Runs quiet passes of one rank, as [`run_quiet`].
pub fn run_quiet_rank(
    data: &mut RankDataItem<'_, '_>,
    at: VirtualTime,
    limit: VirtualTime,
    count: u64,
) -> QuietStretch {
    let mut quiet = QuietRun::of(data);
    let log: &mut PassLog = &mut data.passes.log;
    let stretch = run_quiet(at, limit, count, |start_ms| {
        let end_ms = start_ms + quiet.next_ms();
        log.push(end_ms);
        end_ms
    });
    quiet.settle(data, stretch.passes, stretch.end.ms());
    stretch
}
