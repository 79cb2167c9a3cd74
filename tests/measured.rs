//! Timing and memory by default: from measured operators, and from what the model leaves.

mod common;

use common::{Desk, Played, closed_loop, config, dynosim, finish, in_parallel, predict, root};
use dynosim::perf_data::{DataFiles, hardware, model, tables_for};
use dynosim_schemas::config::{Backend, Parallelism};
use dynosim_systems::timing::{OperatorModel, Served, whole_ns_ms};
use serde_json::{Value, json};

const LLAMA: &str = "meta-llama/Meta-Llama-3.1-8B-Instruct";

fn llama() -> OperatorModel {
    let files = DataFiles::default();
    let (model, hardware) = (model(&files, LLAMA).unwrap(), hardware(&files, "h200_sxm").unwrap());
    let parallelism = Parallelism::default();
    let served = Served { model: &model, hardware: &hardware, backend: Backend::Vllm, parallelism: &parallelism };
    let tables = tables_for(&files, "h200_sxm", &served).unwrap();
    served.operators(&tables)
}

/// Everything by default.
fn defaults(model: &str, hardware: &str, worker: Value) -> Value {
    let mut all = config(closed_loop(1000, 20, 1, 3), worker);
    all["engine"]["model"] = json!(model);
    all["engine"]["hardware"] = json!(hardware);
    all["engine"].as_object_mut().unwrap().remove("context_length");
    all
}

#[test]
fn the_published_example_runs_as_it_is() {
    let desk = Desk::new();
    let finished = finish(&mut predict(&root().join("data/examples/measured.yaml"), &desk.out()));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    let played = Played::read(&desk.out());
    assert_eq!(played.figure("completed_requests"), 100.0);
    let provenance = &played.report["timing_provenance"]["aggregated"];
    assert_eq!(provenance["source"], "measured");
    assert!(provenance["tables"]["gemm"].as_str().unwrap().ends_with("vllm 0.24.0"), "{provenance}");
    for (operator, bases) in provenance["operators"].as_object().unwrap() {
        assert!(!bases.to_string().contains("speed_of_light"), "{operator}: {bases}");
    }
    assert_eq!(played.report["memory"]["aggregated"]["kv_blocks"], 13_792);
    // Milliseconds that an H200 takes for a prompt of 1,024 tokens and for a step.
    assert!((15.0..60.0).contains(&played.figure("mean_ttft_ms")), "{}", played.figure("mean_ttft_ms"));
    assert!((3.0..12.0).contains(&played.figure("mean_itl_ms")), "{}", played.figure("mean_itl_ms"));
}

#[test]
fn passes_take_what_their_operators_take() {
    let desk = Desk::new();
    let played = desk.play(&defaults(LLAMA, "h200_sxm", json!({ "kv_cache": { "prefix_caching": false } })));
    let operators = llama();
    let first_ms = whole_ns_ms(operators.prefill_ms(1, 1000, 0));
    // The first token came with the prompt; the step that makes the second looks at 1,001 tokens.
    let rest_ms: f64 = (1001..1020).map(|tokens| whole_ns_ms(operators.decode_ms(1, tokens))).sum();
    for row in &played.rows {
        assert!((row.float("ttft_ms") - first_ms).abs() < 1e-5, "{} and {first_ms}", row.float("ttft_ms"));
        let rest = row.float("e2e_ms") - row.float("ttft_ms");
        assert!((rest - rest_ms).abs() < 1e-4, "{rest} and {rest_ms}");
    }
}

#[test]
fn families_layouts_and_backends_run() {
    let moe = |expert: u64| json!({ "parallelism": { "tensor": expert, "moe_expert": expert } });
    let ranks = json!({ "parallelism": { "attention_data": 8, "moe_expert": 8 } });
    let cases = [
        ("Qwen/Qwen3-32B-FP8", "h100_sxm", "sglang", json!({ "parallelism": { "tensor": 2 } }), "measured"),
        ("Qwen/Qwen3-30B-A3B", "h200_sxm", "trtllm", moe(4), "measured"),
        ("mistralai/Mixtral-8x7B-v0.1", "b200_sxm", "vllm", moe(2), "measured"),
        ("openai/gpt-oss-120b", "h200_sxm", "vllm", moe(1), "measured"),
        ("deepseek-ai/DeepSeek-V3", "h200_sxm", "sglang", ranks, "measured"),
        ("moonshotai/Kimi-K2-Instruct", "b200_sxm", "vllm", moe(8), "measured"),
        (LLAMA, "l4", "vllm", json!({ "parallelism": { "tensor": 2 } }), "speed_of_light"),
    ];
    in_parallel(&cases, |(name, hardware, backend, worker, source)| {
        let desk = Desk::new();
        let mut all = defaults(name, hardware, worker.clone());
        all["engine"]["backend"] = json!(backend);
        let played = desk.play(&all);
        assert_eq!(played.figure("completed_requests"), 3.0, "{name}");
        let provenance = &played.report["timing_provenance"]["aggregated"];
        assert_eq!(provenance["source"], *source, "{name}: {provenance}");
        assert!(played.figure("mean_itl_ms") > 1.0 && played.figure("mean_itl_ms") < 100.0, "{name}");
    });
}

#[test]
fn transfers_by_default_move_what_the_model_keeps() {
    let desk = Desk::new();
    let mut all = defaults(LLAMA, "h200_sxm", json!({}));
    all["engine"]["mode"] = json!("disaggregated");
    all["engine"]["workers"] = json!({ "prefill": {}, "decode": {} });
    all["engine"]["kv_transfer"] = json!({ "bandwidth_gb_per_second": 10 });
    let automatic = desk.play(&all);
    all["engine"]["kv_transfer"]["bytes_per_token"] = json!(131_072);
    assert_eq!(automatic.summary(), desk.play(&all).summary());
    let roles: Vec<&String> = automatic.report["timing_provenance"].as_object().unwrap().keys().collect();
    assert_eq!(roles, ["decode", "prefill"]);
}

#[test]
fn fused_passes_are_shorter_than_sums() {
    let desk = Desk::new();
    let mut all = defaults(LLAMA, "h200_sxm", json!({ "timing": { "mixed": "fused" } }));
    all["traffic"] = json!({
        "source": { "type": "synthetic", "input_tokens": 2000, "output_tokens": 100 },
        "load": { "type": "constant_rate", "requests_per_second": 20 },
        "stop": { "requests": 60 },
    });
    let fused = desk.play(&all).figure("mean_itl_ms");
    all["engine"]["workers"]["aggregated"]["timing"] = json!({ "type": "default", "mixed": "sum" });
    let sum = desk.play(&all).figure("mean_itl_ms");
    assert!(fused < sum * 0.99, "{fused} and {sum}");
}

#[test]
fn the_router_can_estimate_prefills_with_it() {
    let desk = Desk::new();
    let worker = json!({ "parallelism": { "replicas": 3 } });
    let mut all = defaults(LLAMA, "h200_sxm", worker);
    all["traffic"] = json!({
        "source": { "type": "synthetic", "input_tokens": 6000, "output_tokens": 40 },
        "load": { "type": "poisson", "requests_per_second": 25, "seed": 3 },
        "stop": { "requests": 200 },
    });
    let mut ttft_ms = |load_model: &str| {
        all["router"] = json!({ "policy": "kv_router", "prefill_load_model": { "type": load_model } });
        let played = desk.play(&all);
        assert_eq!(played.figure("completed_requests"), 200.0);
        played.figure("mean_ttft_ms")
    };
    // A prompt that is nearly computed counts for less than one that has just begun.
    assert_ne!(ttft_ms("aic"), ttft_ms("none"));
}

#[test]
fn what_cannot_be_had_is_refused_with_what_can() {
    let desk = Desk::new();
    let path = desk.config(&defaults(LLAMA, "h200_sxm", json!({})));
    let worker = "engine.workers.aggregated";
    let cases = [
        (
            "engine.model=meta-llama/Llama-3.1-9B",
            "engine.model: model `meta-llama/Llama-3.1-9B` is not known; nearest known: ",
        ),
        ("engine.hardware=h20_sxm", "engine.hardware: hardware `h20_sxm` is not known; nearest known: h200_sxm"),
        (
            "engine.backend_version='0.11.0'",
            "engine.backend_version: vllm 0.11.0 was not measured on h200_sxm; use \"0.24.0\"",
        ),
        (
            &format!("{worker}.parallelism.tensor=3"),
            "parallelism.tensor: 3 does not divide the 32 attention heads; possible are 1, 2, 4, 8, 16, 32",
        ),
        (&format!("{worker}.parallelism.moe_expert=2"), "parallelism.moe_tensor: the model has no experts"),
        (&format!("{worker}.parallelism.pipeline=40"), "parallelism.pipeline: the model has 32 layers only"),
        (&format!("{worker}.timing={{mixed: sideways}}"), "timing.mixed: "),
        ("engine.model=meta-llama/Meta-Llama-3.1-405B", "does not fit on h200_sxm with 141.0 GiB: weights 756.0 GiB"),
    ];
    for (assignment, message) in cases {
        let finished = finish(predict(&path, &desk.out()).args(["--set", assignment]));
        assert_eq!(finished.code, Some(2), "{assignment}: {}", finished.stderr);
        assert!(finished.stderr.contains(message) && finished.stderr.lines().count() == 1, "{}", finished.stderr);
        assert!(!desk.out().exists());
    }
    let experts =
        ["--set", "engine.model=Qwen/Qwen3-30B-A3B", "--set", "engine.workers.aggregated.parallelism.tensor=2"];
    let finished = finish(predict(&path, &desk.out()).args(experts));
    assert!(finished.stderr.contains("must be `tensor` 2 times `attention_data` 1"), "{}", finished.stderr);
}

#[test]
fn what_does_not_fit_is_told_what_would() {
    let desk = Desk::new();
    let cases = [
        ("meta-llama/Llama-3.3-70B-Instruct", "l40s", json!({}), "the smallest `tensor` that fits is 4"),
        (
            "deepseek-ai/DeepSeek-V3",
            "h200_sxm",
            json!({}),
            "the smallest `tensor` that fits is 8 with `moe_tensor: 1` and `moe_expert: 8`",
        ),
        (
            "deepseek-ai/DeepSeek-V3",
            "a30",
            json!({ "parallelism": { "attention_data": 8, "moe_expert": 8 } }),
            "the smallest",
        ),
    ];
    for (name, hardware, worker, advice) in cases {
        let path = desk.config(&defaults(name, hardware, worker));
        let finished = finish(dynosim().args(["check", "-c"]).arg(path));
        assert_eq!(finished.code, Some(2), "{}", finished.stdout);
        assert!(finished.stderr.contains(advice), "{}", finished.stderr);
    }
}

#[test]
fn a_check_says_how_memory_is_spent() {
    let desk = Desk::new();
    let path = desk.config(&defaults(LLAMA, "h200_sxm", json!({})));
    let finished = finish(dynosim().args(["check", "-c"]).arg(&path));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    for part in [
        "is valid; requests may have 131072 tokens",
        "aggregated: memory of one rank (1 x 1 GPUs)",
        "weights          14.96 GiB",
        "left for KV     107.76 GiB",
        "KV blocks        13792 of 64 tokens: 882688 tokens",
    ] {
        assert!(finished.stdout.contains(part), "{part} is not in {}", finished.stdout);
    }
    // What is given in numbers needs no known model.
    let worker = json!({
        "kv_cache": { "capacity": { "type": "fixed", "blocks": 10 } },
        "timing": { "type": "polynomial" },
    });
    let mut given = defaults("lab/secret", "prototype", worker);
    given["engine"]["context_length"] = json!(5000);
    let finished = finish(dynosim().args(["check", "-c"]).arg(desk.config(&given)));
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert!(finished.stdout.contains("memory: engine.model: model `lab/secret` is not known"), "{}", finished.stdout);
}

#[test]
fn strict_timing_refuses_what_was_not_measured() {
    let desk = Desk::new();
    let path = desk.config(&defaults(LLAMA, "l4", json!({ "parallelism": { "tensor": 2 } })));
    let finished = finish(predict(&path, &desk.out()).arg("--strict-timing"));
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    let lacking = "gemm, context_attention, generation_attention, all_reduce";
    assert!(finished.stderr.contains(lacking), "{}", finished.stderr);
    let path = desk.config(&defaults(LLAMA, "h200_sxm", json!({})));
    assert_eq!(finish(predict(&path, &desk.out()).arg("--strict-timing")).code, Some(0));
}

#[test]
fn a_damaged_table_ends_the_run_before_it_begins() {
    let desk = Desk::new();
    let tables = desk.path("data/perf/h200_sxm/vllm");
    std::fs::create_dir_all(&tables).unwrap();
    let sound = std::fs::read(root().join("data/perf/h200_sxm/vllm/gemm.parquet")).unwrap();
    let path = desk.config(&defaults(LLAMA, "h200_sxm", json!({})));
    let run = |bytes: &[u8]| {
        std::fs::write(tables.join("gemm.parquet"), bytes).unwrap();
        finish(predict(&path, &desk.out()).env("DYNOSIM_DATA", desk.path("data")).arg("--overwrite"))
    };
    let finished = run(&sound[..sound.len() / 2]);
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    assert!(finished.stderr.contains("gemm.parquet: is no table of gemm"), "{}", finished.stderr);
    assert!(!desk.out().exists());
    assert_eq!(run(&sound).code, Some(0));
}
