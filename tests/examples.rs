//! The examples in `data/examples/` are valid, and they run.

mod common;

use std::fs;
use std::path::PathBuf;

use common::{Desk, Played, finish, in_parallel, predict, root};
use serde_json::Value;

fn examples() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join("data/examples")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn json_of(path: &PathBuf) -> Value {
    serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_example_keeps_to_the_schema_that_it_names() {
    let schema = fs::read_to_string(root().join("schemas/json/prediction.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    let examples = examples();
    assert!(examples.len() >= 4);
    for path in examples {
        let header = "# yaml-language-server: $schema=../../schemas/json/prediction.schema.json\n";
        assert!(fs::read_to_string(&path).unwrap().starts_with(header), "{} names no schema", path.display());
        let problems: Vec<_> = validator.iter_errors(&json_of(&path)).map(|e| e.to_string()).collect();
        assert!(problems.is_empty(), "{}: {}", path.display(), problems.join("; "));
    }
}

#[test]
fn every_example_runs() {
    let outcomes = in_parallel(&examples(), |path| {
        let desk = Desk::new();
        let finished = finish(&mut predict(path, &desk.out()));
        assert_eq!(finished.code, Some(0), "{}: {}", path.display(), finished.stderr);
        Played::read(&desk.out()).figure("completed_requests")
    });
    assert!(outcomes.iter().all(|&completed| completed > 0.0), "an example serves nobody: {outcomes:?}");
}

#[test]
fn the_command_of_the_readme_prints_a_table_of_the_recorded_chat() {
    let desk = Desk::new();
    let mut command = common::dynosim();
    command.args(["predict", "--stack", "dynamo", "-c", "data/examples/prediction.yaml", "--output-dir"]);
    let finished = finish(command.arg(desk.out()));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stdout.contains("1,183"), "{}", finished.stdout);
    assert_eq!(Played::read(&desk.out()).rows.len(), 1183);
}
