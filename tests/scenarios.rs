//! Scenarios: a configuration in `tests/scenarios/NAME.yaml`, the figures that it must give in `NAME.expected.json`.
//!
//! An expectation holds
//! * `origin`: `reference` for figures measured on the reference simulator, which are never rewritten, or `dynosim`;
//! * `tolerance`: how far a figure may be off, relative to its value;
//! * `summary`: figures by name;
//! * `outcomes` (optional): how many requests ended in which way, as `rejected: prompt_exceeds_kv_pool`;
//! * `rows` (optional): values of the per-request table, row by row, in order of arrival.
//!
//! `UPDATE=1 cargo test --test scenarios` puts what differs right in our own scenarios, and writes the whole
//! expectation of a scenario that has none.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Desk, Played, close, finish, in_parallel, predict, root};
use serde_json::{Map, Value, json};

/// The reference reads these percentiles from a sketch that is off by up to 0.1 %.
const SKETCHED: [&str; 2] = ["median_itl_ms", "p99_itl_ms"];
const SKETCH_TOLERANCE: f64 = 0.002;
const TOLERANCE: f64 = 1e-6;

struct Scenario {
    name: String,
    config: PathBuf,
    expected: PathBuf,
}

/// What a scenario says that its run does not: where, wanted, got.
struct Difference {
    place: String,
    wanted: Value,
    got: Value,
}

#[test]
fn every_scenario_gives_its_figures() {
    let scenarios = scenarios();
    assert!(scenarios.len() >= 40, "only {} scenarios were found", scenarios.len());
    let complaints: Vec<String> = in_parallel(&scenarios, complain).into_iter().flatten().collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn every_expectation_belongs_to_a_scenario() {
    for path in files("json") {
        let config = PathBuf::from(path.to_string_lossy().replace(".expected.json", ".yaml"));
        assert!(config.is_file(), "{} has no configuration beside it", path.display());
    }
}

fn files(extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("tests/scenarios")).expect("the scenarios can be listed");
    let paths = entries.map(|entry| entry.expect("a scenario can be listed").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    paths
}

fn scenarios() -> Vec<Scenario> {
    let scenario = |config: PathBuf| Scenario {
        name: config.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        expected: config.with_extension("expected.json"),
        config,
    };
    files("yaml").into_iter().map(scenario).collect()
}

/// Plays a scenario and says everything that is wrong with it.
fn complain(scenario: &Scenario) -> Vec<String> {
    let name = &scenario.name;
    let desk = Desk::new();
    let out = desk.out();
    let finished = finish(&mut predict(&scenario.config, &out));
    if finished.code != Some(0) {
        return vec![format!("{name}: exit code {:?}: {}", finished.code, finished.stderr.trim())];
    }
    let mut complaints = Vec::new();
    if !finished.stderr.is_empty() {
        complaints.push(format!("{name}: warns about a run that is in order: {}", finished.stderr.trim()));
    }
    let played = Played::read(&out);
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let Some(mut expected) = read_expected(&scenario.expected) else {
        if update {
            write_expected(&scenario.expected, &new_expectation(&played));
        } else {
            complaints.push(format!("{name}: has no readable {}", scenario.expected.display()));
        }
        return complaints;
    };
    let differences = differences(&expected, &played);
    if update && expected["origin"] == "dynosim" && !differences.is_empty() {
        correct(&mut expected, &differences);
        write_expected(&scenario.expected, &expected);
        return complaints;
    }
    let text = |d: &Difference| format!("{name}: {}: want {}, got {}", d.place, d.wanted, d.got);
    complaints.extend(differences.iter().map(text));
    complaints
}

fn read_expected(path: &Path) -> Option<Value> {
    let expected: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    let known_origin = expected["origin"] == "reference" || expected["origin"] == "dynosim";
    (known_origin && expected["tolerance"].is_f64() && expected["summary"].is_object()).then_some(expected)
}

/// Places are JSON pointers into the expectation.
fn differences(expected: &Value, played: &Played) -> Vec<Difference> {
    let tolerance = expected["tolerance"].as_f64().unwrap_or(TOLERANCE);
    let mut found = Vec::new();
    let mut compare = |place: String, wanted: &Value, got: Value, tolerance: f64| {
        if !agrees(&got, wanted, tolerance) {
            found.push(Difference { place, wanted: wanted.clone(), got });
        }
    };
    for (figure, wanted) in expected["summary"].as_object().into_iter().flatten() {
        let sketched = SKETCHED.contains(&figure.as_str());
        let tolerance = if sketched { tolerance.max(SKETCH_TOLERANCE) } else { tolerance };
        let got = played.summary().get(figure).cloned().unwrap_or_default();
        compare(format!("/summary/{figure}"), wanted, got, tolerance);
    }
    if let Some(wanted) = expected.get("outcomes") {
        compare("/outcomes".to_owned(), wanted, json!(played.outcomes()), tolerance);
    }
    if let Some(rows) = expected["rows"].as_array() {
        for (index, wanted) in rows.iter().enumerate() {
            for (column, wanted) in wanted.as_object().into_iter().flatten() {
                let got = played.rows.get(index).and_then(|row| row.json(column));
                compare(format!("/rows/{index}/{column}"), wanted, got.unwrap_or(json!("no such value")), tolerance);
            }
        }
    }
    found
}

fn agrees(got: &Value, wanted: &Value, tolerance: f64) -> bool {
    match (got.as_f64(), wanted.as_f64()) {
        (Some(got), Some(wanted)) => close(got, wanted, tolerance),
        _ => got == wanted,
    }
}

fn correct(expected: &mut Value, differences: &[Difference]) {
    for difference in differences {
        if let Some(value) = expected.pointer_mut(&difference.place) {
            *value = difference.got.clone();
        }
    }
}

fn new_expectation(played: &Played) -> Value {
    let numbers = played.summary().iter().filter(|(_, value)| value.is_number());
    let summary: Map<String, Value> = numbers.map(|(name, value)| (name.clone(), value.clone())).collect();
    json!({ "origin": "dynosim", "tolerance": TOLERANCE, "summary": summary, "outcomes": played.outcomes() })
}

fn write_expected(path: &Path, expected: &Value) {
    fs::write(path, format!("{expected:#}\n")).expect("the expectation can be written");
}
