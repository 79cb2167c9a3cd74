//! What a scheduler knows about its worker and its requests.

use std::collections::VecDeque;

use bevy_ecs::prelude::*;
use bevy_ecs::query::QueryData;
use dynosim_schemas::request_row::{Admission, StatusReason};
use smallvec::SmallVec;

use super::sglang::SglangRank;
use super::{Calendar, EngineSpec, PassLog};
use crate::fleet::Rank;
use crate::handoff::HandoffDesk;
use crate::kv::{BlockTable, KvPool};
use crate::prefix::PromptIdentity;

/// Where a request is in its life on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// In the waiting queue.
    Waiting,
    /// In the batch, with known tokens still to compute.
    Prefilling,
    /// In the batch, getting a token from every pass.
    Decoding,
}

/// The hot scheduling state of a request: everything that a pass reads or writes of it.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Prompt length.
    pub prompt_tokens: u32,
    /// Tokens that it may generate.
    pub output_limit: u32,
    /// Tokens generated before the current run of passes.
    pub generated: u32,
    /// Tokens whose KV is computed; kept up to date while prefilling only.
    pub computed: u32,
    /// Where it is in its life.
    pub phase: Phase,
    /// The pass that emitted the first token of the current run; meaningful while decoding.
    pub run_start: u64,
    /// Which admission on its worker this is; orders the batch.
    pub ordinal: u64,
}

impl Sequence {
    /// A request that has just arrived.
    #[must_use]
    pub const fn new(prompt_tokens: u32, output_limit: u32) -> Self {
        Self { prompt_tokens, output_limit, generated: 0, computed: 0, phase: Phase::Waiting, run_start: 0, ordinal: 0 }
    }

    /// Tokens generated before pass `pass` starts. While it decodes, every pass gives one.
    #[must_use]
    pub const fn generated_at(&self, pass: u64) -> u32 {
        match self.phase {
            Phase::Decoding => self.generated + (pass - self.run_start) as u32,
            Phase::Waiting | Phase::Prefilling => self.generated,
        }
    }

    /// Prompt and generated tokens before pass `pass` starts.
    #[must_use]
    pub const fn len_at(&self, pass: u64) -> u32 {
        self.prompt_tokens + self.generated_at(pass)
    }

    /// The next pass at which a decoding request needs attention: for its next block, or to finish.
    #[must_use]
    pub fn next_due(&self, blocks: u32, block_size: u32) -> u64 {
        let len = u64::from(self.prompt_tokens + self.generated);
        let to_block = u64::from(blocks) * u64::from(block_size) + 1 - len;
        let to_finish = u64::from(self.output_limit - 1 - self.generated);
        self.run_start + to_block.min(to_finish)
    }
}

/// Consecutive passes of one rank that each gave a request one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRun {
    /// When a pass that is not in the log gave a token before them, in ms, if one did.
    pub lead_ms: Option<f64>,
    /// The pass that gave the first token.
    pub first_pass: u64,
    /// The pass behind the one that gave the last token.
    pub end_pass: u64,
}

impl TokenRun {
    /// Tokens of the run.
    #[must_use]
    pub const fn tokens(&self) -> u64 {
        self.end_pass - self.first_pass + self.lead_ms.is_some() as u64
    }

    /// When its token number `token` came, in ms; it must have that many.
    #[must_use]
    pub fn token_ms(&self, token: u64, log: &PassLog) -> f64 {
        match self.lead_ms {
            Some(lead_ms) if token == 0 => lead_ms,
            Some(_) => log.end_ms(self.first_pass + token - 1),
            None => log.end_ms(self.first_pass + token),
        }
    }
}

/// When things happened to a request. Written at admissions, preemptions and the end only.
#[derive(Component, Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// When it reached the deployment, in ms.
    pub arrival_ms: f64,
    /// Its admissions.
    pub admissions: SmallVec<[Admission; 1]>,
    /// Its finished runs of tokens: all but the last were ended by a preemption.
    pub runs: SmallVec<[TokenRun; 1]>,
    /// The token that its current run starts with, as in [`TokenRun::lead_ms`].
    pub lead_ms: Option<f64>,
    /// How often it was preempted.
    pub preemptions: u32,
    /// Time of its first token, in ms; known once it has ended.
    pub first_token_ms: Option<f64>,
    /// Time of its second token, in ms; known once it has ended.
    pub second_token_ms: Option<f64>,
    /// Time of its last token, in ms; known once it has ended.
    pub last_token_ms: Option<f64>,
}

impl Timeline {
    /// Closes the run of a request that decodes, before the pass in flight (or the next one).
    pub fn close_run(&mut self, sequence: &Sequence, passes: &PassClock) {
        self.end_run(sequence, passes.number);
    }

    /// Closes the run of a request that decodes, before pass `end_pass`.
    pub fn end_run(&mut self, sequence: &Sequence, end_pass: u64) {
        if sequence.phase == Phase::Decoding {
            let run = TokenRun { lead_ms: self.lead_ms.take(), first_pass: sequence.run_start, end_pass };
            if run.tokens() > 0 {
                self.runs.push(run);
            }
        }
    }

    /// Closes a run that is nothing but the token of a pass that is not in the log.
    pub fn end_lead_run(&mut self, pass: u64) {
        if let Some(lead_ms) = self.lead_ms.take() {
            self.runs.push(TokenRun { lead_ms: Some(lead_ms), first_pass: pass, end_pass: pass });
        }
    }

    /// Fills in the times of the first, second and last token from the log.
    pub fn look_up_token_times(&mut self, log: &PassLog) {
        let Some(first) = self.runs.first() else { return };
        self.first_token_ms = Some(first.token_ms(0, log));
        self.second_token_ms = if first.tokens() > 1 {
            Some(first.token_ms(1, log))
        } else {
            self.runs.get(1).map(|run| run.token_ms(0, log))
        };
        self.last_token_ms = self.runs.last().map(|run| run.token_ms(run.tokens() - 1, log));
    }
}

/// Requests that a rank has not admitted yet.
#[derive(Component, Debug, Default)]
pub struct WaitingQueue {
    /// Those whose KV is still to be computed. New ones join at the back, preempted ones at the front.
    pub requests: VecDeque<Entity>,
    /// Those that came with their KV from a prefill worker, by order of arrival.
    pub handed_over: VecDeque<(u64, Entity)>,
    /// Whether the head is a prompt that is under way, and holds its first part; SGLang only.
    pub head_is_under_way: bool,
    /// If known, blocks that the head needs at the least; valid until the head changes or a block
    /// is published.
    pub head_needs: Option<u32>,
}

/// A request in a worker's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which admission on this worker; members are sorted by it.
    pub ordinal: u64,
    /// The request.
    pub request: Entity,
}

/// A request that needs attention at a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// The pass.
    pub pass: u64,
    /// The admission that the entry was made for; an entry of an earlier admission is void.
    pub ordinal: u64,
    /// The request.
    pub request: Entity,
}

/// A worker's batch: the requests that its passes serve.
#[derive(Component, Debug, Default)]
pub struct RunningBatch {
    /// In order of admission.
    pub members: Vec<Member>,
    /// The ordinal of the next admission.
    pub next_ordinal: u64,
    /// Members that get a token from the next pass's decode step.
    pub decoding: u64,
    /// Their lengths before that pass, summed.
    pub decoding_tokens: u64,
    /// Blocks that members still need to reach their last token; kept by TensorRT-LLM only, which
    /// sets them aside.
    pub set_aside_blocks: u32,
    /// The member whose known tokens are not all computed. There is at most one, the last: it has
    /// used up the pass's token budget, so nobody was admitted behind it.
    pub prefilling: Option<Entity>,
    /// When decoding members need attention next.
    pub calendar: Calendar,
    /// What SGLang's scheduler keeps besides.
    pub sglang: Option<Box<SglangRank>>,
}

/// Why a request leaves its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has all its tokens.
    Finished,
    /// Its prompt is computed, and its KV waits on a prefill worker to be handed over.
    Prefilled,
    /// It was refused at admission.
    Rejected(StatusReason),
    /// The worker gave it up.
    Failed(StatusReason),
}

/// A worker's progress through its passes.
#[derive(Component, Debug, Default)]
pub struct PassClock {
    /// Number of the pass in flight, or else of the next one.
    pub number: u64,
    /// Passes so far that were not quiet.
    pub eventful: u64,
    /// Whether a pass is in flight.
    pub in_flight: bool,
    /// When it ends, in ms.
    pub end_ms: f64,
    /// Whether it has a place in the log. Passes that give no token to running requests have none.
    pub logged: bool,
    /// Whether a pass could get nothing done, and no other would. That must not be.
    pub stalled: bool,
    /// Tokens that the pass in flight computes for requests with prompt work.
    pub prefill_tokens: u64,
    /// What the end of the pass in flight will announce, in order.
    pub endings: Vec<(Entity, Ending)>,
    /// Requests that get their first token from the pass in flight and go on; kept if somebody asks.
    pub first_tokens: Vec<Entity>,
    /// Whether the last pass that could admit anybody left somebody waiting.
    pub left_waiting: bool,
    /// When passes ended.
    pub log: PassLog,
}

impl PassClock {
    /// Puts a pass in flight that has a place in the log.
    pub(super) fn begin(&mut self, end_ms: f64) {
        self.log.push(end_ms);
        self.logged = true;
        self.start_until(end_ms);
    }

    /// Puts a pass in flight that has no place in the log.
    pub(super) fn begin_unlogged(&mut self, end_ms: f64) {
        self.logged = false;
        self.start_until(end_ms);
    }

    fn start_until(&mut self, end_ms: f64) {
        self.end_ms = end_ms;
        self.in_flight = true;
        self.eventful += 1;
    }

    /// Lets the pass in flight end later, with the passes of the other ranks.
    pub(super) fn end_at(&mut self, end_ms: f64) {
        self.end_ms = end_ms;
        if self.logged {
            self.log.set_newest_end_ms(end_ms);
        }
    }
}

/// Access to everything that a pass needs of its rank.
#[derive(QueryData)]
#[query_data(mutable)]
pub struct RankData {
    /// Who it is.
    pub rank: &'static Rank,
    /// What it runs.
    pub spec: &'static EngineSpec,
    /// Who waits.
    pub queue: &'static mut WaitingQueue,
    /// Who runs.
    pub batch: &'static mut RunningBatch,
    /// Where its passes stand.
    pub passes: &'static mut PassClock,
    /// Its KV pool.
    pub pool: &'static mut KvPool,
    /// What it has to do for requests that move between workers.
    pub desk: &'static mut HandoffDesk,
}

impl RankDataReadOnlyItem<'_, '_> {
    /// Whether a pass would have anything to do.
    pub fn has_work(&self) -> bool {
        has_work(self.batch, self.queue, self.desk)
    }
}

fn has_work(batch: &RunningBatch, queue: &WaitingQueue, desk: &HandoffDesk) -> bool {
    !batch.members.is_empty()
        || !queue.handed_over.is_empty()
        || (!queue.requests.is_empty() && (!desk.awaits_room() || queue.head_is_under_way))
}

impl RankDataItem<'_, '_> {
    /// Whether a pass would have anything to do.
    pub(super) fn has_work(&self) -> bool {
        has_work(&self.batch, &self.queue, &self.desk)
    }

    /// Blocks that a waiting request can have.
    pub(super) fn room(&self) -> u32 {
        self.pool.available().saturating_sub(self.batch.set_aside_blocks)
    }
}

/// Access to everything that a pass needs of a request.
#[derive(QueryData)]
#[query_data(mutable)]
pub struct RequestData {
    /// Hot scheduling state.
    pub sequence: &'static mut Sequence,
    /// Blocks held.
    pub table: &'static mut BlockTable,
    /// What its tokens are.
    pub identity: &'static PromptIdentity,
    /// What has happened to it.
    pub timeline: &'static mut Timeline,
}
