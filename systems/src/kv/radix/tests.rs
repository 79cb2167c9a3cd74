//! What the radix cache does to requests, one rule at a time.

use super::{RadixCache, RadixHold, RadixUsage, Stamp};
use crate::kv::KvEvent;
use crate::prefix::PromptIdentity;

/// A cache of pages of one token, and a clock.
struct Rank {
    cache: RadixCache,
    now: u64,
}

impl Rank {
    fn new(capacity: u32) -> Self {
        Self { cache: RadixCache::new(capacity, true), now: 0 }
    }

    fn stamp(&mut self) -> Stamp {
        self.now += 1;
        Stamp { pass: self.now, order: 0 }
    }

    fn admit(&mut self, prompt: &PromptIdentity, most: u32) -> RadixHold {
        let at = self.stamp();
        self.cache.admit(prompt.runs(1, 0, most), at)
    }

    fn grow_to(&mut self, pages: u32, hold: &mut RadixHold) {
        assert!(self.cache.grow(pages - hold.pages(), hold));
    }

    fn commit(&mut self, prompt: &PromptIdentity, pages: u32, hold: &mut RadixHold) {
        self.commit_pages(prompt, pages, 1, hold);
    }

    fn commit_pages(&mut self, prompt: &PromptIdentity, pages: u32, page_size: u32, hold: &mut RadixHold) {
        let at = self.stamp();
        self.cache.commit(prompt.runs(page_size, hold.cached_pages(), pages), at, hold);
    }

    fn decode_to(&mut self, prompt: &PromptIdentity, pages: u32, hold: &mut RadixHold) {
        self.grow_to(pages, hold);
        self.commit(prompt, pages, hold);
    }

    fn finish(&mut self, prompt: &PromptIdentity, pages: u32, mut hold: RadixHold) {
        let at = self.stamp();
        self.cache.finish(prompt.runs(1, hold.cached_pages(), pages), at, &mut hold);
        assert_eq!(self.cache.check([].iter(), 0), Ok(()));
    }

    /// One request alone, from admission to its end.
    fn serve(&mut self, prompt: &PromptIdentity, pages: u32) {
        let mut hold = self.admit(prompt, pages - 1);
        self.grow_to(pages, &mut hold);
        self.commit(prompt, pages, &mut hold);
        self.finish(prompt, pages, hold);
    }

    fn cached(&self, prompt: &PromptIdentity) -> u32 {
        self.cache.look_up(prompt.runs(1, 0, 1000))
    }
}

/// A prompt of 100 tokens for every id, then its own tokens.
fn prompt(ids: &[u64], number: u64) -> PromptIdentity {
    PromptIdentity::from_trace_ids(ids, 100, 100 * ids.len() as u32, number)
}

#[test]
fn a_prompt_is_found_again_up_to_where_the_caller_allows() {
    let mut rank = Rank::new(1000);
    rank.serve(&prompt(&[1], 0), 100);
    let hold = rank.admit(&prompt(&[1], 1), 99);
    assert_eq!(hold.cached_pages(), 99);
    assert_eq!(rank.cache.usage(), RadixUsage { free: 900, private: 0, locked: 99, evictable: 1 });
}

#[test]
fn prompts_of_one_batch_do_not_share_and_the_later_one_gives_its_copy_back() {
    let mut rank = Rank::new(1000);
    let (a, b) = (prompt(&[1, 2], 0), prompt(&[1, 3], 1));
    let (mut hold_a, mut hold_b) = (rank.admit(&a, 199), rank.admit(&b, 199));
    rank.grow_to(200, &mut hold_a);
    rank.grow_to(200, &mut hold_b);
    assert_eq!(rank.cache.usage().private, 400);
    rank.commit(&a, 200, &mut hold_a);
    rank.commit(&b, 200, &mut hold_b);
    assert_eq!(rank.cache.usage(), RadixUsage { free: 700, private: 0, locked: 300, evictable: 0 });
    rank.cache.release(&mut hold_a);
    assert_eq!(rank.cache.check([&hold_b].into_iter(), 0), Ok(()));
    assert_eq!(rank.cache.usage(), RadixUsage { free: 700, private: 0, locked: 200, evictable: 100 });
}

/// How many pages of each prompt are left when 1, 2, 3... pages are evicted, as far as it changes.
fn eviction_order(rank: &mut Rank, prompts: [&PromptIdentity; 2]) -> Vec<(u32, u32)> {
    let mut filler = RadixHold::default();
    let mut left = Vec::new();
    while rank.cache.grow(1, &mut filler) {
        left.push((rank.cached(prompts[0]), rank.cached(prompts[1])));
        left.dedup();
    }
    left
}

/// What is left on the way from `from` to `to`, one page after the other.
fn way(from: (u32, u32), to: (u32, u32)) -> Vec<(u32, u32)> {
    let steps = (from.0 - to.0) + (from.1 - to.1);
    let at = |step: u32| if from.0 > to.0 { (from.0 - step, from.1) } else { (from.0, from.1 - step) };
    (1..=steps).map(at).collect()
}

#[test]
fn the_leaf_touched_longest_ago_goes_first_from_its_end_and_its_prefix_last() {
    let mut rank = Rank::new(500);
    let (a, b) = (prompt(&[1, 2], 0), prompt(&[1, 3], 1));
    rank.serve(&a, 200);
    rank.serve(&b, 200);
    assert_eq!(rank.cached(&a), 200, "which is no touch");
    let left = [vec![(200, 200)], way((200, 200), (100, 200)), way((100, 200), (100, 100))].concat();
    assert_eq!(eviction_order(&mut rank, [&a, &b])[..201], left);
}

/// Measured on the reference, as the next three: two prompts of 40 tokens, and then a third one of 21
/// tokens that the first begins with. It finds 20 of them and commits all 21.
fn after_a_prompt_within_another(serve: impl Fn(&mut Rank, &PromptIdentity)) -> Vec<(u32, u32)> {
    let mut rank = Rank::new(120);
    let (a, b) = (prompt(&[1], 0), prompt(&[2], 1));
    rank.serve(&a, 40);
    rank.serve(&b, 40);
    serve(&mut rank, &PromptIdentity::from_trace_ids(&[1], 100, 21, 2));
    eviction_order(&mut rank, [&a, &b])
}

#[test]
fn a_node_is_not_touched_by_being_cut() {
    let left = after_a_prompt_within_another(|rank, prompt| rank.serve(prompt, 21));
    let order = [vec![(40, 40)], way((40, 40), (20, 40)), way((20, 40), (20, 0)), way((20, 0), (0, 0))];
    assert_eq!(left, order.concat(), "token 21 was cut off and goes with those behind it");
}

#[test]
fn a_node_is_touched_when_it_is_found_whole() {
    let left = after_a_prompt_within_another(|rank, prompt| {
        rank.serve(prompt, 21);
        rank.serve(prompt, 21);
    });
    let order = [vec![(40, 40)], way((40, 40), (21, 40)), way((21, 40), (21, 0)), way((21, 0), (0, 0))];
    assert_eq!(left, order.concat());
}

#[test]
fn a_node_is_touched_by_what_is_inserted_behind_it() {
    let left = after_a_prompt_within_another(|rank, prompt| {
        let mut hold = rank.admit(prompt, 20);
        rank.grow_to(21, &mut hold);
        rank.commit(prompt, 21, &mut hold);
        rank.decode_to(prompt, 23, &mut hold);
        rank.finish(prompt, 23, hold);
    });
    let order = [vec![(40, 40)], way((40, 40), (21, 40)), way((21, 40), (21, 0)), way((21, 0), (0, 0))];
    assert_eq!(left, order.concat());
}

#[test]
fn a_request_that_inserts_nothing_touches_nothing() {
    let left = after_a_prompt_within_another(|rank, prompt| {
        let hold = rank.admit(prompt, 20);
        rank.finish(prompt, 20, hold);
    });
    assert_eq!(left, [vec![(40, 40)], way((40, 40), (0, 40)), way((0, 40), (0, 0))].concat());
}

#[test]
fn growth_is_all_or_nothing() {
    let mut rank = Rank::new(300);
    let a = prompt(&[1, 2], 0);
    rank.serve(&a, 200);
    let mut hold = rank.admit(&a, 199);
    let before = rank.cache.usage();
    assert!(!rank.cache.grow(102, &mut hold));
    assert_eq!(rank.cache.usage(), before);
    assert!(rank.cache.grow(101, &mut hold), "the one page that it does not hold is evicted");
    assert_eq!(rank.cached(&a), 199);
}

#[test]
fn a_retracted_request_leaves_its_committed_pages_behind() {
    let mut rank = Rank::new(300);
    let a = prompt(&[1], 0);
    let mut hold = rank.admit(&a, 99);
    rank.grow_to(120, &mut hold);
    rank.commit(&a, 110, &mut hold);
    rank.cache.release(&mut hold);
    assert_eq!(rank.cache.usage(), RadixUsage { free: 190, private: 0, locked: 0, evictable: 110 });
    assert_eq!(rank.cached(&a), 110);
}

#[test]
fn without_prefix_caching_nothing_is_found_and_everything_comes_back() {
    let mut rank = Rank { cache: RadixCache::new(300, false), now: 0 };
    for number in 0..3 {
        rank.serve(&prompt(&[1], number), 100);
        assert_eq!(rank.cache.usage(), RadixUsage { free: 300, private: 0, locked: 0, evictable: 0 });
    }
}

#[test]
fn growth_page_by_page_leaves_as_many_notes_as_it_has_runs() {
    let mut rank = Rank::new(1000);
    rank.cache.events().enable();
    let a = prompt(&[1], 7);
    let mut hold = rank.admit(&a, 99);
    for pages in 1..=300 {
        rank.decode_to(&a, pages, &mut hold);
    }
    let mut events: Vec<KvEvent> = Vec::new();
    rank.cache.events().drain(|event| events.push(event));
    assert_eq!(events.iter().map(|event| event.resident).collect::<Vec<_>>(), [100, 200]);
}

/// What a request does at every token can be put off: only when it would have been done counts.
#[test]
fn a_late_commit_with_its_own_stamp_changes_nothing() {
    let evicted = |late: bool| {
        let mut rank = Rank::new(600);
        let prompts = [prompt(&[1], 1), prompt(&[1], 2), prompt(&[2], 3)];
        let mut holds: Vec<RadixHold> = prompts.iter().map(|prompt| rank.admit(prompt, 99)).collect();
        for (prompt, hold) in prompts.iter().zip(&mut holds) {
            rank.grow_to(100, hold);
            rank.commit(prompt, 100, hold);
        }
        for step in 101..=150_u32 {
            for (order, (prompt, hold)) in prompts.iter().zip(&mut holds).enumerate() {
                rank.grow_to(step, hold);
                if !late || step == 150 {
                    let at = Stamp { pass: 1000 + u64::from(step), order: order as u64 };
                    rank.cache.commit(prompt.runs(1, hold.cached_pages(), step), at, hold);
                }
            }
        }
        holds.iter_mut().rev().for_each(|hold| rank.cache.release(hold));
        let mut big = RadixHold::default();
        let mut lengths = Vec::new();
        for pages in (0..600).step_by(25) {
            rank.grow_to(pages, &mut big);
            lengths.push(prompts.each_ref().map(|prompt| rank.cached(prompt)));
        }
        lengths
    };
    assert_eq!(evicted(true), evicted(false));
}

/// One request as the reference serves it: its prompt chunk by chunk, room for the first output token
/// before the end of the prompt is committed, and then token by token.
fn serve_in_chunks(rank: &mut Rank, prompt: &PromptIdentity, tokens: [u32; 2], page_size: u32, chunk: u32) -> u32 {
    let [prompt_tokens, output_tokens] = tokens;
    let at = rank.stamp();
    let mut hold = rank.cache.admit(prompt.runs(page_size, 0, (prompt_tokens - 1) / page_size), at);
    let found = hold.cached_pages() * page_size;
    let mut len = found;
    while len < prompt_tokens {
        rank.commit_pages(prompt, len / page_size, page_size, &mut hold);
        len = prompt_tokens.min(len + chunk);
        rank.grow_to(len.div_ceil(page_size), &mut hold);
    }
    // The only token of a request is never stored.
    let stored = if output_tokens > 1 { output_tokens } else { 0 };
    for _ in 0..stored {
        len += 1;
        rank.grow_to(len.div_ceil(page_size), &mut hold);
        rank.commit_pages(prompt, len / page_size, page_size, &mut hold);
    }
    rank.commit_pages(prompt, len / page_size, page_size, &mut hold);
    rank.cache.release(&mut hold);
    found
}

#[test]
fn it_reuses_what_the_reference_reuses() {
    let mut rank = Rank::new(0);
    let mut cache = [0; 4];
    let lines = include_str!("reference.txt").lines().filter(|line| !line.starts_with('#'));
    for (number, line) in lines.enumerate() {
        let (head, numbers) = line.split_once(' ').unwrap();
        let mut numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        if head == "cache" {
            cache = std::array::from_fn(|i| numbers[i] as u32);
            rank = Rank::new(cache[1]);
            continue;
        }
        let ids = numbers.split_off(2);
        let tokens = [numbers[0] as u32, numbers[1] as u32];
        let prompt = PromptIdentity::from_trace_ids(&ids, cache[3], tokens[0], number as u64);
        let found = serve_in_chunks(&mut rank, &prompt, tokens, cache[0], cache[2]);
        assert_eq!(found.to_string(), head, "line {line}");
        assert_eq!(rank.cache.check([].iter(), 0), Ok(()));
    }
}
