//! `--set PATH=YAML`.

use dynosim_schemas::config::{ContextLength, Load, Router, Stack, Timing, load, parse_override};

use crate::{BASE, parsed, read_with};

#[test]
fn a_value_replaces_the_one_in_the_file() {
    let prediction = read_with(&["engine.context_length=8192"]).unwrap();
    assert_eq!(prediction.engine.context_length, ContextLength::Tokens(8192));
}

#[test]
fn the_later_assignment_wins() {
    let prediction = read_with(&["traffic.load.concurrency=4", "traffic.load.concurrency=5"]).unwrap();
    assert_eq!(prediction.traffic.load, Load::Concurrency { concurrency: 5 });
    let prediction = read_with(&["traffic.load.concurrency=4", "traffic.load={}"]).unwrap();
    assert_eq!(prediction.traffic.load, Load::Concurrency { concurrency: 10 });
}

#[test]
fn missing_mappings_are_made() {
    let prediction = read_with(&["router.policy=kv_router", "router.prefill_load_model.type=none"]).unwrap();
    assert!(matches!(prediction.router, Router::KvRouter { .. }));
}

#[test]
fn a_whole_mapping_can_be_set() {
    let prediction = read_with(&["engine.workers.aggregated.timing={type: polynomial}"]).unwrap();
    assert_eq!(prediction.engine.workers.aggregated.unwrap().timing, Timing::Polynomial);
}

#[test]
fn only_the_first_equals_sign_splits() {
    let prediction = read_with(&["engine.model=a=b"]).unwrap();
    assert_eq!(prediction.engine.model, "a=b");
}

#[test]
fn the_file_itself_may_be_incomplete() {
    let overrides = parsed(&["engine.model=m", "engine.hardware=h", "engine.workers.aggregated={}"]);
    assert!(
        load("traffic:\n  source: {type: synthetic}\n  load: {}\n  stop: {requests: 1}\n", &overrides, Stack::Engine)
            .is_ok()
    );
}

#[test]
fn paths_without_meaning_are_refused() {
    for text in ["", "engine", "=1", ".=1", "engine.=1", ".engine=1", "engine..model=1", "paths.0=a", "12=a"] {
        let problem = parse_override(text).expect_err(text);
        assert!(problem.from_override, "{text}");
    }
}

#[test]
fn search_sections_are_refused() {
    for text in ["optimization={}", "optimization.goal=x", "optimizer.type=grid"] {
        assert!(parse_override(text).unwrap_err().message.contains("search"), "{text}");
    }
    assert!(parse_override("optimizers=1").is_ok());
}

#[test]
fn values_that_are_no_yaml_are_refused() {
    for text in ["engine.model=[", "engine.model={a: 1, a: 2}", "engine.model=!custom x", "engine.model=a\n---\nb"] {
        let problem = parse_override(text).expect_err(text);
        assert!(problem.path.starts_with("engine.model") && problem.position.is_none(), "{text}: {problem:?}");
    }
}

#[test]
fn a_path_through_a_value_is_refused() {
    let problem = read_with(&["engine.model.size=8"]).unwrap_err();
    assert_eq!(
        problem.render("p.yaml"),
        "--set engine.model.size: `engine.model` is the text \"lab/tiny-one\", which has no fields; \
         set `engine.model` as a whole"
    );
    let problem = load("traffic:\nengine: {}\n", &parsed(&["traffic.load.type=poisson"]), Stack::Engine).unwrap_err();
    assert!(problem.message.contains("`traffic` is null"), "{problem}");
}

#[test]
fn what_is_set_goes_through_full_validation() {
    assert_eq!(read_with(&["engine.workers.aggregated.gpus=1"]).unwrap_err().path, "engine.workers.aggregated.gpus");
    assert_eq!(read_with(&["traffic.source.input_tokens='96'"]).unwrap_err().path, "traffic.source.input_tokens");
    assert_eq!(read_with(&["engine.model="]).unwrap_err().path, "engine.model");
    assert_eq!(load(BASE, &parsed(&["router.policy=round_robin"]), Stack::Engine).unwrap_err().path, "router");
}
