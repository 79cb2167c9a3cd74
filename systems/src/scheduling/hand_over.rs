//! How a block-based rank takes part in a hand-over: room for the KV that comes, and the KV that goes.

use dynosim_schemas::config::Backend;

use super::components::{RankDataItem, RequestDataItem, RequestDataReadOnlyItem};
use super::scheduler::Reservation;
use crate::handoff::Handoff;
use crate::kv::Blocks;

/// Reserves the blocks of a prompt on a decode rank, using again what is resident there.
pub fn reserve(
    rank: &mut RankDataItem<'_, '_>,
    request: &RequestDataReadOnlyItem<'_, '_>,
    handoff: &mut Handoff,
    mut blocks: Blocks<'_>,
) -> Reservation {
    let spec = *rank.spec;
    let prompt_tokens = request.sequence.prompt_tokens;
    let prompt_blocks = prompt_tokens.div_ceil(spec.block_size);
    if prompt_tokens >= spec.context_length || prompt_blocks > spec.num_blocks {
        return Reservation::Impossible;
    }
    if rank.batch.members.len() as u64 >= u64::from(spec.max_sequences) {
        return Reservation::Refused;
    }
    // TensorRT-LLM takes nothing from its cache here.
    let finds = spec.prefix_caching && spec.backend == Backend::Vllm;
    let findable = if finds { prompt_tokens / spec.block_size } else { 0 };
    let mut hit_rows = Vec::new();
    let hit = rank.pool.look_up(request.identity.runs(spec.block_size, 0, findable), &blocks, &mut hit_rows);
    if prompt_blocks - hit.active > rank.room() {
        return Reservation::Refused;
    }
    let expected = (prompt_tokens + request.sequence.output_limit).div_ceil(spec.block_size);
    rank.pool.pin(&hit_rows, expected, &mut blocks, &mut handoff.table);
    let fresh = prompt_blocks - hit.blocks;
    let allocated = rank.pool.allocate(fresh, &mut blocks, &mut handoff.table.rows);
    debug_assert!(allocated, "the whole prompt was tested against the pool");
    handoff.fresh_tokens = u64::from(fresh) * u64::from(spec.block_size);
    handoff.reused_tokens = u64::from(hit.blocks) * u64::from(spec.block_size);
    // Its blocks count as held from now on, so whoever waits has less room.
    rank.queue.head_needs = None;
    Reservation::Made
}

/// Publishes what has arrived and queues the request, in order of arrival at the deployment.
pub fn activate(
    rank: &mut RankDataItem<'_, '_>,
    request: &mut RequestDataItem<'_, '_>,
    handoff: &mut Handoff,
    mut blocks: Blocks<'_>,
) {
    let spec = *rank.spec;
    std::mem::swap(&mut *request.table, &mut handoff.table);
    if spec.prefix_caching {
        let table = &mut *request.table;
        let complete =
            request.identity.shared_blocks(spec.block_size).min(request.sequence.prompt_tokens / spec.block_size);
        if complete > table.published {
            let runs = request.identity.runs(spec.block_size, table.published, complete);
            rank.pool.publish(runs, &mut blocks, table);
        }
    }
    request.sequence.computed = request.sequence.prompt_tokens;
}

/// Frees the blocks that were reserved on a decode rank.
pub fn cancel(rank: &mut RankDataItem<'_, '_>, handoff: &mut Handoff, mut blocks: Blocks<'_>) {
    let cached = handoff.table.published;
    rank.pool.release(cached, &mut blocks, &mut handoff.table);
}

/// Gives the blocks of a prompt back to the prefill rank's pool, where later prompts can find them.
pub fn release_source(
    rank: &mut RankDataItem<'_, '_>,
    request: &RequestDataReadOnlyItem<'_, '_>,
    handoff: &mut Handoff,
    mut blocks: Blocks<'_>,
) {
    let spec = *rank.spec;
    let complete = if spec.prefix_caching { request.sequence.prompt_tokens / spec.block_size } else { 0 };
    let table = &mut handoff.table;
    if spec.prefix_caching && request.identity.continued {
        let runs = request.identity.runs(spec.block_size, table.published, complete);
        rank.pool.publish(runs, &mut blocks, table);
    }
    rank.pool.release(complete, &mut blocks, table);
    rank.queue.head_needs = None;
}
