//! Workloads of agents: plays, whose requests wait for each other.
//!
//! A [`PlayBook`] says what is to be played, a [`Playback`] plays it on the virtual clock.

mod book;
mod playback;
mod state;

pub use book::{Play, PlayBook, PlayNode, Successor};
pub use playback::{Lanes, Playback};

pub(super) use playback::Dispatch;
pub(super) use state::NodeEnd;
