//! One forward pass of a vLLM-style scheduler: chunked prefill, prefix caching, recompute preemption.
//!
//! The rules were measured on the reference (aisimulate-core 0.13.0). A pass touches only requests
//! with something due: the others get their token without anybody looking at them. That is exact
//! because in this scheduler every decoding member gets one token from every pass: each admission
//! takes at least one token of the budget, so the batch never outgrows it.

use bevy_ecs::prelude::*;
use dynosim_schemas::request_row::{Admission, StatusReason};

use super::components::{Due, Ending, Member, Phase, RankDataItem, RequestData, Sequence};
use crate::fleet::Role;
use crate::kv::Blocks;
use crate::timing::{DecodeBatch, PrefillBatch};

/// Access to the requests of the world.
pub type Requests<'w, 's> = Query<'w, 's, RequestData>;

/// One pass in the making.
pub(super) struct PassBuilder<'a, 'w, 's, 'rw, 'rs> {
    rank: &'a mut RankDataItem<'w, 's>,
    requests: &'a mut Requests<'rw, 'rs>,
    blocks: Blocks<'a>,
    scratch: &'a mut Scratch,
    now_ms: f64,
    notes_first_tokens: bool,
    /// Whether this pass leaves prompts alone, so that tokens come faster.
    throttled: bool,
    /// Tokens that this pass may still compute.
    budget: u32,
    /// Known tokens that it computes for requests that are not decoding yet.
    computed_tokens: u32,
    preempted: bool,
    prefill: PrefillBatch,
    /// Members that a decode step of this pass serves beyond those that were decoding before.
    readmitted: DecodeBatch,
    /// Requests that get the first token of a run from this pass and go on.
    joining: DecodeBatch,
    /// Requests decoding before this pass that finish with it.
    leaving: DecodeBatch,
}

/// Buffers that passes use again and again.
#[derive(Debug, Default)]
pub struct Scratch {
    hit_rows: Vec<u32>,
    /// Ranks of a worker that start a pass together.
    pub busy_ranks: Vec<u32>,
    /// Ends of quiet passes of such ranks, in ms.
    pub ends_ms: Vec<f64>,
}

/// What a pass has to know of the world around its rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassStart {
    /// When it starts, in ms.
    pub now_ms: f64,
    /// Passes of the worker since it last had nothing to do.
    pub passes_since_idle: u64,
    /// Whether somebody wants to know who gets a first token.
    pub notes_first_tokens: bool,
}

/// Starts a pass: decides what it computes, applies that to the world, and logs its end.
pub(super) fn begin_pass(
    rank: &mut RankDataItem<'_, '_>,
    requests: &mut Requests<'_, '_>,
    blocks: Blocks<'_>,
    scratch: &mut Scratch,
    start: PassStart,
) {
    debug_assert!(!rank.passes.in_flight);
    let mut pass = PassBuilder {
        throttled: is_throttled(rank, start.passes_since_idle),
        notes_first_tokens: start.notes_first_tokens,
        rank,
        requests,
        blocks,
        scratch,
        now_ms: start.now_ms,
        budget: 0,
        computed_tokens: 0,
        preempted: false,
        prefill: PrefillBatch::default(),
        readmitted: DecodeBatch::default(),
        joining: DecodeBatch::default(),
        leaving: DecodeBatch::default(),
    };
    pass.serve_due_members();
    pass.budget = u64::from(pass.rank.spec.max_batched_tokens).saturating_sub(pass.rank.batch.decoding) as u32;
    if !pass.throttled {
        pass.continue_prefill();
    }
    if !pass.preempted {
        pass.admit();
    }
    pass.settle();
}

/// Whether the rank leaves prompts alone in a pass, under `prefill_schedule_interval`: it does while
/// somebody decodes, unless its last pass that served prompts left somebody waiting.
fn is_throttled(rank: &RankDataItem<'_, '_>, passes_since_idle: u64) -> bool {
    let interval = u64::from(rank.spec.prefill_schedule_interval);
    interval > 1 && !passes_since_idle.is_multiple_of(interval) && rank.batch.decoding > 0 && !rank.passes.left_waiting
}

impl PassBuilder<'_, '_, '_, '_, '_> {
    /// Gives decoding members the block they need, in order of admission, and notes who finishes.
    fn serve_due_members(&mut self) {
        let number = self.rank.passes.number;
        while let Some(due) = self.rank.batch.calendar.pop_due(number) {
            self.serve_due_member(due);
        }
    }

    fn serve_due_member(&mut self, due: Due) {
        let Ok(member) = self.requests.get(due.request) else { return };
        let sequence = *member.sequence;
        if sequence.ordinal != due.ordinal || sequence.phase != Phase::Decoding {
            return;
        }
        let number = self.rank.passes.number;
        let spec = *self.rank.spec;
        let len = sequence.len_at(number);
        let mut held = member.table.rows.len() as u32;
        if len > held * spec.block_size {
            if !self.grow(due.request, 1) {
                return;
            }
            held += 1;
        }
        if sequence.generated_at(number) + 1 == sequence.output_limit {
            self.leaving.requests += 1;
            self.leaving.context_tokens += u64::from(len);
            self.rank.passes.endings.push((due.request, Ending::Finished));
        } else {
            let pass = sequence.next_due(held, spec.block_size);
            debug_assert!(pass > number);
            self.rank.batch.calendar.push(Due { pass, ..due });
        }
    }

    /// Gives a member `count` more blocks, preempting the latest members while there are too few;
    /// `false` if it had to be preempted itself.
    fn grow(&mut self, request: Entity, count: u32) -> bool {
        loop {
            if let Ok(mut member) = self.requests.get_mut(request)
                && self.rank.pool.allocate(count, &mut self.blocks, &mut member.table.rows)
            {
                if self.rank.spec.sets_blocks_aside() {
                    self.rank.batch.set_aside_blocks -= count;
                }
                return true;
            }
            debug_assert!(!self.rank.spec.sets_blocks_aside(), "only what can finish was admitted");
            let Some(victim) = self.rank.batch.members.pop() else { return false };
            self.preempt(victim.request);
            if victim.request == request {
                return false;
            }
        }
    }

    /// Sends a member back to the head of the queue, without its blocks but with its tokens.
    fn preempt(&mut self, request: Entity) {
        let number = self.rank.passes.number;
        let spec = *self.rank.spec;
        let batch = &mut *self.rank.batch;
        let Ok(mut member) = self.requests.get_mut(request) else { return };
        let computed = if member.sequence.phase == Phase::Decoding {
            let len = member.sequence.len_at(number);
            batch.decoding -= 1;
            batch.decoding_tokens -= u64::from(len);
            member.timeline.close_run(&member.sequence, &self.rank.passes);
            len - 1
        } else {
            batch.prefilling = None;
            member.sequence.computed
        };
        let generated = member.sequence.generated_at(number);
        let sequence = &mut *member.sequence;
        sequence.generated = generated;
        sequence.computed = 0;
        sequence.phase = Phase::Waiting;
        member.timeline.preemptions += 1;

        let complete = if spec.prefix_caching { computed / spec.block_size } else { 0 };
        if spec.prefix_caching {
            let runs = member.identity.runs(spec.block_size, member.table.published, complete);
            self.rank.pool.publish(runs, &mut self.blocks, &mut member.table);
        }
        self.rank.pool.release(complete, &mut self.blocks, &mut member.table);
        self.rank.queue.requests.push_front(request);
        self.rank.queue.head_needs = None;
        self.preempted = true;
    }

    /// Computes the next chunk of the member whose prompt is not finished, if there is one.
    fn continue_prefill(&mut self) {
        let Some(request) = self.rank.batch.prefilling else { return };
        let Ok(member) = self.requests.get(request) else { return };
        let before = member.sequence.computed;
        let len = member.sequence.prompt_tokens + member.sequence.generated;
        let after = before + (len - before).min(self.budget);
        let held = member.table.rows.len() as u32;
        let missing = after.div_ceil(self.rank.spec.block_size) - held;
        if after > before && self.grow(request, missing) {
            self.compute(request, before, after);
        }
    }

    fn is_full(&self) -> bool {
        self.rank.batch.members.len() as u64 >= u64::from(self.rank.spec.max_sequences)
    }

    /// Admits whom it can: those that wait for room first, in their order. Those that came with their
    /// KV need none, and would keep it from the others for ever if they had to wait behind them.
    fn admit(&mut self) {
        self.admit_waiting();
        self.admit_handed_over();
        if !self.throttled {
            self.rank.passes.left_waiting = !self.rank.queue.requests.is_empty();
        }
    }

    /// Admits requests that came with their KV, and so have their blocks already.
    fn admit_handed_over(&mut self) {
        while !self.is_full() {
            let Some((_, request)) = self.rank.queue.handed_over.pop_front() else { break };
            let Ok(member) = self.requests.get(request) else { continue };
            let prompt_tokens = member.sequence.prompt_tokens;
            self.join(request, 0);
            self.compute(request, prompt_tokens, prompt_tokens);
        }
    }

    /// Admits waiting requests from the head of the queue, in order, while they fit.
    fn admit_waiting(&mut self) {
        while !self.is_full() && !self.rank.desk.awaits_room() {
            let Some(&head) = self.rank.queue.requests.front() else { break };
            let Ok(request) = self.requests.get(head) else {
                debug_assert!(false, "a waiting request exists");
                break;
            };
            let sequence = *request.sequence;
            if let Some(ending) = self.refusal(&sequence, request.timeline.admissions.is_empty()) {
                self.leave_queue();
                self.rank.passes.endings.push((head, ending));
            } else if !self.admit_head(head, &sequence) {
                break;
            }
        }
    }

    /// Why the head can never run, if so.
    fn refusal(&self, sequence: &Sequence, first_admission: bool) -> Option<Ending> {
        let spec = self.rank.spec;
        let len = sequence.prompt_tokens + sequence.generated;
        if sequence.prompt_tokens >= spec.context_length {
            Some(Ending::Rejected(StatusReason::PromptExceedsContextLength))
        } else if spec.can_hold(len) {
            None
        } else if first_admission {
            Some(Ending::Rejected(StatusReason::PromptExceedsKvPool))
        } else {
            // The reference ends the whole run here, since the request could never go on.
            Some(Ending::Failed(StatusReason::OutgrewKvPool))
        }
    }

    /// Admits the head of the queue and computes its first chunk; `false` if it has to wait.
    fn admit_head(&mut self, head: Entity, sequence: &Sequence) -> bool {
        let spec = *self.rank.spec;
        let len = sequence.prompt_tokens + sequence.generated;
        // A fully cached prompt needs no budget where the last token is not computed again.
        let needs_budget = sequence.generated < sequence.output_limit && !spec.sets_blocks_aside();
        let room = self.rank.room();
        if (needs_budget && self.budget == 0) || self.rank.queue.head_needs.is_some_and(|needs| needs > room) {
            return false;
        }
        let Ok(mut request) = self.requests.get_mut(head) else { return false };

        // The block with the last known token is computed again even if it is resident: without
        // that, there would be nothing to sample the next token from.
        let findable = if needs_budget { (len - 1) / spec.block_size } else { len / spec.block_size };
        let hit_rows = &mut self.scratch.hit_rows;
        let runs = request.identity.runs(spec.block_size, 0, if spec.prefix_caching { findable } else { 0 });
        let hit = self.rank.pool.look_up(runs, &self.blocks, hit_rows);
        let at_the_end = spec.blocks_at_the_end(sequence);
        let known_blocks = len.div_ceil(spec.block_size);
        let needs = if spec.sets_blocks_aside() { at_the_end } else { known_blocks } - hit.active;
        if needs > room {
            self.rank.queue.head_needs = Some(needs);
            return false;
        }
        let before = hit.blocks * spec.block_size;
        let after = before + (len - before).min(self.budget);
        if (after == before && before < len) || (self.throttled && len - before > 1) {
            return false;
        }

        self.rank.pool.pin(hit_rows, at_the_end, &mut self.blocks, &mut request.table);
        let held = after.div_ceil(spec.block_size);
        let allocated = self.rank.pool.allocate(held - hit.blocks, &mut self.blocks, &mut request.table.rows);
        debug_assert!(allocated, "the whole known length was tested against the pool");
        if spec.sets_blocks_aside() {
            self.rank.batch.set_aside_blocks += at_the_end - held;
        }
        self.leave_queue();
        self.join(head, before);
        self.compute(head, before, after);
        true
    }

    /// Makes a request a member of the batch.
    fn join(&mut self, request: Entity, reused_tokens: u32) {
        let Ok(mut member) = self.requests.get_mut(request) else { return };
        let batch = &mut *self.rank.batch;
        member.sequence.ordinal = batch.next_ordinal;
        batch.members.push(Member { ordinal: batch.next_ordinal, request });
        batch.next_ordinal += 1;
        member.timeline.admissions.push(Admission {
            role: self.rank.spec.role,
            at_ms: self.now_ms,
            worker_id: self.rank.rank.worker_id,
            reused_tokens: u64::from(reused_tokens),
        });
    }

    fn leave_queue(&mut self) {
        self.rank.queue.requests.pop_front();
        self.rank.queue.head_needs = None;
    }

    /// Books that a member computes its known tokens `before..after` in this pass.
    fn compute(&mut self, request: Entity, before: u32, after: u32) {
        let spec = *self.rank.spec;
        let number = self.rank.passes.number;
        let Ok(mut member) = self.requests.get_mut(request) else { return };
        self.budget -= after - before;
        self.computed_tokens += after - before;
        if spec.prefix_caching {
            let complete = member.identity.shared_blocks(spec.block_size).min(after / spec.block_size);
            if complete > member.table.published {
                let runs = member.identity.runs(spec.block_size, member.table.published, complete);
                self.rank.pool.publish(runs, &mut self.blocks, &mut member.table);
                self.rank.queue.head_needs = None;
            }
        }

        let sequence = &mut *member.sequence;
        let (prompt_before, prompt_after) = (before.min(sequence.prompt_tokens), after.min(sequence.prompt_tokens));
        let has_prompt_work = prompt_after > prompt_before;
        if has_prompt_work {
            if spec.role != Role::Decode {
                // What a decode worker has to compute again is not priced.
                self.prefill.add(prompt_before, prompt_after);
            }
            self.rank.passes.prefill_tokens += u64::from(after - before);
        }
        sequence.computed = after;
        let len = sequence.prompt_tokens + sequence.generated;
        if after < len {
            sequence.phase = Phase::Prefilling;
            self.rank.batch.prefilling = Some(request);
            return;
        }
        if self.rank.batch.prefilling == Some(request) {
            self.rank.batch.prefilling = None;
        }
        if spec.role == Role::Prefill {
            self.rank.passes.endings.push((request, Ending::Prefilled));
            return;
        }
        if sequence.generated == sequence.output_limit {
            // It asked for no token. It never decodes, so it has no run.
            self.rank.passes.endings.push((request, Ending::Finished));
            return;
        }
        // The first token of a request comes free with its prefill; after a preemption or a
        // hand-over the next token is a decode step like any other.
        let free = sequence.generated == 0 && has_prompt_work && spec.role == Role::Aggregated;
        if !free {
            self.readmitted.requests += 1;
            self.readmitted.context_tokens += u64::from(len);
        }
        sequence.phase = Phase::Decoding;
        sequence.run_start = number;
        if sequence.generated + 1 == sequence.output_limit {
            self.rank.passes.endings.push((request, Ending::Finished));
            return;
        }
        if self.notes_first_tokens && sequence.generated == 0 {
            self.rank.passes.first_tokens.push(request);
        }
        self.joining.requests += 1;
        self.joining.context_tokens += u64::from(len);
        let pass = sequence.next_due(member.table.rows.len() as u32, spec.block_size);
        let due = Due { pass, ordinal: sequence.ordinal, request };
        self.rank.batch.calendar.push(due);
    }

    /// Prices the pass, logs its end, and prepares the batch for the next one.
    fn settle(&mut self) {
        let spec = *self.rank.spec;
        let batch = &mut *self.rank.batch;
        let decode = DecodeBatch {
            requests: batch.decoding + self.readmitted.requests,
            context_tokens: batch.decoding_tokens + self.readmitted.context_tokens,
        };
        let (prefill_ms, decode_ms) = spec.timing.pass_ms(&self.prefill, &decode, spec.pool_tokens());
        let computed = self.computed_tokens > 0 || decode.requests > 0;
        if !computed && !self.preempted && self.rank.passes.endings.is_empty() {
            // Requests on their way to or from other workers hold what is needed here. They will be
            // heard of; nobody else would be.
            self.rank.passes.stalled = spec.role == Role::Aggregated;
            debug_assert!(!self.rank.passes.stalled, "every pass gets something done");
            return;
        }
        self.rank.passes.begin(self.now_ms + prefill_ms + decode_ms);

        // Everybody who decodes is one token longer next time.
        batch.decoding_tokens += batch.decoding;
        batch.decoding_tokens += self.joining.context_tokens + self.joining.requests;
        batch.decoding_tokens -= self.leaving.context_tokens + self.leaving.requests;
        batch.decoding += self.joining.requests;
        batch.decoding -= self.leaving.requests;
        // Whoever leaves makes room.
        self.rank.desk.may_have_room |= self.preempted || !self.rank.passes.endings.is_empty();
        for ending in 0..self.rank.passes.endings.len() {
            let (request, ending) = self.rank.passes.endings[ending];
            if matches!(ending, Ending::Finished | Ending::Prefilled) {
                self.vacate(request, ending);
            }
        }
    }

    /// Takes a finishing request out of the batch and its blocks back: the rank can use them from
    /// the next pass on. What is to be handed over keeps its blocks.
    fn vacate(&mut self, request: Entity, ending: Ending) {
        let number = self.rank.passes.number;
        let spec = *self.rank.spec;
        let Ok(mut member) = self.requests.get_mut(request) else { return };
        let members = &mut self.rank.batch.members;
        if let Ok(index) = members.binary_search_by_key(&member.sequence.ordinal, |m| m.ordinal) {
            members.remove(index);
        }
        if spec.sets_blocks_aside() {
            let held = member.table.rows.len() as u32;
            self.rank.batch.set_aside_blocks -= spec.blocks_at_the_end(&member.sequence) - held;
        }
        if ending == Ending::Prefilled {
            return;
        }
        if !spec.prefix_caching {
            self.rank.pool.release(0, &mut self.blocks, &mut member.table);
            return;
        }
        // The token that this pass emits is never fed back, so it has no KV.
        let complete = member.sequence.len_at(number) / spec.block_size;
        if member.identity.continued {
            let runs = member.identity.runs(spec.block_size, member.table.published, complete);
            self.rank.pool.publish(runs, &mut self.blocks, &mut member.table);
            self.rank.queue.head_needs = None;
        }
        self.rank.pool.release(complete, &mut self.blocks, &mut member.table);
    }
}
