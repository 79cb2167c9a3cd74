//! Finds the conversations in a list of requests: a prompt that goes on where an earlier one ended belongs to it.

use std::cmp::{Ordering, Reverse};
use std::ops::Range;

use super::EPSILON_S;
use super::play::{RecordedPlay, RecordedRequest, Subagent};

/// Up to this many output tokens, a request with a prompt of its own that comes first is a preamble anyway.
const PREAMBLE_OUTPUT_TOKENS: u64 = 64;
/// A conversation goes on after a longer break than this only if it keeps at least half of its blocks.
const LONG_BREAK_S: f64 = 3600.0;

/// Requests that follow each other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stream {
    /// In order, by their indices in the play.
    pub requests: Vec<usize>,
    /// The request of another stream whose prompt it went on from.
    pub fork_of: Option<usize>,
}

/// The streams of the outer requests, or of a subagent. The first is the main one.
pub(super) struct Scope<'a> {
    /// The subagent, unless it is the outer scope.
    pub subagent: Option<&'a Subagent>,
    /// Name of the main stream's session.
    pub session: String,
    /// The streams.
    pub streams: Vec<Stream>,
}

impl Scope<'_> {
    /// What each stream's session has behind the name of the main one's.
    pub fn suffixes(&self) -> impl Iterator<Item = String> {
        let workers = (0..self.streams.len()).map(|worker| format!(":worker:{worker}"));
        [String::new()].into_iter().chain(workers)
    }
}

/// The scopes of a play, the outer one first.
pub(super) fn scopes<'a>(play: &'a RecordedPlay<'_>) -> Vec<Scope<'a>> {
    let session = format!("{}:session", play.namespace);
    let outer =
        Scope { subagent: None, session: format!("{session}:root"), streams: streams(&play.requests, 0..play.outer) };
    let inner = play.subagents.iter().map(|subagent| Scope {
        subagent: Some(subagent),
        session: format!("{session}:subagent:{}:{}", subagent.position, subagent.agent_id),
        streams: streams(&play.requests, subagent.requests.clone()),
    });
    [outer].into_iter().chain(inner).collect()
}

/// A stream in the making.
#[derive(Clone, Debug)]
struct Chain {
    requests: Vec<usize>,
    /// Its last request with hashes.
    hashed: Option<usize>,
    fork: Option<Fork>,
}

/// Where a chain went on from.
#[derive(Clone, Copy, Debug)]
struct Fork {
    request: usize,
    /// Leading blocks that they share.
    depth: usize,
}

fn streams(requests: &[RecordedRequest], of: Range<usize>) -> Vec<Stream> {
    let mut order: Vec<usize> = of.collect();
    order.sort_by(|&a, &b| requests[a].order(&requests[b]));
    let has_preamble = starts_with_preamble(requests, &order);
    let (preamble, rest) = order.split_at(usize::from(has_preamble));
    let mut chains = Chains { requests, chains: Vec::new() };
    rest.iter().for_each(|&request| chains.take(request));
    chains.close_seams(rest);
    let mut chains = chains.chains;
    chains.sort_by(|a, b| compare_starts(requests, a, b));
    if let Some(main) = chains.first_mut() {
        main.requests.splice(0..0, preamble.iter().copied());
    }
    let stream = |chain: Chain| Stream { requests: chain.requests, fork_of: chain.fork.map(|fork| fork.request) };
    chains.into_iter().map(stream).collect()
}

fn compare_starts(requests: &[RecordedRequest], a: &Chain, b: &Chain) -> Ordering {
    let first = |chain: &Chain| chain.requests.first().map(|&request| &requests[request]);
    match (first(a), first(b)) {
        (Some(a), Some(b)) => a.order(b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Whether the first request is a short one before the conversation proper, such as the making of a title.
fn starts_with_preamble(requests: &[RecordedRequest], order: &[usize]) -> bool {
    let [first, others @ ..] = order else { return false };
    let first = &requests[*first];
    let mut others = others.iter().map(|&other| &requests[other].hashes).peekable();
    if first.hashes.is_empty() || others.peek().is_none() {
        return false;
    }
    let others: Vec<&Vec<u64>> = others.collect();
    let shares_start = others.iter().any(|hashes| hashes.first() == first.hashes.first());
    let is_short = first.output_tokens <= PREAMBLE_OUTPUT_TOKENS;
    !shares_start && (is_short || !others.iter().any(|hashes| hashes.iter().any(|id| first.hashes.contains(id))))
}

fn common_prefix(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Streams in the making.
struct Chains<'a> {
    requests: &'a [RecordedRequest],
    chains: Vec<Chain>,
}

impl Chains<'_> {
    /// Puts the next request where it belongs.
    fn take(&mut self, request: usize) {
        let hashes = &self.requests[request].hashes;
        let known = self.chains.iter().any(|chain| chain.hashed.is_some());
        let goes_on = if hashes.is_empty() || !known {
            (!self.chains.is_empty()).then_some(0)
        } else {
            self.extended_by(request)
        };
        match goes_on {
            Some(index) => {
                let chain = &mut self.chains[index];
                chain.requests.push(request);
                chain.hashed = if hashes.is_empty() { chain.hashed } else { Some(request) };
            }
            None => {
                let fork = self.fork(request);
                let hashed = (!hashes.is_empty()).then_some(request);
                self.chains.push(Chain { requests: vec![request], hashed, fork });
            }
        }
    }

    /// The chain that a request goes on with: the one with the longest prompt, the first of several.
    fn extended_by(&self, request: usize) -> Option<usize> {
        let request = &self.requests[request];
        let fits = |chain: &Chain| {
            let tail = &self.requests[chain.hashed?];
            let has_ended = tail.end_s <= request.t_s + EPSILON_S;
            let fits = request.hashes.starts_with(&tail.hashes) && tail.model == request.model && has_ended;
            fits.then_some(tail.hashes.len())
        };
        let fitting = self.chains.iter().enumerate().filter_map(|(index, chain)| Some((index, fits(chain)?)));
        fitting.min_by_key(|&(_, length)| Reverse(length)).map(|(index, _)| index)
    }

    /// Where a request that goes on with no chain comes from.
    fn fork(&self, request: usize) -> Option<Fork> {
        let hashes = &self.requests[request].hashes;
        let nearness = |chain: &Chain| {
            let tail = &self.requests[chain.hashed?].hashes;
            Some((common_prefix(tail, hashes), tail.len(), chain.hashed?))
        };
        let near = self.chains.iter().filter_map(nearness).min_by_key(|&(depth, length, _)| Reverse((depth, length)));
        near.filter(|&(depth, ..)| depth > 0).map(|(depth, _, request)| Fork { request, depth })
    }

    /// Where a conversation was cut back and went on, its continuation looks like a fork of its last request. One such
    /// fork is taken for it.
    fn close_seams(&mut self, order: &[usize]) {
        let mut by_id = order.to_vec();
        by_id.sort_by(|&a, &b| self.requests[a].id.cmp(&self.requests[b].id));
        for request in by_id {
            let mut tail = request;
            while let Some(new_tail) = self.close_seam(tail) {
                tail = new_tail;
            }
        }
    }

    /// Puts a chain that ends with `tail` and its continuation together; gives the new end if there is one.
    fn close_seam(&mut self, tail: usize) -> Option<usize> {
        let index = self.chains.iter().position(|chain| chain.hashed == Some(tail))?;
        let elected = self.continuation(tail)?;
        let continuation = self.chains[elected].clone();
        let new_tail = continuation.hashed?;
        let chain = &mut self.chains[index];
        chain.requests.extend(continuation.requests);
        chain.requests.sort_by(|&a, &b| self.requests[a].order(&self.requests[b]));
        chain.hashed = Some(new_tail);
        self.chains.remove(elected);
        self.move_forks(tail, new_tail);
        Some(new_tail)
    }

    /// The fork of a chain's last request that is its continuation.
    fn continuation(&self, tail: usize) -> Option<usize> {
        let before = &self.requests[tail];
        let candidate = |chain: &Chain| {
            let fork = chain.fork.filter(|fork| fork.request == tail)?;
            let first = &self.requests[*chain.requests.first()?];
            let gap_s = first.t_s - before.end_s;
            let keeps_little = (fork.depth as f64) < 0.5 * before.hashes.len() as f64;
            let fits = gap_s >= -EPSILON_S && first.model == before.model && !(gap_s > LONG_BREAK_S && keeps_little);
            fits.then_some((fork.depth, first.t_s))
        };
        let candidates = self.chains.iter().enumerate().filter_map(|(index, chain)| Some((index, candidate(chain)?)));
        candidates.min_by(|(_, a), (_, b)| b.0.cmp(&a.0).then(a.1.total_cmp(&b.1))).map(|(index, _)| index)
    }

    /// The other forks of a request that has got a continuation may come from its end.
    fn move_forks(&mut self, tail: usize, new_tail: usize) {
        let end = &self.requests[new_tail];
        for chain in &mut self.chains {
            let Some(first) = chain.requests.first().map(|&request| &self.requests[request]) else { continue };
            let depth = common_prefix(&end.hashes, &first.hashes);
            if chain.fork.is_some_and(|fork| fork.request == tail) && end.t_s <= first.t_s && depth > 0 {
                chain.fork = Some(Fork { request: new_tail, depth });
            }
        }
    }
}
