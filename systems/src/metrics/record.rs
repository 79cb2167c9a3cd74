//! Turns requests that have left their worker into rows.

use bevy_ecs::prelude::*;
use dynosim_schemas::request_row::{RequestRow, RequestStatus, StatusReason};

use super::RequestStatistics;
use crate::scheduling::{Ending, PassClock, RunningBatch, Sequence, Signals, Timeline, WaitingQueue, Worker};
use crate::traffic::RequestInfo;

/// Rows that wait to be taken out of the world, in order of the requests' ends.
#[derive(Resource, Debug, Default)]
pub struct Outbox(pub Vec<RequestRow>);

/// Writes a row for every request that has ended and lets the request go.
pub fn record_endings(
    mut commands: Commands,
    mut signals: ResMut<Signals>,
    mut statistics: ResMut<RequestStatistics>,
    mut outbox: ResMut<Outbox>,
    mut requests: Query<(&mut RequestInfo, &Sequence, &mut Timeline)>,
) {
    for signal in signals.0.drain(..) {
        let Ok((mut info, sequence, mut timeline)) = requests.get_mut(signal.request) else { continue };
        let (status, reason) = match signal.ending {
            Ending::Finished => (RequestStatus::Completed, completion_reason(&info, sequence)),
            Ending::Rejected(reason) => (RequestStatus::Rejected, Some(reason)),
            Ending::Failed(reason) => (RequestStatus::Failed, Some(reason)),
        };
        let mut row = row(&mut info, sequence.generated, &mut timeline, status, reason);
        row.worker_id = Some(signal.worker_id);
        row.end_ms = Some(signal.at.ms());
        if status == RequestStatus::Completed {
            row.sla_met = statistics.sla.map(|sla| sla.met_by(&row));
        }
        statistics.add(&row);
        outbox.0.push(row);
        commands.entity(signal.request).despawn();
    }
}

/// Writes a row for every request that the end of the simulation caught unfinished.
pub fn record_unfinished(
    mut statistics: ResMut<RequestStatistics>,
    mut outbox: ResMut<Outbox>,
    workers: Query<(&Worker, &PassClock, &RunningBatch, &WaitingQueue)>,
    mut requests: Query<(&mut RequestInfo, &Sequence, &mut Timeline)>,
) {
    for (worker, passes, batch, queue) in &workers {
        let running = batch.members.iter().map(|member| member.request);
        // The pass in flight has not ended, so those that it would have ended are still here.
        let ending = passes.endings.iter().map(|&(request, _)| request);
        for request in running.chain(ending).chain(queue.requests.iter().copied()) {
            let Ok((mut info, sequence, mut timeline)) = requests.get_mut(request) else { continue };
            timeline.close_run(sequence, passes);
            timeline.look_up_token_times(&passes.log);
            let reason = Some(StatusReason::VirtualTimeLimit);
            let generated = sequence.generated_at(passes.number);
            let mut row = row(&mut info, generated, &mut timeline, RequestStatus::Unfinished, reason);
            row.worker_id = Some(worker.id);
            statistics.add(&row);
            outbox.0.push(row);
        }
    }
}

fn completion_reason(info: &RequestInfo, sequence: &Sequence) -> Option<StatusReason> {
    if info.requested_output_tokens == 0 {
        Some(StatusReason::NoOutputRequested)
    } else if sequence.output_limit < info.requested_output_tokens {
        Some(StatusReason::StoppedAtContextLength)
    } else {
        None
    }
}

fn row(
    info: &mut RequestInfo,
    output_tokens: u32,
    timeline: &mut Timeline,
    status: RequestStatus,
    reason: Option<StatusReason>,
) -> RequestRow {
    RequestRow {
        request_index: info.request_index,
        request_id: info.request_id.take(),
        session_id: info.session_id.take(),
        session_index: info.session_index,
        turn_index: info.turn_index,
        source_line: info.source_line,
        worker_id: None,
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
        admissions: std::mem::take(&mut timeline.admissions),
        sla_met: None,
    }
}
