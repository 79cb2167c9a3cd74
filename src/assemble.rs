//! From a configuration to a deployment: which values of the YAML mean what to the engine.

use dynosim_schemas::config::{
    Backend, BytesPerToken, Capacity, ContextLength, Prediction, PrefillLoadModel, Role, Router, SchedulePolicy,
    Timing, TransferLinks, Worker,
};
use dynosim_systems::deployment::{Deployment, PoolSpec};
use dynosim_systems::handoff::TransferSpec;
use dynosim_systems::metrics::SlaBounds;
use dynosim_systems::routing::RouterSpec;
use dynosim_systems::routing::kv_router::{KvRouterSpec, QueueSpec};
use dynosim_systems::scheduling::EngineSpec;
use dynosim_systems::time::VirtualTime;
use dynosim_systems::timing::PassTiming;

/// The deployment that a configuration describes.
///
/// The configuration has been found valid and available; what is left out here is not simulated yet
/// and was refused before.
#[must_use]
pub fn deployment(prediction: &Prediction) -> Option<Deployment> {
    let pools = prediction.engine.workers.roles().map(|(role, worker)| pool(prediction, role, worker));
    let cutoff_seconds = prediction.traffic.stop.max_virtual_time_seconds;
    Some(Deployment {
        pools: pools.collect::<Option<_>>()?,
        transfer: transfer(prediction)?,
        router: router(prediction)?,
        records_decisions: false,
        sla: prediction.evaluation.sla.map(|sla| SlaBounds {
            ttft_ms: sla.ttft_ms,
            itl_ms: sla.itl_ms,
            e2e_ms: sla.e2e_ms,
        }),
        cutoff: cutoff_seconds.map_or(VirtualTime::NEVER, |seconds| VirtualTime::from_ms(seconds * 1000.0)),
    })
}

fn pool(prediction: &Prediction, role: Role, worker: &Worker) -> Option<PoolSpec> {
    let ContextLength::Tokens(context_length) = prediction.engine.context_length else { return None };
    let Capacity::Fixed { blocks } = worker.kv_cache.capacity else { return None };
    let timing = match worker.timing {
        Timing::Default => return None,
        Timing::Fixed { prefill_ms, decode_ms } => PassTiming::Fixed { prefill_ms, decode_ms },
        Timing::Polynomial => PassTiming::Polynomial,
    };
    // SGLang divides a chunk among the attention ranks; the others give each rank the whole budget.
    let chunk_tokens = match prediction.engine.backend {
        Backend::Sglang => worker.scheduler.max_batched_tokens / worker.parallelism.attention_data,
        Backend::Vllm | Backend::Trtllm => worker.scheduler.max_batched_tokens,
    };
    let engine = EngineSpec {
        backend: prediction.engine.backend,
        role,
        block_size: count(worker.kv_cache.block_size),
        num_blocks: count(blocks),
        max_batched_tokens: count(chunk_tokens),
        max_sequences: count(worker.scheduler.max_sequences),
        context_length: count(context_length),
        prefix_caching: worker.kv_cache.prefix_caching,
        prefill_schedule_interval: count(worker.scheduler.prefill_schedule_interval),
        longest_prefix_first: worker.scheduler.policy == SchedulePolicy::Lpm,
        timing,
    };
    Some(PoolSpec {
        engine,
        workers: count(worker.parallelism.replicas),
        ranks_per_worker: count(worker.parallelism.attention_data),
        gpus_per_worker: worker.parallelism.gpus_per_worker(),
        startup_ms: worker.startup_seconds * 1000.0,
    })
}

fn transfer(prediction: &Prediction) -> Option<TransferSpec> {
    let Some(transfer) = prediction.engine.kv_transfer else { return Some(TransferSpec::default()) };
    let bytes_per_token = match (transfer.bytes_per_token, transfer.bandwidth_gb_per_second) {
        (BytesPerToken::Bytes(bytes), _) => bytes,
        // What takes no time has no need of a size.
        (BytesPerToken::Auto, None) => 0,
        (BytesPerToken::Auto, Some(_)) => return None,
    };
    Some(TransferSpec {
        bytes_per_token,
        bandwidth_gb_per_second: transfer.bandwidth_gb_per_second,
        tokens: transfer.timing_mode,
        shares_links: transfer.links == TransferLinks::Shared,
    })
}

fn router(prediction: &Prediction) -> Option<RouterSpec> {
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
        return Some(RouterSpec::RoundRobin);
    };
    let (role, entry) = prediction.engine.workers.roles().next()?;
    let entry = pool(prediction, role, entry)?.engine;
    Some(RouterSpec::Kv(KvRouterSpec {
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
    }))
}

/// Validation has bounded every count.
pub(crate) fn count(value: u64) -> u32 {
    debug_assert!(value <= u64::from(u32::MAX));
    value as u32
}
