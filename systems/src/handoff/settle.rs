//! Moves hand-overs on: everything that can happen at an instant.
//!
//! vLLM hands over *source first*: the prompt is computed, then a decode rank is chosen and sets
//! room aside, then the KV moves. SGLang hands over *destination first*: a decode rank is chosen and
//! sets room aside when the request arrives, and only then the prompt is computed.

use std::collections::BTreeSet;

use bevy_ecs::prelude::*;
use bevy_ecs::system::SystemParam;
use dynosim_schemas::request_row::StatusReason;

use super::components::{Command, Handoff};
use super::transfer::Transfers;
use crate::clock::Clock;
use crate::fleet::{Fleet, Role};
use crate::kv::Blocks;
use crate::routing::{Arrival, Placements, Route, RouteTaken, RouterFeed, RouterNote, Routers};
use crate::scheduling::{
    Ending, Engine, PassHorizon, RankData, Requests, Reservation, Signal, Signals, scheduler, with_block_columns,
};
use crate::time::VirtualTime;

/// Ranks whose desks have something to do, as places in the fleet.
#[derive(Resource, Debug, Default)]
pub struct HandoffDesks {
    busy: BTreeSet<u32>,
}

/// What a hand-over may touch.
#[derive(SystemParam)]
pub struct HandoverWorld<'w, 's> {
    clock: Res<'w, Clock>,
    horizon: ResMut<'w, PassHorizon>,
    fleet: ResMut<'w, Fleet>,
    signals: ResMut<'w, Signals>,
    transfers: ResMut<'w, Transfers>,
    desks: ResMut<'w, HandoffDesks>,
    placements: ResMut<'w, Placements>,
    routers: ResMut<'w, Routers>,
    feed: ResMut<'w, RouterFeed>,
    engine: Engine<'w, 's>,
    handoffs: Query<'w, 's, (&'static mut Handoff, &'static mut Route)>,
}

impl HandoverWorld<'_, '_> {
    fn settle(&mut self, act: impl FnOnce(&mut Settling<'_, '_, '_, '_, '_, '_, '_>)) {
        let Engine { ranks, requests, blocks } = &mut self.engine;
        with_block_columns(blocks, |blocks| {
            act(&mut Settling {
                now: self.clock.now,
                fleet: &mut self.fleet,
                signals: &mut self.signals,
                transfers: &mut self.transfers,
                desks: &mut self.desks,
                placements: &mut self.placements,
                routers: &mut self.routers,
                feed: &mut self.feed,
                ranks,
                requests,
                blocks,
                handoffs: &mut self.handoffs,
            });
        });
        self.horizon.next_transfer = self.transfers.next_completion();
    }
}

/// Moves every hand-over on as far as it can go at this instant.
pub fn hand_over(mut world: HandoverWorld) {
    let world = &mut world;
    world.routers.catch_up(&mut world.feed, &mut world.placements.released);
    world.signals.desks_are_due = false;
    world.settle(|settling| {
        settling.take_in_complete_transfers();
        settling.take_in_ended();
        settling.take_in_prefilled();
        settling.serve_desks();
    });
}

/// Finds room on decode ranks for requests that have arrived.
///
/// The reference starts the passes of an instant before it gets to these, so a rank that has
/// anything to do answers at the end of its next pass.
pub fn reserve_for_arrivals(mut world: HandoverWorld) {
    let world = &mut world;
    if world.placements.arrived.is_empty() {
        return;
    }
    world.settle(|settling| settling.take_in_arrivals());
}

struct Settling<'a, 'nw, 'ns, 'rw, 'rs, 'hw, 'hs> {
    now: VirtualTime,
    fleet: &'a mut Fleet,
    signals: &'a mut Signals,
    transfers: &'a mut Transfers,
    desks: &'a mut HandoffDesks,
    placements: &'a mut Placements,
    routers: &'a mut Routers,
    feed: &'a mut RouterFeed,
    ranks: &'a mut Query<'nw, 'ns, RankData>,
    requests: &'a mut Requests<'rw, 'rs>,
    blocks: Blocks<'a>,
    handoffs: &'a mut Query<'hw, 'hs, (&'static mut Handoff, &'static mut Route)>,
}

impl Settling<'_, '_, '_, '_, '_, '_, '_> {
    fn take_in_complete_transfers(&mut self) {
        while let Some(request) = self.transfers.pop_complete(self.now) {
            self.command_destination(request);
        }
    }

    /// Cleans up behind requests that have ended.
    fn take_in_ended(&mut self) {
        for index in 0..self.signals.ended.len() {
            let Signal { request, rank, .. } = self.signals.ended[index];
            match self.fleet.worker_of(rank).role {
                Role::Prefill => self.cancel(request),
                Role::Decode => self.release_early(request),
                Role::Aggregated => {}
            }
        }
    }

    /// Lets go of the source of a request that has ended before its prefill worker's pass, which
    /// the release has to wait for. The request will not be here any more by then.
    fn release_early(&mut self, request: Entity) {
        let Ok((handoff, route)) = self.handoffs.get(request) else { return };
        let (None, Some(source)) = (handoff.times.source_released_ms, route.prefill) else { return };
        let end_of_pass = self.fleet.worker_of(source.fleet_rank).pass_end;
        let Ok(mut data) = self.ranks.get_mut(self.fleet.ranks[source.fleet_rank as usize]) else { return };
        let commands = &mut data.desk.commands;
        let count = commands.len();
        commands.retain(|&command| command != Command::Release(request));
        if commands.len() < count {
            self.release(source.fleet_rank, request, end_of_pass);
        }
    }

    /// Gives the room of a request back that its prefill rank has refused.
    fn cancel(&mut self, request: Entity) {
        let Ok((mut handoff, route)) = self.handoffs.get_mut(request) else { return };
        let Some(destination) = route.serving else { return };
        let Ok(mut rank) = self.ranks.get_mut(self.fleet.ranks[destination.fleet_rank as usize]) else { return };
        rank.desk.destinations.retain(|&waiting| waiting != request);
        rank.desk.reserved -= u32::from(handoff.times.destination_reserved_ms.is_some());
        let blocks = rank.pool.own_rows(&mut self.blocks);
        (scheduler(rank.spec.backend).cancel)(&mut rank, &mut handoff, blocks);
        rank.desk.may_have_room = true;
        rank.desk.attempt_is_due = true;
        self.desks.busy.insert(destination.fleet_rank);
        self.fleet.wake(destination.fleet_rank);
        self.feed.note(destination.fleet_rank, self.now, RouterNote::Ended(request));
    }

    /// Sends on the requests whose prompts have been computed, worker by worker.
    fn take_in_prefilled(&mut self) {
        let mut prefilled = std::mem::take(&mut self.signals.prefilled);
        for signal in prefilled.drain(..) {
            let Ok((mut handoff, _)) = self.handoffs.get_mut(signal.request) else { continue };
            handoff.times.source_held_ms = Some(signal.at.ms());
            if handoff.times.destination_reserved_ms.is_some() {
                self.start_transfer(signal.request);
            } else if let Some(rank) = self.ask_for_room(signal.request) {
                self.serve_desk(rank);
            }
        }
        self.signals.prefilled = prefilled;
    }

    fn take_in_arrivals(&mut self) {
        let mut arrived = std::mem::take(&mut self.placements.arrived);
        for request in arrived.drain(..) {
            if let Some(rank) = self.ask_for_room(request)
                && !self.starts_pass_now(rank)
            {
                self.serve_desk(rank);
            }
        }
        self.placements.arrived = arrived;
    }

    /// Whether the worker of a rank is going to start a pass at this instant.
    fn starts_pass_now(&self, rank: u32) -> bool {
        let ranks = &self.fleet.ranks[self.fleet.worker_of(rank).ranks.start as usize..];
        let count = self.fleet.worker_of(rank).ranks.len();
        ranks[..count].iter().any(|&rank| self.ranks.get(rank).is_ok_and(|data| data.has_work()))
    }

    /// Chooses a decode rank for a request and asks it for room. Returns the rank.
    fn ask_for_room(&mut self, request: Entity) -> Option<u32> {
        let data = self.requests.get(request).ok()?;
        let arrival = Arrival {
            request,
            prompt_tokens: data.sequence.prompt_tokens,
            identity: data.identity,
            arrival_ms: data.timeline.arrival_ms,
        };
        let (rank, placed) = self.routers.place(Role::Decode, &arrival, self.now)?;
        let mut rank_data = self.ranks.get_mut(self.fleet.ranks[rank as usize]).ok()?;
        let (_, mut route) = self.handoffs.get_mut(request).ok()?;
        route.serving = Some(RouteTaken::new(rank_data.rank, placed, self.now));
        let desk = &mut *rank_data.desk;
        // A refused head stays refused; whoever comes behind it waits.
        desk.may_have_room |= desk.destinations.is_empty();
        desk.destinations.push_back(request);
        desk.attempt_is_due = true;
        self.desks.busy.insert(rank);
        Some(rank)
    }

    /// Lets every desk work whose worker is not in a pass.
    fn serve_desks(&mut self) {
        let mut next = 0;
        while let Some(&rank) = self.desks.busy.range(next..).next() {
            next = rank + 1;
            if self.serve_desk(rank) {
                // What it did may have given an earlier desk something to do.
                next = 0;
            }
        }
    }

    /// Lets a desk work; `false` if there was nothing that it could do now.
    fn serve_desk(&mut self, rank: u32) -> bool {
        if self.fleet.worker_of(rank).in_pass || !self.may_work(rank) {
            return false;
        }
        let mut has_worked = false;
        while let Some(command) = self.next_command(rank) {
            has_worked = true;
            match command {
                Command::Activate(request) => {
                    self.activate(rank, request);
                    self.try_next_destination(rank);
                }
                Command::Release(request) => self.release(rank, request, self.now),
            }
        }
        if self.awaits_room(rank) {
            has_worked |= self.try_due_destination(rank);
            // Nothing else would ever make an idle rank try again.
            while self.is_idle(rank) && self.try_next_destination(rank) {
                has_worked = true;
            }
        }
        let is_done = self.ranks.get(self.fleet.ranks[rank as usize]).is_ok_and(|data| data.desk.is_empty());
        if is_done {
            self.desks.busy.remove(&rank);
        }
        has_worked
    }

    /// Whether a desk has anything to do. To ask once costs less than to find out step by step.
    fn may_work(&mut self, rank: u32) -> bool {
        let Ok(data) = self.ranks.get(self.fleet.ranks[rank as usize]) else { return false };
        let waits_in_vain = !data.desk.attempt_is_due && data.has_work();
        let may_work = !data.desk.commands.is_empty() || !(waits_in_vain || data.desk.destinations.is_empty());
        if data.desk.is_empty() {
            self.desks.busy.remove(&rank);
        }
        may_work
    }

    fn awaits_room(&self, rank: u32) -> bool {
        self.ranks.get(self.fleet.ranks[rank as usize]).is_ok_and(|data| data.desk.awaits_room())
    }

    /// Whether a rank has nothing to do and nothing to come.
    fn is_idle(&self, rank: u32) -> bool {
        let data = self.ranks.get(self.fleet.ranks[rank as usize]);
        data.is_ok_and(|data| data.desk.reserved == 0) && !self.starts_pass_now(rank)
    }

    fn next_command(&mut self, rank: u32) -> Option<Command> {
        let mut data = self.ranks.get_mut(self.fleet.ranks[rank as usize]).ok()?;
        data.desk.commands.pop_front()
    }

    fn activate(&mut self, rank: u32, request: Entity) {
        let Ok((mut handoff, _)) = self.handoffs.get_mut(request) else { return };
        let Ok(mut data) = self.ranks.get_mut(self.fleet.ranks[rank as usize]) else { return };
        let Ok(mut request_data) = self.requests.get_mut(request) else { return };
        let blocks = data.pool.own_rows(&mut self.blocks);
        (scheduler(data.spec.backend).activate)(&mut data, &mut request_data, &mut handoff, blocks);
        handoff.times.destination_activated_ms = Some(self.now.ms());
        data.desk.reserved -= 1;
        let queue = &mut data.queue.handed_over;
        queue.insert(queue.partition_point(|&(id, _)| id < handoff.id), (handoff.id, request));
        self.fleet.wake(rank);
        self.command_source(request);
    }

    fn release(&mut self, rank: u32, request: Entity, at: VirtualTime) {
        let Ok((mut handoff, _)) = self.handoffs.get_mut(request) else { return };
        let Ok(mut data) = self.ranks.get_mut(self.fleet.ranks[rank as usize]) else { return };
        if handoff.is_impossible {
            // It never left the prefill rank, so that its KV is still the request's own.
            take_from_request(request, self.requests, &mut handoff);
        }
        let Ok(request_data) = self.requests.get(request) else { return };
        let blocks = data.pool.own_rows(&mut self.blocks);
        let release_source = scheduler(data.spec.backend).release_source;
        release_source(&mut data, &request_data, &mut handoff, blocks);
        if !self.fleet.worker_of(rank).in_pass {
            // What a pass in flight does becomes known at its end.
            self.feed.publish(rank, self.now, data.pool.events());
        }
        self.feed.note(rank, self.now, RouterNote::Ended(request));
        handoff.times.source_released_ms = Some(at.ms());
        let is_impossible = handoff.is_impossible;
        self.fleet.wake(rank);
        if is_impossible {
            self.fail(rank, request);
        }
    }

    /// Tries to find room for the first request that wants it, if an attempt is due: a rank makes one
    /// at the end of a pass, when it is asked, and when something else has happened here.
    fn try_due_destination(&mut self, rank: u32) -> bool {
        let Ok(mut data) = self.ranks.get_mut(self.fleet.ranks[rank as usize]) else { return false };
        std::mem::take(&mut data.desk.attempt_is_due) && self.try_next_destination(rank)
    }

    /// Tries to find room for the first request that wants it, unless that cannot have become better.
    fn try_next_destination(&mut self, rank: u32) -> bool {
        let Ok(mut data) = self.ranks.get_mut(self.fleet.ranks[rank as usize]) else { return false };
        let Some(&request) = data.desk.destinations.front().filter(|_| data.desk.may_have_room) else { return false };
        let Ok((mut handoff, _)) = self.handoffs.get_mut(request) else { return false };
        let Ok(request_data) = self.requests.get(request) else { return false };
        let blocks = data.pool.own_rows(&mut self.blocks);
        let reserve = scheduler(data.spec.backend).reserve;
        match reserve(&mut data, &request_data, &mut handoff, blocks) {
            Reservation::Refused => {
                data.desk.may_have_room = false;
                false
            }
            Reservation::Made => {
                data.desk.destinations.pop_front();
                data.desk.reserved += 1;
                handoff.times.destination_reserved_ms = Some(self.now.ms());
                let source_is_held = handoff.times.source_held_ms.is_some();
                if source_is_held {
                    self.start_transfer(request);
                } else {
                    self.placements.ready.push(request);
                }
                true
            }
            Reservation::Impossible => {
                data.desk.destinations.pop_front();
                handoff.is_impossible = true;
                let source_is_held = handoff.times.source_held_ms.is_some();
                self.feed.note(rank, self.now, RouterNote::Ended(request));
                if source_is_held {
                    self.command_source(request);
                } else {
                    self.fail(rank, request);
                }
                true
            }
        }
    }

    fn fail(&mut self, rank: u32, request: Entity) {
        let ending = Ending::Failed(StatusReason::PromptExceedsDecodeKvPool);
        self.signals.ended.push(Signal { request, rank, at: self.now, ending });
    }

    fn start_transfer(&mut self, request: Entity) {
        let Ok((handoff, route)) = self.handoffs.get(request) else { return };
        let (Some(source), Some(destination)) = (route.prefill, route.serving) else { return };
        let worker = |rank: u32| self.fleet.worker_of_rank[rank as usize];
        let ends = (worker(source.fleet_rank), worker(destination.fleet_rank));
        let Ok(data) = self.requests.get(request) else { return };
        if !self.transfers.start(request, data.sequence.prompt_tokens, handoff, ends, self.now) {
            self.command_destination(request);
        }
    }

    fn command_destination(&mut self, request: Entity) {
        let Ok((_, route)) = self.handoffs.get(request) else { return };
        if let Some(destination) = route.serving {
            self.command(destination.fleet_rank, Command::Activate(request));
        }
    }

    fn command_source(&mut self, request: Entity) {
        let Ok((_, route)) = self.handoffs.get(request) else { return };
        if let Some(source) = route.prefill {
            self.command(source.fleet_rank, Command::Release(request));
        }
    }

    fn command(&mut self, rank: u32, command: Command) {
        if let Ok(mut data) = self.ranks.get_mut(self.fleet.ranks[rank as usize]) {
            data.desk.commands.push_back(command);
            self.desks.busy.insert(rank);
        }
    }
}

/// Moves what a request holds to its hand-over.
fn take_from_request(request: Entity, requests: &mut Requests<'_, '_>, handoff: &mut Handoff) {
    let Ok(mut data) = requests.get_mut(request) else { return };
    handoff.table = std::mem::take(&mut *data.table);
}
