//! Workloads that are made up, unit by unit, as they are needed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::{GrowingSession, Script, SourceError, Turn, Unit, UnitSource};
use crate::prefix::{PromptIdentity, SharedPrefix};

/// Seed of the draws that put sessions into prefix groups. It is not configurable, as in the
/// reference, so that the same shape always gives the same groups.
const GROUP_SEED: u64 = 0;

/// Independent requests of equal lengths; no two share a token.
#[derive(Clone, Debug)]
pub struct SyntheticRequests {
    input_tokens: u32,
    output_tokens: u32,
    count: u64,
    made: u64,
}

impl SyntheticRequests {
    /// `count` requests.
    #[must_use]
    pub const fn new(input_tokens: u32, output_tokens: u32, count: u64) -> Self {
        Self { input_tokens, output_tokens, count, made: 0 }
    }
}

impl UnitSource for SyntheticRequests {
    fn next_unit(&mut self) -> Result<Option<Unit>, SourceError> {
        if self.made == self.count {
            return Ok(None);
        }
        let turn = Turn {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            identity: PromptIdentity::unique(self.made),
            delay_ms: 0.0,
            request_id: None,
            source_line: None,
        };
        self.made += 1;
        Ok(Some(Unit { start_ms: 0.0, session_id: None, script: Script::single(turn) }))
    }

    fn has_sessions(&self) -> bool {
        false
    }
}

/// The shape of synthetic sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionShape {
    /// New input tokens of each turn.
    pub new_input_tokens: u32,
    /// Output tokens of each turn.
    pub output_tokens: u32,
    /// Turns of each session.
    pub turns: u32,
    /// Wait between turns, in ms.
    pub delay_ms: f64,
    /// Share of a first prompt's blocks that comes from its prefix group, from 0 to 1.
    pub shared_prefix_ratio: f64,
    /// Number of prefix groups.
    pub prefix_groups: u64,
    /// Tokens per KV block: prefixes are shared in whole blocks.
    pub block_size: u32,
}

impl SessionShape {
    /// Tokens of a first prompt that its group shares: blocks are rounded half up, and the last
    /// block may be a partial one.
    fn shared_tokens(&self) -> u32 {
        if self.prefix_groups == 0 {
            return 0;
        }
        let blocks = f64::from(self.new_input_tokens.div_ceil(self.block_size));
        let shared = (blocks * self.shared_prefix_ratio).round() as u64;
        (shared * u64::from(self.block_size)).min(u64::from(self.new_input_tokens)) as u32
    }
}

/// Sessions whose every prompt is the whole conversation so far plus new input.
#[derive(Clone, Debug)]
pub struct SyntheticSessions {
    shape: SessionShape,
    count: u64,
    made: u64,
    groups: Xoshiro256PlusPlus,
}

impl SyntheticSessions {
    /// `count` sessions.
    #[must_use]
    pub fn new(shape: SessionShape, count: u64) -> Self {
        Self { shape, count, made: 0, groups: Xoshiro256PlusPlus::seed_from_u64(GROUP_SEED) }
    }

    fn shared_prefix(&mut self) -> SharedPrefix {
        match self.shape.shared_tokens() {
            0 => SharedPrefix::None,
            tokens => SharedPrefix::Group { key: draw_below(&mut self.groups, self.shape.prefix_groups), tokens },
        }
    }
}

impl UnitSource for SyntheticSessions {
    fn next_unit(&mut self) -> Result<Option<Unit>, SourceError> {
        if self.made == self.count {
            return Ok(None);
        }
        let session = GrowingSession {
            turns_left: self.shape.turns,
            new_input_tokens: self.shape.new_input_tokens,
            output_tokens: self.shape.output_tokens,
            delay_ms: self.shape.delay_ms,
            shared: self.shared_prefix(),
            stream_number: self.made,
            context_tokens: 0,
        };
        self.made += 1;
        Ok(Some(Unit { start_ms: 0.0, session_id: None, script: Script::Growing(session) }))
    }

    fn has_sessions(&self) -> bool {
        self.shape.turns > 1
    }
}

/// A uniform draw from `0..bound`, by the high half of a 128-bit product. `bound` is far below
/// 2^64, so the bias is negligible.
fn draw_below(draws: &mut Xoshiro256PlusPlus, bound: u64) -> u64 {
    ((u128::from(draws.next_u64()) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> SessionShape {
        SessionShape {
            new_input_tokens: 320,
            output_tokens: 10,
            turns: 3,
            delay_ms: 250.0,
            shared_prefix_ratio: 0.5,
            prefix_groups: 4,
            block_size: 64,
        }
    }

    #[test]
    fn shared_blocks_round_half_up() {
        assert_eq!(shape().shared_tokens(), 192, "5 blocks * 0.5 = 2.5 -> 3");
        let short = SessionShape { new_input_tokens: 100, shared_prefix_ratio: 0.2, ..shape() };
        assert_eq!(short.shared_tokens(), 0);
        let all = SessionShape { new_input_tokens: 100, shared_prefix_ratio: 1.0, ..shape() };
        assert_eq!(all.shared_tokens(), 100, "the partial last block is shared too");
    }

    #[test]
    fn a_session_accumulates_what_was_said() {
        let unit = SyntheticSessions::new(shape(), 1).next_unit().ok().flatten();
        let mut script = unit.map(|unit| unit.script).unwrap_or(Script::Listed([].into()));
        let mut prompts = Vec::new();
        while let Some(turn) = script.next_turn() {
            prompts.push((turn.input_tokens, turn.identity.continued));
            script.turn_ended(turn.output_tokens);
        }
        assert_eq!(prompts, [(320, true), (650, true), (980, false)]);
    }

    #[test]
    fn sessions_spread_over_their_groups() {
        let mut sessions = SyntheticSessions::new(shape(), 400);
        let mut seen = [0; 4];
        while let Ok(Some(unit)) = sessions.next_unit() {
            if let Script::Growing(GrowingSession { shared: SharedPrefix::Group { key, .. }, .. }) = unit.script {
                seen[key as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&count| count > 60), "{seen:?}");
    }
}
