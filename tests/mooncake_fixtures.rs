//! Small Mooncake traces, right and wrong, with what each of them has to come to.
//!
//! The files in `tests/fixtures/mooncake/` were written for this project. Outcomes are those of the reference's loaders.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Desk, Finished, config, finish, in_parallel, predict, recorded, root, worker};
use serde_json::{Value, json};

/// A trace that can be played.
struct Good {
    file: &'static str,
    requests: u64,
    input_tokens: u64,
    output_tokens: u64,
    reused_tokens: Option<u64>,
}

/// A trace that cannot: the line that is at fault, if one is, and the essential part of the message.
struct Bad {
    file: &'static str,
    line: Option<u64>,
    message: &'static str,
}

const fn good(file: &'static str, requests: u64, input_tokens: u64, output_tokens: u64) -> Good {
    Good { file, requests, input_tokens, output_tokens, reused_tokens: None }
}

const fn reusing(good: Good, reused_tokens: u64) -> Good {
    Good { reused_tokens: Some(reused_tokens), ..good }
}

const fn bad(file: &'static str, line: u64, message: &'static str) -> Bad {
    Bad { file, line: Some(line), message }
}

const fn bad_file(file: &'static str, message: &'static str) -> Bad {
    Bad { file, line: None, message }
}

const GOOD: [Good; 15] = [
    good("ok_basic.jsonl", 4, 512, 22),
    reusing(good("ok_big_hash.jsonl", 2, 256, 2), 0),
    good("ok_crlf.jsonl", 2, 128, 4),
    good("ok_dup_request_id.jsonl", 2, 128, 2),
    good("ok_lone_negative_ts.jsonl", 1, 64, 2),
    good("ok_no_final_newline.jsonl", 2, 128, 4),
    good("ok_output_ids.jsonl", 1, 64, 3),
    reusing(good("ok_partial_tail_bs100.jsonl", 2, 500, 4), 192),
    reusing(good("ok_rechunk_bs512.jsonl", 3, 3224, 12), 1600),
    good("ok_session.jsonl", 5, 634, 20),
    good("ok_surplus_hash.jsonl", 1, 65, 2),
    good("ok_unknown_field.jsonl", 1, 64, 1),
    good("ok_unsorted_blank.jsonl", 3, 144, 9),
    good("ok_zero_output.jsonl", 2, 128, 2),
    good("conc_only_missing_ts.jsonl", 2, 128, 4),
];

const BAD: [Bad; 20] = [
    bad("bad_backwards_turn.jsonl", 2, "timestamp: 40 is before 100"),
    bad_file("bad_blank_only.jsonl", "has no requests"),
    bad("bad_bom.jsonl", 1, "byte order mark"),
    bad("bad_dup_key.jsonl", 1, "duplicate field `input_length`"),
    bad_file("bad_empty.jsonl", "has no requests"),
    bad("bad_empty_hash.jsonl", 1, "hash_ids: is empty"),
    bad("bad_first_turn_delay.jsonl", 1, "delay: 5 ms on the first turn"),
    bad("bad_float_length.jsonl", 1, "64.5"),
    bad("bad_gz.jsonl.gz", 1, "gzip"),
    bad("bad_json_array.jsonl", 1, "not a JSON object"),
    bad("bad_missing_hash.jsonl", 1, "missing field `hash_ids`"),
    bad("bad_missing_output.jsonl", 1, "missing field `output_length`"),
    bad("bad_negative_hash.jsonl", 1, "-1"),
    bad("bad_no_prev_ts.jsonl", 2, "timestamp: an earlier turn of this session has none"),
    bad("bad_non_utf8.jsonl", 1, "not UTF-8"),
    bad("bad_output_ids_len.jsonl", 1, "output_token_ids: has 2 tokens, but output_length is 3"),
    bad("bad_short_hash.jsonl", 2, "input_length: 129 tokens, but 2 hash_ids of 64 tokens cover only 128"),
    bad("bad_trailing_garbage.jsonl", 1, "something follows the row"),
    bad("bad_truncated_json.jsonl", 2, "ends in the middle"),
    bad("bad_zero_input.jsonl", 1, "input_length: is 0"),
];

#[test]
fn every_fixture_has_an_outcome() {
    let known: Vec<_> = GOOD.iter().map(|good| good.file).chain(BAD.iter().map(|bad| bad.file)).collect();
    let entries = fs::read_dir(root().join("tests/fixtures/mooncake")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut listed: Vec<_> = known.iter().map(|name| (*name).to_owned()).collect();
    files.sort();
    listed.sort();
    assert_eq!(files, listed);
}

#[test]
fn good_traces_are_played_to_the_last_token() {
    let complaints: Vec<_> = in_parallel(&GOOD, complain_of_good).into_iter().flatten().collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn complain_of_good(good: &Good) -> Vec<String> {
    let desk = Desk::new();
    let mut traffic = recorded(&fixture(good.file), tokens_per_id(good.file));
    if good.file.starts_with("conc_only") {
        traffic["load"] = json!({ "type": "concurrency", "concurrency": 2 });
    }
    let played = desk.play(&on_one_worker(traffic));
    let mut complaints = Vec::new();
    let mut expect = |figure: &str, wanted: u64| {
        let got = played.figure(figure);
        if got != wanted as f64 {
            complaints.push(format!("{}: {figure}: want {wanted}, got {got}", good.file));
        }
    };
    expect("num_requests", good.requests);
    expect("completed_requests", good.requests);
    expect("total_input_tokens", good.input_tokens);
    expect("total_output_tokens", good.output_tokens);
    let reused: i64 = played.rows.iter().map(|row| row.int("reused_tokens")).sum();
    if good.reused_tokens.is_some_and(|wanted| wanted as i64 != reused) {
        complaints.push(format!("{}: reuses {reused} tokens, not {:?}", good.file, good.reused_tokens));
    }
    complaints
}

#[test]
fn bad_traces_are_refused_with_file_line_and_reason() {
    let complaints: Vec<_> = in_parallel(&BAD, complain_of_bad).into_iter().flatten().collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

fn complain_of_bad(bad: &Bad) -> Option<String> {
    let desk = Desk::new();
    let finished = try_to_play(&desk, &recorded(&fixture(bad.file), tokens_per_id(bad.file)));
    let place = match bad.line {
        Some(line) => format!("{}:{line}: ", bad.file),
        None => format!("{}: ", bad.file),
    };
    let said = &finished.stderr;
    let right = finished.code == Some(1)
        && finished.stdout.is_empty()
        && said.lines().count() == 1
        && said.contains(&place)
        && said.contains(bad.message)
        && !desk.out().exists();
    (!right).then(|| {
        let left = if desk.out().exists() { "left a folder" } else { "left nothing" };
        format!("{}: want `{place}` and `{}`; exit code {:?}, {left}: {said}", bad.file, bad.message, finished.code)
    })
}

#[test]
fn a_trace_without_times_cannot_be_played_at_its_times() {
    let desk = Desk::new();
    let finished = try_to_play(&desk, &recorded(&fixture("conc_only_missing_ts.jsonl"), 64));
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("conc_only_missing_ts.jsonl:1: timestamp: is missing"), "{}", finished.stderr);
}

#[test]
fn a_turn_needs_an_earlier_time_to_measure_its_wait_from_in_a_closed_loop_too() {
    let desk = Desk::new();
    let mut traffic = recorded(&fixture("bad_no_prev_ts.jsonl"), 64);
    traffic["load"] = json!({ "type": "concurrency", "concurrency": 2 });
    let finished = try_to_play(&desk, &traffic);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("bad_no_prev_ts.jsonl:2: timestamp: an earlier turn"), "{}", finished.stderr);
}

#[test]
fn turns_of_a_session_wait_for_the_one_before_and_its_delay() {
    let desk = Desk::new();
    let played = desk.play(&on_one_worker(recorded(&fixture("ok_session.jsonl"), 64)));
    let turns = |session: &str| -> Vec<_> {
        let of_session = played.rows.iter().filter(|row| row.text_or_null("session_id") == Some(session));
        let mut turns: Vec<_> = of_session.map(|row| (row.int("turn_index"), row)).collect();
        turns.sort_by_key(|(turn, _)| *turn);
        turns.into_iter().map(|(_, row)| row).collect()
    };
    let (ada, bob) = (turns("ada"), turns("bob"));
    assert_eq!((ada.len(), bob.len()), (3, 2));
    let wait = |before: &common::Row, after: &common::Row| after.float("arrival_ms") - before.float("end_ms");
    assert!((wait(ada[0], ada[1]) - 50.0).abs() < 1e-9, "the difference of the timestamps");
    assert!((wait(ada[1], ada[2]) - 25.0).abs() < 1e-9, "the recorded delay");
    assert!(wait(bob[0], bob[1]).abs() < 1e-9, "nothing is recorded: at once");
    assert_eq!(ada[2].int("input_tokens"), 192, "without a length, as many tokens as the ids stand for");
}

fn try_to_play(desk: &Desk, traffic: &Value) -> Finished {
    finish(&mut predict(&desk.config(&on_one_worker(traffic.clone())), &desk.out()))
}

fn on_one_worker(traffic: Value) -> Value {
    config(traffic, worker(64, 1024))
}

fn fixture(file: &str) -> PathBuf {
    Path::new("tests/fixtures/mooncake").join(file)
}

/// Block sizes other than 64 are part of a fixture's name.
fn tokens_per_id(file: &str) -> u64 {
    let size = |name: &str| name.split_once("_bs").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
    size(file).unwrap_or(64)
}
