//! Where units of load come from.

use std::collections::VecDeque;
use std::error::Error;

use crate::prefix::{PromptIdentity, SharedPrefix, stream};

/// One request that is still to arrive.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Prompt length.
    pub input_tokens: u32,
    /// Output tokens asked for.
    pub output_tokens: u32,
    /// What its tokens are.
    pub identity: PromptIdentity,
    /// Wait after the end of the turn before, in ms.
    pub delay_ms: f64,
    /// The source's own name for it.
    pub request_id: Option<Box<str>>,
    /// The line of the trace that it comes from, from 1.
    pub source_line: Option<u64>,
}

/// A session whose every prompt is all that was said before, plus new input.
#[derive(Clone, Debug, PartialEq)]
pub struct GrowingSession {
    /// Turns still to come.
    pub turns_left: u32,
    /// New input tokens of each turn.
    pub new_input_tokens: u32,
    /// Output tokens of each turn.
    pub output_tokens: u32,
    /// Wait between turns, in ms.
    pub delay_ms: f64,
    /// The leading part of the first prompt that other sessions share.
    pub shared: SharedPrefix,
    /// Number of the session's stream of tokens.
    pub stream_number: u64,
    /// Tokens said so far.
    pub context_tokens: u32,
}

impl GrowingSession {
    fn next_turn(&mut self) -> Option<Turn> {
        self.turns_left = self.turns_left.checked_sub(1)?;
        self.context_tokens += self.new_input_tokens;
        Some(Turn {
            input_tokens: self.context_tokens,
            output_tokens: self.output_tokens,
            identity: PromptIdentity {
                shared: self.shared.clone(),
                stream: stream(self.stream_number),
                continued: self.turns_left > 0,
            },
            delay_ms: self.delay_ms,
            request_id: None,
            source_line: None,
        })
    }
}

/// A session of recorded turns that each hold only what they add to the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaSession {
    /// Turns still to come; their prompts are new input alone.
    pub turns: VecDeque<Turn>,
    /// What the first prompt is; everything behind it is the session's own.
    pub identity: PromptIdentity,
    /// Tokens said so far.
    pub context_tokens: u32,
}

impl DeltaSession {
    fn next_turn(&mut self) -> Option<Turn> {
        let turn = self.turns.pop_front()?;
        self.context_tokens = self.context_tokens.saturating_add(turn.input_tokens);
        let identity = PromptIdentity { continued: !self.turns.is_empty(), ..self.identity.clone() };
        Some(Turn { input_tokens: self.context_tokens, identity, ..turn })
    }
}

/// The turns of a unit of load.
#[derive(Clone, Debug, PartialEq)]
pub enum Script {
    /// Known turns, each with its own prompt; often just one.
    Listed(VecDeque<Turn>),
    /// Turns that build on each other.
    Growing(GrowingSession),
    /// Recorded turns that build on each other.
    Delta(DeltaSession),
}

impl Script {
    /// A single request.
    #[must_use]
    pub fn single(turn: Turn) -> Self {
        Self::Listed(VecDeque::from([turn]))
    }

    /// Takes the next turn.
    pub fn next_turn(&mut self) -> Option<Turn> {
        match self {
            Self::Listed(turns) => turns.pop_front(),
            Self::Growing(session) => session.next_turn(),
            Self::Delta(session) => session.next_turn(),
        }
    }

    /// Notes that a turn produced `output_tokens` tokens.
    pub fn turn_ended(&mut self, output_tokens: u32) {
        match self {
            Self::Listed(_) => {}
            Self::Growing(session) => session.context_tokens += output_tokens,
            Self::Delta(session) => session.context_tokens = session.context_tokens.saturating_add(output_tokens),
        }
    }

    /// Whether a turn is left.
    #[must_use]
    pub fn has_next(&self) -> bool {
        self.turns_to_come() > 0
    }

    /// How many turns are left.
    #[must_use]
    pub fn turns_to_come(&self) -> usize {
        match self {
            Self::Listed(turns) => turns.len(),
            Self::Growing(session) => session.turns_left as usize,
            Self::Delta(session) => session.turns.len(),
        }
    }
}

/// One unit of load: an independent request, or a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// When it was recorded to start, in ms from the start of the workload; only
    /// [`Load::TraceTimestamps`](super::Load) reads it.
    pub start_ms: f64,
    /// The source's own name for the session.
    pub session_id: Option<Box<str>>,
    /// Its turns.
    pub script: Script,
}

/// What can go wrong in a source, for its owner to understand.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// A stream of units of load.
pub trait UnitSource: Send + Sync {
    /// The next unit, if there is one. Under recorded timestamps units come in order of their start.
    ///
    /// # Errors
    /// When the source cannot be read on; the simulation then stops.
    fn next_unit(&mut self) -> Result<Option<Unit>, SourceError>;

    /// Whether a unit may have more than one turn.
    fn has_sessions(&self) -> bool;
}
