//! Conservation: what must add up between any two instants, whatever the deployment does.
//!
//! Nothing here changes anything. A run in a debug build is audited at its end, and with `--check`
//! every run is audited as it goes.

use std::fmt::Write as _;

use bevy_ecs::prelude::*;

use crate::clock::Clock;
use crate::fleet::{Fleet, Rank, Role};
use crate::handoff::{Handoff, HandoffDesk, Transfers};
use crate::kv::{BlockTable, BlockUse, KvPool};
use crate::metrics::RequestStatistics;
use crate::routing::{Route, RouteTaken, RouterFeed, Routers};
use crate::scheduling::{EngineSpec, Member, PassClock, Phase, RunningBatch, Sequence, WaitingQueue};
use crate::traffic::{RequestInfo, Traffic};

type Rule = fn(&mut World) -> Result<(), String>;

const RULES: [Rule; 6] = [
    requests_are_conserved,
    transfers_are_conserved,
    blocks_are_conserved,
    pages_are_conserved,
    batches_add_up,
    routers_add_up,
];

/// Audits a world between two instants.
///
/// # Errors
/// The first rule that is violated, and the state of every rank.
pub fn audit(world: &mut World) -> Result<(), String> {
    RULES
        .into_iter()
        .try_for_each(|rule| rule(world))
        .map_err(|violation| format!("{violation}\n{}", state_dump(world)))
}

/// Whoever has arrived has ended or is still here.
fn requests_are_conserved(world: &mut World) -> Result<(), String> {
    let alive = world.query::<&RequestInfo>().iter(world).count() as u64;
    let arrived = world.resource::<Traffic>().requests_arrived();
    let ended = world.resource::<RequestStatistics>().ended();
    if arrived == ended + alive {
        return Ok(());
    }
    Err(format!("{arrived} requests have arrived, {ended} have ended and {alive} are still here"))
}

fn transfers_are_conserved(world: &mut World) -> Result<(), String> {
    world.resource::<Transfers>().audit()
}

/// Every block of a pool is free, cached or held, and it is held as often as requests say.
fn blocks_are_conserved(world: &mut World) -> Result<(), String> {
    let usage: Vec<BlockUse> = world.query::<&BlockUse>().iter(world).copied().collect();
    let mut pools = world.query::<&KvPool>();
    pools.iter(world).try_for_each(|pool| pool.audit(&usage))?;
    let holds: u64 = usage.iter().map(|block| u64::from(block.references)).sum();
    let tables: usize = world.query::<&BlockTable>().iter(world).map(|table| table.rows.len()).sum();
    let handoffs: usize = world.query::<&Handoff>().iter(world).map(|handoff| handoff.table.rows.len()).sum();
    if holds == (tables + handoffs) as u64 {
        return Ok(());
    }
    Err(format!("blocks are held {holds} times, but requests list {} of them", tables + handoffs))
}

/// Every page of an SGLang-style rank is free, in the tree or in one request's hands.
fn pages_are_conserved(world: &mut World) -> Result<(), String> {
    let requests = world.query::<(&Route, &BlockTable, Option<&Handoff>, &Sequence)>();
    let mut ranks = world.query::<(&Rank, &EngineSpec, &RunningBatch, &PassClock)>();
    for (rank, spec, batch, passes) in ranks.iter(world) {
        let Some(sglang) = &batch.sglang else { continue };
        let next_pass = passes.number + u64::from(passes.in_flight && passes.logged);
        // Pages that decode steps have given out, and that requests list when they leave.
        let unlisted_by = |member: &Member| {
            let (_, table, _, sequence) = requests.get_manual(world, member.request).ok()?;
            Some(sequence.len_at(next_pass).div_ceil(spec.block_size) - table.pages.pages())
        };
        let unlisted = batch.members.iter().filter_map(unlisted_by).sum();
        let mut holds = Vec::new();
        for (route, table, handoff, _) in requests.iter_manual(world) {
            let activated = handoff.is_none_or(|handoff| handoff.times.destination_activated_ms.is_some());
            let is_at = |taken: Option<RouteTaken>| taken.is_some_and(|taken| taken.fleet_rank == rank.index);
            let (own, other) = if activated { (route.serving, route.prefill) } else { (route.prefill, route.serving) };
            if is_at(own) {
                holds.push(&table.pages);
            }
            if let Some(handoff) = handoff
                && is_at(other)
            {
                holds.push(&handoff.table.pages);
            }
        }
        sglang.cache.check(holds.into_iter(), unlisted)?;
    }
    Ok(())
}

/// No batch is too large, and its totals are those of its members.
fn batches_add_up(world: &mut World) -> Result<(), String> {
    let sequences = world.query::<(&Sequence, &BlockTable)>();
    let mut ranks = world.query::<(&EngineSpec, &RunningBatch, &PassClock)>();
    for (spec, batch, passes) in ranks.iter(world) {
        let (mut decoding, mut tokens, mut set_aside) = (0, 0, 0);
        for member in &batch.members {
            let Ok((sequence, table)) = sequences.get_manual(world, member.request) else {
                return Err("a batch has a member that is not here any more".to_owned());
            };
            // A pass in flight has given its members the token that they get at its end.
            let next_pass = passes.number + u64::from(passes.in_flight && passes.logged);
            if sequence.phase == Phase::Decoding {
                decoding += 1;
                tokens += u64::from(sequence.len_at(next_pass));
            }
            set_aside += spec.blocks_at_the_end(sequence).saturating_sub(table.rows.len() as u32);
        }
        if batch.members.len() as u64 > u64::from(spec.max_sequences) {
            return Err(format!("{} requests run where {} may", batch.members.len(), spec.max_sequences));
        }
        if (decoding, tokens) != (batch.decoding, batch.decoding_tokens) {
            return Err(format!(
                "{decoding} requests of {tokens} tokens decode, but {} of {} are counted",
                batch.decoding, batch.decoding_tokens
            ));
        }
        if spec.sets_blocks_aside() && set_aside != batch.set_aside_blocks {
            return Err(format!("{set_aside} blocks are to be set aside, but {} are", batch.set_aside_blocks));
        }
    }
    Ok(())
}

/// A router has on its books exactly those whom it has sent somewhere.
fn routers_add_up(world: &mut World) -> Result<(), String> {
    let (mut prefill, mut serving) = (0, 0);
    for (route, handoff) in world.query::<(&Route, Option<&Handoff>)>().iter(world) {
        let released = handoff.is_some_and(|handoff| handoff.times.source_released_ms.is_some());
        prefill += u64::from(route.prefill.is_some() && !released);
        serving += u64::from(route.serving.is_some());
    }
    let on_the_books = |role| if role == Role::Prefill { prefill } else { serving };
    world.resource_scope(|world, mut routers: Mut<'_, Routers>| {
        // What has happened meanwhile is heard before the next placement anyway.
        let mut feed = world.resource_mut::<RouterFeed>();
        let mut released = Vec::new();
        if !routers.have_queues() {
            routers.catch_up(&mut feed, &mut released);
            return routers.audit(on_the_books);
        }
        Ok(())
    })
}

/// The state of every rank, for whoever looks into a violated rule.
pub fn state_dump(world: &mut World) -> String {
    let mut dump = format!("at {} ms:\n", world.resource::<Clock>().now.ms());
    let ranks = world.resource::<Fleet>().ranks.clone();
    let mut query = world.query::<(&EngineSpec, &RunningBatch, &WaitingQueue, &PassClock, &HandoffDesk)>();
    let mut pools = world.query::<&KvPool>();
    for (index, rank) in ranks.into_iter().enumerate() {
        let Ok((spec, batch, queue, passes, desk)) = query.get(world, rank) else { continue };
        // Writing to a String cannot fail.
        let _ = write!(
            dump,
            "  rank {index} ({}): {} running ({} decode), {} waiting, {} handed over; pass {}{}; {desk:?}; ",
            spec.role.name(),
            batch.members.len(),
            batch.decoding,
            queue.requests.len(),
            queue.handed_over.len(),
            passes.number,
            if passes.in_flight { " in flight" } else { "" },
        );
        let _ = match (&batch.sglang, pools.get(world, rank)) {
            (Some(sglang), _) => writeln!(dump, "{:?}", sglang.cache.usage()),
            (None, Ok(pool)) => writeln!(dump, "{:?}", pool.usage()),
            (None, Err(_)) => writeln!(dump),
        };
    }
    dump
}
