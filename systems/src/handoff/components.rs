//! The state of a hand-over: on the request, and on the ranks that take part.

use std::collections::VecDeque;

use bevy_ecs::prelude::*;

use crate::kv::BlockTable;

/// When the steps of a hand-over happened, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HandoffTimes {
    /// The prompt was computed, and its KV waited on the prefill rank.
    pub source_held_ms: Option<f64>,
    /// The decode rank had set room aside.
    pub destination_reserved_ms: Option<f64>,
    /// The KV had arrived and the request could run there.
    pub destination_activated_ms: Option<f64>,
    /// The prefill rank had its blocks back.
    pub source_released_ms: Option<f64>,
}

/// A request's way from a prefill to a decode rank.
#[derive(Component, Clone, Debug, Default, PartialEq)]
pub struct Handoff {
    /// Order of arrival: at one instant, hand-overs go in this order.
    pub id: u64,
    /// The request's blocks on the other rank: on the decode rank until it is activated there, on
    /// the prefill rank from then until they are released.
    pub table: BlockTable,
    /// Prompt tokens, in whole blocks, that the decode rank had to find new room for.
    pub fresh_tokens: u64,
    /// Prompt tokens that were cached on the decode rank.
    pub reused_tokens: u64,
    /// What has happened so far.
    pub times: HandoffTimes,
    /// Whether the decode rank can never take it.
    pub is_impossible: bool,
}

impl Handoff {
    /// The hand-over of the request that arrives as number `id`.
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self { id, ..Self::default() }
    }
}

/// What a rank has to do for a hand-over once no pass of its worker is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Take in a request whose KV has arrived.
    Activate(Entity),
    /// Let go of a request whose KV has left.
    Release(Entity),
}

/// A rank's work for hand-overs.
#[derive(Component, Clone, Debug, Default)]
pub struct HandoffDesk {
    /// What waits for the end of the pass in flight.
    pub commands: VecDeque<Command>,
    /// Requests that want room here, in order.
    pub destinations: VecDeque<Entity>,
    /// Requests that have room here and whose KV has not arrived yet.
    pub reserved: u32,
    /// Whether the first of those that want room may find some that was not there when it was last
    /// refused.
    pub may_have_room: bool,
    /// Whether it is to be tried as soon as no pass is in flight.
    pub attempt_is_due: bool,
}

impl HandoffDesk {
    /// Whether requests from prefill workers wait for room here; nobody else is admitted then.
    #[must_use]
    #[inline]
    pub fn awaits_room(&self) -> bool {
        !self.destinations.is_empty()
    }

    /// Whether there is nothing to do here and nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.destinations.is_empty()
    }

    /// Whether the end of a pass gives the desk something to do.
    #[must_use]
    #[inline]
    pub fn wants_attention(&self) -> bool {
        !self.commands.is_empty() || (self.may_have_room && self.awaits_room())
    }
}
