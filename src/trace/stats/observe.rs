//! Goes through a trace of any format, request by request.

use dynosim_schemas::config::TraceFormat;
use dynosim_schemas::summary::Distribution;
use dynosim_systems::metrics::{EXACT_REQUESTS, Samples};
use dynosim_systems::prefix::{PromptIdentity, SharedPrefix};
use dynosim_systems::traffic::{Script, Turn, Unit};
use fxhash::FxHashMap;

use super::arrivals::{ArrivalStats, Arrivals};
use super::lengths::{LengthClass, LengthClasses};
use super::reuse::BlockReuse;
use crate::interrupt::Interrupt;
use crate::traces::agentic::{Graph, Identity};
use crate::traces::{
    FileReport, OpenedTrace, TraceContent, TraceError, TraceReading, TraceRequest, TraceTurn, each_row, read_trace,
};

/// Columns of the plot of arrivals.
pub(super) const PLOT_COLUMNS: usize = 64;

/// What has been seen of a trace.
pub(super) struct Tally {
    format: TraceFormat,
    block_size: Option<u64>,
    files: Vec<FileReport>,
    left_out: u64,
    requests: u64,
    input: Lengths,
    output: Lengths,
    sessions: FxHashMap<Box<str>, Conversation>,
    /// Requests that belong to no session that has a name.
    alone: u64,
    arrivals: Arrivals,
    reuse: BlockReuse,
    graph: Option<Identity>,
}

/// The state of a session.
#[derive(Clone, Copy, Default)]
struct Conversation {
    turns: u64,
    /// Tokens of the last prompt and its output.
    context_tokens: u64,
}

/// Lengths of one kind.
struct Lengths {
    samples: Samples,
    classes: LengthClasses,
    total: u64,
}

/// What is in a trace.
pub(super) struct TraceStats {
    pub format: TraceFormat,
    /// Tokens per block, where there are blocks.
    pub block_size: Option<u64>,
    pub files: Vec<FileReport>,
    /// Rows that were left out, because what they record was not served.
    pub left_out: u64,
    pub requests: u64,
    pub input: LengthStats,
    pub output: LengthStats,
    /// Sessions; a request by itself is one.
    pub sessions: u64,
    /// Turns of a session.
    pub turns: Distribution,
    pub arrivals: Option<ArrivalStats>,
    /// Blocks of all prompts, and those among them that nobody had before; `None` if nobody knows.
    pub blocks: Option<(u64, u64)>,
    pub graph: Option<Identity>,
}

/// What is known of lengths, in tokens.
pub(super) struct LengthStats {
    pub distribution: Distribution,
    pub classes: Vec<LengthClass>,
    pub total: u64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { samples: Samples::exact_up_to(EXACT_REQUESTS), classes: LengthClasses::default(), total: 0 }
    }
}

impl Lengths {
    fn add(&mut self, tokens: u64) {
        self.samples.add(tokens as f64, 1);
        self.classes.add(tokens);
        self.total += tokens;
    }

    fn finish(self) -> LengthStats {
        LengthStats { distribution: self.samples.distribution(), classes: self.classes.classes(), total: self.total }
    }
}

impl Tally {
    /// Goes through a trace.
    pub fn of(trace: &TraceRequest<'_>, interrupt: &Interrupt) -> Result<Self, TraceError> {
        let mut tally = Self::new(trace);
        match read_trace(trace, interrupt)? {
            TraceReading::Rows(format) => {
                let path = trace.path();
                let report = each_row(path, format, interrupt, |row| {
                    tally.add_row(&row);
                    Ok(())
                })?;
                tally.left_out = report.left_out;
                tally.files = vec![FileReport { path: path.to_owned(), rows: report.rows, digest: report.digest }];
            }
            TraceReading::Whole(OpenedTrace { content, files }) => {
                tally.files = files;
                match content {
                    TraceContent::Units(units) => units.into_iter().for_each(|unit| tally.add_unit(unit)),
                    TraceContent::Agentic(graph) => tally.add_graph(&graph),
                }
            }
        }
        Ok(tally)
    }

    fn new(trace: &TraceRequest<'_>) -> Self {
        Self {
            format: trace.format,
            block_size: trace.block_size,
            files: Vec::new(),
            left_out: 0,
            requests: 0,
            input: Lengths::default(),
            output: Lengths::default(),
            sessions: FxHashMap::default(),
            alone: 0,
            arrivals: Arrivals::default(),
            reuse: BlockReuse::default(),
            graph: None,
        }
    }

    fn add_lengths(&mut self, input_tokens: u64, output_tokens: u64) {
        self.requests += 1;
        self.input.add(input_tokens);
        self.output.add(output_tokens);
    }

    /// Counts a turn of a session, and gives what was said in it before.
    fn continue_session(&mut self, name: Option<&str>) -> Conversation {
        let Some(name) = name else {
            self.alone += 1;
            return Conversation::default();
        };
        let before = self.sessions.get(name).copied().unwrap_or_default();
        let after = Conversation { turns: before.turns + 1, ..before };
        match self.sessions.get_mut(name) {
            Some(session) => *session = after,
            None => drop(self.sessions.insert(name.into(), after)),
        }
        before
    }

    fn add_row(&mut self, row: &TraceTurn) {
        let name = row.session_id.as_deref().or(row.conversation.as_deref());
        let before = self.continue_session(name);
        if let Some(ms) = row.timestamp_ms {
            self.arrivals.add(ms);
        }
        let output_tokens = u64::from(row.turn.output_tokens);
        if self.format != TraceFormat::MooncakeDelta || before.turns == 0 {
            self.add_turn(&row.turn);
        } else {
            let input_tokens = before.context_tokens + u64::from(row.turn.input_tokens);
            self.add_lengths(input_tokens, output_tokens);
            self.add_grown_prompt(before.context_tokens, input_tokens);
        }
        if let Some(session) = name.and_then(|name| self.sessions.get_mut(name)) {
            let spoken = u64::from(row.turn.input_tokens) + output_tokens;
            session.context_tokens = before.context_tokens + spoken;
        }
    }

    /// A prompt that begins with all that was said, of which the last token was never fed back.
    fn add_grown_prompt(&mut self, context_tokens: u64, input_tokens: u64) {
        let Some(block_size) = self.block_size else { return };
        let blocks = input_tokens.div_ceil(block_size);
        let known = context_tokens.saturating_sub(1) / block_size;
        self.reuse.add_counts(blocks, blocks - known.min(blocks));
    }

    fn add_turn(&mut self, turn: &Turn) {
        self.add_lengths(turn.input_tokens.into(), turn.output_tokens.into());
        self.add_ids(&turn.identity, turn.input_tokens);
    }

    /// The blocks of a prompt. A block without an id is nobody else's.
    fn add_ids(&mut self, identity: &PromptIdentity, input_tokens: u32) {
        if let SharedPrefix::Trace { chain, tokens_per_id, .. } = &identity.shared {
            self.block_size.get_or_insert(u64::from(*tokens_per_id));
            self.reuse.add_ids(chain);
            let unnamed = u64::from(input_tokens.div_ceil(*tokens_per_id)).saturating_sub(chain.len() as u64);
            self.reuse.add_counts(unnamed, unnamed);
        }
    }

    /// A unit of a trace that was read whole. Its later prompts begin with those before.
    fn add_unit(&mut self, unit: Unit) {
        if self.format == TraceFormat::Dynamo {
            self.arrivals.add(unit.start_ms);
        }
        let name = format!("#{}", self.requests);
        let Script::Listed(turns) = unit.script else { return };
        let in_session = turns.len() > 1;
        let mut longest = 0;
        for turn in &turns {
            self.continue_session(in_session.then_some(&*name));
            self.add_turn(turn);
            if let (SharedPrefix::Group { tokens, .. }, Some(block_size)) = (&turn.identity.shared, self.block_size) {
                let blocks = u64::from(*tokens).div_ceil(block_size);
                self.reuse.add_counts(blocks, blocks.saturating_sub(longest));
                longest = longest.max(blocks);
            }
        }
    }

    /// A trace of agents. Its requests wait for each other, so that they have no arrivals of their own.
    fn add_graph(&mut self, graph: &Graph) {
        // The trace's own, whatever was asked for.
        self.block_size = Some(graph.block_size);
        for node in graph.nodes() {
            let row = &node.row;
            self.continue_session(Some(&row.session_id));
            self.add_lengths(row.input_length, row.output_length);
            // The graph has checked that these are far below 2^32.
            let (input_tokens, block_size) = (row.input_length as u32, graph.block_size as u32);
            self.add_ids(&PromptIdentity::from_trace_ids(&row.hash_ids, block_size, input_tokens, 0), input_tokens);
        }
        self.graph = Some(Identity::of(graph));
    }

    /// The figures.
    pub fn finish(self) -> TraceStats {
        let mut turns = Samples::exact_up_to(EXACT_REQUESTS);
        // In order of their number, not of the table, so that sums are the same every time.
        let mut counts: Vec<u64> = self.sessions.values().map(|session| session.turns).collect();
        counts.sort_unstable();
        counts.into_iter().for_each(|count| turns.add(count as f64, 1));
        if self.alone > 0 {
            turns.add(1.0, self.alone);
        }
        TraceStats {
            format: self.format,
            block_size: self.block_size,
            files: self.files,
            left_out: self.left_out,
            requests: self.requests,
            input: self.input.finish(),
            output: self.output.finish(),
            sessions: self.sessions.len() as u64 + self.alone,
            turns: turns.distribution(),
            arrivals: self.arrivals.finish(PLOT_COLUMNS),
            blocks: self.format.knows_prefixes().then(|| self.reuse.counts()),
            graph: self.graph,
        }
    }
}
