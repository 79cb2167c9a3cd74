//! "Longest prefix match": the order in which waiting requests are taken up.

use std::collections::VecDeque;

use bevy_ecs::prelude::*;
use fxhash::FxHashSet;

use super::SglangRank;
use crate::prefix::PromptIdentity;
use crate::scheduling::{Phase, Requests};

/// Queues longer than this keep the order of arrival.
const LONGEST_ORDERED_QUEUE: usize = 128;
/// Prompts that match no more tokens than this wait for an equal beginning that is on its way.
const SHORT_MATCH_TOKENS: u32 = 32;

/// Puts requests with long cached prefixes first. A request with hardly any goes last if one before
/// it begins with the same tokens: it can find these when that one is computed. Otherwise, and among
/// equals, the order stays.
pub fn order_by_longest_match(
    queue: &mut VecDeque<Entity>,
    requests: &Requests<'_, '_>,
    state: &mut SglangRank,
    page_size: u32,
) {
    if queue.len() > LONGEST_ORDERED_QUEUE {
        return;
    }
    let beginning_pages = SHORT_MATCH_TOKENS.div_ceil(page_size);
    let mut beginnings = FxHashSet::default();
    let mut keyed: Vec<(bool, u32, Entity)> = Vec::with_capacity(queue.len());
    for &request in queue.iter() {
        let Ok(data) = requests.get(request) else { continue };
        if data.sequence.phase == Phase::Prefilling {
            // A prompt that is under way goes on first.
            keyed.push((false, u32::MAX, request));
            continue;
        }
        let len = data.sequence.prompt_tokens + data.sequence.generated;
        let stamp = state.next_stamp();
        let matched = state.cache.look_up(data.identity.runs(page_size, 0, len.saturating_sub(1) / page_size), stamp);
        let has_beginning = len >= beginning_pages * page_size;
        let comes_later = matched * page_size <= SHORT_MATCH_TOKENS
            && has_beginning
            && !beginnings.insert(beginning(data.identity, page_size, beginning_pages));
        keyed.push((comes_later, matched, request));
    }
    keyed.sort_by_key(|&(comes_later, matched, _)| (comes_later, std::cmp::Reverse(matched)));
    queue.clear();
    queue.extend(keyed.into_iter().map(|(.., request)| request));
}

/// Identity of the first pages of a prompt: that of the run that the last of them lies in, and its
/// place there.
fn beginning(identity: &PromptIdentity, page_size: u32, pages: u32) -> (u64, u32) {
    let last = identity.runs(page_size, pages - 1, pages).next();
    last.map_or((0, 0), |run| (run.key, run.first_place))
}
