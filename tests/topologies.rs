//! Random deployments of every kind: backends, attention ranks, hand-overs and routers.
//!
//! The program checks its own conservation laws in debug builds (as with `--check`); this looks at what came out. As
//! in `properties.rs`, `DYNOSIM_TEST_SEED=17 cargo test --test topologies` plays one world again.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::random::{Lcg, play_worlds, traffic};
use common::{Desk, Played, Row, in_parallel, predict, start, wait_at_most};
use serde_json::{Value, json};

const WORLDS: u64 = 600;
/// A run takes milliseconds; one that takes this long goes round in circles.
const LONGEST_RUN: Duration = Duration::from_secs(20);

#[test]
fn invariants_hold_in_random_deployments() {
    let expected = [
        "sglang aggregated completed",
        "sglang aggregated rejected: output_exceeds_kv_pool",
        "sglang aggregated failed: outgrew_kv_pool",
        "sglang aggregated preempted",
        "sglang disaggregated completed",
        "sglang disaggregated failed: prompt_exceeds_decode_kv_pool",
        "trtllm aggregated completed",
        "trtllm aggregated completed: stopped_at_kv_pool",
        "vllm aggregated completed",
        "vllm disaggregated completed",
        "vllm disaggregated preempted",
        "vllm disaggregated rejected: prompt_exceeds_context_length",
        "vllm disaggregated failed: outgrew_kv_pool",
        "waited in the router",
        "found its prefix through the router",
        "second rank",
    ];
    play_worlds(WORLDS, &expected, play_world);
}

/// Sizes at which other simulators hang without a word.
#[test]
fn every_size_of_a_worker_comes_to_an_end() {
    let all: Vec<[u64; 3]> = (0..64).map(|n| [1 << (n % 4), 1 << (n / 4 % 4), 1 << (n / 16)]).collect();
    in_parallel(&all, |&[tensor, pipeline, attention_data]| {
        let desk = Desk::new();
        let mut config = common::config(common::closed_loop(300, 20, 6, 24), common::worker(16, 256));
        let worker = &mut config["engine"]["workers"]["aggregated"];
        worker["parallelism"] =
            json!({ "replicas": 1, "tensor": tensor, "pipeline": pipeline, "attention_data": attention_data });
        worker["scheduler"] = json!({ "max_batched_tokens": 64, "max_sequences": 8 });
        let child = start(&mut predict(&desk.config(&config), &desk.out()));
        let finished = wait_at_most(LONGEST_RUN, child).expect("it comes to an end");
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        let played = Played::read(&desk.out());
        assert_eq!(played.rows.len(), 24, "one row for each request");
        assert_eq!(played.figure("decode_gpus_per_worker"), (tensor * pipeline * attention_data) as f64);
    });
}

struct World {
    config: Value,
    requests: u64,
    backend: &'static str,
    disaggregated: bool,
    has_sessions: bool,
    is_cut_off: bool,
}

impl World {
    fn of(lcg: &mut Lcg, desk: &Desk) -> Self {
        let disaggregated = lcg.between(0, 1) == 0;
        let backends = if disaggregated { &["vllm", "sglang"][..] } else { &["vllm", "sglang", "trtllm"] };
        let backend = lcg.one_of(backends);
        let block_size = if backend == "sglang" { lcg.one_of(&[1, 2, 16]) } else { lcg.one_of(&[2, 5, 16, 48]) };
        let blocks = lcg.between(6, 60) * if block_size == 1 { 30 } else { 1 };
        let pool = block_size * blocks;
        let (traffic, requests, turn_delay_ms) = traffic(lcg, desk, pool);
        let is_cut_off = traffic["stop"]["max_virtual_time_seconds"].is_f64();
        let mut targets = 0;
        let mut worker = |lcg: &mut Lcg| {
            let worker = worker(lcg, backend, block_size, blocks);
            let parallelism = &worker["parallelism"];
            targets += parallelism["replicas"].as_u64().unwrap() * parallelism["attention_data"].as_u64().unwrap();
            worker
        };
        let workers = if disaggregated {
            json!({ "prefill": worker(lcg), "decode": worker(lcg) })
        } else {
            json!({ "aggregated": worker(lcg) })
        };
        let mut engine = json!({
            "mode": if disaggregated { "disaggregated" } else { "aggregated" },
            "model": "lab/tiny-one",
            "hardware": "h200_sxm",
            "backend": backend,
            "context_length": lcg.one_of(&[pool / 2 + 1, pool * 2, 131_072]),
            "workers": workers,
        });
        if disaggregated {
            engine["kv_transfer"] = transfer(lcg);
        }
        let mut config = json!({ "traffic": traffic, "engine": engine });
        if targets > 1 && lcg.between(0, 1) == 0 {
            config["router"] = router(lcg);
        }
        Self { config, requests, backend, disaggregated, has_sessions: turn_delay_ms.is_some(), is_cut_off }
    }
}

fn worker(lcg: &mut Lcg, backend: &str, block_size: u64, blocks: u64) -> Value {
    let ranks = lcg.one_of(&[1, 1, 2, 3]);
    let chunk_blocks = lcg.between(ranks, blocks.max(ranks));
    let tokens = if backend == "sglang" { chunk_blocks * block_size } else { lcg.between(1, block_size * blocks) };
    let mut scheduler = json!({ "max_batched_tokens": tokens, "max_sequences": lcg.between(1, 12) });
    match backend {
        "sglang" => scheduler["policy"] = json!(lcg.one_of(&["fifo", "lpm"])),
        "vllm" if ranks > 1 => scheduler["prefill_schedule_interval"] = json!(lcg.between(1, 4)),
        _ => {}
    }
    let timing = match lcg.between(0, 2) {
        0 => json!({ "type": "fixed", "prefill_ms": lcg.between(0, 20), "decode_ms": lcg.between(1, 5) }),
        _ => json!({ "type": "polynomial" }),
    };
    json!({
        "parallelism": { "replicas": lcg.between(1, 3), "attention_data": ranks },
        "scheduler": scheduler,
        "kv_cache": {
            "block_size": block_size,
            "prefix_caching": lcg.between(0, 3) > 0,
            "capacity": { "type": "fixed", "blocks": blocks },
        },
        "timing": timing,
    })
}

fn transfer(lcg: &mut Lcg) -> Value {
    json!({
        "bytes_per_token": lcg.one_of(&[1000, 131_072]),
        "bandwidth_gb_per_second": lcg.one_of(&[None, Some(0.1), Some(1.0), Some(64.0)]),
        "timing_mode": lcg.one_of(&["full_prompt", "destination_missing"]),
        "links": lcg.one_of(&["independent", "shared"]),
    })
}

fn router(lcg: &mut Lcg) -> Value {
    let mut router = json!({
        "policy": "kv_router",
        "temperature": lcg.one_of(&[0.0, 0.0, 0.5]),
        "prefill_load_model": { "type": lcg.one_of(&["none", "aic"]) },
    });
    if lcg.between(0, 2) == 0 {
        router["queue"] =
            json!({ "threshold": lcg.one_of(&[0.0, 0.5, 1.0]), "policy": lcg.one_of(&["fcfs", "lcfs", "wspt"]) });
    }
    router
}

/// Plays the world of a seed; says what happened, or which invariant is broken.
fn play_world(seed: u64) -> Result<BTreeMap<String, u64>, String> {
    let desk = Desk::new();
    let world = World::of(&mut Lcg::new(seed), &desk);
    let child = start(&mut predict(&desk.config(&world.config), &desk.out()));
    let finished = wait_at_most(LONGEST_RUN, child).ok_or("it does not come to an end")?;
    if finished.code != Some(0) {
        return Err(format!("exit code {:?}: {}", finished.code, finished.stderr));
    }
    let played = Played::read(&desk.out());
    books_balance(&world, &played)?;
    let mut outcomes = BTreeMap::new();
    for row in &played.rows {
        row_is_sound(&world, row).map_err(|broken| format!("request {}: {broken}", row.int("request_index")))?;
        for outcome in happenings(&world, row) {
            *outcomes.entry(outcome).or_insert(0) += 1;
        }
    }
    Ok(outcomes)
}

fn happenings(world: &World, row: &Row) -> Vec<String> {
    let mode = if world.disaggregated { "disaggregated" } else { "aggregated" };
    let mut happened = vec![format!("{} {mode} {}", world.backend, row.outcome())];
    if row.int("preemptions") > 0 {
        happened.push(format!("{} {mode} preempted", world.backend));
    }
    if row.float_or_null("router_queue_ms").is_some_and(|ms| ms > 0.0) {
        happened.push("waited in the router".to_owned());
    }
    if row.int_or_null("router_overlap_blocks").is_some_and(|blocks| blocks > 0) {
        happened.push("found its prefix through the router".to_owned());
    }
    if row.int_or_null("rank") == Some(1) {
        happened.push("second rank".to_owned());
    }
    happened
}

fn hold(holds: bool, invariant: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(invariant.to_owned()) }
}

/// Every request that arrived ended in exactly one way, and the summary counts the same.
fn books_balance(world: &World, played: &Played) -> Result<(), String> {
    let rows = played.rows.len() as u64;
    hold(played.figure("num_requests") == rows as f64, "every arrived request has one row")?;
    for status in ["completed", "rejected", "failed", "unfinished"] {
        let counted = played.rows.iter().filter(|row| row.status() == status).count();
        hold(played.figure(&format!("{status}_requests")) == counted as f64, &format!("{status} rows are counted"))?;
    }
    hold(world.is_cut_off || played.figure("unfinished_requests") == 0.0, "without a cut-off every request ends")?;
    // A failed turn ends its session, so that later turns never arrive.
    let may_miss = world.is_cut_off || (world.has_sessions && played.figure("failed_requests") > 0.0);
    hold(if may_miss { rows <= world.requests } else { rows == world.requests }, "every request arrives")?;
    let arrivals: Vec<f64> = played.rows.iter().map(|row| row.float("arrival_ms")).collect();
    hold(arrivals.is_sorted(), "rows are in order of arrival")?;
    let sane = |value: &Value| value.as_f64().is_none_or(|number| number.is_finite() && number >= 0.0);
    hold(played.summary().values().all(sane), "every figure is a number that makes sense")
}

fn row_is_sound(world: &World, row: &Row) -> Result<(), String> {
    let in_order = |columns: &[&str]| {
        let times: Vec<f64> = columns.iter().filter_map(|column| row.float_or_null(column)).collect();
        hold(times.is_sorted(), &format!("{columns:?} are in order: {times:?}"))
    };
    in_order(&["arrival_ms", "first_admit_ms", "first_token_ms", "second_token_ms", "last_token_ms", "end_ms"])?;
    in_order(&["arrival_ms", "prefill_admit_ms", "source_held_ms", "destination_activated_ms", "decode_admit_ms"])?;
    in_order(&["destination_reserved_ms", "destination_activated_ms", "source_released_ms"])?;

    let (requested, output) = (row.int("requested_output_tokens"), row.int("output_tokens"));
    hold(output <= requested, "no request gets more than it asked for")?;
    let known = |column: &str| row.float_or_null(column).is_some();
    hold(known("first_token_ms") == (output >= 1), "the first token has a time if there is one")?;
    hold(known("second_token_ms") == (output >= 2), "so has the second")?;
    hold(world.disaggregated || !known("source_held_ms"), "only hand-overs have a source")?;
    hold(world.backend != "trtllm" || row.int("preemptions") == 0, "TensorRT-LLM sends nobody back")?;
    if row.status() == "completed" {
        let pools = if world.disaggregated { 2 } else { 1 };
        hold(row.int("admissions") == row.int("preemptions") + pools, "it comes back after every preemption")?;
        hold(world.disaggregated == known("destination_activated_ms"), "a hand-over reaches its destination")?;
        hold(world.disaggregated == known("source_released_ms"), "and its source lets go")?;
    }
    Ok(())
}
