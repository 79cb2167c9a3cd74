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

/// The part of [`Instant`] that belongs to one stage, for whoever looks at stages one by one.
#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
pub struct OneStage(pub Stage);

/// The schedule that closes the books at the end.
#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Closing;

/// The stages of an instant, in order. Add a system to the stage that it belongs to.
#[derive(SystemSet, Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 4] = [Self::Scheduling, Self::Endings, Self::Traffic, Self::Routing];

    fn add_systems(self, schedule: &mut Schedule) {
        match self {
            Self::Scheduling => schedule.add_systems(scheduling::run_passes.in_set(self)),
            Self::Endings => {
                schedule.add_systems((traffic::react_to_endings, metrics::record_endings).chain().in_set(self))
            }
            Self::Traffic => schedule.add_systems(traffic::release_arrivals.in_set(self)),
            Self::Routing => schedule.add_systems(routing::place_round_robin.in_set(self)),
        };
    }
}

/// Adds the schedules of this page to a world.
pub fn add_schedules(world: &mut World) {
    let mut instant = single_threaded(Instant);
    let [scheduling, endings, traffic, routing] = Stage::ALL;
    instant.configure_sets((scheduling, endings, traffic, routing).chain());
    for stage in Stage::ALL {
        stage.add_systems(&mut instant);
        let mut alone = single_threaded(OneStage(stage));
        stage.add_systems(&mut alone);
        world.add_schedule(alone);
    }
    world.add_schedule(instant);

    let mut closing = single_threaded(Closing);
    closing.add_systems((metrics::record_unfinished, scheduling::flush_logs).chain());
    world.add_schedule(closing);
}

/// An empty schedule that runs its systems one after the other, which costs a tenth of handing them
/// to threads.
fn single_threaded(label: impl ScheduleLabel) -> Schedule {
    let mut schedule = Schedule::new(label);
    schedule.set_executor(SingleThreadedExecutor::new());
    schedule
}
