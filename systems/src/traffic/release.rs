//! Lets requests into the world when their time has come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bevy_ecs::prelude::*;

use super::agentic::{Dispatch, NodeEnd, Playback};
use super::{Load, RequestInfo, Script, Session, SourceError, Turn, Unit, UnitSource};
use crate::clock::Clock;
use crate::deployment::TokenLimits;
use crate::fleet::Fleet;
use crate::handoff::Handoff;
use crate::kv::BlockTable;
use crate::prefix::PromptIdentity;
use crate::routing::{Placements, Route};
use crate::scheduling::{Ending, PassHorizon, Sequence, Signal, Signals, Timeline};
use crate::time::VirtualTime;

/// The state of the workload.
#[derive(Resource)]
pub struct Traffic {
    /// Where units of load come from, unless there are plays instead.
    source: Option<Box<dyn UnitSource>>,
    /// The plays, in a workload of agents.
    playback: Option<Playback>,
    load: Load,
    /// Tokens that a request may have on this deployment.
    limits: TokenLimits,
    /// The next unit of the source, and its start under an open load.
    upcoming: Option<(VirtualTime, Unit)>,
    /// Why the source could not be read on, if so.
    fault: Option<SourceError>,
    exhausted: bool,
    ready_turns: BinaryHeap<Reverse<ReadyTurn>>,
    units_started: u64,
    units_in_progress: u64,
    requests_arrived: u64,
}

/// A later turn of a session whose time is known. Turns go in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReadyTurn {
    at: VirtualTime,
    session_index: u64,
    turn_index: u32,
    session: Entity,
}

/// What [`Traffic`] lets in next.
enum Next {
    Unit,
    Turn(ReadyTurn),
}

impl Traffic {
    /// A workload for a deployment with these limits.
    #[must_use]
    pub fn new(source: Box<dyn UnitSource>, load: Load, limits: TokenLimits) -> Self {
        let mut traffic = Self { source: Some(source), load, ..Self::empty(limits) };
        traffic.refill();
        traffic
    }

    /// A workload of agents for a deployment with these limits.
    #[must_use]
    pub fn agentic(playback: Playback, limits: TokenLimits) -> Self {
        Self { playback: Some(playback), ..Self::empty(limits) }
    }

    fn empty(limits: TokenLimits) -> Self {
        Self {
            source: None,
            playback: None,
            load: Load::TraceTimestamps { speedup: 1.0 },
            limits,
            upcoming: None,
            fault: None,
            exhausted: false,
            ready_turns: BinaryHeap::new(),
            units_started: 0,
            units_in_progress: 0,
            requests_arrived: 0,
        }
    }

    /// Whether the end of a request can cause an arrival.
    #[must_use]
    pub fn reacts_to_endings(&self) -> bool {
        let has_sessions = self.source.as_ref().is_some_and(|source| source.has_sessions());
        matches!(self.load, Load::Concurrency { .. }) || has_sessions || self.playback.is_some()
    }

    /// The plays, in a workload of agents.
    #[must_use]
    pub const fn playback(&self) -> Option<&Playback> {
        self.playback.as_ref()
    }

    /// Requests that have arrived so far.
    #[must_use]
    pub const fn requests_arrived(&self) -> u64 {
        self.requests_arrived
    }

    /// Takes the reason why the source could not be read on, if there is one.
    pub fn take_fault(&mut self) -> Option<SourceError> {
        self.fault.take()
    }

    /// The next arrival that is known of.
    #[must_use]
    pub fn next_arrival(&self, now: VirtualTime) -> VirtualTime {
        let unit = match (&self.upcoming, &self.load) {
            (None, _) => VirtualTime::NEVER,
            (Some(_), Load::Concurrency { units }) if self.units_in_progress < *units => now,
            (Some(_), Load::Concurrency { .. }) => VirtualTime::NEVER,
            (Some((start, _)), _) => *start,
        };
        let node = self.playback.as_ref().map_or(VirtualTime::NEVER, Playback::next_dispatch);
        self.ready_turns.peek().map_or(unit, |Reverse(turn)| turn.at.min(unit)).min(node)
    }

    fn refill(&mut self) {
        if self.exhausted || self.upcoming.is_some() {
            return;
        }
        let Some(source) = &mut self.source else { return };
        match source.next_unit() {
            Ok(Some(unit)) => {
                let start = self.load.next_start(unit.start_ms).unwrap_or(VirtualTime::ZERO);
                self.upcoming = Some((start, unit));
            }
            Ok(None) => self.exhausted = true,
            Err(fault) => {
                self.fault = Some(fault);
                self.exhausted = true;
            }
        }
    }

    fn next(&self, now: VirtualTime) -> Option<Next> {
        let unit = self.upcoming.as_ref().and_then(|(start, _)| match self.load {
            Load::Concurrency { units } => (self.units_in_progress < units).then_some(now),
            _ => (*start <= now).then_some(*start),
        });
        let turn = self.ready_turns.peek().map(|Reverse(turn)| *turn).filter(|turn| turn.at <= now);
        match (unit, turn) {
            (None, None) => None,
            (Some(_), None) => Some(Next::Unit),
            (None, Some(turn)) => Some(Next::Turn(turn)),
            (Some(start), Some(turn)) => {
                let turn_first = (turn.at, turn.session_index) < (start, self.units_started);
                Some(if turn_first { Next::Turn(turn) } else { Next::Unit })
            }
        }
    }
}

/// Spawns every request whose time has come and hands it to the router.
pub fn release_arrivals(world: &mut World) {
    world.resource_scope(|world, mut traffic: Mut<'_, Traffic>| {
        let now = world.resource::<Clock>().now;
        let mut arrived = false;
        while let Some(next) = traffic.next(now) {
            match next {
                Next::Unit => start_unit(world, &mut traffic, now),
                Next::Turn(turn) => start_turn(world, &mut traffic, turn),
            }
            arrived = true;
        }
        while let Some(dispatch) = traffic.playback.as_mut().and_then(|playback| playback.dispatch(now)) {
            start_node(world, &mut traffic, dispatch);
            arrived = true;
        }
        if arrived {
            world.resource_mut::<Clock>().process(now);
        }
        world.resource_mut::<PassHorizon>().next_arrival = traffic.next_arrival(now);
    });
}

fn start_unit(world: &mut World, traffic: &mut Traffic, now: VirtualTime) {
    let Some((start, mut unit)) = traffic.upcoming.take() else { return };
    let arrival = if matches!(traffic.load, Load::Concurrency { .. }) { now } else { start };
    let index = traffic.units_started;
    traffic.units_started += 1;
    traffic.units_in_progress += 1;
    traffic.refill();
    let Some(turn) = unit.script.next_turn() else {
        debug_assert!(false, "a unit has at least one turn");
        return;
    };
    let session_id = unit.session_id.clone();
    let session = unit.script.has_next().then(|| {
        let session = Session { index, session_id: unit.session_id, next_turn: 1, script: unit.script };
        world.spawn(session).id()
    });
    spawn_request(world, traffic, turn, arrival, |info| {
        info.session_index = index;
        info.session = session;
        info.session_id = session_id;
    });
}

fn start_turn(world: &mut World, traffic: &mut Traffic, ready: ReadyTurn) {
    traffic.ready_turns.pop();
    let Some(mut session) = world.get_mut::<Session>(ready.session) else { return };
    let Some(turn) = session.script.next_turn() else { return };
    session.next_turn += 1;
    let session_id = session.session_id.clone();
    spawn_request(world, traffic, turn, ready.at, |info| {
        info.session_index = ready.session_index;
        info.turn_index = ready.turn_index;
        info.session = Some(ready.session);
        info.session_id = session_id;
    });
}

fn start_node(world: &mut World, traffic: &mut Traffic, dispatch: Dispatch) {
    let Dispatch { at, node, play, session: (session_index, session_id), turn_index, turn } = dispatch;
    spawn_request(world, traffic, turn, at, |info| {
        info.session_index = u64::from(session_index);
        info.turn_index = turn_index;
        info.session_id = Some(session_id);
        info.play = Some((play, node));
    });
}

fn spawn_request(
    world: &mut World,
    traffic: &mut Traffic,
    turn: Turn,
    arrival: VirtualTime,
    belongs: impl FnOnce(&mut RequestInfo),
) {
    let mut info = RequestInfo {
        request_index: traffic.requests_arrived,
        session_index: 0,
        turn_index: 0,
        session: None,
        request_id: turn.request_id,
        session_id: None,
        play: None,
        source_line: turn.source_line,
        input_tokens: turn.input_tokens,
        requested_output_tokens: turn.output_tokens,
    };
    belongs(&mut info);
    traffic.requests_arrived += 1;
    let output_limit = traffic.limits.output_limit(turn.input_tokens, turn.output_tokens);
    let sequence = Sequence::new(turn.input_tokens, output_limit);
    let timeline = Timeline { arrival_ms: arrival.ms(), ..Timeline::default() };
    let identity: PromptIdentity = turn.identity;
    let id = info.request_index;
    let bundle = (info, sequence, BlockTable::default(), identity, timeline, Route::default());
    let request = if world.resource::<Fleet>().is_disaggregated() {
        world.spawn((bundle, Handoff::new(id))).id()
    } else {
        world.spawn(bundle).id()
    };
    world.resource_mut::<Placements>().arrive(request);
}

/// Lets sessions go on, and closed loops start the next unit, when requests end.
///
/// A rejected turn does not end its session: the next one is sent all the same. A failed one does.
pub fn react_to_endings(
    mut commands: Commands,
    signals: Res<Signals>,
    mut traffic: ResMut<Traffic>,
    mut horizon: ResMut<PassHorizon>,
    requests: Query<(&RequestInfo, &Sequence, Option<&Handoff>)>,
    mut sessions: Query<&mut Session>,
) {
    for signal in &signals.ended {
        let Ok((info, sequence, handoff)) = requests.get(signal.request) else { continue };
        if let (Some((_, node)), Some(playback)) = (info.play, &mut traffic.playback) {
            let released_ms = handoff.and_then(|handoff| handoff.times.source_released_ms).unwrap_or(0.0);
            playback.end(node, node_end(info, sequence, signal, released_ms));
            continue;
        }
        let mut goes_on = false;
        if let Some(entity) = info.session
            && let Ok(mut session) = sessions.get_mut(entity)
        {
            session.script.turn_ended(sequence.generated);
            goes_on = session.script.has_next() && !matches!(signal.ending, Ending::Failed(_));
            if goes_on {
                let at =
                    VirtualTime::from_ms(signal.at.ms() + traffic.load.turn_delay_ms(next_delay_ms(&session.script)));
                let (session_index, turn_index) = (session.index, session.next_turn);
                traffic.ready_turns.push(Reverse(ReadyTurn { at, session_index, turn_index, session: entity }));
            } else {
                commands.entity(entity).despawn();
            }
        }
        if !goes_on {
            traffic.units_in_progress -= 1;
        }
    }
    if let Some(signal) = signals.ended.last() {
        horizon.next_arrival = traffic.next_arrival(signal.at);
    }
    debug_assert!(signals.ended.last().is_none_or(|signal| traffic.next_arrival(signal.at) >= signal.at));
}

fn node_end(info: &RequestInfo, sequence: &Sequence, signal: &Signal, released_ms: f64) -> NodeEnd {
    NodeEnd {
        at_ms: signal.at.ms(),
        released_ms,
        completed: signal.ending == Ending::Finished,
        input_tokens: info.input_tokens,
        output_tokens: sequence.generated,
    }
}

fn next_delay_ms(script: &Script) -> f64 {
    match script {
        Script::Listed(turns) => turns.front().map_or(0.0, |turn| turn.delay_ms),
        Script::Growing(session) => session.delay_ms,
        Script::Delta(session) => session.turns.front().map_or(0.0, |turn| turn.delay_ms),
    }
}
