//! `dynosim trace convert`: the same graph in another file, or none.

mod common;

use std::fs;
use std::path::Path;

use common::fixtures::{fixture, on_one_worker};
use common::{Desk, Finished, Row, dynosim, finish};
use serde_json::{Value, json};

/// Converts a trace at the root of the repository, with these options.
fn convert(format: &str, trace: &Path, output: &Path, options: &[&str]) -> Finished {
    let mut command = dynosim();
    command.args(["trace", "convert", "--to", "agentic_mooncake", "--format", format]).args(options);
    finish(command.arg(trace).arg("--output").arg(output))
}

fn played(desk: &Desk, format: &str, path: &Path, options: &[(&str, &str)]) -> (Value, Vec<Row>) {
    let mut source = json!({ "type": "trace", "format": format, "paths": [path] });
    for (name, value) in options {
        source[*name] = json!(value);
    }
    let traffic = json!({ "source": source, "load": { "type": "trace_timestamps" } });
    let played = desk.play(&on_one_worker(traffic));
    (played.report["provenance"]["agentic_graph"].clone(), played.rows_without(&["source_line"]))
}

const LENIENT: &[(&str, &str)] = &[("weka_rules", "lenient"), ("nested_timestamp_basis", "auto")];

#[test]
fn every_valid_weka_trace_keeps_its_identity_and_its_rows() {
    for (file, options) in [
        ("corpus_ok", &[] as &[_]),
        ("ok_fork_streams.json", &[]),
        ("ok_hash_trim_pad.json", &[]),
        ("ok_subagents_absolute.json", &[]),
        ("ok_missing_api_time_v13.json", LENIENT),
        ("ok_mixed_models_v13.json", LENIENT),
        ("ok_multi_play_v13.jsonl", LENIENT),
        ("ok_relative_v13.json", LENIENT),
        ("basis_early_inner.json", LENIENT),
    ] {
        let desk = Desk::new();
        let source = fixture("weka").join(file);
        let converted = desk.path("agents.jsonl");
        let words: Vec<String> =
            options.iter().map(|(name, value)| format!("--{}={value}", name.replace('_', "-"))).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let finished = convert("weka", &source, &converted, &words);
        assert_eq!(finished.code, Some(0), "{file}: {}", finished.stderr);
        let (wanted, wanted_rows) = played(&desk, "weka", &source, options);
        let (got, got_rows) = played(&desk, "agentic_mooncake", &converted, &[]);
        assert_eq!(got, wanted, "{file}");
        assert_eq!(got_rows, wanted_rows, "{file}");
        assert!(finished.stdout.contains(wanted["graph_digest"].as_str().unwrap()), "{}", finished.stdout);
    }
}

#[test]
fn other_traces_of_agents_are_converted_too() {
    for (format, file) in [
        ("agentic_mooncake", "agentic-v1/ok_diamond.jsonl"),
        ("agentic_mooncake", "agentic-v2/ok_all_relations.jsonl"),
        ("dynamo", "dynamo/ok_agentic_tool.jsonl"),
    ] {
        let desk = Desk::new();
        let converted = desk.path("agents.jsonl");
        let size: &[&str] = if format == "dynamo" { &[] } else { &["--block-size", "64"] };
        let finished = convert(format, &fixture(file), &converted, size);
        assert_eq!(finished.code, Some(0), "{file}: {}", finished.stderr);
        let again = desk.path("again.jsonl");
        assert_eq!(convert("agentic_mooncake", &converted, &again, &[]).code, Some(0), "{file}");
        assert_eq!(fs::read(converted).unwrap(), fs::read(again).unwrap(), "{file}: a canonical file stays as it is");
    }
}

/// Converts a trace at the root of the repository to Mooncake.
fn to_mooncake(format: &str, trace: &Path, output: &Path, options: &[&str]) -> Finished {
    let mut command = dynosim();
    command.args(["trace", "convert", "--to", "mooncake", "--format", format]).args(options);
    finish(command.arg(trace).arg("--output").arg(output))
}

#[test]
fn requests_become_mooncake_where_nothing_is_lost() {
    for (format, file, block_size) in [
        ("mooncake", "mooncake/ok_session.jsonl", Some(64)),
        ("mooncake", "mooncake/ok_output_ids.jsonl", Some(64)),
        ("mooncake", "mooncake/ok_unsorted_blank.jsonl", Some(64)),
        ("mooncake", "mooncake/ok_partial_tail_bs100.jsonl", Some(100)),
        ("applied_compute_agentic", "applied/ok_two_rows.jsonl", Some(48)),
        ("dynamo", "dynamo/ok_standard.jsonl", None),
        ("qwen_bailian", "qwen_bailian/ok_two_turns.jsonl", None),
    ] {
        let desk = Desk::new();
        let converted = desk.path("requests.jsonl");
        let size = block_size.map(|size| format!("--block-size={size}"));
        let options: Vec<&str> = size.iter().map(String::as_str).collect();
        let finished = to_mooncake(format, &fixture(file), &converted, &options);
        assert_eq!(finished.code, Some(0), "{file}: {}", finished.stderr);
        let written: Value =
            finished.stdout.split("block_size: ").nth(1).unwrap().trim_end_matches("`\n").parse().unwrap();
        let load = match format {
            "applied_compute_agentic" => json!({ "type": "concurrency", "concurrency": 2 }),
            _ => json!({ "type": "trace_timestamps" }),
        };
        let play = |format: &str, path: &Path, block_size: Value| {
            let mut source = json!({ "type": "trace", "format": format, "paths": [path] });
            if !block_size.is_null() {
                source["block_size"] = block_size;
            }
            let played = desk.play(&on_one_worker(json!({ "source": source, "load": load })));
            played.rows_without(&["source_line", "session_id"])
        };
        let wanted = play(format, &fixture(file), json!(block_size));
        assert_eq!(play("mooncake", &converted, written), wanted, "{file}");
    }
}

/// Refused with this exit code and message, and nothing is left.
fn refused(code: i32, message: &str, convert: impl Fn(&Desk) -> Finished) {
    let desk = Desk::new();
    desk.write("old.jsonl", "precious");
    let before = desk.snapshot();
    let finished = convert(&desk);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), ""), "{}", finished.stderr);
    assert!(finished.stderr.contains(message) && finished.stderr.lines().count() == 1, "{}", finished.stderr);
    assert_eq!(desk.snapshot(), before);
}

#[test]
fn what_cannot_be_converted_leaves_no_file() {
    let good = fixture("weka/ok_fork_streams.json");
    let new = |desk: &Desk| desk.path("new.jsonl");
    refused(2, "old.jsonl: is there already", |desk| convert("weka", &good, &desk.path("old.jsonl"), &[]));
    refused(2, "there is no such folder", |desk| convert("weka", &good, &desk.path("no/new.jsonl"), &[]));
    refused(1, "bad_scope.json: hash_id_scope", |desk| {
        convert("weka", &fixture("weka/bad_scope.json"), &new(desk), &[])
    });
    refused(1, "ok_relative_v13.json: requests[1].requests[0]: t: 0.1 s is before", |desk| {
        convert("weka", &fixture("weka/ok_relative_v13.json"), &new(desk), &[])
    });
    refused(2, "has no agents in it", |desk| convert("dynamo", &fixture("dynamo/ok_standard.jsonl"), &new(desk), &[]));
    refused(2, "has no agents in it", |desk| convert("mooncake", &fixture("mooncake/ok_basic.jsonl"), &new(desk), &[]));
    let lossy = |format: &'static str, file: &'static str| {
        move |desk: &Desk| to_mooncake(format, &fixture(file), &desk.path("new.jsonl"), &[])
    };
    refused(2, "it would be lost which requests wait", lossy("weka", "weka/ok_fork_streams.json"));
    refused(2, "it would be lost which requests wait", lossy("dynamo", "dynamo/ok_agentic_tool.jsonl"));
    refused(
        2,
        "it would be lost that later prompts begin",
        lossy("mooncake-delta", "mooncake-delta/ok_two_turns.jsonl"),
    );
    refused(2, "it would be lost that nobody knows", lossy("azure_llm", "azure_llm/ok_2023.csv"));
    refused(1, "bad_few_ids.jsonl:1: hash_ids: has 2", lossy("qwen_bailian", "qwen_bailian/bad_few_ids.jsonl"));
    refused(2, "are for `--format weka`", |desk| {
        let file = fixture("agentic-v1/ok_diamond.jsonl");
        convert("agentic_mooncake", &file, &new(desk), &["--weka-rules", "lenient"])
    });
    refused(2, "takes exactly one path, found 2", |desk| {
        convert("weka", &good, &new(desk), &["tests/fixtures/weka/corpus_ok"])
    });
}
