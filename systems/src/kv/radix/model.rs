//! The radix cache against a naive model that knows every page.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{RadixCache, RadixHold, RadixUsage, Stamp};
use crate::prefix::{PromptIdentity, mix};

/// A page by everything up to its end: its run and its place in the run.
type PageId = (u64, u32);

#[derive(Clone, Debug, Default)]
struct Page {
    locks: u32,
    touched: Stamp,
    children: u32,
    parent: Option<PageId>,
    /// The node that it is in.
    node: u32,
}

/// Pages one by one; every operation touches and locks the whole path, page by page.
#[derive(Default)]
struct Model {
    pages: BTreeMap<PageId, Page>,
    nodes: u32,
    free: u32,
    private: u32,
}

#[derive(Clone, Default)]
struct ModelHold {
    cached: u32,
    private: u32,
}

fn path(prompt: &PromptIdentity, page_size: u32, range: Range<u32>) -> Vec<PageId> {
    let runs = prompt.runs(page_size, range.start, range.end);
    runs.flat_map(|run| (0..run.blocks.end - run.blocks.start).map(move |i| (run.key, run.first_place + i))).collect()
}

impl Model {
    fn evictable(&self) -> u32 {
        self.pages.values().filter(|page| page.locks == 0).count() as u32
    }

    fn usage(&self) -> RadixUsage {
        let evictable = self.evictable();
        let locked = self.pages.len() as u32 - evictable;
        RadixUsage { free: self.free, private: self.private, locked, evictable }
    }

    fn new_node(&mut self) -> u32 {
        self.nodes += 1;
        self.nodes
    }

    /// Ends a path within the tree: a node that goes on behind it is cut, and its start not touched.
    fn touch(&mut self, path: &[PageId], at: Stamp) {
        let Some(last) = path.last() else { return };
        let cut = self.pages[last].node;
        let goes_on = self.pages.values().any(|page| page.node == cut && page.parent == Some(*last));
        let start = self.new_node();
        for id in path {
            let page = self.pages.get_mut(id).unwrap();
            if goes_on && page.node == cut {
                page.node = start;
            } else {
                page.touched = at;
            }
        }
    }

    fn resident_pages(&self, path: &[PageId]) -> usize {
        path.iter().take_while(|id| self.pages.contains_key(id)).count()
    }

    fn admit(&mut self, path: &[PageId], at: Stamp) -> ModelHold {
        let found = &path[..self.resident_pages(path)];
        self.touch(found, at);
        found.iter().for_each(|id| self.pages.get_mut(id).unwrap().locks += 1);
        ModelHold { cached: found.len() as u32, private: 0 }
    }

    fn grow(&mut self, pages: u32, hold: &mut ModelHold) -> bool {
        if pages > self.free + self.evictable() {
            return false;
        }
        while self.free < pages {
            self.evict_one();
        }
        self.free -= pages;
        self.private += pages;
        hold.private += pages;
        true
    }

    fn evict_one(&mut self) {
        let leaves = self.pages.iter().filter(|(_, page)| page.locks == 0 && page.children == 0);
        let oldest = *leaves.min_by_key(|(_, page)| page.touched).unwrap().0;
        let page = self.pages.remove(&oldest).unwrap();
        if let Some(parent) = page.parent {
            self.pages.get_mut(&parent).unwrap().children -= 1;
        }
        self.free += 1;
    }

    /// `path` is everything that is completed, from the first page on.
    fn commit(&mut self, path: &[PageId], at: Stamp, hold: &mut ModelHold) {
        let (owned, resident) = (hold.cached as usize, self.resident_pages(path));
        if owned == path.len() {
            return;
        }
        self.touch(&path[..resident], at);
        for id in &path[owned..resident] {
            self.pages.get_mut(id).unwrap().locks += 1;
            self.free += 1;
        }
        let last = path[..resident].last().map(|id| &self.pages[id]);
        let node = match last {
            Some(last) if last.locks == 1 && last.children == 0 => last.node,
            _ => self.new_node(),
        };
        for i in resident..path.len() {
            let parent = i.checked_sub(1).map(|before| path[before]);
            if let Some(parent) = parent {
                self.pages.get_mut(&parent).unwrap().children += 1;
            }
            self.pages.insert(path[i], Page { locks: 1, touched: at, children: 0, parent, node });
        }
        // What follows a page is never older than it.
        path[..resident].iter().filter(|_| resident < path.len()).for_each(|id| {
            self.pages.get_mut(id).unwrap().touched = at;
        });
        let committed = (path.len() - owned) as u32;
        self.private -= committed;
        hold.private -= committed;
        hold.cached = path.len() as u32;
    }

    /// `path` are the cached pages of the request.
    fn release(&mut self, path: &[PageId], hold: &ModelHold) {
        self.private -= hold.private;
        self.free += hold.private;
        for id in path {
            self.pages.get_mut(id).unwrap().locks -= 1;
        }
    }

    /// How many leading pages of each run are there.
    fn resident(&self) -> BTreeMap<u64, u32> {
        let mut resident = BTreeMap::new();
        self.pages.keys().for_each(|&(run, place)| *resident.entry(run).or_default() = place + 1);
        resident
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = mix(self.0, 1);
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// A prompt from a small family, so that prompts share every kind of prefix.
    fn prompt(&mut self, number: u64) -> PromptIdentity {
        let ids: Vec<u64> = (0..4).map(|_| u64::from(self.below(2))).collect();
        let (tokens_per_id, tokens) = (5, 1 + self.below(20));
        // Some continue a session: everything that they start with is the same.
        let number = if self.below(3) > 0 { (1 << 32) | number } else { u64::from(self.below(4)) };
        if self.below(5) == 0 {
            return PromptIdentity::unique(number);
        }
        let used = &ids[..tokens.div_ceil(tokens_per_id) as usize];
        let whole = used.iter().fold(u64::from(tokens), |whole, &id| mix(whole, id));
        PromptIdentity::from_trace_ids(&ids, tokens_per_id, tokens, mix(whole, number))
    }
}

/// A request of both.
struct Request {
    prompt: PromptIdentity,
    /// Pages that it wants in the end.
    wanted: u32,
    hold: RadixHold,
    model: ModelHold,
}

struct Duel {
    cache: RadixCache,
    model: Model,
    page_size: u32,
    requests: Vec<Request>,
    dice: Dice,
    resident: BTreeMap<u64, u32>,
    now: u64,
    duplicates: u32,
    evictions: u32,
}

impl Duel {
    fn new(seed: u64, capacity: u32, page_size: u32) -> Self {
        let mut cache = RadixCache::new(capacity, true);
        cache.events().enable();
        Self {
            cache,
            model: Model { free: capacity, ..Model::default() },
            page_size,
            requests: Vec::new(),
            dice: Dice(seed),
            resident: BTreeMap::new(),
            now: 0,
            duplicates: 0,
            evictions: 0,
        }
    }

    fn stamp(&mut self) -> Stamp {
        self.now += 1;
        Stamp { pass: self.now / 7, order: self.now }
    }

    fn admit(&mut self) {
        let at = self.stamp();
        let prompt = self.dice.prompt(self.now);
        let wanted = 1 + self.dice.below(30 / self.page_size);
        let known = self.dice.below(wanted + 1);
        let hold = self.cache.admit(prompt.runs(self.page_size, 0, known), at);
        let model = self.model.admit(&path(&prompt, self.page_size, 0..known), at);
        assert_eq!(hold.cached_pages(), model.cached);
        self.requests.push(Request { prompt, wanted, hold, model });
    }

    fn look_up(&mut self) {
        let prompt = self.dice.prompt(self.now);
        let path = path(&prompt, self.page_size, 0..9);
        let resident = self.model.resident_pages(&path) as u32;
        assert_eq!(self.cache.look_up(prompt.runs(self.page_size, 0, 9)), resident);
    }

    fn grow(&mut self, index: usize) {
        let before = self.cache.usage();
        let request = &mut self.requests[index];
        let pages = self.dice.below(request.wanted - request.hold.pages() + 1);
        let given = self.cache.grow(pages, &mut request.hold);
        assert_eq!(given, self.model.grow(pages, &mut request.model));
        assert!(given || before == self.cache.usage());
        self.evictions += before.evictable - self.cache.usage().evictable;
    }

    fn commit(&mut self, index: usize) {
        let at = self.stamp();
        let request = &mut self.requests[index];
        let cached = request.hold.cached_pages();
        let complete = cached + self.dice.below(request.hold.pages() - cached + 1);
        let free = self.cache.usage().free;
        self.cache.commit(request.prompt.runs(self.page_size, cached, complete), at, &mut request.hold);
        self.model.commit(&path(&request.prompt, self.page_size, 0..complete), at, &mut request.model);
        self.duplicates += self.cache.usage().free - free;
    }

    fn end(&mut self, index: usize) {
        let at = self.stamp();
        let mut request = self.requests.swap_remove(index);
        let (cached, page_size) = (request.hold.cached_pages(), self.page_size);
        if self.dice.below(3) > 0 {
            let complete = cached + self.dice.below(request.hold.pages() - cached + 1);
            self.cache.finish(request.prompt.runs(page_size, cached, complete), at, &mut request.hold);
            self.model.commit(&path(&request.prompt, page_size, 0..complete), at, &mut request.model);
        } else {
            self.cache.release(&mut request.hold);
        }
        self.model.release(&path(&request.prompt, page_size, 0..request.model.cached), &request.model);
        assert_eq!(request.hold, RadixHold::default());
    }

    fn step(&mut self) {
        let any = self.dice.below(self.requests.len().max(1) as u32) as usize;
        match self.dice.below(12) {
            0..3 if self.requests.len() < 6 => self.admit(),
            3 => self.look_up(),
            4..8 if !self.requests.is_empty() => self.grow(any),
            8..11 if !self.requests.is_empty() => self.commit(any),
            11 if !self.requests.is_empty() => self.end(any),
            _ => {}
        }
        self.compare();
    }

    fn compare(&mut self) {
        assert_eq!(self.cache.usage(), self.model.usage());
        assert_eq!(self.cache.check(self.requests.iter().map(|request| &request.hold), 0), Ok(()));
        let resident = &mut self.resident;
        self.cache.events().drain(|event| match event.resident {
            0 => drop(resident.remove(&event.run)),
            pages => drop(resident.insert(event.run, pages)),
        });
        assert_eq!(*resident, self.model.resident());
    }
}

#[test]
fn it_does_what_a_model_of_single_pages_does() {
    let (mut duplicates, mut evictions) = (0, 0);
    for seed in 0..60 {
        for (capacity, page_size) in [(24, 1), (40, 1), (90, 1), (14, 3), (40, 4)] {
            let mut duel = Duel::new(seed, capacity, page_size);
            for _ in 0..400 {
                duel.step();
            }
            duplicates += duel.duplicates;
            evictions += duel.evictions;
        }
    }
    assert!(duplicates > 1000 && evictions > 10_000, "{duplicates} duplicates, {evictions} evictions");
}
