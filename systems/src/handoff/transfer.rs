//! KV on its way.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use bevy_ecs::prelude::*;
pub use dynosim_schemas::config::TransferTiming as TransferTokens;

use super::Handoff;
use super::links::{Ends, SharedLinks};
use crate::time::VirtualTime;

/// How KV moves from prefill to decode workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TransferSpec {
    /// Size of one token's KV.
    pub bytes_per_token: u64,
    /// Bandwidth of one transfer, or of a link if they are shared, in 10^9 bytes per second. `None`:
    /// transfers take no time.
    pub bandwidth_gb_per_second: Option<f64>,
    /// Which tokens are moved.
    pub tokens: TransferTokens,
    /// Whether transfers share the links of their workers.
    pub shares_links: bool,
}

impl TransferSpec {
    /// Bytes to move for a prompt of that length.
    fn bytes(&self, prompt_tokens: u32, handoff: &Handoff) -> f64 {
        let tokens = match self.tokens {
            TransferTokens::FullPrompt => u64::from(prompt_tokens),
            TransferTokens::DestinationMissing => handoff.fresh_tokens,
        };
        tokens as f64 * self.bytes_per_token as f64
    }
}

/// The transfers in progress.
#[derive(Resource, Debug)]
pub struct Transfers {
    spec: TransferSpec,
    /// Transfers that have a link of their own: (end, hand-over).
    own_links: BinaryHeap<Reverse<(VirtualTime, u64)>>,
    shared_links: Option<SharedLinks>,
    /// The request of each hand-over.
    requests: BTreeMap<u64, Entity>,
    started: u64,
    completed: u64,
}

impl Transfers {
    /// No transfers yet.
    #[must_use]
    pub fn new(spec: TransferSpec) -> Self {
        let shared = spec.bandwidth_gb_per_second.filter(|_| spec.shares_links);
        Self {
            spec,
            own_links: BinaryHeap::new(),
            shared_links: shared.map(|gb_per_second| SharedLinks::new(gb_per_second * 1e9 / 1000.0)),
            requests: BTreeMap::new(),
            started: 0,
            completed: 0,
        }
    }

    /// Starts moving a request's KV between two workers. Returns `false` if it takes no time: then
    /// the KV is there already.
    pub fn start(
        &mut self,
        request: Entity,
        prompt_tokens: u32,
        handoff: &Handoff,
        ends: Ends,
        now: VirtualTime,
    ) -> bool {
        self.started += 1;
        let bytes = self.spec.bytes(prompt_tokens, handoff);
        let delay_ms = match self.spec.bandwidth_gb_per_second {
            Some(gb_per_second) => bytes / (gb_per_second * 1e9) * 1000.0,
            None => 0.0,
        };
        if delay_ms == 0.0 {
            self.completed += 1;
            return false;
        }
        self.requests.insert(handoff.id, request);
        match &mut self.shared_links {
            Some(links) => links.start(handoff.id, ends, bytes, now),
            None => self.own_links.push(Reverse((VirtualTime::from_ms(now.ms() + delay_ms), handoff.id))),
        }
        true
    }

    /// When the next transfer is complete.
    #[must_use]
    pub fn next_completion(&self) -> VirtualTime {
        let own = self.own_links.peek().map_or(VirtualTime::NEVER, |Reverse((end, _))| *end);
        self.shared_links.as_ref().map_or(own, |links| links.next_completion().min(own))
    }

    /// Takes a request whose KV has arrived by `now`; of several, the one that arrived at the
    /// deployment first.
    pub fn pop_complete(&mut self, now: VirtualTime) -> Option<Entity> {
        let id = match &mut self.shared_links {
            Some(links) => links.pop_complete(now),
            None => {
                let due = self.own_links.peek().is_some_and(|Reverse((end, _))| *end <= now);
                due.then(|| self.own_links.pop()).flatten().map(|Reverse((_, id))| id)
            }
        }?;
        self.completed += 1;
        self.requests.remove(&id)
    }

    /// Checks that every transfer that was started is complete or in progress.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self) -> Result<(), String> {
        let in_progress = self.own_links.len() + self.shared_links.as_ref().map_or(0, SharedLinks::len);
        if self.started != self.completed + in_progress as u64 || in_progress != self.requests.len() {
            return Err(format!(
                "{} transfers were started, {} are complete and {in_progress} in progress",
                self.started, self.completed
            ));
        }
        Ok(())
    }
}
