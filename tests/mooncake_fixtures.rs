//! Small Mooncake traces, right and wrong, with what each of them has to come to.
//!
//! The files in `tests/fixtures/mooncake/` were written for this project. Outcomes are those of the reference's loaders.

mod common;

use common::fixtures::{
    Bad, Good, bad, bad_file, complain_of_bad, complain_of_good, fixture, good, on_one_worker, reusing, try_to_play,
    unlisted,
};
use common::{Desk, in_parallel, recorded};
use serde_json::{Value, json};

const GOOD: [Good; 16] = [
    good("mooncake/ok_basic.jsonl", 4, 512, 22),
    reusing(good("mooncake/ok_big_hash.jsonl", 2, 256, 2), 0),
    good("mooncake/ok_crlf.jsonl", 2, 128, 4),
    good("mooncake/ok_dup_request_id.jsonl", 2, 128, 2),
    good("mooncake/ok_gz.jsonl.gz", 1, 64, 2),
    good("mooncake/ok_lone_negative_ts.jsonl", 1, 64, 2),
    good("mooncake/ok_no_final_newline.jsonl", 2, 128, 4),
    good("mooncake/ok_output_ids.jsonl", 1, 64, 3),
    reusing(good("mooncake/ok_partial_tail_bs100.jsonl", 2, 500, 4), 192),
    reusing(good("mooncake/ok_rechunk_bs512.jsonl", 3, 3224, 12), 1600),
    good("mooncake/ok_session.jsonl", 5, 634, 20),
    good("mooncake/ok_surplus_hash.jsonl", 1, 65, 2),
    good("mooncake/ok_unknown_field.jsonl", 1, 64, 1),
    good("mooncake/ok_unsorted_blank.jsonl", 3, 144, 9),
    good("mooncake/ok_zero_output.jsonl", 2, 128, 2),
    good("mooncake/conc_only_missing_ts.jsonl", 2, 128, 4),
];

const BAD: [Bad; 19] = [
    bad("mooncake/bad_backwards_turn.jsonl", 2, "timestamp: 40 is before 100"),
    bad_file("mooncake/bad_blank_only.jsonl", "has no requests"),
    bad("mooncake/bad_bom.jsonl", 1, "byte order mark"),
    bad("mooncake/bad_dup_key.jsonl", 1, "duplicate field `input_length`"),
    bad_file("mooncake/bad_empty.jsonl", "has no requests"),
    bad("mooncake/bad_empty_hash.jsonl", 1, "hash_ids: is empty"),
    bad("mooncake/bad_first_turn_delay.jsonl", 1, "delay: 5 ms on the first turn"),
    bad("mooncake/bad_float_length.jsonl", 1, "64.5"),
    bad("mooncake/bad_json_array.jsonl", 1, "not a JSON object"),
    bad("mooncake/bad_missing_hash.jsonl", 1, "missing field `hash_ids`"),
    bad("mooncake/bad_missing_output.jsonl", 1, "missing field `output_length`"),
    bad("mooncake/bad_negative_hash.jsonl", 1, "-1"),
    bad("mooncake/bad_no_prev_ts.jsonl", 2, "timestamp: an earlier turn of this session has none"),
    bad("mooncake/bad_non_utf8.jsonl", 1, "not UTF-8"),
    bad("mooncake/bad_output_ids_len.jsonl", 1, "output_token_ids: has 2 tokens, but output_length is 3"),
    bad("mooncake/bad_short_hash.jsonl", 2, "input_length: 129 tokens, but 2 hash_ids of 64 tokens cover only 128"),
    bad("mooncake/bad_trailing_garbage.jsonl", 1, "something follows the row"),
    bad("mooncake/bad_truncated_json.jsonl", 2, "ends in the middle"),
    bad("mooncake/bad_zero_input.jsonl", 1, "input_length: is 0"),
];

#[test]
fn every_fixture_has_an_outcome() {
    let known = GOOD.iter().map(|good| good.file).chain(BAD.iter().map(|bad| bad.file));
    assert_eq!(unlisted("mooncake", known), [""; 0]);
}

#[test]
fn good_traces_are_played_to_the_last_token() {
    let complaints = in_parallel(&GOOD, |good| complain_of_good(good, traffic(good.file)));
    assert_eq!(complaints.concat(), [""; 0]);
}

#[test]
fn bad_traces_are_refused_with_file_line_and_reason() {
    let complaints = in_parallel(&BAD, |bad| complain_of_bad(bad, &traffic(bad.file)));
    assert_eq!(complaints.into_iter().flatten().collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_trace_without_times_cannot_be_played_at_its_times() {
    let desk = Desk::new();
    let finished = try_to_play(&desk, &recorded(&fixture("mooncake/conc_only_missing_ts.jsonl"), 64));
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("conc_only_missing_ts.jsonl:1: timestamp: is missing"), "{}", finished.stderr);
}

#[test]
fn a_turn_needs_an_earlier_time_to_measure_its_wait_from_in_a_closed_loop_too() {
    let desk = Desk::new();
    let mut traffic = recorded(&fixture("mooncake/bad_no_prev_ts.jsonl"), 64);
    traffic["load"] = json!({ "type": "concurrency", "concurrency": 2 });
    let finished = try_to_play(&desk, &traffic);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("bad_no_prev_ts.jsonl:2: timestamp: an earlier turn"), "{}", finished.stderr);
}

#[test]
fn turns_of_a_session_wait_for_the_one_before_and_its_delay() {
    let desk = Desk::new();
    let played = desk.play(&on_one_worker(recorded(&fixture("mooncake/ok_session.jsonl"), 64)));
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

fn traffic(file: &str) -> Value {
    let mut traffic = recorded(&fixture(file), tokens_per_id(file));
    if file.contains("conc_only") {
        traffic["load"] = json!({ "type": "concurrency", "concurrency": 2 });
    }
    traffic
}

/// Block sizes other than 64 are part of a fixture's name.
fn tokens_per_id(file: &str) -> u64 {
    let size = |name: &str| name.split_once("_bs").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
    size(file).unwrap_or(64)
}
