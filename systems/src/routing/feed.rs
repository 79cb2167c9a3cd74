//! What happens on the ranks, for routers that take it into account.

use bevy_ecs::prelude::*;

use crate::kv::{KvEvent, KvEvents};
use crate::time::VirtualTime;

/// Notes that are heard without need, so that they do not pile up while nobody arrives.
const MANY_NOTES: usize = 1 << 16;

/// Something that a router may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterNote {
    /// The prompt of a request that goes on is computed.
    Prefilled(Entity),
    /// The rank is done with a request.
    Ended(Entity),
    /// The findable part of a run of blocks has changed.
    Cache(KvEvent),
}

/// A note with its place and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedEntry {
    /// The rank, as its place in the fleet.
    pub rank: u32,
    /// When it became known.
    pub at: VirtualTime,
    /// What it is.
    pub note: RouterNote,
}

/// Notes that no router has read yet, in order of time. Stays empty unless a router reads it.
#[derive(Resource, Debug, Default)]
pub struct RouterFeed {
    enabled: bool,
    /// Whether a note can make a router release a request at once.
    releases: bool,
    entries: Vec<FeedEntry>,
}

impl RouterFeed {
    /// A feed that keeps notes if `enabled`; `releases` tells whether a note can make a router release
    /// a request at once.
    #[must_use]
    pub const fn new(enabled: bool, releases: bool) -> Self {
        Self { enabled, releases, entries: Vec::new() }
    }

    /// Whether the routers should hear the notes now, and not only when they next place a request.
    #[must_use]
    pub fn may_release_requests(&self) -> bool {
        (self.releases && !self.entries.is_empty()) || self.entries.len() > MANY_NOTES
    }

    /// Whether notes are kept.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Keeps a note.
    #[inline]
    pub fn note(&mut self, rank: u32, at: VirtualTime, note: RouterNote) {
        if self.enabled {
            self.entries.push(FeedEntry { rank, at, note });
        }
    }

    /// Keeps what a rank's pool has to tell, at the end of a pass.
    #[inline]
    pub fn publish(&mut self, rank: u32, at: VirtualTime, events: &mut KvEvents) {
        if self.enabled {
            events.drain(|event| self.entries.push(FeedEntry { rank, at, note: RouterNote::Cache(event) }));
        }
    }

    /// Takes the notes that came since the last call.
    pub fn take(&mut self) -> Vec<FeedEntry> {
        std::mem::take(&mut self.entries)
    }

    /// Gives an emptied list back, to be filled again.
    pub fn give_back(&mut self, mut entries: Vec<FeedEntry>) {
        entries.clear();
        if self.entries.is_empty() {
            self.entries = entries;
        }
    }
}
