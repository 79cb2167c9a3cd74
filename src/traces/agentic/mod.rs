//! Traces of agents: graphs of requests that wait for each other.
//!
//! Every agentic format becomes a [`Graph`]: its readers are `v1`, `v2`, [`dynamo`](super::dynamo) and
//! [`weka`](super::weka). [`Graph::new`] checks it, [`Identity`] says whether two graphs are the same, `play_book`
//! makes it ready to be played, and [`write_v2`] puts it into a file.

mod checks;
mod graph;
mod identity;
mod play_book;
mod v1;
mod v2;

pub use graph::{Graph, GraphNode};
pub use identity::Identity;
pub use play_book::play_book;
pub use v2::{reload, write_v2};

pub(super) use graph::UNKNOWN_MODEL;
pub(super) use v2::read;
