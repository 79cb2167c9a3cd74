//! What a router is told: its settings, its targets and the requests to place.

use bevy_ecs::prelude::*;

use super::queue::QueueSpec;
use crate::prefix::{PromptIdentity, mix};
use crate::timing::PassTiming;

/// Keeps the draws of a decode pool's router apart from those of the prefill pool's.
const DECODE_SALT: u64 = 0x5bd1_e995_97f4_a7c5;

/// The settings of one pool's router. The cost of a target follows from them (see [`super`]).
#[derive(Clone, Debug, PartialEq)]
pub struct KvRouterSpec {
    /// Tokens per KV block.
    pub block_size: u32,
    /// How many blocks of prefill a cached block takes off a target's cost.
    pub overlap_score_credit: f64,
    /// How fast the credit falls with the prefill load that a target has above the least loaded one.
    pub overlap_score_credit_decay: f64,
    /// Weight of prefill load against decode load.
    pub prefill_load_scale: f64,
    /// Cost of an active request, in blocks.
    pub decode_active_request_weight: f64,
    /// Randomness of the choice; 0 takes the best target.
    pub temperature: f64,
    /// Seed of the draws between equally good targets, and of the choice at a temperature above 0.
    pub seed: u64,
    /// Whether prompt tokens that are still to be computed count as load.
    pub tracks_prefill: bool,
    /// Whether the prompt blocks of active requests count as load.
    pub tracks_active_blocks: bool,
    /// Whether active requests with a common prefix count its blocks once.
    pub shares_active_blocks: bool,
    /// Whether the cached part of a prompt counts at all; without it the router needs no KV events.
    pub uses_overlap: bool,
    /// How long a prefill is expected to take; with it, prefill load melts away as time goes by.
    pub prefill_timing: Option<PassTiming>,
    /// When requests wait in the router; `None`: only while no target is routable.
    pub queue: Option<QueueSpec>,
}

impl KvRouterSpec {
    /// The defaults of an aggregated pool.
    #[must_use]
    pub const fn aggregated(block_size: u32) -> Self {
        Self {
            block_size,
            overlap_score_credit: 1.0,
            overlap_score_credit_decay: 0.0,
            prefill_load_scale: 1.0,
            decode_active_request_weight: 0.0,
            temperature: 0.0,
            seed: 42,
            tracks_prefill: true,
            tracks_active_blocks: true,
            shares_active_blocks: true,
            uses_overlap: true,
            prefill_timing: None,
            queue: None,
        }
    }

    /// The same settings for a prefill pool: no blocks are held for decoding.
    #[must_use]
    pub fn for_prefill_pool(self) -> Self {
        Self { tracks_active_blocks: false, ..self }
    }

    /// The same settings for a decode pool: it computes no prompts, its cache is not looked at,
    /// every request brings blocks of its own, and no target is ever busy.
    #[must_use]
    pub fn for_decode_pool(self) -> Self {
        Self {
            overlap_score_credit: 0.0,
            seed: mix(self.seed, DECODE_SALT),
            tracks_prefill: false,
            tracks_active_blocks: true,
            shares_active_blocks: false,
            uses_overlap: false,
            prefill_timing: None,
            queue: None,
            ..self
        }
    }
}

/// One rank of one worker. Targets are ordered by worker, then by rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The worker's id.
    pub worker_id: u32,
    /// The rank, from 0; always 0 without attention data parallelism.
    pub rank: u32,
}

/// A request that is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct RouteRequest<'a> {
    /// The request.
    pub request: Entity,
    /// Prompt length.
    pub prompt_tokens: u32,
    /// What the prompt's tokens are.
    pub identity: &'a PromptIdentity,
    /// Moves it forward in the queue if positive: by so many seconds (`fcfs`, `lcfs`), or as a
    /// factor (`wspt`).
    pub priority: f64,
    /// When it reached the deployment, in ms.
    pub arrival_ms: f64,
    /// The only rank that it may go to. Some worker must have it.
    pub preferred_rank: Option<u32>,
}

/// What a decision knew of one target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Index of the target.
    pub target: usize,
    /// Its worker.
    pub worker_id: u32,
    /// Its rank.
    pub rank: u32,
    /// Leading prompt blocks that are cached there.
    pub overlap_blocks: u32,
    /// Prompt tokens still to be computed there for earlier requests, as estimated at the time.
    pub prefill_tokens: u64,
    /// Distinct prompt blocks of its active requests, those of the new request included.
    pub decode_blocks: u64,
    /// Its cost, in blocks.
    pub cost: f64,
}

/// Where a request goes, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The request.
    pub request: Entity,
    /// Index of the target.
    pub target: usize,
    /// Leading prompt blocks that the chosen target has cached.
    pub overlap_blocks: u32,
    /// The most leading prompt blocks that any candidate has cached.
    pub best_overlap_blocks: u32,
    /// When it began to wait in the router, in ms; `None` if it was placed at once.
    pub queued_at_ms: Option<f64>,
    /// Every target that it could have gone to, in order; empty unless decisions are recorded.
    pub candidates: Vec<Candidate>,
}
