//! The virtual clock.

use bevy_ecs::prelude::*;

use crate::time::VirtualTime;

/// Where the simulation stands in virtual time.
///
/// The clock goes from instant to instant. Everything that happens at one instant happens in the
/// order of the schedule (see [`crate::order`]).
#[derive(Resource, Clone, Copy, Debug)]
pub struct Clock {
    /// The current instant.
    pub now: VirtualTime,
    /// The last event that was processed: an arrival or the end of a pass.
    pub last_event: VirtualTime,
    /// A rank that runs passes without getting anything done, if there is one: a bug.
    pub stalled_rank: Option<u32>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { now: VirtualTime::ZERO, last_event: VirtualTime::ZERO, stalled_rank: None }
    }
}

impl Clock {
    /// Notes that an event happens at `at`, and moves on to it.
    pub fn process(&mut self, at: VirtualTime) {
        debug_assert!(at >= self.now, "virtual time never runs backwards");
        self.now = at;
        self.last_event = self.last_event.max(at);
    }

    /// Notes that a pass ended at `at` which changed nothing but its worker's own progress.
    pub fn note(&mut self, at: VirtualTime) {
        self.last_event = self.last_event.max(at);
    }

    /// Moves on to `at`, where something may happen; "never" leaves the clock where it is.
    pub fn reach(&mut self, at: VirtualTime) {
        if at != VirtualTime::NEVER {
            debug_assert!(at >= self.now, "virtual time never runs backwards");
            self.now = at;
        }
    }
}
