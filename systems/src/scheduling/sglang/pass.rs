//! One forward pass of an SGLang-style scheduler.
//!
//! A pass either computes prompts or gives every running request a token, never both. Rules measured
//! on the reference (aisimulate-core 0.13.0). As with vLLM, a decode step touches only requests with
//! something due; what all of them need together is counted.

use bevy_ecs::prelude::*;
use dynosim_schemas::request_row::{Admission, StatusReason};

use super::PrefillBudget;
use super::lpm::order_by_longest_match;
use super::state::{MAX_PREFILL_TOKENS, MAX_RESERVED_OUTPUT, SglangRank, token_stamp};
use crate::fleet::{Rank, Role};
use crate::handoff::HandoffDesk;
use crate::kv::Blocks;
use crate::kv::Stamp;
use crate::scheduling::components::{
    Due, Ending, Member, PassClock, Phase, RankDataItem, RunningBatch, Sequence, WaitingQueue,
};
use crate::scheduling::{EngineSpec, PassStart, Requests, Scratch};
use crate::timing::{DecodeBatch, PrefillBatch, whole_ns_ms};

/// One pass in the making.
struct SglangPass<'a, 'rw, 'rs> {
    rank: Rank,
    spec: EngineSpec,
    queue: &'a mut WaitingQueue,
    batch: &'a mut RunningBatch,
    passes: &'a mut PassClock,
    desk: &'a mut HandoffDesk,
    state: &'a mut SglangRank,
    requests: &'a mut Requests<'rw, 'rs>,
    start: PassStart,
}

/// Prompt tokens that a pass computes for a request.
#[derive(Clone, Copy, Debug)]
struct Planned {
    request: Entity,
    before: u32,
    after: u32,
    len: u32,
}

/// Starts a pass, if there is anything that it can do.
pub fn begin_pass(
    rank: &mut RankDataItem<'_, '_>,
    requests: &mut Requests<'_, '_>,
    _blocks: Blocks<'_>,
    _scratch: &mut Scratch,
    start: PassStart,
) {
    let Some(mut state) = rank.batch.sglang.take() else { return };
    let mut pass = SglangPass {
        rank: *rank.rank,
        spec: *rank.spec,
        queue: &mut rank.queue,
        batch: &mut rank.batch,
        passes: &mut rank.passes,
        desk: &mut rank.desk,
        state: &mut state,
        requests,
        start,
    };
    pass.run();
    rank.batch.sglang = Some(state);
}

impl SglangPass<'_, '_, '_> {
    fn run(&mut self) {
        self.state.begin_pass(self.passes.number);
        self.refuse_too_long();
        self.join_handed_over();
        let planned = self.plan_prefill();
        if !planned.is_empty() {
            self.prefill(&planned);
        } else if !self.batch.members.is_empty() || !self.passes.endings.is_empty() {
            self.decode();
        } else {
            self.passes.stalled = self.spec.role == Role::Aggregated;
            debug_assert!(!self.passes.stalled, "every pass gets something done");
        }
        self.desk.may_have_room |= !self.passes.endings.is_empty();
        self.state.inspected = self.queue.requests.len();
    }

    /// Refuses new requests whose prompts leave no room for output within the context length.
    fn refuse_too_long(&mut self) {
        let mut index = self.state.inspected.min(self.queue.requests.len());
        while let Some(&request) = self.queue.requests.get(index) {
            let prompt_tokens = self.requests.get(request).map_or(0, |data| data.sequence.prompt_tokens);
            if prompt_tokens >= self.spec.context_length {
                self.queue.requests.remove(index);
                let ending = Ending::Rejected(StatusReason::PromptExceedsContextLength);
                self.passes.endings.push((request, ending));
            } else {
                index += 1;
            }
        }
    }

    fn join_handed_over(&mut self) {
        while self.batch.members.len() < self.spec.max_sequences as usize {
            let Some((_, request)) = self.queue.handed_over.pop_front() else { break };
            self.note_admission(request, 0);
            let wants_nothing = self.requests.get(request).is_ok_and(|data| data.sequence.output_limit == 0);
            if wants_nothing {
                self.release(request);
                self.passes.endings.push((request, Ending::Finished));
            } else {
                self.join(request);
            }
        }
    }

    fn release(&mut self, request: Entity) {
        if let Ok(mut data) = self.requests.get_mut(request) {
            self.state.cache.release(&mut data.table.pages);
        }
    }

    /// Chooses the prompts that this pass computes, from the head of the queue, in order.
    fn plan_prefill(&mut self) -> Vec<Planned> {
        let mut planned = Vec::new();
        if self.queue.requests.is_empty() || !self.queue.handed_over.is_empty() || self.leaves_room_to_others() {
            return planned;
        }
        self.order_queue();
        let page_size = self.spec.block_size;
        let available = u64::from(self.state.cache.available()) * u64::from(page_size);
        let expected = self.state.outputs.tokens() as f64 * self.state.ratio.value();
        let mut budget =
            PrefillBudget::new(available as f64 - expected, MAX_PREFILL_TOKENS, self.spec.max_batched_tokens);
        while self.batch.members.len() + planned.len() < self.spec.max_sequences as usize {
            let Some(&head) = self.queue.requests.front() else { break };
            match self.plan_head(head, &mut budget) {
                Some(plan) => {
                    self.queue.requests.pop_front();
                    self.queue.head_is_under_way = false;
                    planned.push(plan);
                    if budget.is_used_up() {
                        break;
                    }
                }
                None if planned.is_empty() && self.can_never_start(head) => self.give_up_head(head),
                None => break,
            }
        }
        planned
    }

    /// Whether prompts have to wait for requests from prefill workers that want room here. A prompt
    /// that is under way need not if nobody else runs: it may hold the very room that they want.
    fn leaves_room_to_others(&self) -> bool {
        let is_alone = self.batch.members.is_empty() && self.queue.head_is_under_way;
        self.desk.awaits_room() && !is_alone
    }

    fn order_queue(&mut self) {
        if self.spec.longest_prefix_first && self.spec.prefix_caching {
            order_by_longest_match(&mut self.queue.requests, self.requests, self.state, self.spec.block_size);
        }
    }

    /// What a pass with this budget computes of the head; `None` if it has to wait.
    fn plan_head(&mut self, head: Entity, budget: &mut PrefillBudget) -> Option<Planned> {
        let page_size = self.spec.block_size;
        let Ok(mut data) = self.requests.get_mut(head) else { return None };
        let sequence = *data.sequence;
        let hold = &mut data.table.pages;
        let len = sequence.prompt_tokens + sequence.generated;
        let left = sequence.output_limit - sequence.generated;
        let continues = sequence.phase == Phase::Prefilling;
        let findable = if left > 0 { (len - 1) / page_size } else { len / page_size };
        let runs = data.identity.runs(page_size, 0, findable);
        let before = if continues { sequence.computed } else { self.state.cache.look_up(runs.clone()) * page_size };
        let reserve = left.min(MAX_RESERVED_OUTPUT);
        let chunk = budget.fit(len - before, reserve, page_size)?;
        let plan = Planned { request: head, before, after: before + chunk, len };
        if !continues {
            let stamp = self.state.next_stamp();
            *hold = self.state.cache.admit(runs, stamp);
        }
        if !self.state.cache.grow(plan.after.div_ceil(page_size) - hold.pages(), hold) {
            if !continues {
                self.state.cache.release(hold);
            }
            return None;
        }
        budget.take(plan.after - plan.before, if plan.after < len { 0 } else { reserve }, page_size);
        data.sequence.computed = plan.after;
        if !continues {
            data.sequence.phase = Phase::Prefilling;
            self.note_admission(head, before);
        }
        Some(plan)
    }

    /// Whether the head has to wait although it has the whole rank for itself.
    fn can_never_start(&self, head: Entity) -> bool {
        let held = self.requests.get(head).map_or(0, |data| data.table.pages.pages());
        self.batch.members.is_empty() && self.state.cache.available() + held == self.state.cache.capacity()
    }

    /// Ends the head, which no pass could ever take up. The reference ends the whole run here.
    fn give_up_head(&mut self, head: Entity) {
        self.queue.requests.pop_front();
        self.queue.head_is_under_way = false;
        let Ok(mut data) = self.requests.get_mut(head) else { return };
        let started = !data.timeline.admissions.is_empty();
        self.state.cache.release(&mut data.table.pages);
        let ending = if started {
            Ending::Failed(StatusReason::OutgrewKvPool)
        } else {
            Ending::Rejected(StatusReason::OutputExceedsKvPool)
        };
        self.passes.endings.push((head, ending));
    }

    fn note_admission(&mut self, request: Entity, reused_tokens: u32) {
        let Ok(mut data) = self.requests.get_mut(request) else { return };
        data.timeline.admissions.push(Admission {
            role: self.spec.role,
            at_ms: self.start.now_ms,
            worker_id: self.rank.worker_id,
            reused_tokens: u64::from(reused_tokens),
        });
    }

    /// Computes prompts; whoever has all of his gets his first token at the end of the pass.
    fn prefill(&mut self, planned: &[Planned]) {
        let mut work = PrefillBatch::default();
        for plan in planned {
            if self.spec.role != Role::Decode && plan.before < plan.after {
                work.add(plan.before, plan.after);
            }
            self.passes.prefill_tokens += u64::from(plan.after - plan.before);
        }
        let end_ms = self.start.now_ms + whole_ns_ms(self.spec.timing.prefill_ms(&work));
        self.passes.begin_unlogged(end_ms);
        // A prompt that is not finished is the last one, and goes on first in the next pass.
        let (finished, unfinished) = match planned.split_last() {
            Some((last, before)) if last.after < last.len => (before, Some(last)),
            _ => (planned, None),
        };
        if let Some(plan) = unfinished {
            self.commit(plan.request, plan.after);
            self.queue.requests.push_front(plan.request);
            self.queue.head_is_under_way = true;
        }
        let have_room = self.make_room_for_first_tokens(finished);
        // Those that end with this pass put their prompts into the tree after those that go on.
        let (ending, going_on): (Vec<&Planned>, Vec<&Planned>) = finished.iter().partition(|plan| self.ends_here(plan));
        for plan in going_on.into_iter().chain(ending) {
            self.finish_prefill(plan, have_room, end_ms);
        }
    }

    /// Makes room for the first tokens of all that go on, or of none.
    fn make_room_for_first_tokens(&mut self, finished: &[Planned]) -> bool {
        let page_size = self.spec.block_size;
        let needs = |plan: &Planned| {
            (!self.ends_here(plan)).then(|| (plan.len + 1).div_ceil(page_size) - plan.len.div_ceil(page_size))
        };
        let pages = finished.iter().filter_map(needs).sum();
        self.state.cache.make_room(pages)
    }

    /// Whether a request whose prompt is computed leaves the rank with this pass.
    fn ends_here(&self, plan: &Planned) -> bool {
        let wants_no_more = |sequence: &Sequence| sequence.generated + 1 >= sequence.output_limit;
        self.spec.role == Role::Prefill
            || self.requests.get(plan.request).is_ok_and(|data| wants_no_more(data.sequence))
    }

    fn finish_prefill(&mut self, plan: &Planned, has_room: bool, end_ms: f64) {
        self.commit(plan.request, plan.len);
        let page_size = self.spec.block_size;
        let Ok(mut data) = self.requests.get_mut(plan.request) else { return };
        if self.spec.role == Role::Prefill {
            // Its pages stay until they are on the decode rank.
            self.passes.endings.push((plan.request, Ending::Prefilled));
            return;
        }
        let sequence = &mut *data.sequence;
        let left = sequence.output_limit - sequence.generated;
        if left > 0 && (left == 1 || has_room) {
            sequence.generated += 1;
            data.timeline.lead_ms = Some(end_ms);
        }
        if left <= 1 {
            data.timeline.end_lead_run(self.passes.number);
            self.state.cache.release(&mut data.table.pages);
            self.passes.endings.push((plan.request, Ending::Finished));
            return;
        }
        if has_room {
            let pages = (plan.len + 1).div_ceil(page_size) - plan.len.div_ceil(page_size);
            let grown = self.state.cache.grow(pages, &mut data.table.pages);
            debug_assert!(grown, "room was made for all first tokens");
            if self.start.notes_first_tokens && sequence.generated == 1 {
                self.passes.first_tokens.push(plan.request);
            }
        }
        self.join(plan.request);
    }

    /// Puts the pages that are complete when `computed` tokens are computed into the tree.
    fn commit(&mut self, request: Entity, computed: u32) {
        let page_size = self.spec.block_size;
        let stamp = self.state.next_stamp();
        let Ok(mut data) = self.requests.get_mut(request) else { return };
        let hold = &mut data.table.pages;
        let runs = data.identity.runs(page_size, hold.cached_pages(), computed / page_size);
        self.state.cache.commit(runs, stamp, hold);
    }

    /// Makes a request with all known tokens computed one of those that get a token from every
    /// decode step.
    fn join(&mut self, request: Entity) {
        let Ok(mut data) = self.requests.get_mut(request) else { return };
        let batch = &mut *self.batch;
        let sequence = &mut *data.sequence;
        (sequence.phase, sequence.run_start, sequence.ordinal) =
            (Phase::Decoding, self.passes.number, batch.next_ordinal);
        batch.members.push(Member { ordinal: batch.next_ordinal, request });
        batch.next_ordinal += 1;
        batch.decoding += 1;
        let len = sequence.prompt_tokens + sequence.generated;
        batch.decoding_tokens += u64::from(len);
        self.state.growth.add(len, self.passes.number);
        self.state.outputs.add(sequence.output_limit - sequence.generated);
        batch.calendar.push(Due { pass: next_due(sequence, self.passes.number), ordinal: sequence.ordinal, request });
    }

    /// Gives every running request a token.
    fn decode(&mut self) {
        let retracted = self.retract_until_all_fit();
        let step = self.passes.number;
        let pages = self.state.growth.pages(step);
        let taken = self.state.cache.grow_all(pages);
        debug_assert!(taken, "requests were sent back until the rest fits");
        let decode = DecodeBatch { requests: self.batch.decoding, context_tokens: self.batch.decoding_tokens };
        let decode_ms = whole_ns_ms(self.spec.timing.decode_ms(&decode, self.spec.pool_tokens()));
        self.update_ratio(retracted.is_empty());
        self.serve_due_members();
        self.passes.begin(self.start.now_ms + decode_ms);
        self.state.outputs.step();
        self.batch.decoding_tokens += self.batch.decoding;
        for index in 0..self.passes.endings.len() {
            if let (request, Ending::Finished) = self.passes.endings[index] {
                self.vacate(request);
            }
        }
        self.queue.requests.extend(retracted);
    }

    fn update_ratio(&mut self, all_fit: bool) {
        if all_fit {
            self.state.ratio.decay();
            return;
        }
        let (mut generated, mut limits) = (0, 0);
        for member in &self.batch.members {
            let Ok(data) = self.requests.get(member.request) else { continue };
            generated += u64::from(data.sequence.generated_at(self.passes.number));
            limits += u64::from(data.sequence.output_limit);
        }
        self.state.ratio.after_retraction(generated, limits, self.batch.members.len() as u64);
    }

    /// Sends requests back to the queue until the others' next tokens fit: of all, the one with the
    /// fewest tokens so far.
    fn retract_until_all_fit(&mut self) -> Vec<Entity> {
        let mut retracted = Vec::new();
        while self.state.growth.pages(self.passes.number) > self.state.cache.available() {
            let Some(request) = self.fewest_generated() else { break };
            if self.batch.members.len() > 1 {
                self.leave(request);
                retracted.push(request);
            } else {
                self.leave(request);
                self.passes.endings.push((request, Ending::Failed(StatusReason::OutgrewKvPool)));
            }
        }
        self.desk.may_have_room |= !retracted.is_empty();
        retracted
    }

    fn fewest_generated(&self) -> Option<Entity> {
        let generated = |request: Entity| {
            self.requests.get(request).map_or(u32::MAX, |data| data.sequence.generated_at(self.passes.number))
        };
        self.batch.members.iter().map(|member| member.request).min_by_key(|&request| generated(request))
    }

    /// Takes a request out of the batch that does not get the token of this step. What it has
    /// computed stays cached.
    fn leave(&mut self, request: Entity) {
        let step = self.passes.number;
        self.remove_member(request, step);
        let Ok(mut data) = self.requests.get_mut(request) else { return };
        data.timeline.end_run(&data.sequence, step);
        data.timeline.preemptions += 1;
        let sequence = &mut *data.sequence;
        sequence.generated = sequence.generated_at(step);
        (sequence.phase, sequence.computed) = (Phase::Waiting, 0);
        let len = sequence.prompt_tokens + sequence.generated;
        self.end_hold(request, len, step);
    }

    /// Takes a request out of the batch that gets its last token from this step.
    fn vacate(&mut self, request: Entity) {
        let Ok(data) = self.requests.get(request) else { return };
        if data.sequence.phase != Phase::Decoding {
            return;
        }
        let len = data.sequence.len_at(self.passes.number) + 1;
        self.remove_member(request, self.passes.number + 1);
        self.end_hold(request, len, self.passes.number + 1);
    }

    /// Takes a request out of the batch and of all sums, as they are for step `step`.
    fn remove_member(&mut self, request: Entity, step: u64) {
        let Ok(data) = self.requests.get(request) else { return };
        let sequence = data.sequence;
        let batch = &mut *self.batch;
        if let Ok(index) = batch.members.binary_search_by_key(&sequence.ordinal, |member| member.ordinal) {
            batch.members.remove(index);
        }
        batch.decoding -= 1;
        batch.decoding_tokens -= u64::from(sequence.len_at(step));
        self.state.growth.remove(sequence.len_at(step), step);
        self.state.outputs.remove(sequence.output_limit - sequence.generated_at(step));
    }

    /// Lets go of the pages of a request that has `len` tokens before decode step `step`; those that are
    /// complete stay cached.
    ///
    /// SGLang puts each page into the tree when it is full, which touches everything before it. Nobody
    /// can see that before the request lets go, so it is made up for here.
    fn end_hold(&mut self, request: Entity, len: u32, step: u64) {
        let page_size = self.spec.block_size;
        let Ok(mut data) = self.requests.get_mut(request) else { return };
        let hold = &mut data.table.pages;
        hold.receive(len.div_ceil(page_size) - hold.pages());
        let filled = step.checked_sub(1 + u64::from(len % page_size)).filter(|&step| step >= data.sequence.run_start);
        let stamp = filled.map_or(Stamp::default(), |step| token_stamp(step, data.sequence.ordinal));
        let runs = data.identity.runs(page_size, hold.cached_pages(), len / page_size);
        self.state.cache.finish(runs, stamp, hold);
    }

    fn serve_due_members(&mut self) {
        let step = self.passes.number;
        while let Some(due) = self.batch.calendar.pop_due(step) {
            let Ok(data) = self.requests.get(due.request) else { continue };
            let sequence = data.sequence;
            if sequence.ordinal != due.ordinal || sequence.phase != Phase::Decoding {
                continue;
            }
            let left = sequence.output_limit - sequence.generated_at(step);
            if left == 1 {
                self.passes.endings.push((due.request, Ending::Finished));
                continue;
            }
            // From the next step on it counts with less than the most that is set aside.
            debug_assert_eq!(left, MAX_RESERVED_OUTPUT + 1);
            self.state.outputs.come_down();
            self.batch.calendar.push(Due { pass: next_due(sequence, step + 1), ..due });
        }
    }
}

/// The next step from `step` on at which a running request needs attention: it comes down to what is
/// set aside at the most, or gets its last token.
fn next_due(sequence: &Sequence, step: u64) -> u64 {
    let left = u64::from(sequence.output_limit - sequence.generated_at(step));
    let most = u64::from(MAX_RESERVED_OUTPUT);
    step + if left > most { left - most - 1 } else { left - 1 }
}
