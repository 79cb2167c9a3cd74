//! Routing: which worker gets a request.

mod round_robin;

pub use round_robin::{RoundRobin, place_round_robin};

use bevy_ecs::prelude::*;

/// Requests that have arrived and wait to be placed, in order of arrival.
#[derive(Resource, Debug, Default)]
pub struct Placements(pub Vec<Entity>);
