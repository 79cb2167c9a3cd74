//! The prediction configuration, as a user meets it.

mod cases;
mod hostile;
mod messages;
mod overrides;
mod positions;
mod schema;
mod values;

use dynosim_schemas::config::{Override, Prediction, Problem, Stack, load, parse_override};

/// A small valid document that tests change.
const BASE: &str = include_str!("../yaml/base.yaml");

/// Loads a document on the Dynamo stack.
fn read(text: &str) -> Result<Prediction, Problem> {
    load(text, &[], Stack::Dynamo)
}

/// Loads [`BASE`] with `--set` assignments.
fn read_with(assignments: &[&str]) -> Result<Prediction, Problem> {
    load(BASE, &parsed(assignments), Stack::Dynamo)
}

fn parsed(assignments: &[&str]) -> Vec<Override> {
    assignments.iter().map(|text| parse_override(text).unwrap()).collect()
}

/// The refusal of a document.
fn problem(text: &str) -> Problem {
    read(text).expect_err("the document should be refused")
}
