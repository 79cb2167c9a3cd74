//! The order of the simulation, on one page.
//!
//! One run of all stages handles one instant of virtual time. Between instants workers go through
//! any number of passes on their own: `run_passes` plays them, and nothing else runs.

use bevy_ecs::prelude::*;
use bevy_ecs::system::BoxedSystem;

use crate::clock::Clock;
use crate::routing::{Placements, RouterFeed};
use crate::scheduling::{PassHorizon, Signals};
use crate::{handoff, metrics, routing, scheduling, traffic};

/// The stages of an instant, in order. Add a system to the stage that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    fn systems(self) -> Vec<BoxedSystem> {
        match self {
            Self::Scheduling => vec![boxed(scheduling::run_passes)],
            Self::Handoff => vec![boxed(handoff::hand_over)],
            Self::Endings => vec![boxed(traffic::react_to_endings), boxed(metrics::record_endings)],
            Self::Traffic => vec![boxed(traffic::release_arrivals)],
            Self::Reservation => vec![boxed(handoff::reserve_for_arrivals)],
            Self::Routing => vec![boxed(routing::place_ready), boxed(routing::record_decisions)],
        }
    }

    /// Whether the stage has anything to do at this instant. To ask costs less than to run it.
    fn has_work(self, world: &World, handover: Handover) -> bool {
        match self {
            Self::Scheduling => true,
            Self::Handoff => handover != Handover::None && handoff_has_work(world),
            Self::Endings => !world.resource::<Signals>().ended.is_empty(),
            Self::Traffic => world.resource::<PassHorizon>().next_arrival <= world.resource::<Clock>().now,
            Self::Reservation => {
                handover == Handover::DestinationFirst && !world.resource::<Placements>().arrived.is_empty()
            }
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

/// The systems of a simulation, stage by stage.
///
/// They run one after the other, always. bevy's schedules can do more (find an order, run systems at
/// once), and cost about as much as all systems of an instant in which little happens.
pub struct Order {
    handover: Handover,
    stages: [Vec<BoxedSystem>; Stage::ALL.len()],
    closing: Vec<BoxedSystem>,
}

impl Order {
    /// The systems for a world whose deployment hands requests over in this way.
    #[must_use]
    pub fn new(handover: Handover, world: &mut World) -> Self {
        let mut stages = Stage::ALL.map(Stage::systems);
        // They close the books at the end.
        let mut closing = vec![boxed(metrics::record_unfinished), boxed(scheduling::flush_logs)];
        for system in stages.iter_mut().flatten().chain(&mut closing) {
            system.initialize(world);
        }
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
        run_all(&mut self.stages[stage as usize], world);
    }

    /// Closes the books.
    pub fn close(&mut self, world: &mut World) {
        run_all(&mut self.closing, world);
    }
}

fn run_all(systems: &mut [BoxedSystem], world: &mut World) {
    for system in systems {
        let ran = system.run((), world);
        debug_assert!(ran.is_ok(), "a simulation has every resource that its systems name");
    }
}

fn boxed<Marker>(system: impl IntoSystem<(), (), Marker, System: 'static>) -> BoxedSystem {
    Box::new(IntoSystem::into_system(system))
}
