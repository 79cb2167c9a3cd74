//! One forward pass of a vLLM-style scheduler: chunked prefill, prefix caching, recompute preemption.
//!
//! The rules were measured on the reference (aisimulate-core 0.13.0). A pass touches only requests
//! with something due: the others get their token without anybody looking at them. That is exact
//! because in this scheduler every decoding member gets one token from every pass: each admission
//! takes at least one token of the budget, so the batch never outgrows it.

use bevy_ecs::prelude::*;
use dynosim_schemas::request_row::{Admission, StatusReason};

use super::components::{Due, Ending, Member, Phase, RequestData, Sequence, WorkerDataItem};
use crate::kv::Blocks;
use crate::timing::{DecodeBatch, PrefillBatch, whole_ns_ms};

/// Access to the requests of the world.
pub type Requests<'w, 's> = Query<'w, 's, RequestData>;

/// One pass in the making.
pub(super) struct PassBuilder<'a, 'w, 's, 'rw, 'rs> {
    worker: &'a mut WorkerDataItem<'w, 's>,
    requests: &'a mut Requests<'rw, 'rs>,
    blocks: Blocks<'a>,
    scratch: &'a mut Scratch,
    now_ms: f64,
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
}

/// Starts a pass at `now_ms`: decides what it computes, applies that to the world, and logs its end.
pub(super) fn begin_pass(
    worker: &mut WorkerDataItem<'_, '_>,
    requests: &mut Requests<'_, '_>,
    blocks: Blocks<'_>,
    scratch: &mut Scratch,
    now_ms: f64,
) {
    debug_assert!(!worker.passes.in_flight);
    let mut pass = PassBuilder {
        worker,
        requests,
        blocks,
        scratch,
        now_ms,
        budget: 0,
        computed_tokens: 0,
        preempted: false,
        prefill: PrefillBatch::default(),
        readmitted: DecodeBatch::default(),
        joining: DecodeBatch::default(),
        leaving: DecodeBatch::default(),
    };
    pass.serve_due_members();
    pass.budget = u64::from(pass.worker.spec.max_batched_tokens).saturating_sub(pass.worker.batch.decoding) as u32;
    pass.continue_prefill();
    if !pass.preempted {
        pass.admit_waiting();
    }
    pass.settle();
}

impl PassBuilder<'_, '_, '_, '_, '_> {
    /// Gives decoding members the block they need, in order of admission, and notes who finishes.
    fn serve_due_members(&mut self) {
        let number = self.worker.passes.number;
        while let Some(due) = self.worker.batch.calendar.pop_due(number) {
            self.serve_due_member(due);
        }
    }

    fn serve_due_member(&mut self, due: Due) {
        let Ok(member) = self.requests.get(due.request) else { return };
        let sequence = *member.sequence;
        if sequence.ordinal != due.ordinal || sequence.phase != Phase::Decoding {
            return;
        }
        let number = self.worker.passes.number;
        let spec = *self.worker.spec;
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
            self.worker.passes.endings.push((due.request, Ending::Finished));
        } else {
            let pass = sequence.next_due(held, spec.block_size);
            debug_assert!(pass > number);
            self.worker.batch.calendar.push(Due { pass, ..due });
        }
    }

    /// Gives a member `count` more blocks, preempting the latest members while there are too few;
    /// `false` if it had to be preempted itself.
    fn grow(&mut self, request: Entity, count: u32) -> bool {
        loop {
            if let Ok(mut member) = self.requests.get_mut(request)
                && self.worker.pool.allocate(count, &mut self.blocks, &mut member.table.rows)
            {
                return true;
            }
            let Some(victim) = self.worker.batch.members.pop() else { return false };
            self.preempt(victim.request);
            if victim.request == request {
                return false;
            }
        }
    }

    /// Sends a member back to the head of the queue, without its blocks but with its tokens.
    fn preempt(&mut self, request: Entity) {
        let number = self.worker.passes.number;
        let spec = *self.worker.spec;
        let batch = &mut *self.worker.batch;
        let Ok(mut member) = self.requests.get_mut(request) else { return };
        let computed = if member.sequence.phase == Phase::Decoding {
            let len = member.sequence.len_at(number);
            batch.decoding -= 1;
            batch.decoding_tokens -= u64::from(len);
            member.timeline.close_run(&member.sequence, &self.worker.passes);
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
            self.worker.pool.publish(runs, &mut self.blocks, &mut member.table);
        }
        self.worker.pool.release(complete, &mut self.blocks, &mut member.table);
        self.worker.queue.requests.push_front(request);
        self.worker.queue.head_needs = None;
        self.preempted = true;
    }

    /// Computes the next chunk of the member whose prompt is not finished, if there is one.
    fn continue_prefill(&mut self) {
        let Some(request) = self.worker.batch.prefilling else { return };
        let Ok(member) = self.requests.get(request) else { return };
        let before = member.sequence.computed;
        let len = member.sequence.prompt_tokens + member.sequence.generated;
        let after = before + (len - before).min(self.budget);
        let held = member.table.rows.len() as u32;
        let missing = after.div_ceil(self.worker.spec.block_size) - held;
        if after > before && self.grow(request, missing) {
            self.compute(request, before, after);
        }
    }

    /// Admits waiting requests from the head of the queue, in order, while they fit.
    fn admit_waiting(&mut self) {
        while (self.worker.batch.members.len() as u64) < u64::from(self.worker.spec.max_sequences) {
            let Some(&head) = self.worker.queue.requests.front() else { break };
            let Ok(request) = self.requests.get(head) else {
                debug_assert!(false, "a waiting request exists");
                break;
            };
            let sequence = *request.sequence;
            if let Some(ending) = self.refusal(&sequence, request.timeline.admissions.is_empty()) {
                self.leave_queue();
                self.worker.passes.endings.push((head, ending));
            } else if !self.admit(head, &sequence) {
                break;
            }
        }
    }

    /// Why the head can never run, if so.
    fn refusal(&self, sequence: &Sequence, first_admission: bool) -> Option<Ending> {
        let spec = self.worker.spec;
        let len = sequence.prompt_tokens + sequence.generated;
        let fits_pool = len.div_ceil(spec.block_size) <= spec.num_blocks;
        if sequence.prompt_tokens >= spec.context_length {
            Some(Ending::Rejected(StatusReason::PromptExceedsContextLength))
        } else if fits_pool {
            None
        } else if first_admission {
            Some(Ending::Rejected(StatusReason::PromptExceedsKvPool))
        } else {
            // The reference ends the whole run here, since the request could never go on.
            Some(Ending::Failed(StatusReason::OutgrewKvPool))
        }
    }

    /// Admits the head of the queue and computes its first chunk; `false` if it has to wait.
    fn admit(&mut self, head: Entity, sequence: &Sequence) -> bool {
        let spec = *self.worker.spec;
        let len = sequence.prompt_tokens + sequence.generated;
        let wants_token = sequence.generated < sequence.output_limit;
        let available = self.worker.pool.available();
        if (wants_token && self.budget == 0) || self.worker.queue.head_needs.is_some_and(|needs| needs > available) {
            return false;
        }
        let Ok(mut request) = self.requests.get_mut(head) else { return false };

        // The block with the last known token is computed again even if it is resident: without
        // that, there would be nothing to sample the next token from.
        let findable = if wants_token { (len - 1) / spec.block_size } else { len / spec.block_size };
        let hit_rows = &mut self.scratch.hit_rows;
        let runs = request.identity.runs(spec.block_size, 0, if spec.prefix_caching { findable } else { 0 });
        let hit = self.worker.pool.look_up(runs, &self.blocks, hit_rows);
        let needs = len.div_ceil(spec.block_size) - hit.active;
        if needs > available {
            self.worker.queue.head_needs = Some(needs);
            return false;
        }
        let before = hit.blocks * spec.block_size;
        let after = before + (len - before).min(self.budget);
        if after == before && before < len {
            return false;
        }

        let still_wanted = sequence.output_limit.saturating_sub(sequence.generated);
        let expected = (u64::from(len) + u64::from(still_wanted)).div_ceil(u64::from(spec.block_size));
        self.worker.pool.pin(hit_rows, expected as u32, &mut self.blocks, &mut request.table);
        let fresh = after.div_ceil(spec.block_size) - hit.blocks;
        let allocated = self.worker.pool.allocate(fresh, &mut self.blocks, &mut request.table.rows);
        debug_assert!(allocated, "the whole known length was tested against the pool");

        let batch = &mut *self.worker.batch;
        request.sequence.ordinal = batch.next_ordinal;
        batch.members.push(Member { ordinal: batch.next_ordinal, request: head });
        batch.next_ordinal += 1;
        request.timeline.admissions.push(Admission {
            at_ms: self.now_ms,
            worker_id: self.worker.worker.id,
            reused_tokens: u64::from(before),
        });
        self.leave_queue();
        self.compute(head, before, after);
        true
    }

    fn leave_queue(&mut self) {
        self.worker.queue.requests.pop_front();
        self.worker.queue.head_needs = None;
    }

    /// Books that a member computes its known tokens `before..after` in this pass.
    fn compute(&mut self, request: Entity, before: u32, after: u32) {
        let spec = *self.worker.spec;
        let number = self.worker.passes.number;
        let Ok(mut member) = self.requests.get_mut(request) else { return };
        self.budget -= after - before;
        self.computed_tokens += after - before;
        if spec.prefix_caching {
            let complete = member.identity.shared_blocks(spec.block_size).min(after / spec.block_size);
            if complete > member.table.published {
                let runs = member.identity.runs(spec.block_size, member.table.published, complete);
                self.worker.pool.publish(runs, &mut self.blocks, &mut member.table);
                self.worker.queue.head_needs = None;
            }
        }

        let sequence = &mut *member.sequence;
        let (prompt_before, prompt_after) = (before.min(sequence.prompt_tokens), after.min(sequence.prompt_tokens));
        let has_prompt_work = prompt_after > prompt_before;
        if has_prompt_work {
            self.prefill.add(prompt_before, prompt_after);
            self.worker.passes.prefill_tokens += u64::from(after - before);
        }
        sequence.computed = after;
        let len = sequence.prompt_tokens + sequence.generated;
        if after < len {
            sequence.phase = Phase::Prefilling;
            self.worker.batch.prefilling = Some(request);
            return;
        }
        if self.worker.batch.prefilling == Some(request) {
            self.worker.batch.prefilling = None;
        }
        if sequence.generated == sequence.output_limit {
            // It asked for no token. It never decodes, so it has no run.
            self.worker.passes.endings.push((request, Ending::Finished));
            return;
        }
        // The first token of a request comes free with its prefill; after a preemption the next
        // token is a decode step like any other.
        let free = sequence.generated == 0 && has_prompt_work;
        if !free {
            self.readmitted.requests += 1;
            self.readmitted.context_tokens += u64::from(len);
        }
        sequence.phase = Phase::Decoding;
        sequence.run_start = number;
        if sequence.generated + 1 == sequence.output_limit {
            self.worker.passes.endings.push((request, Ending::Finished));
            return;
        }
        self.joining.requests += 1;
        self.joining.context_tokens += u64::from(len);
        let pass = sequence.next_due(member.table.rows.len() as u32, spec.block_size);
        let due = Due { pass, ordinal: sequence.ordinal, request };
        self.worker.batch.calendar.push(due);
    }

    /// Prices the pass, logs its end, and prepares the batch for the next one.
    fn settle(&mut self) {
        let spec = *self.worker.spec;
        let batch = &mut *self.worker.batch;
        let decode = DecodeBatch {
            requests: batch.decoding + self.readmitted.requests,
            context_tokens: batch.decoding_tokens + self.readmitted.context_tokens,
        };
        let prefill_ms = whole_ns_ms(spec.timing.prefill_ms(&self.prefill));
        let decode_ms = whole_ns_ms(spec.timing.decode_ms(&decode, spec.pool_tokens()));
        self.worker.passes.log.push(self.now_ms + prefill_ms + decode_ms);
        self.worker.passes.in_flight = true;
        self.worker.passes.eventful += 1;
        let computed = self.computed_tokens > 0 || decode.requests > 0;
        self.worker.passes.stalled = !computed && !self.preempted && self.worker.passes.endings.is_empty();
        debug_assert!(!self.worker.passes.stalled, "every pass gets something done");

        // Everybody who decodes is one token longer next time.
        batch.decoding_tokens += batch.decoding;
        batch.decoding_tokens += self.joining.context_tokens + self.joining.requests;
        batch.decoding_tokens -= self.leaving.context_tokens + self.leaving.requests;
        batch.decoding += self.joining.requests;
        batch.decoding -= self.leaving.requests;
        for ending in 0..self.worker.passes.endings.len() {
            if let (request, Ending::Finished) = self.worker.passes.endings[ending] {
                self.vacate(request);
            }
        }
    }

    /// Takes a finishing request out of the batch and its blocks back: the worker can use them from
    /// the next pass on.
    fn vacate(&mut self, request: Entity) {
        let number = self.worker.passes.number;
        let spec = *self.worker.spec;
        let Ok(mut member) = self.requests.get_mut(request) else { return };
        let members = &mut self.worker.batch.members;
        if let Ok(index) = members.binary_search_by_key(&member.sequence.ordinal, |m| m.ordinal) {
            members.remove(index);
        }
        if !spec.prefix_caching {
            self.worker.pool.release(0, &mut self.blocks, &mut member.table);
            return;
        }
        // The token that this pass emits is never fed back, so it has no KV.
        let complete = member.sequence.len_at(number) / spec.block_size;
        if member.identity.continued {
            let runs = member.identity.runs(spec.block_size, member.table.published, complete);
            self.worker.pool.publish(runs, &mut self.blocks, &mut member.table);
            self.worker.queue.head_needs = None;
        }
        self.worker.pool.release(complete, &mut self.blocks, &mut member.table);
    }
}
