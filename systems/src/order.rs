//! The order of the simulation, on one page.
//!
//! One run of this schedule handles one instant of virtual time. Between instants workers go
//! through any number of passes on their own: `run_passes` plays them, and nothing else runs.

use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{ScheduleLabel, SingleThreadedExecutor};

use crate::{metrics, routing, scheduling, traffic};

/// The schedule that handles one instant.
#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instant;

/// The schedule that closes the books at the end.
#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Closing;

/// The stages of an instant, in order. Add a system to the stage that it belongs to.
#[derive(SystemSet, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Workers run passes up to the instant; all passes that end at it are completed.
    Scheduling,
    /// Sessions and closed loops learn which requests have ended; these become rows.
    Endings,
    /// Requests whose time has come enter the world.
    Traffic,
    /// The router gives each of them to a worker.
    Routing,
}

/// The schedule [`Instant`].
#[must_use]
pub fn instant() -> Schedule {
    let mut schedule = Schedule::new(Instant);
    schedule.set_executor(SingleThreadedExecutor::new());
    schedule.configure_sets((Stage::Scheduling, Stage::Endings, Stage::Traffic, Stage::Routing).chain());
    schedule.add_systems((
        scheduling::run_passes.in_set(Stage::Scheduling),
        (traffic::react_to_endings, metrics::record_endings).chain().in_set(Stage::Endings),
        traffic::release_arrivals.in_set(Stage::Traffic),
        routing::place_round_robin.in_set(Stage::Routing),
    ));
    schedule
}

/// The schedule [`Closing`].
#[must_use]
pub fn closing() -> Schedule {
    let mut schedule = Schedule::new(Closing);
    schedule.set_executor(SingleThreadedExecutor::new());
    schedule.add_systems((metrics::record_unfinished, scheduling::flush_logs).chain());
    schedule
}
