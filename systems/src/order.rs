//! The order of the simulation, on one page.
//!
//! One run of this schedule handles one instant of virtual time. Between instants workers go
//! through any number of passes on their own: `run_passes` plays them, and nothing else runs.

use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{ScheduleLabel, SingleThreadedExecutor};

use crate::{handoff, metrics, routing, scheduling, traffic};

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
    /// KV that has arrived is taken in; prompts that are computed get room on a decode worker.
    Handoff,
    /// Sessions and closed loops learn which requests have ended; these become rows.
    Endings,
    /// Requests whose time has come enter the world.
    Traffic,
    /// Where decode workers come first, each of them gets room on one.
    Reservation,
    /// The router gives each of them to a worker.
    Routing,
}

/// How requests move between workers in a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// One worker does a whole request.
    None,
    /// The prompt is computed before there is room on a decode worker.
    SourceFirst,
    /// There is room on a decode worker before the prompt is computed.
    DestinationFirst,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 6] =
        [Self::Scheduling, Self::Handoff, Self::Endings, Self::Traffic, Self::Reservation, Self::Routing];

    fn add_systems(self, schedule: &mut Schedule, handover: Handover) {
        match self {
            Self::Handoff if handover == Handover::None => schedule,
            Self::Reservation if handover != Handover::DestinationFirst => schedule,
            Self::Handoff => schedule.add_systems(handoff::hand_over.in_set(self)),
            Self::Reservation => schedule.add_systems(handoff::reserve_for_arrivals.in_set(self)),
            Self::Scheduling => schedule.add_systems(scheduling::run_passes.in_set(self)),
            Self::Endings => {
                schedule.add_systems((traffic::react_to_endings, metrics::record_endings).chain().in_set(self))
            }
            Self::Traffic => schedule.add_systems(traffic::release_arrivals.in_set(self)),
            Self::Routing => schedule.add_systems(routing::place_ready.in_set(self)),
        };
    }
}

/// Adds the schedules of this page to a world. Stages that its deployment does not need stay empty.
pub fn add_schedules(world: &mut World, handover: Handover) {
    let mut instant = single_threaded(Instant);
    let [scheduling, handoff, endings, traffic, reservation, routing] = Stage::ALL;
    instant.configure_sets((scheduling, handoff, endings, traffic, reservation, routing).chain());
    for stage in Stage::ALL {
        stage.add_systems(&mut instant, handover);
        let mut alone = single_threaded(OneStage(stage));
        stage.add_systems(&mut alone, handover);
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
