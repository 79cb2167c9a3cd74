//! `dynosim trace export`: playing the written trace gives the same requests, to the last digit.

mod common;

use std::path::Path;

use common::fixtures::{fixture, on_one_worker};
use common::{Desk, Finished, Row, config, dynosim, finish, in_parallel, recorded, worker};
use serde_json::{Value, json};

/// What is different because the source is another one.
const OF_THE_SOURCE: [&str; 3] = ["source_line", "session_id", "request_id"];

fn export(config: &Path, output: &Path) -> Finished {
    finish(dynosim().args(["trace", "export", "--stack", "dynamo"]).arg(config).arg("--output").arg(output))
}

/// Plays a configuration, exports its workload, plays that, and gives the rows of both.
fn twice(config: &Value) -> (Vec<Row>, Vec<Row>, Value) {
    let desk = Desk::new();
    let wanted = desk.play(config);
    let written = desk.path("exported.jsonl");
    let finished = export(&desk.config(config), &written);
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let advice: Value =
        serde_yaml::from_str(finished.stdout.split("# plays it\n").nth(1).unwrap()).expect("the advice is YAML");
    let mut again = config.clone();
    again["traffic"] = advice["traffic"].clone();
    let got = desk.play(&again);
    (wanted.rows_without(&OF_THE_SOURCE), got.rows_without(&OF_THE_SOURCE), again["traffic"].clone())
}

fn synthetic(load: Value) -> Value {
    json!({
        "source": { "type": "synthetic", "input_tokens": 700, "output_tokens": 90 },
        "load": load,
        "stop": { "requests": 60 },
    })
}

fn sessions(load: Value, ratio: f64, new_tokens: u64) -> Value {
    json!({
        "source": {
            "type": "synthetic-session",
            "new_input_tokens_per_turn": new_tokens,
            "output_tokens_per_turn": 70,
            "session": { "turns": 3, "shared_prefix_ratio": ratio, "prefix_groups": 3, "inter_turn_delay_ms": 12.5 },
        },
        "load": load,
        "stop": { "sessions": 25 },
    })
}

fn trace(format: &str, file: &str, load: Value) -> Value {
    let mut source = json!({ "type": "trace", "format": format, "paths": [fixture(file)] });
    if ["mooncake", "mooncake-delta", "applied_compute_agentic"].contains(&format) {
        source["block_size"] = json!(64);
    }
    json!({ "source": source, "load": load })
}

#[test]
fn an_exported_workload_plays_the_same_requests() {
    let closed = || json!({ "type": "concurrency", "concurrency": 4 });
    let poisson = || json!({ "type": "poisson", "requests_per_second": 30, "seed": 5 });
    let timed = || json!({ "type": "trace_timestamps" });
    let mut chat = recorded(Path::new("data/traces/own_chat.jsonl"), 512);
    chat["load"] = json!({ "type": "trace_timestamps", "speedup": 7.3 });
    let mut cut = chat.clone();
    cut["stop"] = json!({ "max_virtual_time_seconds": 3.5 });
    let workloads = [
        synthetic(closed()),
        synthetic(poisson()),
        synthetic(json!({ "type": "constant_rate", "requests_per_second": 33.3 })),
        sessions(closed(), 0.0, 200),
        sessions(closed(), 0.5, 320),
        sessions(json!({ "type": "poisson", "sessions_per_second": 9, "seed": 5 }), 0.5, 200),
        sessions(json!({ "type": "constant_rate", "sessions_per_second": 9 }), 1.0, 100),
        chat,
        cut,
        trace("mooncake", "mooncake/ok_session.jsonl", json!({ "type": "trace_timestamps", "speedup": 3 })),
        trace("mooncake", "mooncake/ok_session.jsonl", closed()),
        trace("mooncake", "mooncake/ok_unsorted_blank.jsonl", timed()),
        trace("mooncake", "mooncake/ok_output_ids.jsonl", timed()),
        trace("mooncake-delta", "mooncake-delta/ok_two_sessions.jsonl", timed()),
        trace("mooncake-delta", "mooncake-delta/ok_output_block_hit.jsonl", closed()),
        trace("applied_compute_agentic", "applied/ok_two_rows.jsonl", closed()),
        trace("dynamo", "dynamo/ok_standard.jsonl", timed()),
        trace("qwen_bailian", "qwen_bailian/ok_two_turns.jsonl", timed()),
    ];
    let different = in_parallel(&workloads, |traffic| {
        let (wanted, got, played) = twice(&config(traffic.clone(), worker(64, 600)));
        (wanted != got || wanted.is_empty()).then(|| format!("{traffic} as {played}"))
    });
    assert_eq!(different.into_iter().flatten().collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn other_engines_find_the_same_prefixes_in_it() {
    for (backend, block_size) in [("sglang", 16), ("trtllm", 32), ("vllm", 48)] {
        let mut config =
            config(sessions(json!({ "type": "concurrency", "concurrency": 4 }), 0.5, 320), worker(block_size, 900));
        config["engine"]["backend"] = json!(backend);
        let (wanted, got, _) = twice(&config);
        assert_eq!(wanted, got, "{backend}");
        assert!(wanted.iter().map(|row| row.int("reused_tokens")).sum::<i64>() > 0, "{backend}");
    }
}

#[test]
fn outputs_that_were_recorded_are_found_again() {
    let desk = Desk::new();
    let row = |ms: u64, ids: &str| {
        format!("{{\"timestamp\":{ms},\"output_length\":70,\"hash_ids\":[1],\"output_token_ids\":[{ids}]}}\n")
    };
    let (one, other) = (vec!["5"; 70].join(","), vec!["6"; 70].join(","));
    let path = desk.write("recorded.jsonl", row(0, &one) + &row(5000, &other) + &row(10_000, &one));
    let (wanted, got, _) = twice(&config(recorded(&path, 64), worker(64, 600)));
    assert_eq!(wanted, got);
}

#[test]
fn agents_are_exported_as_agents() {
    let traffic = json!({
        "source": { "type": "trace", "format": "weka", "paths": [fixture("weka/corpus_ok")] },
        "load": { "type": "trace_timestamps", "agentic_lanes": 1, "lane_policy": "shared_queue" },
    });
    let (wanted, got, played) = twice(&on_one_worker(traffic));
    assert_eq!(wanted, got);
    assert_eq!(played["source"]["format"], json!("agentic_mooncake"));
    assert_eq!(played["load"]["agentic_lanes"], json!(1));
}

#[test]
fn what_cannot_be_exported_leaves_no_file() {
    let desk = Desk::new();
    let old = desk.write("old.jsonl", "precious");
    let refused = |config: &Value, output: &Path, code: i32, message: &str| {
        let config = desk.config(config);
        let before = desk.snapshot();
        let finished = export(&config, output);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), ""), "{}", finished.stderr);
        assert!(finished.stderr.contains(message), "{}", finished.stderr);
        assert_eq!(desk.snapshot(), before);
    };
    let good = on_one_worker(synthetic(json!({ "type": "concurrency", "concurrency": 4 })));
    let new = desk.path("new.jsonl");
    refused(&good, &old, 2, "old.jsonl: is there already");
    let mut wrong = good.clone();
    wrong["traffic"]["stop"]["requests"] = json!(0);
    refused(&wrong, &new, 2, "traffic.stop.requests: 0 is out of range");
    let bad =
        on_one_worker(trace("mooncake", "mooncake/bad_truncated_json.jsonl", json!({ "type": "trace_timestamps" })));
    refused(&bad, &new, 1, "bad_truncated_json.jsonl:2: the row ends in the middle");
    let mut two_pools = on_one_worker(sessions(json!({ "type": "concurrency", "concurrency": 4 }), 0.0, 100));
    two_pools["engine"]["mode"] = json!("disaggregated");
    two_pools["engine"]["workers"] = json!({ "prefill": worker(64, 600), "decode": worker(64, 600) });
    two_pools["engine"]["kv_transfer"] = json!({});
    refused(&two_pools, &new, 2, "written as `mooncake-delta`, which is played in aggregated mode only");
}
