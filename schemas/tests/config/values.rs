//! What a valid document means: defaults, counts, the resolved form, and what the simulator cannot do yet.

use dynosim_schemas::config::{
    Backend, BytesPerToken, Capacity, ContextLength, Evaluation, LanePolicy, Load, Mode, NestedBasis, Parallelism,
    Planner, PlannerPolicy, PlannerTarget, PrefillLoadModel, Router, Source, Stack, Stop, Timing, TraceFormat, Traffic,
    TransferTiming, WekaRules, load, not_available_yet,
};

use crate::{BASE, parsed, read, read_with};

const SHORTEST: &str = "engine: {model: m, hardware: h, workers: {aggregated: {}}}";
const DISAGGREGATED: &str =
    "engine: {mode: disaggregated, model: m, hardware: h, workers: {prefill: {}, decode: {}}, kv_transfer: {}}";

fn with_traffic(traffic: &str) -> Traffic {
    read_with(&[&format!("traffic={traffic}")]).unwrap().traffic
}

#[test]
fn the_shortest_document_gets_every_default() {
    let prediction = load(SHORTEST, &[], Stack::Engine).unwrap();
    assert_eq!(prediction.traffic.source, Source::Synthetic { input_tokens: 1024, output_tokens: 128 });
    assert_eq!(prediction.traffic.load, Load::Concurrency { concurrency: 10 });
    assert_eq!(prediction.traffic.stop, Stop { requests: Some(100), ..Stop::default() });
    assert_eq!(prediction.router, Router::RoundRobin { prefill_load_model: PrefillLoadModel::None });
    assert_eq!(prediction.planner, Planner::default());
    assert_eq!(prediction.evaluation, Evaluation::default());
    let engine = prediction.engine;
    assert_eq!((engine.mode, engine.backend), (Mode::Aggregated, Backend::Vllm));
    assert_eq!((engine.context_length, engine.backend_version), (ContextLength::Max, None));
    let worker = engine.workers.aggregated.unwrap();
    assert_eq!(worker.parallelism, Parallelism::default());
    assert_eq!((worker.scheduler.max_batched_tokens, worker.scheduler.max_sequences), (8192, 256));
    assert_eq!((worker.kv_cache.block_size, worker.kv_cache.prefix_caching), (64, true));
    assert_eq!(worker.kv_cache.capacity, Capacity::Default { memory_fraction: 0.9 });
    assert_eq!((worker.timing, worker.startup_seconds), (Timing::default(), 0.0));
}

#[test]
fn the_backend_sets_block_size_and_memory_fraction() {
    for (backend, block_size, memory_fraction) in [("vllm", 64, 0.9), ("sglang", 1, 0.88), ("trtllm", 32, 0.9)] {
        let overrides = parsed(&[&format!("engine.backend={backend}")]);
        let prediction = load(SHORTEST, &overrides, Stack::Engine).unwrap();
        let cache = prediction.engine.workers.aggregated.unwrap().kv_cache;
        assert_eq!((cache.block_size, cache.capacity), (block_size, Capacity::Default { memory_fraction }));
    }
}

#[test]
fn prefill_workers_take_one_sequence_by_default() {
    let engine = read(DISAGGREGATED).unwrap().engine;
    let sequences: Vec<_> =
        engine.workers.roles().map(|(role, worker)| (role.name(), worker.scheduler.max_sequences)).collect();
    assert_eq!(sequences, [("prefill", 1), ("decode", 256)]);
    let transfer = engine.kv_transfer.unwrap();
    assert_eq!(transfer.bytes_per_token, BytesPerToken::Auto);
    assert_eq!((transfer.bandwidth_gb_per_second, transfer.timing_mode), (None, TransferTiming::DestinationMissing));
}

#[test]
fn prefill_and_decode_blocks_must_agree() {
    let differ = DISAGGREGATED.replace("decode: {}", "decode: {kv_cache: {block_size: 32}}");
    assert_eq!(read(&differ).unwrap_err().path, "engine");
}

#[test]
fn traces_default_to_mooncake_with_blocks_of_512() {
    let source = with_traffic("{source: {type: trace, paths: [t]}, load: {type: trace_timestamps}}").source;
    let trace = |format, block_size| Source::Trace {
        paths: vec!["t".into()],
        format,
        block_size,
        weka_rules: None,
        nested_timestamp_basis: None,
    };
    assert_eq!(source, trace(TraceFormat::Mooncake, Some(512)));
    let source = with_traffic("{source: {type: trace, format: dynamo, paths: [t]}, load: {type: concurrency}}").source;
    assert_eq!(source, trace(TraceFormat::Dynamo, None));
}

#[test]
fn a_weka_trace_is_read_strictly_and_in_lanes_by_stride_unless_told_otherwise() {
    let load = "load: {type: trace_timestamps, agentic_lanes: 12}";
    let traffic = with_traffic(&format!("{{source: {{type: trace, format: weka, paths: [t]}}, {load}}}"));
    let source = Source::Trace {
        paths: vec!["t".into()],
        format: TraceFormat::Weka,
        block_size: None,
        weka_rules: Some(WekaRules::Strict),
        nested_timestamp_basis: Some(NestedBasis::Absolute),
    };
    assert_eq!(traffic.source, source);
    let lanes = Load::TraceTimestamps { speedup: 1.0, agentic_lanes: Some(12), lane_policy: Some(LanePolicy::Stride) };
    assert_eq!(traffic.load, lanes);
}

#[test]
fn a_session_may_be_all_defaults() {
    let traffic = with_traffic("{source: {type: synthetic-session, session: {}}, load: {}, stop: {sessions: 3}}");
    assert_eq!((traffic.unit_count(), traffic.request_count()), (Some(3), Some(12)));
}

#[test]
fn whole_numbers_count_as_numbers() {
    let worker = read(BASE).unwrap().engine.workers.aggregated.unwrap();
    assert_eq!(worker.timing, Timing::Fixed { prefill_ms: 4.0, decode_ms: 2.0 });
}

#[test]
fn counts_per_load_unit_round_half_to_even() {
    for (load, per_unit, units) in [
        ("type: concurrency, concurrency: 3", 2.5, 8),
        ("type: concurrency, concurrency: 3", 1.5, 4),
        ("type: concurrency, concurrency: 1", 2.5, 2),
        ("type: concurrency, concurrency: 3", 0.01, 1),
        ("type: constant_rate, requests_per_second: 0.5", 7.0, 4),
        ("type: poisson, requests_per_second: 8", 3.0, 24),
    ] {
        let traffic =
            format!("{{source: {{type: synthetic}}, load: {{{load}}}, stop: {{requests_per_load_unit: {per_unit}}}}}");
        assert_eq!(with_traffic(&traffic).unit_count(), Some(units), "{traffic}");
    }
    let trace = with_traffic("{source: {type: trace, paths: [t]}, load: {type: trace_timestamps}}");
    assert_eq!(trace.unit_count(), None);
}

#[test]
fn counts_beyond_exact_floats_are_refused() {
    let most = 1_u64 << 53;
    assert!(read_with(&[&format!("traffic.stop.requests={most}")]).is_ok());
    assert_eq!(read_with(&[&format!("traffic.stop.requests={}", most + 1)]).unwrap_err().path, "traffic.stop.requests");
    let per_unit = format!("traffic.load.concurrency={most}");
    assert_eq!(read_with(&[&per_unit, "traffic.stop={requests_per_load_unit: 2}"]).unwrap_err().path, "traffic");
    let turns = format!(
        "traffic={{source: {{type: synthetic-session, session: {{}}}}, load: {{}}, stop: {{sessions: {most}}}}}"
    );
    assert_eq!(read_with(&[&turns]).unwrap_err().path, "traffic");
}

#[test]
fn sizes_beyond_any_deployment_are_refused() {
    for path in [
        "traffic.source.input_tokens",
        "engine.context_length",
        "engine.workers.aggregated.kv_cache.block_size",
        "engine.workers.aggregated.kv_cache.capacity.blocks",
        "engine.workers.aggregated.scheduler.max_batched_tokens",
    ] {
        assert_eq!(read_with(&[&format!("{path}=2147483648")]).unwrap_err().path, path);
        assert!(read_with(&[&format!("{path}=2147483647")]).is_ok(), "{path}");
    }
    assert!(read_with(&["engine.workers.aggregated.parallelism.replicas=65537"]).is_err());
    assert!(read_with(&["traffic.load={type: poisson, requests_per_second: 1e-300}"]).is_err());
}

#[test]
fn expert_parallelism_adds_no_gpus() {
    let parallelism =
        "engine.workers.aggregated.parallelism={tensor: 2, pipeline: 3, attention_data: 4, moe_expert: 8}";
    let worker = read_with(&[parallelism]).unwrap().engine.workers.aggregated.unwrap();
    assert_eq!(worker.parallelism.gpus_per_worker(), 24);
}

#[test]
fn null_is_a_value_only_where_it_means_something() {
    for accepted in ["engine.backend_version", "evaluation.sla.e2e_ms", "planner.prefill_min_workers"] {
        assert!(read_with(&[&format!("{accepted}=null")]).is_ok(), "{accepted}");
    }
    for refused in [
        "traffic",
        "traffic.stop",
        "traffic.stop.sessions",
        "engine.mode",
        "engine.context_length",
        "engine.workers.aggregated.scheduler",
        "engine.workers.aggregated.scheduler.max_sequences",
        "engine.workers.aggregated.timing.type",
        "router.policy",
        "planner.max_num_gpus",
        "evaluation.sla",
    ] {
        assert_eq!(read_with(&[&format!("{refused}=null")]).unwrap_err().path, refused);
    }
}

#[test]
fn an_empty_sla_bounds_nothing() {
    assert_eq!(read_with(&["evaluation.sla={}"]).unwrap().evaluation.sla, None);
}

#[test]
fn kv_routing_counts_attention_ranks_as_targets() {
    let one = ["router.policy=kv_router", "engine.workers.aggregated.parallelism.replicas=1"];
    assert_eq!(read_with(&one).unwrap_err().path, "router.policy");
    let ranks = "engine.workers.aggregated.parallelism.attention_data=2";
    assert!(read_with(&[one[0], one[1], ranks]).is_ok());
}

#[test]
fn a_disabled_planner_ignores_its_fields() {
    let planner = read_with(&["planner={policy: disabled, target: sla, max_num_gpus: 3}"]).unwrap().planner;
    assert_eq!(planner, Planner::default());
    assert!(read_with(&["planner={policy: disabled, gpus: 3}"]).is_err());
}

#[test]
fn a_planner_without_sla_target_scales_by_load() {
    let planner = read_with(&["planner={policy: enabled}"]).unwrap().planner;
    assert_eq!((planner.policy, planner.target), (PlannerPolicy::Enabled, PlannerTarget::Throughput));
    assert_eq!((planner.enable_throughput_scaling, planner.enable_load_scaling), (false, true));
}

#[test]
fn an_aggregated_planner_has_no_floors_by_role() {
    assert_eq!(read_with(&["planner={policy: enabled, decode_min_workers: 1}"]).unwrap_err().path, "planner");
}

/// Documents whose resolved form holds something that is not a default.
#[test]
fn the_resolved_form_loads_again() {
    let planner = "planner={policy: enabled, target: sla, load_predictor: kalman, kalman_r: 1e-7, min_workers: 0}";
    let sla = "evaluation.sla={ttft_ms: 1e3, itl_ms: 0.1}";
    for assignments in [
        &[][..],
        &[planner, sla],
        &["router={policy: kv_router, temperature: 0.25, prefill_load_model: {type: ais}, seed: 7}"],
        &["router={policy: kv_router, queue: {threshold: 0.5, policy: wspt}, assume_kv_reuse: false}"],
        &["engine.backend=sglang", "engine.workers.aggregated.scheduler.policy=lpm"],
        &["engine.model='null'", "engine.backend_version='1.10'", "engine.context_length=max"],
        &["traffic={source: {type: trace, paths: ['a: b', '#c'], format: dynamo}, load: {type: concurrency}}"],
        &["traffic.load={type: poisson, requests_per_second: 1.1, seed: 18446744073709551615}"],
    ] {
        let first = read_with(assignments).unwrap();
        let resolved = serde_yaml::to_string(&first).unwrap();
        assert_eq!(read(&resolved).as_ref(), Ok(&first), "{resolved}");
    }
}

#[test]
fn a_resolved_engine_run_loads_on_the_engine_stack() {
    let first = load(BASE, &[], Stack::Engine).unwrap();
    let resolved = serde_yaml::to_string(&first).unwrap();
    assert_eq!(load(&resolved, &[], Stack::Engine), Ok(first));
}

fn missing(text: &str, assignments: &[&str]) -> Option<String> {
    let prediction = load(text, &parsed(assignments), Stack::Dynamo).unwrap();
    not_available_yet(&prediction).map(|problem| problem.path)
}

#[test]
fn what_is_not_available_yet_is_named() {
    let planner = "planner={policy: enabled}";
    assert_eq!(missing(BASE, &[planner]).as_deref(), Some("planner.policy"));
    assert_eq!(missing(BASE, &[]), None);
}

#[test]
fn what_is_available_is_not_named() {
    for assignment in [
        "engine.workers.aggregated.parallelism={tensor: 2, pipeline: 2, moe_tensor: 2, moe_expert: 2}",
        "engine.workers.aggregated.startup_seconds=30",
        "engine.workers.aggregated.parallelism.attention_data=2",
        "engine.backend=sglang",
        "engine.backend=trtllm",
        "router={policy: kv_router, prefill_load_model: {type: aic}}",
        "engine.backend_version='0.11'",
        "engine.workers.aggregated.timing={type: default, mixed: fused}",
        "engine.workers.aggregated.kv_cache.capacity={}",
        "engine.context_length=max",
        "evaluation.sla.e2e_ms=50",
        "planner.policy=disabled",
        "traffic={source: {type: trace, paths: [t], format: dynamo}, load: {type: concurrency}}",
    ] {
        assert_eq!(missing(BASE, &[assignment]), None, "{assignment}");
    }
}

#[test]
fn a_missing_feature_can_be_placed_in_the_file() {
    let text = format!("{BASE}planner: {{policy: enabled}}\n");
    let problem = not_available_yet(&read(&text).unwrap()).unwrap().located(&text, &[]);
    assert_eq!(
        problem.render("p.yaml"),
        "p.yaml:31:11: planner.policy: `policy: enabled` is not available yet; use `disabled`"
    );
}
