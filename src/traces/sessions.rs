//! Puts the rows of a whole trace into sessions, and sessions in order.

use std::collections::VecDeque;

use dynosim_systems::prefix::{PromptIdentity, stream};
use dynosim_systems::traffic::{DeltaSession, Script, Turn, Unit};
use fxhash::FxHashMap;

use super::StartOrder;
use super::mooncake::TraceTurn;

/// What the row of a later turn holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompts {
    /// The turn's complete prompt.
    Complete,
    /// What it adds to all that was said before.
    Delta,
}

/// The sessions of a trace that is read whole.
#[derive(Default)]
pub(super) struct SessionTable {
    sessions: Vec<RecordedSession>,
    by_name: FxHashMap<Box<str>, usize>,
}

struct RecordedSession {
    name: Option<Box<str>>,
    first_line: Option<u64>,
    start_ms: Option<f64>,
    /// The last timestamp that a row of the session gave.
    last_timestamp_ms: Option<f64>,
    turns: VecDeque<Turn>,
}

impl SessionTable {
    /// Adds the next row of the file.
    pub fn add(&mut self, row: TraceTurn) -> Result<(), String> {
        let Some(name) = row.session_id.clone() else {
            return self.open(row.conversation.clone(), row).map(drop);
        };
        match self.by_name.get(&name) {
            Some(&index) => self.sessions[index].append(row),
            None => {
                let index = self.open(Some(name.clone()), row)?;
                self.by_name.insert(name, index);
                Ok(())
            }
        }
    }

    fn open(&mut self, name: Option<Box<str>>, row: TraceTurn) -> Result<usize, String> {
        check_first_turn(&row)?;
        self.sessions.push(RecordedSession {
            name,
            first_line: row.turn.source_line,
            start_ms: row.timestamp_ms,
            last_timestamp_ms: row.timestamp_ms,
            turns: VecDeque::from([row.turn]),
        });
        Ok(self.sessions.len() - 1)
    }

    /// The units of load, in the order in which they start. The earliest recorded start becomes 0. Fails with the line
    /// of a start that is needed and missing.
    pub fn into_units(mut self, order: StartOrder, prompts: Prompts) -> Result<Vec<Unit>, Option<u64>> {
        let mut earliest_ms = 0.0;
        if order == StartOrder::Timestamps {
            if let Some(session) = self.sessions.iter().find(|session| session.start_ms.is_none()) {
                return Err(session.first_line);
            }
            let start = |session: &RecordedSession| session.start_ms.unwrap_or(0.0);
            // A stable sort: ties keep the order of first appearance.
            self.sessions.sort_by(|a, b| start(a).total_cmp(&start(b)));
            earliest_ms = self.sessions.first().map_or(0.0, start);
        }
        let units = self.sessions.into_iter().map(|session| Unit {
            start_ms: session.start_ms.unwrap_or(0.0) - earliest_ms,
            session_id: session.name,
            script: match prompts {
                Prompts::Complete => Script::Listed(session.turns),
                Prompts::Delta => growing(session.turns),
            },
        });
        Ok(units.collect())
    }
}

/// A session whose rows hold only new input.
fn growing(turns: VecDeque<Turn>) -> Script {
    let Some(first) = turns.front() else { return Script::Listed(turns) };
    // What follows the first prompt is the session's own, even where its output was recorded: a delta is not.
    let stream = stream(first.source_line.unwrap_or_default());
    let identity = PromptIdentity { stream, ..first.identity.clone() };
    Script::Delta(DeltaSession { turns, identity, context_tokens: 0 })
}

impl RecordedSession {
    fn append(&mut self, row: TraceTurn) -> Result<(), String> {
        let delay_ms = self.delay_before(&row)?;
        self.last_timestamp_ms = row.timestamp_ms.or(self.last_timestamp_ms);
        self.turns.push_back(Turn { delay_ms, ..row.turn });
        Ok(())
    }

    /// The wait before a later turn: as recorded, or the difference of timestamps, or none.
    fn delay_before(&self, row: &TraceTurn) -> Result<f64, String> {
        if let Some(delay_ms) = row.delay_ms {
            return if delay_ms < 0.0 { Err(format!("delay: {delay_ms} ms is negative")) } else { Ok(delay_ms) };
        }
        match (row.timestamp_ms, self.last_timestamp_ms) {
            (None, _) => Ok(0.0),
            (Some(_), None) => Err("timestamp: an earlier turn of this session has none to measure from; \
                                    give every turn one, or a `delay`"
                .to_owned()),
            (Some(now), Some(before)) if now < before => {
                Err(format!("timestamp: {now} is before {before}, the one of the session's turn before"))
            }
            (Some(now), Some(before)) => Ok(now - before),
        }
    }
}

/// A first turn follows nothing, so it can have no delay.
pub(super) fn check_first_turn(row: &TraceTurn) -> Result<(), String> {
    match row.delay_ms {
        Some(delay_ms) if delay_ms != 0.0 => {
            Err(format!("delay: {delay_ms} ms on the first turn of a session; only later turns follow one"))
        }
        _ => Ok(()),
    }
}
