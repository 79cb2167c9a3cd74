//! The log of a worker's passes: where token times and inter-token gaps are looked up.

use super::TokenRun;

/// A shorter log is not worth a search for the oldest living request.
const MIN_CUT_LENGTH: usize = 4096;

/// End times of consecutive passes, and how many inter-token gaps each pass closes.
///
/// A request that gets a token from each pass of a run closes one gap with every pass but the
/// first. So a finished run adds one to a *range* of passes, which costs two writes: the log keeps
/// the differences between neighbouring passes' counts.
#[derive(Clone, Debug, Default)]
pub struct PassLog {
    /// Number of the pass that `ends_ms` starts with.
    first: u64,
    ends_ms: Vec<f64>,
    /// Change of the count at each pass, as far as there are changes; the next pass may have one already.
    gap_count_changes: Vec<i32>,
    /// End of the pass before `first`, in ms, and the count it carries over.
    previous_end_ms: f64,
    carried: i64,
    /// Length after the last cut.
    length_after_cut: usize,
}

impl PassLog {
    /// Appends the end of the next pass, in ms.
    #[inline]
    pub fn push(&mut self, end_ms: f64) {
        self.ends_ms.push(end_ms);
    }

    /// Whether the log has grown enough since the last cut for another one to pay.
    #[must_use]
    pub fn wants_cut(&self) -> bool {
        self.len() >= MIN_CUT_LENGTH.max(2 * self.length_after_cut)
    }

    /// Passes in the log.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends_ms.len()
    }

    /// Whether the log is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends_ms.is_empty()
    }

    /// End of a logged pass, in ms.
    #[must_use]
    pub fn end_ms(&self, pass: u64) -> f64 {
        self.ends_ms[(pass - self.first) as usize]
    }

    /// Lets the newest pass end at another time, in ms.
    pub fn set_newest_end_ms(&mut self, end_ms: f64) {
        if let Some(newest) = self.ends_ms.last_mut() {
            *newest = end_ms;
        }
    }

    /// Counts the gaps between the tokens of a run.
    pub fn count_gaps(&mut self, run: TokenRun) {
        if run.end_pass > run.first_pass + 1 {
            self.change(run.first_pass + 1, 1);
            self.change(run.end_pass, -1);
        }
    }

    /// Forgets the passes before `pass`, giving each one's (duration in ms, gaps) to `sink`.
    pub fn cut_before(&mut self, pass: u64, mut sink: impl FnMut(f64, u64)) {
        let count = usize::try_from(pass.saturating_sub(self.first)).map_or(self.len(), |count| count.min(self.len()));
        if self.gap_count_changes.len() < count {
            self.gap_count_changes.resize(count, 0);
        }
        for (end_ms, change) in self.ends_ms.drain(..count).zip(self.gap_count_changes.drain(..count)) {
            self.carried += i64::from(change);
            debug_assert!(self.carried >= 0);
            if self.carried > 0 {
                sink(end_ms - self.previous_end_ms, self.carried as u64);
            }
            self.previous_end_ms = end_ms;
        }
        self.first += count as u64;
        self.length_after_cut = self.len();
    }

    fn change(&mut self, pass: u64, by: i32) {
        let index = (pass - self.first) as usize;
        debug_assert!(index <= self.len(), "a token comes from a pass that has started, or from the next");
        if index >= self.gap_count_changes.len() {
            self.gap_count_changes.resize(index + 1, 0);
        }
        self.gap_count_changes[index] += by;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_for_each_pass_of_a_run_but_its_first() {
        let mut log = PassLog::default();
        for end_ms in [10.0, 11.0, 13.0, 16.0] {
            log.push(end_ms);
        }
        let run = |first_pass, end_pass| TokenRun { lead_ms: None, first_pass, end_pass };
        log.count_gaps(run(0, 4));
        log.count_gaps(run(1, 3));
        log.count_gaps(run(2, 3));
        log.push(20.0);
        let mut gaps = Vec::new();
        log.cut_before(2, |ms, count| gaps.push((ms, count)));
        assert_eq!(log.len(), 3);
        assert_eq!(log.end_ms(2), 13.0);
        log.cut_before(5, |ms, count| gaps.push((ms, count)));
        assert_eq!(gaps, [(1.0, 1), (2.0, 2), (3.0, 1)], "pass 4 closes no gap");
    }
}
