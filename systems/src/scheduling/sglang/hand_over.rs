//! How an SGLang-style rank takes part in a hand-over.

use crate::handoff::Handoff;
use crate::kv::Blocks;
use crate::scheduling::components::{RankDataItem, RequestDataItem, RequestDataReadOnlyItem};
use crate::scheduling::scheduler::Reservation;

/// Reserves the pages of a prompt on a decode rank, using again what is cached there.
pub fn reserve(
    rank: &mut RankDataItem<'_, '_>,
    request: &RequestDataReadOnlyItem<'_, '_>,
    handoff: &mut Handoff,
    _blocks: Blocks<'_>,
) -> Reservation {
    let Some(state) = rank.batch.sglang.as_deref_mut() else { return Reservation::Impossible };
    let prompt_tokens = request.sequence.prompt_tokens;
    let page_size = rank.spec.block_size;
    let pages = prompt_tokens.div_ceil(page_size);
    if prompt_tokens >= rank.spec.context_length || pages > state.cache.capacity() {
        return Reservation::Impossible;
    }
    // The last token need not be computed again here, so all complete pages can be used again.
    let stamp = state.next_stamp();
    let mut hold = state.cache.admit(request.identity.runs(page_size, 0, prompt_tokens / page_size), stamp);
    let fresh = pages - hold.cached_pages();
    if !state.cache.grow(fresh, &mut hold) {
        state.cache.release(&mut hold);
        return Reservation::Refused;
    }
    handoff.fresh_tokens = u64::from(fresh) * u64::from(page_size);
    handoff.reused_tokens = u64::from(hold.cached_pages()) * u64::from(page_size);
    handoff.table.pages = hold;
    Reservation::Made
}

/// Puts the complete pages that have arrived into the tree.
pub fn activate(
    rank: &mut RankDataItem<'_, '_>,
    request: &mut RequestDataItem<'_, '_>,
    handoff: &mut Handoff,
    _blocks: Blocks<'_>,
) {
    let Some(state) = rank.batch.sglang.as_deref_mut() else { return };
    std::mem::swap(&mut *request.table, &mut handoff.table);
    let hold = &mut request.table.pages;
    let page_size = rank.spec.block_size;
    let complete = request.sequence.prompt_tokens / page_size;
    let runs = request.identity.runs(page_size, hold.cached_pages(), complete);
    let stamp = state.next_stamp();
    state.cache.commit(runs, stamp, hold);
    request.sequence.computed = request.sequence.prompt_tokens;
}

/// Frees the pages that were reserved on a decode rank.
pub fn cancel(rank: &mut RankDataItem<'_, '_>, handoff: &mut Handoff, _blocks: Blocks<'_>) {
    if let Some(state) = rank.batch.sglang.as_deref_mut() {
        state.cache.release(&mut handoff.table.pages);
    }
}

/// Lets go of a prompt's pages on the prefill rank; the complete ones stay cached.
pub fn release_source(
    rank: &mut RankDataItem<'_, '_>,
    _request: &RequestDataReadOnlyItem<'_, '_>,
    handoff: &mut Handoff,
    _blocks: Blocks<'_>,
) {
    if let Some(state) = rank.batch.sglang.as_deref_mut() {
        state.cache.release(&mut handoff.table.pages);
    }
}
