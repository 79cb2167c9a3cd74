//! `tests/yaml/cases.jsonl`: one line per rule, with the verdict and the path that the refusal must name.

use dynosim_schemas::config::{Problem, Stack, json_schema, load, parse_override};
use serde_yaml::{Mapping, Value};

use crate::{BASE, read};

const CASES: &str = include_str!("../yaml/cases.jsonl");

/// Cases that break a rule between fields, which the JSON Schema does not state (`96.0` is an integer to it).
const BEYOND_SCHEMA: [&str; 37] = [
    "float-int",
    "rate-missing",
    "rate-wrong-unit",
    "rate-both-units",
    "synthetic-timestamps",
    "no-stop",
    "two-stops",
    "session-stop-on-requests",
    "virtual-time-on-synthetic",
    "session-ratio-nogroup",
    "session-request-stop",
    "trace-two-paths",
    "trace-poisson",
    "trace-count-stop",
    "agentic-conc",
    "agentic-virtual",
    "applied-timestamps",
    "delta-disagg",
    "agg-no-worker",
    "agg-with-prefill",
    "agg-kv-transfer",
    "disagg-no-transfer",
    "disagg-agg-worker",
    "disagg-trtllm",
    "block-size-one-vllm",
    "router-kv-one-worker",
    "planner-delta",
    "planner-throughput-no-sla",
    "planner-bucket",
    "planner-intervals",
    "sla-half",
    "sla-both",
    "router-load-model-without-load",
    "lpm-vllm",
    "interval-one-rank",
    "sglang-chunk",
    "sglang-chunk-ranks",
];

struct Case {
    name: String,
    set: Vec<(String, serde_json::Value)>,
    is_valid: bool,
    path: String,
}

fn cases() -> Vec<Case> {
    CASES.lines().map(|line| case(&serde_json::from_str(line).unwrap())).collect()
}

fn case(row: &serde_json::Value) -> Case {
    let text = |key: &str| row[key].as_str().unwrap().to_owned();
    let set = row["set"].as_object().unwrap().clone().into_iter().collect();
    Case { name: text("name"), set, is_valid: row["exit"] == 0, path: text("path") }
}

/// The base document with the case's values put in.
fn document(case: &Case) -> Value {
    let mut document = serde_yaml::from_str(BASE).unwrap();
    for (path, value) in &case.set {
        match path.as_str() {
            "-" => remove(&mut document, value.as_str().unwrap()),
            path => *entry(&mut document, path) = serde_yaml::to_value(value).unwrap(),
        }
    }
    document
}

fn entry<'a>(document: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(document, |outer, name| {
        let entries = outer.as_mapping_mut().unwrap();
        entries.entry(Value::from(name)).or_insert_with(|| Value::Mapping(Mapping::new()))
    })
}

fn remove(document: &mut Value, path: &str) {
    match path.rsplit_once('.') {
        Some((outer, name)) => entry(document, outer).as_mapping_mut().unwrap().remove(name),
        None => document.as_mapping_mut().unwrap().remove(path),
    };
}

fn verdict<T>(outcome: Result<T, Problem>) -> (bool, String) {
    outcome.map_or_else(|problem| (false, problem.path), |_| (true, String::new()))
}

#[test]
fn every_case_gets_its_verdict_and_path() {
    for case in cases() {
        let text = serde_yaml::to_string(&document(&case)).unwrap();
        assert_eq!(verdict(read(&text)), (case.is_valid, case.path), "{}\n{text}", case.name);
    }
}

#[test]
fn the_same_values_through_set_get_the_same_verdict() {
    for case in cases().iter().filter(|case| case.set.iter().all(|(path, _)| path != "-")) {
        let overrides = case.set.iter().map(|(path, value)| parse_override(&format!("{path}={value}")));
        let outcome = overrides.collect::<Result<Vec<_>, _>>().and_then(|all| load(BASE, &all, Stack::Dynamo));
        assert_eq!(verdict(outcome), (case.is_valid, case.path.clone()), "{}", case.name);
    }
}

#[test]
fn valid_cases_load_again_from_their_resolved_form() {
    for case in cases().iter().filter(|case| case.is_valid) {
        let first = read(&serde_yaml::to_string(&document(case)).unwrap()).unwrap();
        let resolved = serde_yaml::to_string(&first).unwrap();
        assert_eq!(read(&resolved).as_ref(), Ok(&first), "{}\n{resolved}", case.name);
    }
}

#[test]
fn the_schema_accepts_valid_cases_in_both_forms() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    for case in cases().iter().filter(|case| case.is_valid) {
        let written = document(case);
        let resolved = read(&serde_yaml::to_string(&written).unwrap()).unwrap();
        for instance in [serde_json::to_value(&written).unwrap(), serde_json::to_value(&resolved).unwrap()] {
            let errors: Vec<_> = schema.iter_errors(&instance).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{}: {errors:?}\n{instance:#}", case.name);
        }
    }
}

#[test]
fn the_schema_refuses_what_a_single_field_gets_wrong() {
    let schema = jsonschema::validator_for(&json_schema()).unwrap();
    let accepts = |case: &Case| schema.is_valid(&serde_json::to_value(document(case)).unwrap());
    let all = cases();
    let beyond: Vec<_> = all.iter().filter(|case| !case.is_valid && accepts(case)).map(|case| &*case.name).collect();
    assert_eq!(beyond, BEYOND_SCHEMA);
}
