//! Routing: which rank gets a request.

mod feed;
mod kv_policy;
pub mod kv_router;
mod place;
mod policy;
mod round_robin;

pub use feed::{RouterFeed, RouterNote};
pub use place::{DecisionOutbox, Placements, Route, RouteTaken, place_ready, record_decisions};
pub use policy::{Arrival, Placed, RouterPolicy, RouterSpec, Routers};
pub use round_robin::RoundRobin;
