//! What is simulated, apart from the workload.

use bevy_ecs::prelude::*;

use crate::handoff::TransferSpec;
use crate::metrics::SlaBounds;
use crate::routing::RouterSpec;
use crate::scheduling::EngineSpec;
use crate::time::VirtualTime;
use dynosim_schemas::config::Backend;

/// The workers of one role, all alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolSpec {
    /// The engine of every rank.
    pub engine: EngineSpec,
    /// Number of workers.
    pub workers: u32,
    /// Ranks of one worker.
    pub ranks_per_worker: u32,
    /// GPUs of one worker.
    pub gpus_per_worker: u64,
    /// Time from the decision to add a worker until it can serve, in ms. The first workers are
    /// there from the start.
    pub startup_ms: f64,
}

/// What is simulated, apart from the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployment {
    /// The workers, role by role: the aggregated ones alone, or the prefill and the decode ones.
    pub pools: Vec<PoolSpec>,
    /// How KV moves from prefill to decode workers.
    pub transfer: TransferSpec,
    /// How requests are spread over workers.
    pub router: RouterSpec,
    /// Whether the router's decisions are recorded.
    pub records_decisions: bool,
    /// Bounds for goodput.
    pub sla: Option<SlaBounds>,
    /// The virtual time at which the simulation is cut off.
    pub cutoff: VirtualTime,
}

impl Deployment {
    /// `workers` aggregated workers of one rank and one GPU each, behind a round-robin router.
    #[must_use]
    pub fn aggregated(engine: EngineSpec, workers: u32) -> Self {
        let pool = PoolSpec { engine, workers, ranks_per_worker: 1, gpus_per_worker: 1, startup_ms: 0.0 };
        Self {
            pools: vec![pool],
            transfer: TransferSpec::default(),
            router: RouterSpec::RoundRobin,
            records_decisions: false,
            sla: None,
            cutoff: VirtualTime::NEVER,
        }
    }

    /// The engine at which requests arrive.
    #[must_use]
    pub fn entry_engine(&self) -> Option<&EngineSpec> {
        self.pools.first().map(|pool| &pool.engine)
    }

    /// What every request may have of tokens.
    #[must_use]
    pub fn token_limits(&self) -> TokenLimits {
        let smallest = |of: fn(&EngineSpec) -> u32| self.pools.iter().map(|pool| of(&pool.engine)).min();
        let pool_tokens = |engine: &EngineSpec| match engine.backend {
            // It only starts what it can finish, so it cuts the output to what the pool holds.
            Backend::Trtllm => engine.num_blocks.saturating_mul(engine.block_size),
            Backend::Vllm | Backend::Sglang => u32::MAX,
        };
        TokenLimits {
            context_length: smallest(|engine| engine.context_length).unwrap_or(u32::MAX),
            pool_tokens: smallest(pool_tokens).unwrap_or(u32::MAX),
        }
    }
}

/// How many tokens a request may have, prompt and output together.
#[derive(Resource, Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLimits {
    /// Of the model as it is served.
    pub context_length: u32,
    /// Of the KV pool, where the scheduler cuts the output to it.
    pub pool_tokens: u32,
}

impl TokenLimits {
    /// The output that is left of a request's wish.
    #[must_use]
    pub fn output_limit(&self, input_tokens: u32, output_tokens: u32) -> u32 {
        output_tokens.min(self.context_length.min(self.pool_tokens).saturating_sub(input_tokens))
    }
}
