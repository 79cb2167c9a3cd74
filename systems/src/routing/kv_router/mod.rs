//! The KV-aware router: a request goes where the least is left to do for it.
//!
//! The router keeps three things of each target: what is cached there (told by [`KvEvent`]s), the
//! prompt blocks of its active requests, and the prompt tokens that are still to be computed. From
//! these follows a cost in blocks: what the target would have to compute, the new prompt without
//! its cached part included, plus what it would have to keep. The cheapest target is chosen; a
//! temperature makes the choice a draw. While all targets are busy, requests wait in the router.
//!
//! This is a plain data structure, told of everything by its owner. All of it works in runs of
//! blocks; a placement costs one lookup per run of the prompt, for all targets together.

mod choice;
mod index;
mod load;
mod queue;
mod spec;
#[cfg(test)]
mod tests;

pub use queue::{QueuePolicy, QueueSpec};
pub use spec::{Candidate, Decision, KvRouterSpec, RouteRequest, Target};

use bevy_ecs::prelude::*;
use fxhash::FxHashMap;

use self::choice::{Chooser, CostTerms, cost};
use self::index::{Hold, PrefixIndex, Survey, read_runs};
use self::load::TargetLoad;
use self::queue::{Prompt, RouterQueue, score};
use crate::kv::KvEvent;
use crate::timing::{PrefillBatch, whole_ns_ms};

/// The router of one pool of workers.
#[derive(Clone, Debug)]
pub struct KvRouter {
    spec: KvRouterSpec,
    targets: Vec<Target>,
    loads: Vec<TargetLoad>,
    /// Indices of the targets that may be chosen, in order of targets.
    routable: Vec<usize>,
    index: PrefixIndex,
    active: FxHashMap<Entity, ActiveRequest>,
    /// Requests placed so far.
    placements: u64,
    queue: RouterQueue,
    chooser: Chooser,
    records_decisions: bool,
    survey: Survey,
    candidates: Vec<Candidate>,
    spare_prompts: Vec<Prompt>,
    spare_holds: Vec<Vec<Hold>>,
}

/// What a placed request has put on its target.
#[derive(Clone, Debug)]
struct ActiveRequest {
    target: usize,
    placement: u64,
    holds: Vec<Hold>,
    /// Blocks that nobody shares, held without an entry in the index.
    own_blocks: u32,
}

impl KvRouter {
    /// A router that knows of no load and no cached block.
    #[must_use]
    pub fn new(spec: KvRouterSpec, targets: impl IntoIterator<Item = Target>) -> Self {
        let chooser = Chooser::new(spec.temperature, spec.seed);
        let mut router = Self {
            spec,
            targets: Vec::new(),
            loads: Vec::new(),
            routable: Vec::new(),
            index: PrefixIndex::default(),
            active: FxHashMap::default(),
            placements: 0,
            queue: RouterQueue::default(),
            chooser,
            records_decisions: false,
            survey: Survey::default(),
            candidates: Vec::new(),
            spare_prompts: Vec::new(),
            spare_holds: Vec::new(),
        };
        for target in targets {
            let index = router.add_target(target);
            router.set_routable(index, true);
        }
        router
    }

    /// The targets, by index; removed ones included.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Requests that wait in the router.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Requests that have been placed and have not ended.
    #[must_use]
    pub fn active_requests(&self) -> usize {
        self.active.len()
    }

    /// Adds a target, which is not routable yet. Returns its index.
    pub fn add_target(&mut self, target: Target) -> usize {
        self.targets.push(target);
        self.loads.push(TargetLoad::default());
        self.targets.len() - 1
    }

    /// Says whether a target may be chosen. What is known of it stays.
    pub fn set_routable(&mut self, target: usize, routable: bool) {
        let targets = &self.targets;
        match (self.routable.binary_search_by_key(&targets[target], |&index| targets[index]), routable) {
            (Err(place), true) => self.routable.insert(place, target),
            (Ok(place), false) => _ = self.routable.remove(place),
            _ => {}
        }
    }

    /// Makes a target unroutable for good and forgets what is cached there. No events of it may follow.
    pub fn remove_target(&mut self, target: usize) {
        self.set_routable(target, false);
        self.index.forget(target as u32);
    }

    /// Whether decisions list their candidates from now on.
    pub fn record_decisions(&mut self, record: bool) {
        self.records_decisions = record;
    }

    /// Notes what is cached on a target from now on.
    pub fn apply(&mut self, target: usize, event: KvEvent) {
        if self.spec.uses_overlap {
            self.index.set_resident(target as u32, event.run, event.resident);
        }
    }

    /// Places a request that has arrived; `None` if it has to wait in the router.
    pub fn submit(&mut self, request: &RouteRequest<'_>, now_ms: f64) -> Option<Decision> {
        let prompt = self.read_prompt(request);
        self.survey.reset(self.targets.len());
        let mut prompt = prompt;
        self.index.survey(&mut prompt.runs, &mut self.survey);
        if self.queue.is_empty() && !self.all_busy(now_ms) {
            return Some(self.place(prompt, now_ms));
        }
        self.wait(prompt, request, now_ms);
        None
    }

    /// Places the next waiting request, if there is one and not every target is busy.
    ///
    /// To be called until it gives `None`, after each end of a prefill or of a request and after each
    /// change of targets; KV events and the passing of time alone release nobody.
    pub fn next_from_queue(&mut self, now_ms: f64) -> Option<Decision> {
        if self.queue.is_empty() || self.all_busy(now_ms) {
            return None;
        }
        let mut prompt = self.queue.pop()?;
        self.survey.reset(self.targets.len());
        self.index.survey(&mut prompt.runs, &mut self.survey);
        // What counts is what was cached when it arrived; targets that came later had nothing.
        self.survey.resident.fill(0);
        self.survey.resident[..prompt.arrival_overlap.len()].copy_from_slice(&prompt.arrival_overlap);
        Some(self.place(prompt, now_ms))
    }

    /// Notes that the prompt of a request is computed. Only the first time counts.
    pub fn prefill_completed(&mut self, request: Entity, now_ms: f64) {
        if let Some(active) = self.active.get(&request) {
            self.loads[active.target].prefill.end(active.placement, now_ms);
        }
    }

    /// Notes that a placed request has ended, in whatever way.
    pub fn ended(&mut self, request: Entity, now_ms: f64) {
        let Some(mut active) = self.active.remove(&request) else {
            debug_assert!(false, "a request is placed before it ends, and ends once");
            return;
        };
        let load = &mut self.loads[active.target];
        load.prefill.end(active.placement, now_ms);
        load.requests -= 1;
        let shared = self.index.let_go(active.target as u32, &active.holds);
        load.blocks -= u64::from(shared + active.own_blocks);
        active.holds.clear();
        self.spare_holds.push(active.holds);
    }

    /// Checks that nothing is left of requests that have ended.
    ///
    /// # Errors
    /// While no request is active: the first target with load, or a run that somebody holds.
    pub fn check(&self) -> Result<(), String> {
        if !self.active.is_empty() {
            return Ok(());
        }
        for (target, load) in self.targets.iter().zip(&self.loads) {
            let (requests, blocks) = (load.requests, load.blocks);
            let tokens = load.prefill.tokens_at(0.0);
            if requests > 0 || blocks > 0 || tokens > 0 {
                return Err(format!(
                    "no request is active, but {target:?} has {requests} requests, {blocks} blocks and {tokens} tokens"
                ));
            }
        }
        if self.index.is_held() { Err("no request is active, but a run is held".to_owned()) } else { Ok(()) }
    }

    /// Runs that the index has room for and runs that it holds.
    #[must_use]
    pub fn index_runs(&self) -> (usize, usize) {
        let (used, total) = self.index.slots();
        (total, used)
    }

    fn read_prompt(&mut self, request: &RouteRequest<'_>) -> Prompt {
        let mut prompt = self.spare_prompts.pop().unwrap_or_else(|| Prompt {
            request: request.request,
            tokens: 0,
            preferred_rank: None,
            runs: Vec::new(),
            arrival_overlap: Vec::new(),
            queued_at_ms: None,
        });
        prompt.request = request.request;
        prompt.tokens = request.prompt_tokens;
        prompt.preferred_rank = request.preferred_rank;
        prompt.queued_at_ms = None;
        prompt.runs.clear();
        if self.needs_runs() {
            let block_size = self.spec.block_size;
            read_runs(request.identity, block_size, request.prompt_tokens / block_size, &mut prompt.runs);
        }
        prompt
    }

    fn holds_runs(&self) -> bool {
        self.spec.tracks_active_blocks && self.spec.shares_active_blocks
    }

    fn needs_runs(&self) -> bool {
        self.spec.uses_overlap || self.holds_runs()
    }

    /// Whether no routable target can take a request; true if there is none.
    fn all_busy(&self, now_ms: f64) -> bool {
        let Some(queue) = &self.spec.queue else { return self.routable.is_empty() };
        self.routable.iter().all(|&target| queue.is_busy(self.loads[target].prefill.tokens_at(now_ms)))
    }

    fn wait(&mut self, mut prompt: Prompt, request: &RouteRequest<'_>, now_ms: f64) {
        prompt.queued_at_ms = Some(now_ms);
        prompt.arrival_overlap.clone_from(&self.survey.resident);
        let best = self.routable.iter().map(|&target| prompt.arrival_overlap[target]).max().unwrap_or_default();
        let new_tokens = prompt.tokens.saturating_sub(best * self.spec.block_size);
        let policy = self.spec.queue.map_or(QueuePolicy::Fcfs, |queue| queue.policy);
        self.queue.push(score(policy, request.priority, request.arrival_ms, new_tokens), prompt);
    }

    /// Chooses a target for a surveyed prompt. At least one must be routable.
    fn place(&mut self, prompt: Prompt, now_ms: f64) -> Decision {
        self.gather_candidates(&prompt, now_ms);
        let chosen = self.candidates[self.chooser.choose(&self.candidates)];
        let decision = Decision {
            request: prompt.request,
            target: chosen.target,
            overlap_blocks: chosen.overlap_blocks,
            best_overlap_blocks: self.candidates.iter().map(|c| c.overlap_blocks).max().unwrap_or_default(),
            queued_at_ms: prompt.queued_at_ms,
            candidates: if self.records_decisions { self.candidates.clone() } else { Vec::new() },
        };
        self.book(&prompt, &chosen, now_ms);
        self.spare_prompts.push(prompt);
        decision
    }

    fn gather_candidates(&mut self, prompt: &Prompt, now_ms: f64) {
        let rank = prompt.preferred_rank.filter(|&rank| self.has_rank(rank));
        debug_assert_eq!(rank, prompt.preferred_rank, "some worker has the preferred rank");
        self.candidates.clear();
        for &target in &self.routable {
            if rank.is_none_or(|rank| self.targets[target].rank == rank) {
                let load = &self.loads[target];
                let decode_blocks = if self.spec.tracks_active_blocks {
                    load.blocks + u64::from(prompt.tokens / self.spec.block_size - self.survey.held[target])
                } else {
                    0
                };
                let Target { worker_id, rank } = self.targets[target];
                self.candidates.push(Candidate {
                    target,
                    worker_id,
                    rank,
                    overlap_blocks: self.survey.resident[target],
                    prefill_tokens: load.prefill.tokens_at(now_ms),
                    decode_blocks,
                    cost: 0.0,
                });
            }
        }
        let least_prefill_tokens = self.candidates.iter().map(|c| c.prefill_tokens).min().unwrap_or_default();
        for candidate in &mut self.candidates {
            let active_requests = self.loads[candidate.target].requests;
            let terms = CostTerms { prompt_tokens: prompt.tokens, least_prefill_tokens, active_requests };
            candidate.cost = cost(&self.spec, candidate, &terms);
        }
    }

    fn has_rank(&self, rank: u32) -> bool {
        self.routable.iter().any(|&target| self.targets[target].rank == rank)
    }

    /// Puts a request's load on the chosen target.
    fn book(&mut self, prompt: &Prompt, chosen: &Candidate, now_ms: f64) {
        let (placement, target) = (self.placements, chosen.target);
        self.placements += 1;
        let cached = (chosen.overlap_blocks * self.spec.block_size).min(prompt.tokens);
        if self.spec.tracks_prefill && cached < prompt.tokens {
            let expected_ms = self.expected_prefill_ms(cached, prompt.tokens);
            self.loads[target].prefill.start(placement, prompt.tokens - cached, expected_ms, now_ms);
        }
        let mut holds = self.spare_holds.pop().unwrap_or_default();
        let (mut shared, mut own_blocks) = (0, 0);
        if self.holds_runs() {
            (shared, own_blocks) = self.index.hold(target as u32, &prompt.runs, &mut holds);
        } else if self.spec.tracks_active_blocks {
            own_blocks = prompt.tokens / self.spec.block_size;
        }
        let load = &mut self.loads[target];
        load.requests += 1;
        load.blocks += u64::from(shared + own_blocks);
        let active = ActiveRequest { target, placement, holds, own_blocks };
        let before = self.active.insert(prompt.request, active);
        debug_assert!(before.is_none(), "a request is placed once");
    }

    /// How long the prefill of a prompt takes alone; `None` without a usable estimate.
    fn expected_prefill_ms(&self, cached: u32, prompt_tokens: u32) -> Option<f64> {
        let mut batch = PrefillBatch::default();
        batch.add(cached, prompt_tokens);
        let ms = self.spec.prefill_timing.as_ref()?.prefill_ms(&batch);
        (ms.is_finite() && ms >= 0.0).then(|| whole_ns_ms(ms))
    }
}
