//! What happens: components, resources and ordered systems of an LLM serving cluster in virtual time.
//!
//! Start with [`order`]: it shows the whole order of the simulation. Then follow a request through
//! [`traffic`], [`routing`], [`scheduling`] (with [`prefix`], [`kv`] and [`timing`]) and
//! [`metrics`]. Nothing here reads a file, a wall clock or an environment variable.

pub mod audit;
pub mod clock;
pub mod deployment;
pub mod fleet;
pub mod handoff;
pub mod kv;
pub mod metrics;
pub mod order;
pub mod prefix;
pub mod routing;
pub mod scheduling;
pub mod simulation;
pub mod time;
pub mod timing;
pub mod traffic;
