//! Turns requests that have left their worker into rows.

use bevy_ecs::prelude::*;
use bevy_ecs::query::QueryData;
use dynosim_schemas::request_row::{HandoffRow, Placement, RequestRow, RequestStatus, StatusReason};

use super::RequestStatistics;
use crate::clock::Clock;
use crate::deployment::TokenLimits;
use crate::fleet::Fleet;
use crate::handoff::Handoff;
use crate::routing::{Route, RouteTaken};
use crate::scheduling::{Ending, PassClock, Sequence, Signals, Timeline};
use crate::traffic::RequestInfo;

/// Rows that wait to be taken out of the world, in order of the requests' ends.
#[derive(Resource, Debug, Default)]
pub struct Outbox(pub Vec<RequestRow>);

/// Writes a row for every request that has ended and lets the request go.
pub fn record_endings(
    mut commands: Commands,
    limits: Res<TokenLimits>,
    mut signals: ResMut<Signals>,
    mut statistics: ResMut<RequestStatistics>,
    mut outbox: ResMut<Outbox>,
    mut requests: Query<RecordData>,
) {
    for signal in signals.ended.drain(..) {
        let Ok(mut request) = requests.get_mut(signal.request) else { continue };
        let (status, reason) = match signal.ending {
            Ending::Finished => (RequestStatus::Completed, completion_reason(&request.info, request.sequence, *limits)),
            Ending::Rejected(reason) => (RequestStatus::Rejected, Some(reason)),
            Ending::Failed(reason) => (RequestStatus::Failed, Some(reason)),
            Ending::Prefilled => continue,
        };
        let generated = request.sequence.generated;
        let mut row = row(&mut request, generated, status, reason);
        row.end_ms = Some(signal.at.ms());
        if status == RequestStatus::Completed {
            row.sla_met = statistics.sla.map(|sla| sla.met_by(&row));
        }
        statistics.add(&row);
        outbox.0.push(row);
        commands.entity(signal.request).despawn();
    }
}

/// Everything about a request that goes into its row.
#[derive(QueryData)]
#[query_data(mutable)]
pub struct RecordData {
    info: &'static mut RequestInfo,
    sequence: &'static Sequence,
    timeline: &'static mut Timeline,
    route: &'static Route,
    handoff: Option<&'static Handoff>,
}

/// Writes a row for every request that the end of the simulation caught unfinished, in order of
/// arrival.
pub fn record_unfinished(
    clock: Res<Clock>,
    fleet: Res<Fleet>,
    mut statistics: ResMut<RequestStatistics>,
    mut outbox: ResMut<Outbox>,
    clocks: Query<&PassClock>,
    mut requests: Query<RecordData>,
) {
    let mut rows = Vec::new();
    for mut request in &mut requests {
        let mut generated = request.sequence.generated;
        if request.timeline.lead_ms.is_some_and(|lead_ms| lead_ms > clock.now.ms()) {
            // The pass that would have given it is still in flight.
            request.timeline.lead_ms = None;
            generated -= 1;
        }
        let clock = request.route.serving.map(|taken| clocks.get(fleet.ranks[taken.fleet_rank as usize]));
        if let Some(Ok(passes)) = clock {
            request.timeline.close_run(request.sequence, passes);
            request.timeline.look_up_token_times(&passes.log);
            generated += request.sequence.generated_at(passes.number) - request.sequence.generated;
        }
        let reason = Some(StatusReason::VirtualTimeLimit);
        rows.push(row(&mut request, generated, RequestStatus::Unfinished, reason));
    }
    rows.sort_unstable_by_key(|row| row.request_index);
    rows.iter().for_each(|row| statistics.add(row));
    outbox.0.append(&mut rows);
}

fn completion_reason(info: &RequestInfo, sequence: &Sequence, limits: TokenLimits) -> Option<StatusReason> {
    if info.requested_output_tokens == 0 {
        Some(StatusReason::NoOutputRequested)
    } else if sequence.output_limit == info.requested_output_tokens {
        None
    } else if limits.pool_tokens < limits.context_length {
        Some(StatusReason::StoppedAtKvPool)
    } else {
        Some(StatusReason::StoppedAtContextLength)
    }
}

fn row(
    request: &mut RecordDataItem<'_, '_>,
    output_tokens: u32,
    status: RequestStatus,
    reason: Option<StatusReason>,
) -> RequestRow {
    let (info, timeline) = (&mut *request.info, &mut *request.timeline);
    RequestRow {
        request_index: info.request_index,
        request_id: info.request_id.take(),
        session_id: info.session_id.take(),
        session_index: info.session_index,
        turn_index: info.turn_index,
        play_index: info.play.map(|(play, _)| play),
        source_line: info.source_line,
        placement: request.route.serving.map(|taken| placement(&taken)),
        handoff: request.handoff.map(|handoff| Box::new(handoff_row(handoff, request.route))),
        status,
        reason,
        arrival_ms: timeline.arrival_ms,
        first_token_ms: timeline.first_token_ms,
        second_token_ms: timeline.second_token_ms,
        last_token_ms: timeline.last_token_ms,
        end_ms: None,
        input_tokens: u64::from(info.input_tokens),
        requested_output_tokens: u64::from(info.requested_output_tokens),
        output_tokens: u64::from(output_tokens),
        preemptions: timeline.preemptions,
        knows_prefixes: true,
        admissions: std::mem::take(&mut timeline.admissions),
        sla_met: None,
    }
}

fn placement(taken: &RouteTaken) -> Placement {
    Placement {
        worker_id: taken.worker_id,
        rank: taken.rank,
        placed_ms: taken.at.ms(),
        overlap_blocks: taken.overlap_blocks,
    }
}

fn handoff_row(handoff: &Handoff, route: &Route) -> HandoffRow {
    let times = handoff.times;
    HandoffRow {
        prefill: route.prefill.map(|taken| placement(&taken)),
        source_held_ms: times.source_held_ms,
        destination_reserved_ms: times.destination_reserved_ms,
        destination_activated_ms: times.destination_activated_ms,
        source_released_ms: times.source_released_ms,
        destination_reused_tokens: times.destination_reserved_ms.map(|_| handoff.reused_tokens),
    }
}
