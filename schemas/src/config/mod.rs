//! The prediction configuration: what a user writes in YAML, with every default filled in.
//!
//! [`load`] is the one way in. It parses the text, applies `--set` [`Override`]s, decodes the result into a
//! [`Prediction`] and checks the rules that span several fields. Every refusal is a [`Problem`] that names the
//! dotted path of the field, its place in the file and what to write instead.
//!
//! A section's file holds its types; the decoder is written by hand over a small reader, because a derived one can
//! give neither exact paths nor the difference between `96` and `96.0`.

mod availability;
mod document;
pub mod engine;
mod evaluation;
mod fields;
pub mod limits;
mod overrides;
mod planner;
mod positions;
mod problem;
mod router;
mod rules;
mod schema;
pub mod traffic;

use schemars::JsonSchema;
use serde::Serialize;

use self::fields::Fields;

pub use self::availability::not_available_yet;
pub use self::engine::{
    Backend, BytesPerToken, Capacity, ContextLength, Engine, KvCache, KvTransfer, MixedPass, Mode, Parallelism, Role,
    SchedulePolicy, Scheduler, Timing, TransferLinks, TransferTiming, Worker, Workers,
};
pub use self::evaluation::{Evaluation, Sla};
pub use self::fields::nearest;
pub use self::overrides::{Override, parse_override};
pub use self::planner::{LoadPredictor, Planner, PlannerPolicy, PlannerTarget};
pub use self::problem::Problem;
pub use self::router::{PrefillLoadModel, QueuePolicy, Router, RouterQueue};
pub use self::schema::json_schema;
pub use self::traffic::{LanePolicy, Load, NestedBasis, Session, Source, Stop, TraceFormat, Traffic, WekaRules};

/// The stack that a prediction runs through. It decides which sections exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Engines alone: `router` and `planner` are refused.
    Engine,
    /// Engines behind a router, with an optional planner.
    Dynamo,
}

/// One workload on one deployment: the whole configuration file.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Prediction {
    /// Request source, load pattern and stopping condition. Omitted: 100 synthetic requests of 1024 input and 128
    /// output tokens at concurrency 10.
    #[schemars(default)]
    pub traffic: Traffic,
    /// Model, hardware, backend and workers.
    pub engine: Engine,
    /// How requests are spread over workers (`--stack dynamo`).
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(default)]
    pub router: Router,
    /// Scaling of the deployment while it runs (`--stack dynamo`).
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(default)]
    pub planner: Planner,
    /// Service-level bounds that the report counts against.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(default)]
    pub evaluation: Evaluation,
}

/// The sections of a file, in the order in which they are read and listed.
const SECTIONS: [&str; 5] = ["traffic", "engine", "router", "planner", "evaluation"];
/// Sections that belong to a search over configurations.
const SEARCH_SECTIONS: [&str; 2] = ["optimization", "optimizer"];
/// Sections that only the Dynamo stack has.
const DYNAMO_SECTIONS: [&str; 2] = ["router", "planner"];

/// Reads a configuration: `text` is the file, `overrides` the `--set` assignments in the order they were given.
///
/// # Errors
/// The first thing that is wrong, with its path and, where it comes from the file, its position.
pub fn load(text: &str, overrides: &[Override], stack: Stack) -> Result<Prediction, Problem> {
    let mut document = document::parse(text)?;
    for assignment in overrides {
        assignment.apply(&mut document)?;
    }
    read(&document, stack).map_err(|problem| problem.located(text, overrides))
}

fn read(document: &serde_yaml::Value, stack: Stack) -> Result<Prediction, Problem> {
    let sections = Fields::open(document, "")?;
    check_sections(&sections, stack)?;
    let prediction = Prediction {
        traffic: sections.value("traffic").map_or_else(|| Ok(Traffic::default()), Traffic::read)?,
        engine: Engine::read(sections.required("engine")?)?,
        router: sections.value("router").map_or_else(|| Ok(Router::default()), Router::read)?,
        planner: sections.value("planner").map_or_else(|| Ok(Planner::default()), Planner::read)?,
        evaluation: sections.value("evaluation").map_or_else(|| Ok(Evaluation::default()), Evaluation::read)?,
    };
    rules::check(&prediction)?;
    Ok(prediction)
}

fn check_sections(sections: &Fields<'_>, stack: Stack) -> Result<(), Problem> {
    for name in SEARCH_SECTIONS {
        if sections.has(name) {
            return Err(problem::search_section(name, name));
        }
    }
    sections.only(&SECTIONS).map_err(|problem| match problem.message.as_str() {
        fields::UNKNOWN_FIELD => Problem { message: "unknown section".to_owned(), ..problem },
        _ => problem,
    })?;
    let refused = DYNAMO_SECTIONS.into_iter().find(|name| stack == Stack::Engine && sections.has(name));
    refused.map_or(Ok(()), |name| {
        Err(Problem::at(name, "the engine stack has no such section")
            .help(format!("pass `--stack dynamo` to use `{name}`, or remove it")))
    })
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
