//! Writes requests as rows of a Mooncake trace.

use std::collections::VecDeque;
use std::io::{self, Write};

use dynosim_schemas::config::traffic::DEFAULT_TRACE_BLOCK_SIZE;
use dynosim_schemas::trace::MooncakeRow;
use dynosim_systems::prefix::{PromptIdentity, SharedPrefix, mix, stream};
use dynosim_systems::traffic::{DeltaSession, GrowingSession, Load, Script, Turn, Unit};
use fxhash::FxHashMap;

use crate::traces::TraceTurn;

/// Writes rows. Blocks get new numbers, from 0 by their first appearance; equal ones get equal numbers.
pub(super) struct MooncakeFile<W> {
    out: W,
    numbers: FxHashMap<u64, u64>,
    next_number: u64,
    /// Numbers of recorded outputs, by their identity.
    outputs: FxHashMap<u64, u32>,
    /// Tokens per hash id, once it is known.
    tokens_per_id: Option<u32>,
    rows: u64,
    units: u64,
    /// Whether names of sessions are those of turns that wait for each other.
    keeps_session_names: bool,
}

impl<W: Write> MooncakeFile<W> {
    /// A file without rows. Traces with hash ids bring their `tokens_per_id`.
    pub fn new(out: W, tokens_per_id: Option<u32>, keeps_session_names: bool) -> Self {
        Self {
            out,
            numbers: FxHashMap::default(),
            next_number: 0,
            outputs: FxHashMap::default(),
            tokens_per_id,
            rows: 0,
            units: 0,
            keeps_session_names,
        }
    }

    /// Rows so far.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Tokens per hash id, to be named when the file is read.
    pub fn tokens_per_id(&self) -> u32 {
        self.tokens_per_id.unwrap_or(DEFAULT_TRACE_BLOCK_SIZE as u32)
    }

    /// Gives back what was written to.
    pub fn into_inner(self) -> W {
        self.out
    }

    /// Writes a row with the times that its trace recorded.
    pub fn recorded(&mut self, row: TraceTurn) -> io::Result<()> {
        let written = MooncakeRow {
            timestamp: row.timestamp_ms,
            delay: row.delay_ms,
            session_id: row.session_id,
            output_token_ids: row.output_token_ids,
            ..self.request(&row.turn)
        };
        self.write(&written)
    }

    /// Writes the turns of a unit, with the times at which a load would send them.
    pub fn unit(&mut self, unit: Unit, load: &mut Load) -> io::Result<()> {
        let name = self.session_name(&unit);
        let timestamp = load.next_start(unit.start_ms).map(|start| start.ms());
        self.units += 1;
        let rows = match unit.script {
            Script::Listed(turns) => self.listed(turns),
            Script::Growing(session) => self.growing(&session),
            Script::Delta(session) => self.delta(session),
        };
        for (index, (row, delay_ms)) in rows.into_iter().enumerate() {
            let is_first = index == 0;
            self.write(&MooncakeRow {
                timestamp: timestamp.filter(|_| is_first),
                delay: (!is_first).then(|| load.turn_delay_ms(delay_ms)),
                session_id: name.clone(),
                ..row
            })?;
        }
        Ok(())
    }

    /// A session needs a name to be one.
    fn session_name(&self, unit: &Unit) -> Option<Box<str>> {
        let own = unit.session_id.clone().filter(|_| self.keeps_session_names);
        match own {
            None if unit.script.turns_to_come() > 1 => Some(format!("session-{}", self.units).into()),
            own => own,
        }
    }

    fn listed(&mut self, turns: VecDeque<Turn>) -> Vec<(MooncakeRow, f64)> {
        let rows = turns.into_iter().map(|turn| {
            let output_token_ids = self.recorded_output(&turn);
            (MooncakeRow { output_token_ids, ..self.request(&turn) }, turn.delay_ms)
        });
        rows.collect()
    }

    /// The first prompt, and then what each turn adds.
    fn growing(&mut self, session: &GrowingSession) -> Vec<(MooncakeRow, f64)> {
        if let SharedPrefix::Group { tokens, .. } = session.shared {
            // A prefix is one block, so that what is shared ends where a block ends.
            self.tokens_per_id.get_or_insert(tokens);
        }
        let own = stream(session.stream_number);
        let identity = PromptIdentity { shared: session.shared.clone(), stream: own, continued: true };
        let turns = (0..session.turns_left).map(|_| Turn {
            input_tokens: session.new_input_tokens,
            output_tokens: session.output_tokens,
            identity: PromptIdentity::unique(session.stream_number),
            delay_ms: session.delay_ms,
            request_id: None,
            source_line: None,
        });
        self.delta(DeltaSession { turns: turns.collect(), identity, context_tokens: 0 })
    }

    fn delta(&mut self, session: DeltaSession) -> Vec<(MooncakeRow, f64)> {
        let mut first = Some(session.identity);
        let rows = session.turns.into_iter().map(|turn| {
            let delay_ms = turn.delay_ms;
            // Later deltas are the session's own, whatever ids they have.
            let identity = first.take().unwrap_or(PromptIdentity::unique(0));
            (self.request(&Turn { identity, ..turn }), delay_ms)
        });
        rows.collect()
    }

    /// The request of a row, without times.
    fn request(&mut self, turn: &Turn) -> MooncakeRow {
        MooncakeRow {
            input_length: Some(turn.input_tokens.into()),
            output_length: turn.output_tokens.into(),
            hash_ids: self.hash_ids(turn),
            request_id: turn.request_id.clone(),
            ..MooncakeRow::default()
        }
    }

    fn hash_ids(&mut self, turn: &Turn) -> Vec<u64> {
        let tokens_per_id = *self.tokens_per_id.get_or_insert(match &turn.identity.shared {
            SharedPrefix::Trace { tokens_per_id, .. } => *tokens_per_id,
            _ => DEFAULT_TRACE_BLOCK_SIZE as u32,
        });
        let blocks = turn.input_tokens.div_ceil(tokens_per_id) as usize;
        let mut ids: Vec<u64> = match &turn.identity.shared {
            SharedPrefix::Trace { chain, .. } => chain.iter().map(|&block| self.number(block)).collect(),
            SharedPrefix::Group { key, tokens } => {
                let shared = u64::from(tokens.div_ceil(tokens_per_id));
                (0..shared).map(|index| self.number(mix(mix(GROUP_SALT, *key), index))).collect()
            }
            SharedPrefix::None => Vec::new(),
        };
        ids.resize_with(blocks, || self.new_number());
        ids
    }

    fn number(&mut self, block: u64) -> u64 {
        if let Some(&number) = self.numbers.get(&block) {
            return number;
        }
        let number = self.new_number();
        self.numbers.insert(block, number);
        number
    }

    fn new_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// An output that was recorded, and that others may therefore have as well. Which tokens it holds does not matter,
    /// but whether two are the same.
    fn recorded_output(&mut self, turn: &Turn) -> Option<Vec<u32>> {
        let of_source = turn.source_line.map(stream);
        let is_own = !matches!(turn.identity.shared, SharedPrefix::Trace { .. });
        if is_own || of_source.is_none_or(|own| own == turn.identity.stream) {
            return None;
        }
        let next = self.outputs.len() as u32;
        let token = *self.outputs.entry(turn.identity.stream).or_insert(next);
        Some(vec![token; turn.output_tokens as usize])
    }

    fn write(&mut self, row: &MooncakeRow) -> io::Result<()> {
        self.rows += 1;
        serde_json::to_writer(&mut self.out, row)?;
        self.out.write_all(b"\n")
    }
}

/// Keeps blocks of prefix groups apart from those of traces.
const GROUP_SALT: u64 = 0x5bd1_e995_97f4_a7c5;
