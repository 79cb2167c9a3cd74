//! What a configuration may say before the simulator can do it.

use super::{PlannerPolicy, Prediction, Problem};

type Rule = fn(&Prediction) -> Option<Problem>;

/// One line for each feature to come, the most fundamental first. Delete the line when the feature arrives.
const MISSING: [Rule; 1] = [planner];

/// The first thing in a valid configuration that the simulator cannot do yet.
#[must_use]
pub fn not_available_yet(prediction: &Prediction) -> Option<Problem> {
    MISSING.iter().find_map(|rule| rule(prediction))
}

fn missing(path: impl Into<String>, what: &str, instead: &str) -> Problem {
    Problem::at(path, format!("`{what}` is not available yet")).help(instead)
}

fn planner(prediction: &Prediction) -> Option<Problem> {
    (prediction.planner.policy == PlannerPolicy::Enabled)
        .then(|| missing("planner.policy", "policy: enabled", "use `disabled`"))
}
