//! From a configuration to a deployment: which values of the YAML mean what to the engine.

use dynosim_schemas::config::{
    Backend, Prediction, PrefillLoadModel, Role, Router, SchedulePolicy, TransferLinks, Worker,
};
use dynosim_systems::deployment::{Deployment, PoolSpec};
use dynosim_systems::handoff::TransferSpec;
use dynosim_systems::metrics::SlaBounds;
use dynosim_systems::routing::RouterSpec;
use dynosim_systems::routing::kv_router::{KvRouterSpec, QueueSpec};
use dynosim_systems::scheduling::EngineSpec;
use dynosim_systems::time::VirtualTime;

use crate::resolve::{Resolved, ResolvedWorker};

/// The deployment that a configuration describes, with what was resolved of it.
#[must_use]
pub fn deployment(prediction: &Prediction, resolved: &Resolved) -> Deployment {
    let workers = prediction.engine.workers.roles().zip(&resolved.workers);
    let pools: Vec<PoolSpec> = workers
        .map(|((role, worker), found)| pool(prediction, (role, worker), (resolved.context_length, found)))
        .collect();
    let cutoff_seconds = prediction.traffic.stop.max_virtual_time_seconds;
    Deployment {
        transfer: transfer(prediction, resolved.transfer_bytes_per_token),
        router: router(prediction, &pools),
        pools,
        records_decisions: false,
        sla: prediction.evaluation.sla.map(|sla| SlaBounds {
            ttft_ms: sla.ttft_ms,
            itl_ms: sla.itl_ms,
            e2e_ms: sla.e2e_ms,
        }),
        cutoff: cutoff_seconds.map_or(VirtualTime::NEVER, |seconds| VirtualTime::from_ms(seconds * 1000.0)),
    }
}

fn pool(
    prediction: &Prediction,
    (role, worker): (Role, &Worker),
    (context_length, found): (u64, &ResolvedWorker),
) -> PoolSpec {
    // SGLang divides a chunk among the attention ranks; the others give each rank the whole budget.
    let chunk_tokens = match prediction.engine.backend {
        Backend::Sglang => worker.scheduler.max_batched_tokens / worker.parallelism.attention_data,
        Backend::Vllm | Backend::Trtllm => worker.scheduler.max_batched_tokens,
    };
    let engine = EngineSpec {
        backend: prediction.engine.backend,
        role,
        block_size: count(worker.kv_cache.block_size),
        num_blocks: count(found.blocks),
        max_batched_tokens: count(chunk_tokens),
        max_sequences: count(worker.scheduler.max_sequences),
        context_length: count(context_length),
        prefix_caching: worker.kv_cache.prefix_caching,
        prefill_schedule_interval: count(worker.scheduler.prefill_schedule_interval),
        longest_prefix_first: worker.scheduler.policy == SchedulePolicy::Lpm,
        timing: found.timing,
    };
    PoolSpec {
        engine,
        workers: count(worker.parallelism.replicas),
        ranks_per_worker: count(worker.parallelism.attention_data),
        gpus_per_worker: worker.parallelism.gpus_per_worker(),
        startup_ms: worker.startup_seconds * 1000.0,
    }
}

fn transfer(prediction: &Prediction, bytes_per_token: u64) -> TransferSpec {
    let Some(transfer) = prediction.engine.kv_transfer else { return TransferSpec::default() };
    TransferSpec {
        bytes_per_token,
        bandwidth_gb_per_second: transfer.bandwidth_gb_per_second,
        tokens: transfer.timing_mode,
        shares_links: transfer.links == TransferLinks::Shared,
    }
}

fn router(prediction: &Prediction, pools: &[PoolSpec]) -> RouterSpec {
    let Router::KvRouter {
        prefill_load_model,
        overlap_score_credit,
        prefill_load_scale,
        temperature,
        overlap_score_credit_decay,
        decode_active_request_weight,
        seed,
        assume_kv_reuse,
        track_active_blocks,
        track_prefill_tokens,
        queue,
    } = prediction.router
    else {
        return RouterSpec::RoundRobin;
    };
    // Validation has seen to it that there are workers.
    let Some(entry) = pools.first().map(|pool| pool.engine) else { return RouterSpec::RoundRobin };
    RouterSpec::Kv(KvRouterSpec {
        block_size: entry.block_size,
        overlap_score_credit,
        overlap_score_credit_decay,
        prefill_load_scale,
        decode_active_request_weight,
        temperature,
        seed,
        tracks_prefill: track_prefill_tokens,
        tracks_active_blocks: track_active_blocks,
        shares_active_blocks: assume_kv_reuse,
        uses_overlap: true,
        prefill_timing: (prefill_load_model == PrefillLoadModel::Aic).then_some(entry.timing),
        queue: queue.map(|queue| QueueSpec {
            threshold: queue.threshold,
            policy: queue.policy,
            max_batched_tokens: u64::from(entry.max_batched_tokens),
        }),
    })
}

/// Validation has bounded every count.
pub(crate) fn count(value: u64) -> u32 {
    debug_assert!(value <= u64::from(u32::MAX));
    value as u32
}
