//! What the end of a pass means for the requests that end with it, and for the log of passes.

use bevy_ecs::prelude::*;

use super::components::{Ending, PassClock, Phase, RankData, RankDataItem};
use super::vllm::Requests;
use crate::metrics::PassStatistics;

/// Closes the books of a request that leaves its rank.
pub fn close_request(
    request: Entity,
    ending: Ending,
    passes: &mut PassClock,
    requests: &mut Requests<'_, '_>,
    statistics: &mut PassStatistics,
) {
    match ending {
        Ending::Finished => finish_timeline(request, passes, requests, statistics),
        Ending::Failed(_) | Ending::Rejected(_) => {
            if let Ok(mut data) = requests.get_mut(request) {
                data.timeline.look_up_token_times(&passes.log);
            }
        }
        Ending::Prefilled => {}
    }
}

/// Looks up when a finished request got its tokens, and counts the gaps between them.
fn finish_timeline(
    request: Entity,
    passes: &mut PassClock,
    requests: &mut Requests<'_, '_>,
    statistics: &mut PassStatistics,
) {
    let Ok(mut data) = requests.get_mut(request) else { return };
    let sequence = &mut *data.sequence;
    if sequence.phase == Phase::Decoding {
        let end_pass = passes.number + u64::from(passes.logged);
        data.timeline.end_run(sequence, end_pass);
        sequence.generated = sequence.generated_at(end_pass);
        sequence.phase = Phase::Waiting;
    }
    data.timeline.look_up_token_times(&passes.log);
    let runs = &data.timeline.runs;
    for (index, run) in runs.iter().enumerate() {
        passes.log.count_gaps(*run);
        if let (Some(lead_ms), true) = (run.lead_ms, run.tokens() > 1) {
            statistics.add_gap(run.token_ms(1, &passes.log) - lead_ms, 1);
        }
        if let Some(next) = runs.get(index + 1) {
            let last_ms = run.token_ms(run.tokens() - 1, &passes.log);
            statistics.add_gap(next.token_ms(0, &passes.log) - last_ms, 1);
        }
    }
}

/// Cuts the log behind the oldest run of tokens that a living request may still ask for.
pub fn cut_log(data: &mut RankDataItem<'_, '_>, requests: &Requests<'_, '_>, statistics: &mut PassStatistics) {
    let number = data.passes.number;
    let first_run = |request: Entity| {
        let request = requests.get(request).ok()?;
        let open = (request.sequence.phase == Phase::Decoding).then_some(request.sequence.run_start);
        request.timeline.runs.first().map(|run| run.first_pass).or(open)
    };
    let in_batch = data.batch.members.iter().filter_map(|member| first_run(member.request));
    // Preempted requests stand before all that never ran, but SGLang sends them to the back.
    let goes_to_back = data.batch.sglang.is_some();
    let was_preempted = |request: Entity| requests.get(request).is_ok_and(|r| r.timeline.preemptions > 0);
    let waiting = data.queue.requests.iter().copied();
    let preempted = waiting.take_while(|&request| goes_to_back || was_preempted(request)).filter_map(first_run);
    let oldest = in_batch.chain(preempted).min().unwrap_or(number);
    data.passes.log.cut_before(oldest, |gap_ms, count| statistics.add_gap(gap_ms, count));
}

/// Gives what is left of every rank's log to the statistics, at the end of a simulation.
pub fn flush_logs(mut ranks: Query<RankData>, mut statistics: ResMut<PassStatistics>) {
    for mut data in &mut ranks {
        data.passes.log.cut_before(u64::MAX, |gap_ms, count| statistics.add_gap(gap_ms, count));
    }
}
