//! Small traces in the layouts that public data sets have, right and wrong.
//!
//! The files in `tests/fixtures/` were written for this project.

mod common;

use common::fixtures::{Bad, Good, bad, bad_file, complain_of_bad, complain_of_good, fixture, good, on_one_worker};
use common::fixtures::{reusing, try_to_play, unlisted};
use common::{Desk, Played, in_parallel};
use serde_json::{Value, json};

const FOLDERS: [&str; 4] = ["azure_llm", "burstgpt", "qwen_bailian", "vidur"];

const GOOD: [Good; 8] = [
    good("azure_llm/ok_2023.csv", 3, 364, 16),
    good("azure_llm/ok_2024_unsorted.csv", 3, 364, 15),
    good("azure_llm/ok_quoted_more_columns.csv", 1, 7, 3),
    good("burstgpt/ok_v1_failures.csv", 3, 1589, 255),
    good("burstgpt/ok_v2_sessions.csv", 3, 314, 52),
    reusing(good("qwen_bailian/ok_two_turns.jsonl", 3, 370, 28), 128),
    good("vidur/ok_timed.csv", 3, 1649, 208),
    good("vidur/conc_only_no_times.csv", 2, 3773, 66),
];

const BAD: [Bad; 16] = [
    bad("azure_llm/bad_float_tokens.csv", 2, "ContextTokens: \"100.0\" is not a whole number"),
    bad_file("azure_llm/bad_header_only.csv", "has no requests"),
    bad("azure_llm/bad_no_header.csv", 1, "there is no column \"TIMESTAMP\"; the first line has to name the columns"),
    bad("azure_llm/bad_short_row.csv", 3, "GeneratedTokens: is missing; the line has 2 fields"),
    bad("azure_llm/bad_time.csv", 3, "TIMESTAMP: \"1700158546.5\" is no time"),
    bad("azure_llm/bad_too_many_tokens.csv", 2, "GeneratedTokens: 3000000000 tokens are more than"),
    bad("burstgpt/bad_column.csv", 1, "there is no column \"Request tokens\""),
    bad("burstgpt/bad_infinite_time.csv", 2, "Timestamp: inf s is out of range"),
    bad("burstgpt/bad_negative.csv", 2, "Response tokens: \"-1\" is not a whole number"),
    bad_file("burstgpt/bad_only_failures.csv", "has no requests"),
    bad("qwen_bailian/bad_few_ids.jsonl", 1, "hash_ids: has 2 ids, but a prompt of 130 tokens has 8 complete blocks"),
    bad("qwen_bailian/bad_no_time.jsonl", 1, "missing field `timestamp`"),
    bad("qwen_bailian/bad_time.jsonl", 1, "s is out of range; times are seconds"),
    bad("qwen_bailian/bad_zero_input.jsonl", 1, "input_length: is 0"),
    bad("vidur/bad_time.csv", 2, "arrived_at: \"soon\" is no number of seconds"),
    bad("vidur/bad_two_columns.csv", 1, "num_prefill_tokens: there are two columns of this name"),
];

fn traffic(file: &str) -> Value {
    let format = file.split('/').next().unwrap_or_default();
    let load = if file.contains("conc_only") {
        json!({ "type": "concurrency", "concurrency": 2 })
    } else {
        json!({ "type": "trace_timestamps" })
    };
    json!({ "source": { "type": "trace", "format": format, "paths": [fixture(file)] }, "load": load })
}

fn play(file: &str) -> Played {
    Desk::new().play(&on_one_worker(traffic(file)))
}

#[test]
fn every_fixture_has_an_outcome() {
    let known = || GOOD.iter().map(|good| good.file).chain(BAD.iter().map(|bad| bad.file));
    let unlisted: Vec<_> = FOLDERS.iter().flat_map(|folder| unlisted(folder, known())).collect();
    assert_eq!(unlisted, [""; 0]);
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
fn requests_arrive_at_their_recorded_times_whatever_the_unit() {
    for (file, arrivals_ms) in [
        ("azure_llm/ok_2023.csv", [0.0, 250.0001, 1500.0]),
        ("azure_llm/ok_2024_unsorted.csv", [0.0, 50.0, 100.0]),
        ("burstgpt/ok_v1_failures.csv", [0.0, 40_000.0, 115_000.0]),
        ("burstgpt/ok_v2_sessions.csv", [0.0, 750.0, 19_500.0]),
        ("qwen_bailian/ok_two_turns.jsonl", [0.0, 750.0, 60_864.0]),
        ("vidur/ok_timed.csv", [0.0, 4314.579, 4541.877]),
    ] {
        let arrivals: Vec<f64> = play(file).rows.iter().map(|row| row.float("arrival_ms")).collect();
        assert_eq!(arrivals, arrivals_ms, "{file}");
    }
}

#[test]
fn reuse_is_unknown_where_nobody_knows_what_prompts_share() {
    const FIGURES: [&str; 2] = ["prefix_cache_reused_ratio", "first_admission_prefix_cache_reused_ratio"];
    for good in &GOOD {
        let played = play(good.file);
        let known = good.file.starts_with("qwen");
        for figure in FIGURES {
            assert_eq!(played.summary()[figure].is_null(), !known, "{}: {figure}", good.file);
        }
        for column in ["reused_tokens", "first_admission_reused_tokens"] {
            assert!(played.rows.iter().all(|row| row.int_or_null(column).is_some() == known), "{}", good.file);
        }
    }
}

#[test]
fn failed_requests_are_left_out_and_counted() {
    let played = play("burstgpt/ok_v1_failures.csv");
    let note = played.report["provenance"]["notes"][0].as_str().unwrap_or_default();
    assert!(note.contains("ok_v1_failures.csv: 2 rows were left out"), "{note}");
    assert_eq!(played.report["provenance"]["inputs"][0]["rows"], json!(3));
    let lines: Vec<i64> = played.rows.iter().map(|row| row.int("source_line")).collect();
    assert_eq!(lines, [2, 3, 6]);
}

#[test]
fn conversations_have_names_but_their_turns_come_at_their_own_times() {
    let played = play("burstgpt/ok_v2_sessions.csv");
    let sessions: Vec<_> = played.rows.iter().map(|row| row.text_or_null("session_id")).collect();
    assert_eq!(sessions, [Some("c1"), None, Some("c1")]);
    assert!(played.rows.iter().all(|row| row.int("turn_index") == 0));
    let chats: Vec<_> = play("qwen_bailian/ok_two_turns.jsonl").rows.into_iter().collect();
    assert_eq!(chats.iter().map(|row| row.text_or_null("request_id").unwrap()).collect::<Vec<_>>(), ["7", "8", "9"]);
    assert_eq!(chats[2].int("reused_tokens"), 128, "the first eight blocks of 16 tokens, as two of 64");
}

#[test]
fn times_that_a_file_lacks_cannot_be_played() {
    let mut traffic = traffic("vidur/conc_only_no_times.csv");
    traffic["load"] = json!({ "type": "trace_timestamps" });
    let finished = try_to_play(&Desk::new(), &traffic);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("conc_only_no_times.csv:2: arrived_at: is missing"), "{}", finished.stderr);
}

#[test]
fn a_block_size_is_for_traces_with_hash_ids() {
    let mut traffic = traffic("azure_llm/ok_2023.csv");
    traffic["source"]["block_size"] = json!(16);
    let finished = try_to_play(&Desk::new(), &traffic);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("`block_size` is for traces with hash ids"), "{}", finished.stderr);
}
