//! The per-request table is enough to get every figure of the summary again, with the tools that people use.

mod common;

use std::process::Command;

use common::{Desk, Played, Row, finish, own_chat, skip};
use serde_json::{Value, json};

/// Names the Python interpreter to check with.
const PYTHON: &str = "DYNOSIM_TEST_PYTHON";
/// What the script ends with where a library is missing.
const MISSING: i32 = 77;

/// Rejections, preemptions, prefix reuse and an SLA that some requests miss: something for every column.
fn eventful() -> Value {
    let mut workload = own_chat();
    workload["traffic"]["load"]["speedup"] = json!(4);
    workload["engine"]["context_length"] = json!(32_768);
    workload["engine"]["workers"]["aggregated"]["kv_cache"]["capacity"]["blocks"] = json!(2000);
    workload["evaluation"] = json!({ "sla": { "ttft_ms": 600, "itl_ms": 25 } });
    workload
}

#[test]
fn duckdb_and_pandas_get_the_summary_out_of_the_rows() {
    let desk = Desk::new();
    desk.play(&eventful());
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(&python);
    command.arg(common::root().join("tests/analytics/check.py")).arg(desk.out());
    if command.output().is_err() {
        return skip("duckdb_and_pandas_get_the_summary_out_of_the_rows", &format!("there is no `{python}`"));
    }
    let finished = finish(&mut command);
    if finished.code == Some(MISSING) {
        let reason =
            format!("{}; {PYTHON} can name a Python that has duckdb, pandas and pyarrow", finished.stdout.trim());
        return skip("duckdb_and_pandas_get_the_summary_out_of_the_rows", &reason);
    }
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
}

#[test]
fn the_rows_hold_every_figure_of_the_summary() {
    let played = Desk::new().play(&eventful());
    let status = |wanted: &str| played.rows.iter().filter(|row| row.status() == wanted).count() as f64;
    let completed: Vec<&Row> = played.rows.iter().filter(|row| row.status() == "completed").collect();
    let sum = |column: &str| completed.iter().map(|row| row.int(column)).sum::<i64>() as f64;
    let seconds = played.figure("duration_ms") / 1000.0;
    let talking = completed.iter().filter(|row| row.int("output_tokens") > 0);
    let (spoken_ms, gaps) = talking.fold((0.0, 0), |(ms, gaps), row| {
        (ms + row.float("last_token_ms") - row.float("first_token_ms"), gaps + row.int("output_tokens") - 1)
    });
    let good: Vec<_> = completed.iter().filter(|row| row.bool_or_null("sla_met") == Some(true)).collect();
    let good_tokens: i64 = good.iter().map(|row| row.int("output_tokens")).sum();
    let preemptions: i64 = played.rows.iter().map(|row| row.int("preemptions")).sum();
    let ends = completed.iter().map(|row| row.float("end_ms"));

    let figures = [
        ("num_requests", played.rows.len() as f64),
        ("completed_requests", completed.len() as f64),
        ("rejected_requests", status("rejected")),
        ("failed_requests", status("failed")),
        ("unfinished_requests", status("unfinished")),
        ("total_input_tokens", sum("input_tokens")),
        ("total_output_tokens", sum("output_tokens")),
        ("preemptions", preemptions as f64),
        ("duration_ms", ends.fold(0.0, f64::max)),
        ("request_throughput_rps", completed.len() as f64 / seconds),
        ("input_throughput_tok_s", sum("input_tokens") / seconds),
        ("output_throughput_tok_s", sum("output_tokens") / seconds),
        ("prefix_cache_reused_ratio", sum("reused_tokens") / sum("input_tokens")),
        ("first_admission_prefix_cache_reused_ratio", sum("first_admission_reused_tokens") / sum("input_tokens")),
        ("mean_itl_ms", spoken_ms / gaps as f64),
        ("goodput_completed_requests", good.len() as f64),
        ("goodput_request_throughput_rps", good.len() as f64 / seconds),
        ("goodput_output_throughput_tok_s", good_tokens as f64 / seconds),
    ];
    for (name, value) in figures {
        assert_agrees(&played, name, value);
    }
    for (stem, column) in
        [("ttft_ms", "ttft_ms"), ("ttst_ms", "ttst_ms"), ("tpot_ms", "tpot_ms"), ("e2e_latency_ms", "e2e_ms")]
    {
        let samples = completed.iter().filter_map(|row| row.float_or_null(column)).collect();
        assert_distribution(&played, stem, samples);
    }
    let eventful = ["rejected_requests", "preemptions", "prefix_cache_reused_ratio", "goodput_completed_requests"];
    assert!(eventful.iter().all(|name| played.figure(name) > 0.0), "too little happens to test anything");
    assert!(played.figure("goodput_completed_requests") < played.figure("completed_requests"));
}

fn assert_distribution(played: &Played, stem: &str, mut samples: Vec<f64>) {
    samples.sort_by(f64::total_cmp);
    let count = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / count;
    let percentile = |p: f64| samples[((count - 1.0) * p / 100.0).round() as usize];
    assert_agrees(played, &format!("mean_{stem}"), mean);
    assert_agrees(played, &format!("std_{stem}"), variance.sqrt());
    for (word, p) in
        [("min", 0.0), ("median", 50.0), ("p75", 75.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("max", 100.0)]
    {
        assert_agrees(played, &format!("{word}_{stem}"), percentile(p));
    }
}

fn assert_agrees(played: &Played, name: &str, recomputed: f64) {
    let said = played.figure(name);
    let off = (said - recomputed).abs();
    assert!(off <= 1e-9 * said.abs().max(1e-3), "{name}: the summary says {said}, the rows give {recomputed}");
}

#[test]
fn derived_columns_follow_from_the_times() {
    let played = Desk::new().play(&eventful());
    let difference =
        |row: &Row, later: &str, earlier: &str| Some(row.float_or_null(later)? - row.float_or_null(earlier)?);
    for row in &played.rows {
        assert_eq!(row.float_or_null("queue_ms"), difference(row, "first_admit_ms", "arrival_ms"));
        assert_eq!(row.float_or_null("ttft_ms"), difference(row, "first_token_ms", "arrival_ms"));
        assert_eq!(row.float_or_null("ttst_ms"), difference(row, "second_token_ms", "first_token_ms"));
        assert_eq!(row.float_or_null("e2e_ms"), difference(row, "last_token_ms", "arrival_ms"));
        let gaps = (row.int("output_tokens") - 1) as f64;
        let pace = difference(row, "last_token_ms", "first_token_ms").map(|ms| ms / gaps).filter(|_| gaps > 0.0);
        assert_eq!(row.float_or_null("tpot_ms"), pace);
    }
}

#[test]
fn json_lines_hold_the_same_rows() {
    let desk = Desk::new();
    let played = desk.play_with(&eventful(), &["--capture-per-request"]);
    let text = std::fs::read_to_string(desk.out().join("requests.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), played.rows.len());
    for (line, row) in lines.iter().zip(&played.rows) {
        for column in ["request_index", "status", "arrival_ms", "ttft_ms", "tpot_ms", "e2e_ms", "sla_met"] {
            assert_eq!(line.get(column).cloned().unwrap_or_default(), row.json(column).unwrap(), "{column} of {line}");
        }
        let admissions = line["admission_history"].as_array().map_or(0, Vec::len);
        assert_eq!(admissions, row.int("admissions") as usize, "{line}");
    }
}
