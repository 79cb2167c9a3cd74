//! What a target has to do: its active requests and the prompt tokens still to be computed.

use std::collections::VecDeque;

/// The load of one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TargetLoad {
    /// Active requests.
    pub(super) requests: u32,
    /// Distinct prompt blocks that they hold.
    pub(super) blocks: u64,
    /// Prompt tokens of those whose prefill has not ended.
    pub(super) prefill: PrefillLoad,
}

/// A request whose prefill has not ended.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PrefillEntry {
    /// Number of the placement; rises from entry to entry.
    placement: u64,
    tokens: u32,
    /// How long its prefill should take, in ms; `None` if there is no estimate.
    expected_ms: Option<f64>,
}

/// The running prefills of a target, in order of placement.
///
/// The oldest is the *anchor*: the one that is taken to be running, since it became the oldest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PrefillLoad {
    entries: VecDeque<PrefillEntry>,
    /// Sum of the entries' tokens.
    tokens: u64,
    /// Entries without an estimate.
    unmodelled: usize,
    anchor_since_ms: f64,
}

impl PrefillLoad {
    /// Adds the prefill of `tokens` new tokens that placement number `placement` starts.
    pub(super) fn start(&mut self, placement: u64, tokens: u32, expected_ms: Option<f64>, now_ms: f64) {
        if self.entries.is_empty() {
            self.anchor_since_ms = now_ms;
        }
        self.tokens += u64::from(tokens);
        self.unmodelled += usize::from(expected_ms.is_none());
        self.entries.push_back(PrefillEntry { placement, tokens, expected_ms });
    }

    /// Drops the prefill of a placement, if it is there.
    pub(super) fn end(&mut self, placement: u64, now_ms: f64) {
        let Ok(place) = self.entries.binary_search_by_key(&placement, |entry| entry.placement) else { return };
        let Some(entry) = self.entries.remove(place) else { return };
        self.tokens -= u64::from(entry.tokens);
        self.unmodelled -= usize::from(entry.expected_ms.is_none());
        if place == 0 {
            self.anchor_since_ms = now_ms;
        } else if let Some(expected_ms) = entry.expected_ms {
            // The time that went into this one did not go into the anchor.
            self.anchor_since_ms = now_ms.min(self.anchor_since_ms + expected_ms);
        }
    }

    /// Tokens that are still to be computed, by estimate, where there is one.
    ///
    /// With estimates for all entries the load melts at the anchor's rate, beyond the anchor's own
    /// tokens if need be: `max(0, sum - floor(anchor_tokens * elapsed / expected))`. With an entry
    /// of unknown duration only the anchor melts: to `ceil(tokens * clamp(1 - elapsed / expected, 0, 1))`.
    #[inline]
    pub(super) fn tokens_at(&self, now_ms: f64) -> u64 {
        let Some(&PrefillEntry { tokens, expected_ms: Some(expected_ms), .. }) = self.entries.front() else {
            return self.tokens;
        };
        let elapsed_ms = now_ms - self.anchor_since_ms;
        if expected_ms <= 0.0 {
            return self.tokens - u64::from(tokens);
        }
        if self.unmodelled == 0 {
            let melted = (f64::from(tokens) * elapsed_ms / expected_ms).floor();
            return self.tokens.saturating_sub(melted as u64);
        }
        let left = (f64::from(tokens) * (1.0 - elapsed_ms / expected_ms).clamp(0.0, 1.0)).ceil();
        self.tokens - u64::from(tokens) + left as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_modelled_load_melts_at_the_rate_of_its_oldest_entry() {
        let mut load = PrefillLoad::default();
        load.start(0, 4000, Some(200.0), 0.0);
        load.start(1, 2000, Some(100.0), 0.0);
        let tokens = [0.0, 100.0, 250.0, 300.0, 999.0].map(|now_ms| load.tokens_at(now_ms));
        assert_eq!(tokens, [6000, 4000, 1000, 0, 0]);
    }

    #[test]
    fn the_next_entry_becomes_the_anchor_when_the_oldest_ends() {
        let mut load = PrefillLoad::default();
        load.start(0, 4000, Some(200.0), 0.0);
        load.start(1, 2000, Some(100.0), 0.0);
        load.end(0, 250.0);
        assert_eq!([250.0, 300.0, 350.0].map(|now_ms| load.tokens_at(now_ms)), [2000, 1000, 0]);
        load.end(1, 400.0);
        assert_eq!(load.tokens_at(400.0), 0);
    }

    #[test]
    fn the_time_of_a_younger_entry_is_given_back_to_the_anchor() {
        let mut load = PrefillLoad::default();
        load.start(0, 4000, Some(200.0), 0.0);
        load.start(1, 2000, Some(50.0), 0.0);
        load.start(2, 1000, Some(500.0), 0.0);
        load.end(1, 100.0);
        assert_eq!(load.tokens_at(100.0), 5000 - 1000, "the anchor ran from 50 to 100");
        load.end(2, 150.0);
        assert_eq!(load.tokens_at(150.0), 4000, "not before it could have started");
    }

    #[test]
    fn beside_an_unknown_duration_only_the_anchor_melts() {
        let mut load = PrefillLoad::default();
        load.start(0, 1001, Some(100.0), 0.0);
        load.start(1, 300, None, 0.0);
        assert_eq!([0.0, 50.0, 100.0, 200.0].map(|now_ms| load.tokens_at(now_ms)), [1301, 801, 300, 300]);
        load.end(0, 200.0);
        assert_eq!(load.tokens_at(1e9), 300);
    }

    #[test]
    fn a_prefill_that_takes_no_time_is_no_load_as_anchor() {
        let mut load = PrefillLoad::default();
        load.start(0, 700, Some(0.0), 5.0);
        load.start(1, 300, Some(10.0), 5.0);
        assert_eq!(load.tokens_at(5.0), 300);
        load.end(7, 5.0);
        assert_eq!(load.tokens_at(5.0), 300, "an unknown placement changes nothing");
    }
}
