//! The order of the simulation, on one page.
//!
//! One run of all stages handles one instant of virtual time. Between instants workers go through
//! any number of passes on their own: `run_passes` plays them, and nothing else runs.

use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{ScheduleLabel, SingleThreadedExecutor};

use crate::clock::Clock;
use crate::routing::{Placements, RouterFeed};
use crate::scheduling::{PassHorizon, Signals};
use crate::{handoff, metrics, routing, scheduling, traffic};

/// The stages of an instant, in order. Add a system to the stage that it belongs to.
#[derive(ScheduleLabel, Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    fn add_systems(self, schedule: &mut Schedule) {
        match self {
            Self::Scheduling => schedule.add_systems(scheduling::run_passes),
            Self::Handoff => schedule.add_systems(handoff::hand_over),
            Self::Endings => schedule.add_systems((traffic::react_to_endings, metrics::record_endings).chain()),
            Self::Traffic => schedule.add_systems(traffic::release_arrivals),
            Self::Reservation => schedule.add_systems(handoff::reserve_for_arrivals),
            Self::Routing => schedule.add_systems((routing::place_ready, routing::record_decisions).chain()),
        };
    }

    /// Whether the stage has anything to do at this instant. To ask costs less than to run it.
    fn has_work(self, world: &World, handover: Handover) -> bool {
        match self {
            Self::Scheduling => true,
            Self::Handoff => handover != Handover::None && handoff_has_work(world),
            Self::Endings => !world.resource::<Signals>().ended.is_empty(),
            Self::Traffic => world.resource::<PassHorizon>().next_arrival <= world.resource::<Clock>().now,
            Self::Reservation => !world.resource::<Placements>().arrived.is_empty(),
            Self::Routing => {
                !world.resource::<Placements>().is_empty() || world.resource::<RouterFeed>().may_release_requests()
            }
        }
    }
}

fn handoff_has_work(world: &World) -> bool {
    let signals = world.resource::<Signals>();
    signals.desks_are_due
        || !signals.prefilled.is_empty()
        || !signals.ended.is_empty()
        || world.resource::<PassHorizon>().next_transfer <= world.resource::<Clock>().now
}

/// The schedules of a simulation.
pub struct Order {
    handover: Handover,
    stages: [Schedule; Stage::ALL.len()],
    closing: Schedule,
}

/// The schedule that closes the books at the end.
#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
struct Closing;

impl Order {
    /// The schedules for a deployment that hands requests over in this way.
    #[must_use]
    pub fn new(handover: Handover) -> Self {
        let stages = Stage::ALL.map(|stage| {
            let mut schedule = single_threaded(stage);
            stage.add_systems(&mut schedule);
            schedule
        });
        let mut closing = single_threaded(Closing);
        closing.add_systems((metrics::record_unfinished, scheduling::flush_logs).chain());
        Self { handover, stages, closing }
    }

    /// Handles the next instant, telling after each stage that it is done.
    pub fn run_instant(&mut self, world: &mut World, mut done: impl FnMut(Stage)) {
        for stage in Stage::ALL {
            if stage.has_work(world, self.handover) {
                self.run_stage(stage, world);
            }
            done(stage);
        }
    }

    /// Runs one stage, whether or not it has anything to do.
    pub fn run_stage(&mut self, stage: Stage, world: &mut World) {
        self.stages[stage as usize].run(world);
    }

    /// Closes the books.
    pub fn close(&mut self, world: &mut World) {
        self.closing.run(world);
    }
}

/// An empty schedule that runs its systems one after the other, which costs a tenth of handing them
/// to threads.
fn single_threaded(label: impl ScheduleLabel) -> Schedule {
    let mut schedule = Schedule::new(label);
    schedule.set_executor(SingleThreadedExecutor::new());
    schedule
}
