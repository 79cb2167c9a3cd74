//! `dynosim trace stats`: what is in a trace.

mod common;

use std::path::Path;

use common::fixtures::fixture;
use common::{Desk, Finished, close, dynosim, finish};
use serde_json::{Value, json};

fn stats(format: &str, path: &Path, options: &[&str]) -> Finished {
    finish(dynosim().args(["trace", "stats", "--format", format]).arg(path).args(options))
}

fn json_of(format: &str, path: &Path, options: &[&str]) -> Value {
    let finished = stats(format, path, &[options, &["--json"]].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).expect("what it prints is JSON")
}

#[test]
fn the_recorded_chat_has_these_figures() {
    let path = Path::new("data/traces/own_chat.jsonl");
    let stats = json_of("mooncake", path, &[]);
    // Counted by hand from the file.
    let rows: Vec<Value> =
        common::own_chat_lines().iter().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect();
    let sum = |field: &str| rows.iter().map(|row| row[field].as_u64().unwrap()).sum::<u64>();
    let ids = || rows.iter().flat_map(|row| row["hash_ids"].as_array().unwrap());
    let distinct: std::collections::BTreeSet<u64> = ids().map(|id| id.as_u64().unwrap()).collect();
    let (first, last) = (&rows[0]["timestamp"], &rows[rows.len() - 1]["timestamp"]);
    let span_ms = last.as_f64().unwrap() - first.as_f64().unwrap();
    assert_eq!(stats["requests"], json!(1183));
    assert_eq!(stats["input_tokens"]["total"], json!(sum("input_length")));
    assert_eq!(stats["output_tokens"]["total"], json!(sum("output_length")));
    assert_eq!(stats["ideal_block_reuse"]["blocks"], json!(ids().count()));
    assert_eq!(stats["ideal_block_reuse"]["distinct_blocks"], json!(distinct.len()));
    assert_eq!(stats["arrivals"]["span_ms"], json!(span_ms));
    let rate = stats["arrivals"]["requests_per_second"].as_f64().unwrap();
    assert!(close(rate, 1183.0 / span_ms * 1000.0, 1e-12));
    let counted = |list: &Value| list.as_array().unwrap().iter().map(|entry| entry.as_u64().unwrap()).sum::<u64>();
    assert_eq!(counted(&stats["arrivals"]["counts_over_time"]), 1183);
    let classes = stats["input_tokens"]["classes"].as_array().unwrap();
    assert_eq!(classes.iter().map(|class| class["count"].as_u64().unwrap()).sum::<u64>(), 1183);
}

#[test]
fn the_table_says_the_same_to_people() {
    let finished = stats("mooncake", Path::new("data/traces/own_chat.jsonl"), &[]);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for part in ["1,183 rows", "│ Prompt (tokens)", "Requests: 1,183", "Ideal block reuse: ", "Arrivals over time", "█"]
    {
        assert!(finished.stdout.contains(part), "{part} is not in:\n{}", finished.stdout);
    }
}

#[test]
fn sessions_are_counted_in_every_format() {
    for (format, file, options, requests, sessions, most_turns) in [
        ("mooncake", "mooncake/ok_session.jsonl", &["--block-size", "64"] as &[_], 5, 2, 3.0),
        ("mooncake", "mooncake/ok_basic.jsonl", &["--block-size", "64"], 4, 4, 1.0),
        ("mooncake-delta", "mooncake-delta/ok_two_sessions.jsonl", &["--block-size", "64"], 4, 2, 2.0),
        ("applied_compute_agentic", "applied/ok_two_rows.jsonl", &[], 4, 2, 3.0),
        ("dynamo", "dynamo/ok_standard.jsonl", &[], 2, 2, 1.0),
        ("burstgpt", "burstgpt/ok_v2_sessions.csv", &[], 3, 2, 2.0),
        ("agentic_mooncake", "agentic-v2/ok_three_plays.jsonl", &[], 3, 3, 1.0),
        ("weka", "weka/ok_subagents_absolute.json", &[], 6, 3, 3.0),
    ] {
        let stats = json_of(format, &fixture(file), options);
        let got = (&stats["requests"], &stats["sessions"]["count"], &stats["sessions"]["turns"]["max"]);
        assert_eq!(got, (&json!(requests), &json!(sessions), &json!(most_turns)), "{file}");
    }
}

#[test]
fn prompts_that_grow_are_counted_whole() {
    let stats =
        json_of("mooncake-delta", &fixture("mooncake-delta/ok_output_block_hit.jsonl"), &["--block-size", "64"]);
    // 128 and 128 + 65 + 63 tokens: four blocks, of which 192 tokens are there already.
    assert_eq!(stats["input_tokens"]["total"], json!(384));
    assert_eq!(stats["ideal_block_reuse"]["blocks"], json!(6));
    assert_eq!(stats["ideal_block_reuse"]["distinct_blocks"], json!(3));
}

#[test]
fn what_nobody_knows_is_null() {
    let stats = json_of("azure_llm", &fixture("azure_llm/ok_2024_unsorted.csv"), &[]);
    assert_eq!(stats["ideal_block_reuse"], Value::Null);
    assert_eq!(stats["arrivals"]["in_order"], json!(false));
    assert_eq!(stats["arrivals"]["gaps_ms"], Value::Null);
    let without_times = json_of("vidur", &fixture("vidur/conc_only_no_times.csv"), &[]);
    assert_eq!(without_times["arrivals"], Value::Null);
    let text = text_of("vidur", "vidur/conc_only_no_times.csv");
    assert!(text.contains("Arrivals: not recorded") && text.contains("Ideal block reuse: unknown"), "{text}");
    let left_out = text_of("burstgpt", "burstgpt/ok_v1_failures.csv");
    assert!(left_out.contains("Left out: 2 rows"), "{left_out}");
}

fn text_of(format: &str, file: &str) -> String {
    stats(format, &fixture(file), &[]).stdout
}

#[test]
fn a_trace_that_is_wrong_is_refused_like_anywhere() {
    let bad = stats("mooncake", &fixture("mooncake/bad_truncated_json.jsonl"), &["--block-size", "64"]);
    assert_eq!((bad.code, bad.stdout.as_str()), (Some(1), ""));
    assert!(bad.stderr.contains("bad_truncated_json.jsonl:2: the row ends in the middle"), "{}", bad.stderr);
    let desk = Desk::new();
    let empty = stats("mooncake", &desk.write("empty.jsonl", "\n"), &[]);
    assert!(empty.code == Some(1) && empty.stderr.contains("has no requests"), "{}", empty.stderr);
    let size = stats("azure_llm", &fixture("azure_llm/ok_2023.csv"), &["--block-size", "16"]);
    assert!(size.code == Some(2) && size.stderr.contains("for traces with hash ids"), "{}", size.stderr);
}
