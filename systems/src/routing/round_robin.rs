//! Workers take turns, in order of their ids.

use bevy_ecs::prelude::*;

use super::Placements;
use crate::scheduling::{Fleet, WaitingQueue};

/// The worker whose turn it is, as a position among the workers.
#[derive(Resource, Debug, Default)]
pub struct RoundRobin {
    position: usize,
}

/// Gives each waiting request to the worker whose turn it is.
pub fn place_round_robin(
    mut placements: ResMut<Placements>,
    mut fleet: ResMut<Fleet>,
    mut turn: ResMut<RoundRobin>,
    mut queues: Query<&mut WaitingQueue>,
) {
    for request in placements.0.drain(..) {
        let worker = turn.position % fleet.workers.len();
        turn.position = worker + 1;
        if let Ok(mut queue) = queues.get_mut(fleet.workers[worker]) {
            queue.requests.push_back(request);
            fleet.woken.push(worker as u32);
        }
    }
}
