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
        let at = self.stamp();
        self.cache.commit(prompt.runs(1, hold.cached_pages(), pages), at, hold);
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

#[test]
fn the_leaf_touched_longest_ago_goes_first_from_its_end_and_its_prefix_last() {
    let mut rank = Rank::new(500);
    let (a, b) = (prompt(&[1, 2], 0), prompt(&[1, 3], 1));
    rank.serve(&a, 200);
    rank.serve(&b, 200);
    let mut found = rank.admit(&a, 150);
    rank.cache.release(&mut found);
    assert_eq!(rank.cached(&a), 200, "which is no touch");
    let mut other = rank.admit(&prompt(&[9], 2), 0);
    rank.grow_to(230, &mut other);
    assert_eq!((rank.cached(&a), rank.cached(&b)), (170, 200), "what was admitted in part is young in part");
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
        rank.grow_to(pages, &mut hold);
        rank.commit(&a, pages, &mut hold);
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
