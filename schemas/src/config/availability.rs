//! What a configuration may say before the simulator can do it.

use super::{BytesPerToken, Capacity, ContextLength, PlannerPolicy, Prediction, Problem, Role, Timing, Worker};

type Rule = fn(&Prediction) -> Option<Problem>;

/// One line for each feature to come, the most fundamental first. Delete the line when the feature arrives.
const MISSING: [Rule; 5] = [automatic_transfer_size, planner, default_timing, default_capacity, max_context_length];

/// The first thing in a valid configuration that the simulator cannot do yet.
#[must_use]
pub fn not_available_yet(prediction: &Prediction) -> Option<Problem> {
    MISSING.iter().find_map(|rule| rule(prediction))
}

fn missing(path: impl Into<String>, what: &str, instead: &str) -> Problem {
    Problem::at(path, format!("`{what}` is not available yet")).help(instead)
}

/// The first worker for which `is_missing` holds, with the path of one of its fields.
fn worker(prediction: &Prediction, field: &str, is_missing: fn(&Worker) -> bool) -> Option<String> {
    let path = |role: Role| format!("engine.workers.{}.{field}", role.name());
    prediction.engine.workers.roles().find(|(_, worker)| is_missing(worker)).map(|(role, _)| path(role))
}

fn automatic_transfer_size(prediction: &Prediction) -> Option<Problem> {
    let transfer = prediction.engine.kv_transfer?;
    (transfer.bandwidth_gb_per_second.is_some() && transfer.bytes_per_token == BytesPerToken::Auto).then(|| {
        let path = "engine.kv_transfer.bytes_per_token";
        missing(path, "bytes_per_token: auto", "give a number of bytes, or leave `bandwidth_gb_per_second` out")
    })
}

fn planner(prediction: &Prediction) -> Option<Problem> {
    (prediction.planner.policy == PlannerPolicy::Enabled)
        .then(|| missing("planner.policy", "policy: enabled", "use `disabled`"))
}

fn default_timing(prediction: &Prediction) -> Option<Problem> {
    let path = worker(prediction, "timing", |worker| worker.timing == Timing::Default)?;
    Some(missing(path, "timing: {type: default}", "use `fixed` or `polynomial`"))
}

fn default_capacity(prediction: &Prediction) -> Option<Problem> {
    let is_default = |worker: &Worker| matches!(worker.kv_cache.capacity, Capacity::Default { .. });
    let path = worker(prediction, "kv_cache.capacity", is_default)?;
    Some(missing(path, "capacity: {type: default}", "use `{type: fixed, blocks: N}`"))
}

fn max_context_length(prediction: &Prediction) -> Option<Problem> {
    (prediction.engine.context_length == ContextLength::Max)
        .then(|| missing("engine.context_length", "context_length: max", "give a number of tokens"))
}
