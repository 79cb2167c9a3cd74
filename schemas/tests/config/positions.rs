//! Every refusal says where it stands.

use dynosim_schemas::config::{Stack, load};

use crate::{parsed, problem};

fn place(text: &str) -> (String, Option<(usize, usize)>) {
    let problem = problem(text);
    (problem.path, problem.position)
}

#[test]
fn a_nested_field_is_found_by_its_name() {
    let text = "\
# a comment
engine:
  model: m
  hardware: h
  workers:
    aggregated:
      parallelism:
        replicas: 0
";
    assert_eq!(place(text), ("engine.workers.aggregated.parallelism.replicas".to_owned(), Some((8, 9))));
}

#[test]
fn a_field_in_a_flow_mapping_is_found() {
    let text = "engine: {model: m, hardware: h, workers: {aggregated: {timing: {type: fixed,\n  prefill_ms: -1}}}}\n";
    assert_eq!(place(text), ("engine.workers.aggregated.timing.prefill_ms".to_owned(), Some((2, 3))));
}

#[test]
fn an_unknown_field_is_found() {
    assert_eq!(place("engine: {model: m, gpus: 3}"), ("engine.gpus".to_owned(), Some((1, 20))));
    assert_eq!(place("engine: {}\nextra: 1"), ("extra".to_owned(), Some((2, 1))));
}

#[test]
fn columns_count_characters() {
    assert_eq!(place("engine: {model: modèle-ü-模型, gpus: 3}"), ("engine.gpus".to_owned(), Some((1, 30))));
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_do_not_shift_lines() {
    assert_eq!(place("\r\n# x\r\nengine: {}\r\nextra: 1\r\n"), ("extra".to_owned(), Some((4, 1))));
    assert_eq!(place("\u{feff}extra: 1\n").1.map(|(line, _)| line), Some(1));
}

#[test]
fn a_missing_field_is_placed_at_the_mapping_that_lacks_it() {
    assert_eq!(place("traffic:\n  source: {type: trace}\n"), ("traffic.source.paths".to_owned(), Some((2, 3))));
    assert_eq!(place("traffic: {load: {}}"), ("traffic.source".to_owned(), Some((1, 1))));
    assert_eq!(place("evaluation: {}"), ("engine".to_owned(), None));
}

#[test]
fn a_field_behind_an_alias_is_placed_at_the_alias() {
    let text = "\
engine:
  model: m
  hardware: h
  mode: disaggregated
  workers:
    prefill: &worker {scheduler: {max_sequences: 4}}
    decode:
      timing: *worker
";
    assert_eq!(place(text), ("engine.workers.decode.timing.scheduler".to_owned(), Some((8, 7))));
}

#[test]
fn a_value_from_set_has_no_place_in_the_file() {
    let text = "engine:\n  model: m\n  hardware: h\n  backend: vllm\n  workers: {aggregated: {}}\n";
    let refusal = |assignment: &str| load(text, &parsed(&[assignment]), Stack::Dynamo).unwrap_err();
    let direct = refusal("engine.backend=mlc");
    assert_eq!((direct.from_override, direct.position), (true, None));
    let inside = refusal("engine.workers={aggregated: {gpus: 1}}");
    assert_eq!((inside.path.as_str(), inside.from_override), ("engine.workers.aggregated.gpus", true));
    let made = refusal("router.temperature=1");
    assert_eq!((made.path.as_str(), made.from_override), ("router", true));
    let around = refusal("engine.kv_transfer={}");
    assert_eq!((around.path.as_str(), around.from_override, around.position), ("engine", false, Some((1, 1))));
    let elsewhere = load("engine:\n  model: ''\n", &parsed(&["engine.backend=vllm"]), Stack::Dynamo).unwrap_err();
    assert_eq!((elsewhere.from_override, elsewhere.position), (false, Some((2, 3))));
}
