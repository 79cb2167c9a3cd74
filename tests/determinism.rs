//! The same workload on the same deployment gives the same results, however it is run, read or written down.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Desk, Played, Row, finish, in_parallel, own_chat, own_chat_from, own_chat_lines, predict, root};
use serde_json::{Value, json};

/// Columns that say where in the file a request stood, and under which names.
const ORIGIN: [&str; 3] = ["source_line", "session_id", "session_index"];

/// The report without what may differ: how fast the machine was, and which file was read.
fn without_circumstances(report: &Value) -> String {
    let mut report = report.clone();
    let sections = report.as_object_mut().unwrap();
    sections.remove("wall_clock").expect("the report says how fast it was");
    report.to_string()
}

/// Plays a configuration in five fresh processes, which must write the same bytes, and gives the folder of one.
fn play_five_times(desk: &Desk, config: &Path, options: &[&str], files: &[&str]) -> PathBuf {
    let outs: Vec<_> = (0..5).map(|run| desk.path(&format!("out-{run}"))).collect();
    let results = in_parallel(&outs, |out| {
        let finished = finish(predict(config, out).args(options));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let report: Value = serde_json::from_slice(&fs::read(out.join("prediction.json")).unwrap()).unwrap();
        let contents: Vec<_> = files.iter().map(|file| fs::read(out.join(file)).unwrap()).collect();
        (without_circumstances(&report), contents, finished.stdout)
    });
    for (run, result) in results.iter().enumerate().skip(1) {
        assert!(result.0 == results[0].0, "run {run} has another report");
        for (file, (content, first)) in files.iter().zip(result.1.iter().zip(&results[0].1)) {
            assert!(content == first, "run {run} has another {file}");
        }
        assert!(result.2 == results[0].2, "run {run} prints another summary");
    }
    outs[0].clone()
}

#[test]
fn five_processes_write_the_same_bytes() {
    let desk = Desk::new();
    let mut workload = own_chat();
    // Small enough to evict and preempt: everything that keeps an order has to keep it.
    workload["engine"]["workers"]["aggregated"]["kv_cache"]["capacity"]["blocks"] = json!(1200);
    let config = desk.config(&workload);
    let out = play_five_times(&desk, &config, &["--capture-per-request"], &["requests.parquet", "requests.jsonl"]);
    assert!(Played::read(&out).figure("preemptions") > 0.0, "the pool is not small enough to test anything");
}

#[test]
fn ties_of_the_router_are_drawn_alike_in_every_process() {
    let files = ["requests.parquet", "decisions.parquet"];
    for name in ["step-4-kv-router", "step-5-disaggregated"] {
        let desk = Desk::new();
        let config = root().join(format!("data/examples/{name}.yaml"));
        let out = play_five_times(&desk, &config, &["--decisions"], &files);
        let seed = desk.path("another-seed");
        let finished = finish(predict(&config, &seed).args(["--set", "router.seed=7"]));
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let workers = |out| Played::read(out).rows.iter().map(|row| row.int("worker_id")).collect::<Vec<_>>();
        assert_ne!(workers(&out), workers(&seed), "there are no ties to draw");
    }
}

#[test]
fn random_arrivals_depend_on_their_seed_alone() {
    let arrivals = |seed: u64| {
        let traffic = json!({
            "source": { "type": "synthetic", "input_tokens": 200, "output_tokens": 20 },
            "load": { "type": "poisson", "requests_per_second": 20, "seed": seed },
            "stop": { "requests": 100 },
        });
        let played = Desk::new().play(&common::config(traffic, common::worker(64, 4096)));
        played.rows.iter().map(|row| row.float("arrival_ms")).collect::<Vec<_>>()
    };
    assert_eq!(arrivals(7), arrivals(7));
    assert_ne!(arrivals(7), arrivals(8));
}

#[test]
fn profiling_a_run_changes_nothing_about_it() {
    let (plain, profiled) = (Desk::new(), Desk::new());
    let played = plain.play(&own_chat());
    let watched = profiled.play_with(&own_chat(), &["--profile"]);
    assert_eq!(played.summary(), watched.summary());
    assert!(played.rows == watched.rows);
}

#[test]
fn a_trace_read_ahead_plays_like_one_read_whole() {
    let streamed = play_lines(&own_chat_lines());
    // A session of its own for every row makes the reader take the whole file first.
    let named: Vec<_> = own_chat_lines()
        .iter()
        .enumerate()
        .map(|(index, line)| line.replacen('{', &format!("{{\"session_id\": \"s{index}\", "), 1))
        .collect();
    let whole = play_lines(&named);
    assert_eq!(streamed.summary(), whole.summary());
    assert!(whole.rows.iter().all(|row| row.text_or_null("session_id").is_some()));
    assert_same_rows(&streamed, &whole);
}

#[test]
fn the_order_of_lines_does_not_matter_to_a_trace_with_times() {
    let lines = own_chat_lines();
    let sorted = play_lines(&lines);
    // 500 and 1183 have no common divisor: every line gets a new place.
    let shuffled: Vec<_> = (0..lines.len()).map(|index| lines[index * 500 % lines.len()].clone()).collect();
    assert_ne!(lines, shuffled);
    let played = play_lines(&shuffled);
    assert_eq!(sorted.summary(), played.summary());
    assert_same_rows(&sorted, &played);
}

#[test]
fn a_trace_with_unix_times_plays_like_one_that_starts_at_zero() {
    let since_1970 = |line: &String| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        row["timestamp"] = json!(row["timestamp"].as_u64().unwrap() + 1_700_000_000_000);
        row.to_string()
    };
    let lines = own_chat_lines();
    let relative = play_lines(&lines);
    let absolute = play_lines(&lines.iter().map(since_1970).collect::<Vec<_>>());
    assert_eq!(relative.figure("completed_requests"), 1183.0);
    assert_eq!(relative.summary(), absolute.summary());
    assert!(relative.rows == absolute.rows);
}

#[test]
fn a_trace_with_windows_line_ends_plays_the_same() {
    let desk = Desk::new();
    let text = own_chat_lines().join("\r\n") + "\r\n";
    let windows = desk.play(&own_chat_from(&desk.write("trace.jsonl", text)));
    assert!(windows.rows == play_lines(&own_chat_lines()).rows);
}

#[test]
fn the_report_of_a_run_is_a_configuration_that_repeats_it() {
    let desk = Desk::new();
    let first = desk.play(&own_chat());
    let again = desk.play(&first.report["config"]);
    assert!(first.rows == again.rows);
    assert_eq!(first.report["provenance"], again.report["provenance"]);
}

fn play_lines(lines: &[String]) -> Played {
    let desk = Desk::new();
    let trace = desk.write("trace.jsonl", lines.join("\n"));
    desk.play(&own_chat_from(&trace))
}

fn assert_same_rows(one: &Played, other: &Played) {
    let (one, other): (Vec<Row>, Vec<Row>) = (one.rows_without(&ORIGIN), other.rows_without(&ORIGIN));
    assert_eq!(one.len(), other.len());
    for (index, (a, b)) in one.iter().zip(&other).enumerate() {
        assert_eq!(a, b, "request {index}");
    }
}
