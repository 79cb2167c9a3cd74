//! What a user reads after a typical mistake.

use dynosim_schemas::config::{Stack, load, parse_override};

use crate::{BASE, parsed, problem, read_with};

/// The refusal of the base document in which `old` was replaced.
fn refusal(old: &str, new: &str) -> String {
    assert!(BASE.contains(old), "{old}");
    problem(&BASE.replace(old, new)).render("prediction.yaml")
}

fn refusal_of_set(assignments: &[&str]) -> String {
    read_with(assignments).unwrap_err().render("prediction.yaml")
}

#[test]
fn an_unknown_word() {
    assert_eq!(
        refusal("backend: \"vllm\"", "backend: mlc"),
        "prediction.yaml:16:3: engine.backend: unknown backend \"mlc\"; use one of vllm, sglang, trtllm"
    );
    assert_eq!(
        refusal_of_set(&["engine.backend=vlm"]),
        "--set engine.backend: unknown backend \"vlm\"; did you mean `vllm`? (use one of vllm, sglang, trtllm)"
    );
}

#[test]
fn a_misspelt_field() {
    assert_eq!(
        refusal("replicas: 2", "replica: 2"),
        "prediction.yaml:21:9: engine.workers.aggregated.parallelism.replica: unknown field; did you mean `replicas`? \
         (allowed here: replicas, tensor, pipeline, attention_data, moe_tensor, moe_expert)"
    );
    for (wrong, meant) in [
        ("engine.workers.aggregated.scheduler.max-sequences", "max_sequences"),
        ("engine.workers.aggregated.scheduler.maxBatchedTokens", "max_batched_tokens"),
        ("engine.workers.agregated", "aggregated"),
        ("traffic.source.input_token", "input_tokens"),
        ("planner.max_num_gpu", "max_num_gpus"),
        ("evalution.sla.e2e_ms", "evaluation"),
    ] {
        let message = refusal_of_set(&[&format!("{wrong}=1")]);
        assert!(message.contains(&format!("did you mean `{meant}`?")), "{message}");
    }
}

#[test]
fn a_field_with_no_likeness() {
    assert_eq!(
        refusal("hardware: \"h200_sxm\"", "hardware: h200_sxm\n  gpus: 8"),
        "prediction.yaml:16:3: engine.gpus: unknown field; allowed here: mode, model, hardware, backend, \
         backend_version, context_length, workers, kv_transfer"
    );
}

#[test]
fn a_value_of_the_wrong_kind() {
    assert_eq!(
        refusal("input_tokens: 96", "input_tokens: \"96\""),
        "prediction.yaml:5:5: traffic.source.input_tokens: expected a whole number, found the text \"96\""
    );
    assert_eq!(
        refusal("input_tokens: 96", "input_tokens: 96.0"),
        "prediction.yaml:5:5: traffic.source.input_tokens: expected a whole number, found the number 96.0; \
         write it without a fraction or exponent"
    );
    assert_eq!(
        refusal_of_set(&["engine.backend_version=0.11"]),
        "--set engine.backend_version: expected text, found the number 0.11; quote it"
    );
}

#[test]
fn a_value_out_of_range() {
    assert_eq!(
        refusal("concurrency: 3", "concurrency: 0"),
        "prediction.yaml:9:5: traffic.load.concurrency: 0 is out of range; \
         write a whole number from 1 to 9007199254740992"
    );
}

#[test]
fn a_field_of_another_variant() {
    assert_eq!(
        refusal_of_set(&["traffic.load={type: concurrency, speedup: 2}"]),
        "--set traffic.load: `speedup` does not go with `concurrency`; with `concurrency`, use only type, concurrency"
    );
    assert_eq!(
        refusal("blocks: 300", "blocks: 300\n          memory_fraction: 0.9"),
        "prediction.yaml:24:9: engine.workers.aggregated.kv_cache.capacity: `memory_fraction` does not go with `fixed`; \
         with `fixed`, use only type, blocks"
    );
}

#[test]
fn a_search_domain() {
    assert_eq!(
        refusal("concurrency: 3", "concurrency: {choices: [1, 2]}"),
        "prediction.yaml:9:5: traffic.load.concurrency: `choices` is a search domain, which belongs to a search over \
         configurations; predict wants one concrete value here"
    );
    assert_eq!(
        refusal("engine:", "optimizer: {}\nengine:"),
        "prediction.yaml:12:1: optimizer: `optimizer` belongs to a search over configurations; \
         predict runs one concrete configuration: remove this section"
    );
}

#[test]
fn a_missing_field() {
    assert_eq!(
        refusal("  model: \"lab/tiny-one\"\n", ""),
        "prediction.yaml:12:1: engine.model: is required, but missing"
    );
}

#[test]
fn a_missing_or_doubled_stop() {
    let expected = "prediction.yaml:2:1: traffic: a synthetic source needs exactly one count of requests to stop at; \
                    set either `stop.requests` or `stop.requests_per_load_unit`, and no count of sessions";
    assert_eq!(refusal("    requests: 9", "    {}"), expected);
    assert_eq!(refusal("requests: 9", "requests: 9\n    requests_per_load_unit: 2"), expected);
}

#[test]
fn a_section_of_the_other_stack() {
    let text = format!("{BASE}router: {{policy: round_robin}}\n");
    assert_eq!(
        load(&text, &[], Stack::Engine).unwrap_err().render("prediction.yaml"),
        "prediction.yaml:31:1: router: the engine stack has no such section; \
         pass `--stack dynamo` to use `router`, or remove it"
    );
}

#[test]
fn broken_yaml() {
    assert_eq!(
        refusal("engine:\n", "engine: [\n"),
        "prediction.yaml:14:3: not valid YAML: did not find expected ',' or ']', while parsing a flow sequence \
         at line 12 column 9"
    );
    assert_eq!(
        problem("").render("prediction.yaml"),
        "prediction.yaml: the file is empty; \
         a configuration is one mapping of sections, of which `engine` is required"
    );
}

#[test]
fn a_broken_assignment() {
    let refusal = |text: &str| parse_override(text).unwrap_err().render("prediction.yaml");
    assert_eq!(
        refusal("concurrency"),
        "--set: `concurrency` has no `=`; write PATH=VALUE, as in `traffic.load.concurrency=8`"
    );
    assert_eq!(
        refusal("traffic.source.paths.0=a"),
        "--set traffic.source.paths.0: list elements cannot be set one by one; set the whole list"
    );
}

#[test]
fn long_text_is_cut() {
    let message = refusal_of_set(&[&format!("engine.backend={}", "x".repeat(500))]);
    assert!(message.len() < 150, "{message}");
}

#[test]
fn a_problem_displays_without_a_file() {
    let problem = load(BASE, &parsed(&["engine.model=''"]), Stack::Dynamo).unwrap_err();
    let error: &dyn std::error::Error = &problem;
    assert_eq!(error.to_string(), "engine.model: must not be empty");
}
