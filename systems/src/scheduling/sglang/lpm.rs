//! "Longest prefix match": the order in which waiting requests are taken up.

use std::cmp::Reverse;
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
    state: &SglangRank,
    page_size: u32,
) {
    if queue.len() > LONGEST_ORDERED_QUEUE {
        return;
    }
    let beginning_pages = SHORT_MATCH_TOKENS.div_ceil(page_size);
    let waiting = queue.iter().filter_map(|&request| {
        let data = requests.get(request).ok()?;
        if data.sequence.phase == Phase::Prefilling {
            // A prompt that is under way goes on first.
            return Some(Waiting { request, matched_tokens: u32::MAX, beginning: None });
        }
        let len = data.sequence.prompt_tokens + data.sequence.generated;
        let matched = state.cache.look_up(data.identity.runs(page_size, 0, len / page_size));
        let has_beginning = len / page_size >= beginning_pages;
        let beginning = has_beginning.then(|| beginning(data.identity, page_size, beginning_pages));
        Some(Waiting { request, matched_tokens: matched * page_size, beginning })
    });
    let ordered = in_order(waiting.collect());
    queue.clear();
    queue.extend(ordered.into_iter().map(|waiting| waiting.request));
}

/// A waiting request, as the policy sees it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Entity,
    matched_tokens: u32,
    /// Identity of its first tokens, unless it is too short for that.
    beginning: Option<(u64, u32)>,
}

fn in_order(waiting: Vec<Waiting>) -> Vec<Waiting> {
    let mut beginnings = FxHashSet::default();
    let mut ranked: Vec<((bool, Reverse<u32>), Waiting)> = waiting
        .into_iter()
        .map(|waiting| {
            let is_short = waiting.matched_tokens <= SHORT_MATCH_TOKENS;
            let comes_later = is_short && waiting.beginning.is_some_and(|beginning| !beginnings.insert(beginning));
            ((comes_later, Reverse(waiting.matched_tokens)), waiting)
        })
        .collect();
    ranked.sort_by_key(|&(rank, _)| rank);
    ranked.into_iter().map(|(_, waiting)| waiting).collect()
}

/// Identity of the first pages of a prompt: that of the run that the last of them lies in, and its
/// place there.
fn beginning(identity: &PromptIdentity, page_size: u32, pages: u32) -> (u64, u32) {
    let last = identity.runs(page_size, pages - 1, pages).next();
    last.map_or((0, 0), |run| (run.key, run.first_place))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of prompts given by their matched tokens, their ids of eight tokens, and their lengths.
    fn order(prompts: &[(u32, &[u64], u32)], page_size: u32) -> Vec<usize> {
        let mut world = World::new();
        let pages = SHORT_MATCH_TOKENS.div_ceil(page_size);
        let waiting: Vec<Waiting> = prompts
            .iter()
            .map(|&(matched_tokens, ids, len)| {
                let identity = PromptIdentity::from_trace_ids(ids, 8, len, 0);
                let beginning = (len / page_size >= pages).then(|| beginning(&identity, page_size, pages));
                Waiting { request: world.spawn_empty().id(), matched_tokens, beginning }
            })
            .collect();
        let place = |request| waiting.iter().position(|waiting| waiting.request == request);
        in_order(waiting.clone()).into_iter().filter_map(|waiting| place(waiting.request)).collect()
    }

    #[test]
    fn the_longest_match_goes_first_and_ties_keep_their_order() {
        assert_eq!(order(&[(0, &[1], 8), (40, &[2], 8), (0, &[3], 8), (90, &[4], 8)], 1), [3, 1, 0, 2]);
    }

    #[test]
    fn a_request_that_begins_like_an_earlier_one_goes_last() {
        let (first, twin, other) = (&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 6], &[7, 8, 9, 10, 11]);
        assert_eq!(order(&[(0, first, 40), (0, twin, 40), (0, other, 40)], 1), [0, 2, 1]);
        assert_eq!(order(&[(8, first, 40), (32, twin, 40), (0, other, 40)], 1), [0, 2, 1]);
        assert_eq!(order(&[(40, first, 40), (32, twin, 40), (0, other, 40)], 1), [0, 1, 2], "the first is cached");
        assert_eq!(order(&[(0, first, 40), (33, twin, 40), (0, other, 40)], 1), [1, 0, 2], "the twin is cached");
    }

    /// Measured on the reference at a page size of 24: 48 tokens make a beginning.
    #[test]
    fn a_beginning_is_made_of_whole_pages() {
        let (a, longer, other) = (&[1, 2, 3, 4, 5, 6][..], &[1, 2, 3, 4, 5, 6, 7][..], &[20, 21, 22, 23, 24, 25][..]);
        assert_eq!(order(&[(0, a, 48), (0, longer, 50), (0, other, 48)], 24), [0, 2, 1]);
        assert_eq!(order(&[(0, a, 47), (0, a, 47), (0, other, 47)], 24), [0, 1, 2], "47 tokens are not enough");
    }
}
