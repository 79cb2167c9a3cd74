//! Workloads of agents on the clock: who waits for whom, lanes, and what becomes of a play whose request is refused.

mod common;

use common::fixtures::fixture;
use common::{Desk, Played, Row, close, config, dynosim, finish, read_rows, worker};
use serde_json::{Value, json};

/// Traffic of agents, with these settings of the load.
fn agents(format: &str, file: &str, load: Value) -> Value {
    let mut traffic = json!({
        "source": { "type": "trace", "format": format, "paths": [fixture(file)] },
        "load": { "type": "trace_timestamps" },
    });
    for (name, value) in load.as_object().into_iter().flatten() {
        traffic["load"][name] = value.clone();
    }
    traffic
}

/// Workers where a prompt takes 1 ms a token, and output nothing.
fn token_by_token(traffic: Value, workers: u64) -> Value {
    config(
        traffic,
        json!({
            "parallelism": { "replicas": workers },
            "scheduler": { "max_batched_tokens": 1 },
            "kv_cache": { "block_size": 16, "capacity": { "type": "fixed", "blocks": 64 }, "prefix_caching": false },
            "timing": { "type": "fixed", "prefill_ms": 1, "decode_ms": 0 },
        }),
    )
}

/// When every request was sent, by name.
fn starts(played: &Played) -> Vec<(String, f64)> {
    let name = |row: &Row| row.text_or_null("request_id").unwrap().to_owned();
    let mut starts: Vec<_> = played.rows.iter().map(|row| (name(row), row.float("arrival_ms"))).collect();
    starts.sort_by(|a, b| a.0.cmp(&b.0));
    starts
}

fn assert_starts(traffic: Value, wanted: &[(&str, f64)]) {
    let played = Desk::new().play_with(&token_by_token(traffic, 5), &["--check"]);
    let wanted: Vec<_> = wanted.iter().map(|&(name, at_ms)| (name.to_owned(), at_ms)).collect();
    assert_eq!(starts(&played), wanted);
}

#[test]
fn every_kind_of_edge_is_waited_for() {
    let at = |file| agents("agentic_mooncake", file, json!({}));
    let wanted = [("kid", 3.0), ("late", 50.0), ("next", 66.0), ("root", 0.0)];
    assert_starts(at("agentic-v2/ok_all_relations.jsonl"), &wanted);
    assert_starts(at("agentic-v2/ok_row_order_permuted.jsonl"), &wanted);
    // Two roots; `j` follows the first at once, the second after 4 ms. `j` may start at 0, which is the origin.
    assert_starts(at("agentic-v2/ok_multi_root.jsonl"), &[("j", 29.0), ("r1", 5.0), ("r2", 9.0)]);
    assert_starts(at("agentic-v2/ok_three_plays.jsonl"), &[("q0", 0.0), ("q1", 1000.0), ("q2", 2000.0)]);
}

#[test]
fn a_speedup_shortens_floors_and_delays_alike() {
    let traffic = agents("agentic_mooncake", "agentic-v2/ok_all_relations.jsonl", json!({ "speedup": 2 }));
    // `next` has to wait for `root` until 32, and 4.25 ms more; for `late` until 25 + 16.
    assert_starts(traffic, &[("kid", 1.5), ("late", 35.0), ("next", 51.0), ("root", 0.0)]);
}

#[test]
fn the_old_version_starts_as_recorded() {
    let mut traffic = agents("agentic_mooncake", "agentic-v1/ok_diamond.jsonl", json!({}));
    traffic["source"]["block_size"] = json!(64);
    // The root stays at 50: those that wait for it may start at 0, and that is the origin.
    assert_starts(traffic, &[("n0", 50.0), ("n1", 193.0), ("n2", 178.0), ("n3", 387.0)]);
}

#[test]
fn records_of_the_frontend_start_as_recorded() {
    for file in ["dynamo/ok_agentic_tool.jsonl", "dynamo/ok_agentic_inferred.jsonl"] {
        let wanted = [("K1", 60.0), ("K2", 132.0), ("P1", 0.0), ("P2", 464.0)];
        assert_starts(agents("dynamo", file, json!({})), &wanted);
    }
    let wanted = [("A", 0.0), ("B", 200.0)];
    assert_starts(agents("dynamo", "dynamo/ok_agentic_two_roots.jsonl", json!({})), &wanted);
}

#[test]
fn subagents_of_weka_start_as_recorded() {
    let played = Desk::new()
        .play_with(&token_by_token(agents("weka", "weka/ok_subagents_absolute.json", json!({})), 5), &["--check"]);
    let short = |(name, at_ms): (String, f64)| (name.split_once("outer:").unwrap().1.to_owned(), at_ms);
    let starts: Vec<_> = starts(&played).into_iter().map(short).collect();
    let wanted =
        [("0", 0.0), ("1:inner:0", 500.0), ("1:inner:1", 900.0), ("2", 1500.0), ("3:inner:0", 2250.0), ("4", 2500.0)];
    assert_eq!(starts, wanted.map(|(name, at_ms)| (name.to_owned(), at_ms)));
}

#[test]
fn lanes_take_plays_by_stride_or_from_one_queue() {
    let lanes = |load| agents("agentic_mooncake", "agentic-v2/ok_lanes_five_plays.jsonl", load);
    let one_after_the_other = [("r0", 0.0), ("r1", 64.0), ("r2", 80.0), ("r3", 96.0), ("r4", 112.0)];
    assert_starts(lanes(json!({ "agentic_lanes": 1 })), &one_after_the_other);
    assert_starts(lanes(json!({ "agentic_lanes": 1, "lane_policy": "shared_queue" })), &one_after_the_other);
    let by_stride = [("r0", 0.0), ("r1", 0.0), ("r2", 64.0), ("r3", 16.0), ("r4", 80.0)];
    assert_starts(lanes(json!({ "agentic_lanes": 2 })), &by_stride);
    let from_one_queue = [("r0", 0.0), ("r1", 0.0), ("r2", 16.0), ("r3", 32.0), ("r4", 48.0)];
    assert_starts(lanes(json!({ "agentic_lanes": 2, "lane_policy": "shared_queue" })), &from_one_queue);
    assert_starts(lanes(json!({ "agentic_lanes": 9 })), &["r0", "r1", "r2", "r3", "r4"].map(|name| (name, 0.0)));
}

#[test]
fn lanes_play_in_order_of_ordinals_and_start_plays_anew() {
    let ordinals = agents("agentic_mooncake", "agentic-v2/ok_ordinals.jsonl", json!({ "agentic_lanes": 1 }));
    assert_starts(ordinals, &[("q0", 32.0), ("q1", 16.0), ("q2", 0.0)]);
    let late = agents("agentic_mooncake", "agentic-v2/ok_three_plays.jsonl", json!({ "agentic_lanes": 3 }));
    assert_starts(late, &[("q0", 0.0), ("q1", 0.0), ("q2", 0.0)]);
}

#[test]
fn a_play_gets_a_row_and_figures() {
    let desk = Desk::new();
    let traffic = agents("agentic_mooncake", "agentic-v2/ok_lanes_five_plays.jsonl", json!({ "agentic_lanes": 2 }));
    let played = desk.play(&token_by_token(traffic, 5));
    let plays = read_rows(&desk.out().join("plays.parquet"));
    let lanes: Vec<_> = plays.iter().map(|play| play.int("lane")).collect();
    let latencies: Vec<_> = plays.iter().map(|play| play.float("trajectory_latency_ms")).collect();
    assert_eq!((lanes, latencies), (vec![0, 1, 0, 1, 0], vec![64.0, 16.0, 16.0, 16.0, 32.0]));
    assert!(plays.iter().all(|play| play.status() == "completed"));
    assert_eq!(played.figure("total_trajectories"), 5.0);
    assert_eq!(played.figure("completed_trajectories"), 5.0);
    assert!(close(played.figure("mean_trajectory_e2e_latency_ms"), 28.8, 1e-9));
    assert_eq!(played.figure("max_trajectory_e2e_latency_ms"), 64.0);
    let indices: Vec<_> = played.rows.iter().map(|row| row.int("play_index")).collect();
    assert_eq!(indices, [0, 1, 3, 2, 4], "in order of arrival");
}

/// Three plays. In the first, `big` is too large for any worker; `peer` has been sent by then, `after` has not.
const WITH_A_GIANT: &str = r#"{"schema":"dynamo.agentic_mooncake","version":2,"block_size":512,"hash_id_scope":"local","source":{"format":"handmade","digest":"giant"}}
{"request_id":"a-peer","play_id":"a","session_id":"a1","model":"m","input_length":40,"output_length":1,"hash_ids":[1],"not_before_ms":0}
{"request_id":"a-big","play_id":"a","session_id":"a2","model":"m","input_length":5120,"output_length":1,"hash_ids":[1,2,3,4,5,6,7,8,9,10],"not_before_ms":5}
{"request_id":"a-after","play_id":"a","session_id":"a1","model":"m","input_length":16,"output_length":1,"hash_ids":[1],"not_before_ms":0,"dependencies":[{"request_id":"a-peer","trigger":"completion","delay_ms":0,"relation":"sequence"}]}
{"request_id":"a-timer","play_id":"a","session_id":"a3","model":"m","input_length":16,"output_length":1,"hash_ids":[1],"not_before_ms":30}
{"request_id":"b","play_id":"b","session_id":"b","model":"m","input_length":16,"output_length":1,"hash_ids":[20],"not_before_ms":0}
{"request_id":"c","play_id":"c","session_id":"c","model":"m","input_length":16,"output_length":1,"hash_ids":[21],"not_before_ms":0}
"#;

#[test]
fn a_refused_request_fails_its_play_and_nobody_elses() {
    let desk = Desk::new();
    let trace = desk.write("giant.jsonl", WITH_A_GIANT);
    let traffic = json!({
        "source": { "type": "trace", "format": "agentic_mooncake", "paths": [trace] },
        "load": { "type": "trace_timestamps", "agentic_lanes": 1 },
    });
    let played = desk.play_with(&token_by_token(traffic, 3), &["--check"]);
    // The lane goes on once `a-peer`, which had been sent, has ended.
    let wanted = [("a-big", 5.0), ("a-peer", 0.0), ("b", 40.0), ("c", 56.0)];
    assert_eq!(starts(&played), wanted.map(|(name, at_ms)| (name.to_owned(), at_ms)));
    let plays = read_rows(&desk.out().join("plays.parquet"));
    let counts = |play: &Row| {
        ["requests", "completed_requests", "unserved_requests", "skipped_requests"].map(|column| play.int(column))
    };
    assert_eq!(counts(&plays[0]), [4, 1, 1, 2]);
    assert_eq!(plays.iter().map(Row::status).collect::<Vec<_>>(), ["failed", "completed", "completed"]);
    let figures = ["total_trajectories", "completed_trajectories", "failed_trajectories", "skipped_requests"];
    assert_eq!(figures.map(|name| played.figure(name)), [3.0, 2.0, 1.0, 2.0]);
}

#[test]
fn agents_are_served_by_split_workers_too() {
    let desk = Desk::new();
    let pool = |timing: Value| {
        json!({
            "parallelism": { "replicas": 2 },
            "kv_cache": { "block_size": 16, "capacity": { "type": "fixed", "blocks": 64 } },
            "timing": timing,
        })
    };
    let timing = json!({ "type": "fixed", "prefill_ms": 10, "decode_ms": 2 });
    let mut split = config(agents("weka", "weka/corpus_ok", json!({ "agentic_lanes": 1 })), json!({}));
    split["engine"]["mode"] = json!("disaggregated");
    split["engine"]["workers"] = json!({ "prefill": pool(timing.clone()), "decode": pool(timing) });
    split["engine"]["kv_transfer"] = json!({ "bandwidth_gb_per_second": 0.001, "bytes_per_token": 1000 });
    let played = desk.play_with(&split, &["--check"]);
    assert_eq!(played.figure("completed_requests"), 3.0);
    let plays = read_rows(&desk.out().join("plays.parquet"));
    let released = |play: i64| {
        let of_play = played.rows.iter().filter(|row| row.int("play_index") == play);
        of_play.map(|row| row.float("end_ms")).fold(0.0, f64::max)
    };
    assert!(plays[0].float("quiescent_ms") >= released(0));
    assert_eq!(plays[1].float("start_ms"), plays[0].float("quiescent_ms"), "the lane waits for quiescence");
}

#[test]
fn a_run_of_agents_repeats_to_the_byte() {
    let desk = Desk::new();
    let traffic = agents("weka", "weka/corpus_ok", json!({ "agentic_lanes": 2 }));
    let path = desk.config(&config(traffic, worker(16, 64)));
    let read = |out: &str| {
        let mut command = dynosim();
        command.args(["predict", "-c"]).arg(&path).arg("--output-dir").arg(desk.path(out));
        assert_eq!(finish(&mut command).code, Some(0));
        ["plays.parquet", "requests.parquet"].map(|name| std::fs::read(desk.path(out).join(name)).unwrap())
    };
    assert_eq!(read("one"), read("other"));
}
