//! Plays a book on the virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dynosim_schemas::config::LanePolicy;
use dynosim_schemas::play_row::PlayRow;
use dynosim_schemas::summary::PlayFigures;
use dynosim_schemas::trace::agentic::Trigger;

use super::PlayBook;
use super::state::{NodeEnd, PlayState};
use crate::metrics::{EXACT_REQUESTS, Samples};
use crate::time::VirtualTime;
use crate::traffic::Turn;

/// How many plays are played at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// Number of lanes.
    pub count: u32,
    /// Which play a lane takes next.
    pub policy: LanePolicy,
}

/// A node whose time has come.
pub(in crate::traffic) struct Dispatch {
    /// When it is handed to the router.
    pub at: VirtualTime,
    /// Its index.
    pub node: u32,
    /// The index of its play.
    pub play: u32,
    /// The index of its session, and the session's name.
    pub session: (u32, Box<str>),
    /// Requests of the session that came before.
    pub turn_index: u32,
    /// The request.
    pub turn: Turn,
}

/// What a node waits for.
#[derive(Clone, Copy, Debug)]
struct NodeState {
    play: u32,
    /// Edges that have not fired.
    waits: u32,
    /// The earliest time that is known so far, in ms.
    ready_ms: f64,
}

/// Plays that are being played.
pub struct Playback {
    book: PlayBook,
    speedup: f64,
    lanes: Option<Lanes>,
    /// The first play of the shared queue that nobody has taken.
    next_play: usize,
    nodes: Vec<NodeState>,
    plays: Vec<PlayState>,
    plays_over: usize,
    /// Nodes whose time is known, in order of time; at one instant in order of the book.
    ready: BinaryHeap<Reverse<(VirtualTime, u32)>>,
    session_turns: Vec<u32>,
}

impl Playback {
    /// Plays `book`, `speedup` times as fast as recorded: all plays on one clock, or in lanes, where each play starts
    /// when its lane is free.
    #[must_use]
    pub fn new(book: PlayBook, speedup: f64, lanes: Option<Lanes>) -> Self {
        let mut nodes = Vec::with_capacity(book.nodes.len());
        let mut plays = Vec::with_capacity(book.plays.len());
        for (index, play) in book.plays.iter().enumerate() {
            let of_play = &book.nodes[play.nodes.start as usize..play.nodes.end as usize];
            let state = |waits| NodeState { play: index as u32, waits, ready_ms: 0.0 };
            nodes.extend(of_play.iter().map(|node| state(node.waits)));
            plays.push(PlayState::new(play.nodes.len() as u32));
        }
        let session_turns = vec![0; book.sessions.len()];
        let mut playback = Self {
            book,
            speedup,
            lanes,
            next_play: 0,
            nodes,
            plays,
            plays_over: 0,
            ready: BinaryHeap::new(),
            session_turns,
        };
        playback.begin();
        playback
    }

    fn begin(&mut self) {
        let Some(lanes) = self.lanes else {
            let origin_ms = self.book.earliest_floor_ms();
            (0..self.plays.len()).for_each(|play| self.start_play(play, 0.0, origin_ms));
            return;
        };
        self.next_play = self.plays.len().min(lanes.count as usize);
        for play in 0..self.next_play {
            self.start_in_lane(play, play as u32, 0.0);
        }
    }

    fn start_in_lane(&mut self, play: usize, lane: u32, start_ms: f64) {
        self.plays[play].lane = Some(lane);
        self.start_play(play, start_ms, self.book.earliest_root_ms(play));
    }

    /// Starts a play: what was recorded at `origin_ms` happens at `start_ms`.
    fn start_play(&mut self, play: usize, start_ms: f64, origin_ms: f64) {
        self.plays[play].start_ms = start_ms;
        self.plays[play].quiescent_ms = start_ms;
        for node in self.book.plays[play].nodes.clone() {
            let floor_ms = (self.book.nodes[node as usize].floor_ms - origin_ms).max(0.0);
            let state = &mut self.nodes[node as usize];
            state.ready_ms = start_ms + floor_ms / self.speedup;
            if state.waits == 0 {
                self.ready.push(Reverse((VirtualTime::from_ms(state.ready_ms), node)));
            }
        }
    }

    /// When the next node is due, as far as is known.
    #[must_use]
    pub fn next_dispatch(&self) -> VirtualTime {
        self.ready.peek().map_or(VirtualTime::NEVER, |Reverse((at, _))| *at)
    }

    /// Whether every play is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.plays_over == self.plays.len()
    }

    /// Takes the next node that is due by `now`.
    pub(in crate::traffic) fn dispatch(&mut self, now: VirtualTime) -> Option<Dispatch> {
        let &Reverse((at, node)) = self.ready.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.ready.pop();
        let place = node as usize;
        let turn = self.book.nodes[place].turn.take()?;
        let (play, session) = (self.nodes[place].play, self.book.nodes[place].session);
        self.plays[play as usize].send(at.ms());
        let turns = &mut self.session_turns[session as usize];
        let turn_index = *turns;
        *turns += 1;
        self.fire(node, Trigger::Dispatch, at.ms());
        let name = self.book.sessions[session as usize].clone();
        Some(Dispatch { at, node, play, session: (session, name), turn_index, turn })
    }

    /// Fires the edges of a node that this triggers.
    fn fire(&mut self, node: u32, trigger: Trigger, at_ms: f64) {
        for edge in self.book.nodes[node as usize].successors.iter().filter(|edge| edge.trigger == trigger) {
            let state = &mut self.nodes[edge.node as usize];
            state.ready_ms = state.ready_ms.max(at_ms + edge.delay_ms / self.speedup);
            state.waits -= 1;
            if state.waits == 0 {
                self.ready.push(Reverse((VirtualTime::from_ms(state.ready_ms), edge.node)));
            }
        }
    }

    /// Notes that a node has ended.
    pub(in crate::traffic) fn end(&mut self, node: u32, end: NodeEnd) {
        let play = self.nodes[node as usize].play as usize;
        self.plays[play].end(end);
        if self.plays[play].has_failed {
            self.forget_skipped();
        } else {
            self.fire(node, Trigger::Completion, end.at_ms);
        }
        if self.plays[play].is_over() {
            self.plays_over += 1;
            self.go_on_after(play);
        }
    }

    /// Nodes of a failed play that have not been sent stay where they are.
    fn forget_skipped(&mut self) {
        let (plays, nodes) = (&self.plays, &self.nodes);
        let is_wanted = |node: u32| !plays[nodes[node as usize].play as usize].has_failed;
        self.ready.retain(|Reverse((_, node))| is_wanted(*node));
    }

    /// Gives the lane of a play that is over its next one.
    fn go_on_after(&mut self, play: usize) {
        let (Some(lanes), Some(lane)) = (self.lanes, self.plays[play].lane) else { return };
        let (next, free_ms) = match lanes.policy {
            LanePolicy::Stride => (play + lanes.count as usize, self.plays[play].quiescent_ms),
            LanePolicy::SharedQueue => (self.next_play, self.plays[play].end_ms()),
        };
        if next < self.plays.len() {
            self.next_play = self.next_play.max(next + 1);
            self.start_in_lane(next, lane, free_ms);
        }
    }

    /// A row for every play, once all are over.
    #[must_use]
    pub fn rows(&self) -> Vec<PlayRow> {
        let names = self.book.plays.iter().map(|play| play.play_id.clone());
        self.plays.iter().zip(names).zip(0..).map(|((state, name), index)| state.row(index, name)).collect()
    }

    /// The figures of all plays, once they are over.
    #[must_use]
    pub fn figures(&self) -> PlayFigures {
        let mut figures = PlayFigures { num_plays: self.plays.len() as u64, ..PlayFigures::default() };
        let mut latencies_ms = Samples::exact_up_to(EXACT_REQUESTS);
        for row in self.rows() {
            figures.add(&row);
            if let Some(latency_ms) = row.completed_latency_ms() {
                latencies_ms.add(latency_ms, 1);
            }
        }
        figures.trajectory_latency_ms = latencies_ms.distribution();
        figures
    }
}
