//! Who a request is, and the session that it belongs to.

use bevy_ecs::prelude::*;

use super::Script;

/// A request's cold identity: read when it ends.
#[derive(Component, Clone, Debug, PartialEq)]
pub struct RequestInfo {
    /// Order of arrival, from 0.
    pub request_index: u64,
    /// Order of its session in the source, from 0.
    pub session_index: u64,
    /// Turn within the session, from 0.
    pub turn_index: u32,
    /// The session, if it has turns to come.
    pub session: Option<Entity>,
    /// The source's own name for the request.
    pub request_id: Option<Box<str>>,
    /// The source's own name for the session.
    pub session_id: Option<Box<str>>,
    /// Its play and its node, by their indices, in a workload of agents.
    pub play: Option<(u32, u32)>,
    /// The line of the trace that it comes from, from 1.
    pub source_line: Option<u64>,
    /// Prompt length.
    pub input_tokens: u32,
    /// Output tokens asked for.
    pub requested_output_tokens: u32,
}

/// A session with turns still to come.
#[derive(Component, Clone, Debug, PartialEq)]
pub struct Session {
    /// Order in the source, from 0.
    pub index: u64,
    /// The source's own name.
    pub session_id: Option<Box<str>>,
    /// Turn to come, from 0.
    pub next_turn: u32,
    /// The turns.
    pub script: Script,
}
