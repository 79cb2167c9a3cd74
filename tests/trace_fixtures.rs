//! Small traces of every format but `mooncake`, right and wrong, with what each of them has to come to.
//!
//! The files in `tests/fixtures/` were written for this project. Outcomes, digests included, are those of the
//! reference's loaders.

mod common;

use std::fs;

use common::fixtures::{
    Bad, Good, bad, bad_file, complain_of_bad, complain_of_good, fixture, good, graph, reusing, try_to_play, unlisted,
};
use common::{Desk, in_parallel, root};
use serde_json::{Value, json};

const FOLDERS: [&str; 6] = ["agentic-v1", "agentic-v2", "applied", "dynamo", "mooncake-delta", "weka"];

const GOOD: [Good; 29] = [
    graph(good("agentic-v1/ok_diamond.jsonl", 4, 726, 22), "b4dc48e94826a808"),
    graph(good("agentic-v1/ok_metadata.jsonl", 1, 64, 2), "a986c7786b09bc8c"),
    graph(good("agentic-v1/ok_two_plays.jsonl", 3, 256, 9), "0f9efaee86dc45ac"),
    graph(good("agentic-v2/ok_all_relations.jsonl", 4, 116, 12), "6e30617340162ad1"),
    graph(good("agentic-v2/ok_lanes_five_plays.jsonl", 5, 144, 5), "f6fb720d170550f4"),
    graph(good("agentic-v2/ok_multi_root.jsonl", 3, 64, 3), "28318a32273b2a9c"),
    graph(good("agentic-v2/ok_ordinals.jsonl", 3, 48, 6), "a1a7160c31b88b86"),
    graph(good("agentic-v2/ok_row_order_permuted.jsonl", 4, 116, 12), "6e30617340162ad1"),
    graph(good("agentic-v2/ok_three_plays.jsonl", 3, 96, 6), "23796ee003481d66"),
    good("applied/ok_two_rows.jsonl", 4, 505, 46),
    graph(good("dynamo/ok_agentic_inferred.jsonl", 4, 256, 15), "b1d424081dafb99e"),
    graph(good("dynamo/ok_agentic_tool.jsonl", 4, 256, 15), "b1d424081dafb99e"),
    graph(good("dynamo/ok_agentic_two_roots.jsonl", 2, 64, 2), "1a413b59b43bb6b7"),
    good("dynamo/ok_skip_events_v13.jsonl", 2, 114, 9),
    good("dynamo/ok_standard.jsonl", 2, 114, 9),
    good("dynamo/ok_standard_shard2.jsonl.gz", 1, 32, 6),
    good("dynamo/ok_wrapped_event.jsonl", 1, 32, 2),
    reusing(good("mooncake-delta/ok_output_block_hit.jsonl", 2, 384, 67), 192),
    good("mooncake-delta/ok_two_sessions.jsonl", 4, 768, 144),
    good("mooncake-delta/ok_two_turns.jsonl", 3, 340, 20),
    graph(good("weka/corpus_ok", 3, 56, 6), "028fce661651775e"),
    graph(good("weka/ok_fork_streams.json", 4, 80, 4), "b07965350a25c613"),
    graph(good("weka/ok_hash_trim_pad.json", 2, 40, 2), "c0fdb20e9029f756"),
    graph(good("weka/ok_missing_api_time_v13.json", 2, 40, 2), "9b33b6cc7a5991a5"),
    graph(good("weka/ok_mixed_models_v13.json", 2, 40, 2), "4b2a493fe18383c5"),
    graph(good("weka/ok_multi_play_v13.jsonl", 2, 16, 2), "45449fb517fe7166"),
    graph(good("weka/ok_relative_v13.json", 3, 48, 3), "638c07407a83d07e"),
    graph(good("weka/basis_early_inner.json", 3, 48, 3), "63158e59c2d2bc82"),
    graph(good("weka/ok_subagents_absolute.json", 6, 104, 16), "45353353c0613b6d"),
];

const BAD: [Bad; 66] = [
    bad("agentic-v1/bad_both_delays.jsonl", 2, "delay"),
    bad("agentic-v1/bad_cycle.jsonl", 2, "go round in a circle"),
    bad("agentic-v1/bad_dup_id.jsonl", 2, "request_id: \"x\" is there already"),
    bad_file("agentic-v1/bad_empty.jsonl", "has no requests"),
    bad("agentic-v1/bad_missing_id.jsonl", 1, "missing field `request_id`"),
    bad("agentic-v1/bad_negative_wait.jsonl", 2, "tool_wait_ms: -3 ms is negative"),
    bad("agentic-v1/bad_self.jsonl", 1, "waits for itself"),
    bad("agentic-v1/bad_surplus_hash.jsonl", 1, "hash_ids: has 3 ids"),
    bad("agentic-v1/bad_unknown_dep.jsonl", 1, "there is no such request"),
    bad("agentic-v2/bad_barrier_dispatch.jsonl", 3, "only a `spawn` may have the trigger `dispatch`"),
    bad("agentic-v2/bad_block_size_zero.jsonl", 1, "block_size: 0 is out of range"),
    bad("agentic-v2/bad_cross_play.jsonl", 3, "is of another play"),
    bad("agentic-v2/bad_cycle.jsonl", 3, "go round in a circle"),
    bad("agentic-v2/bad_dup_id.jsonl", 3, "is there already"),
    bad("agentic-v2/bad_empty_model.jsonl", 2, "model: is blank"),
    bad("agentic-v2/bad_empty_play.jsonl", 2, "play_id: is blank"),
    bad("agentic-v2/bad_empty_source.jsonl", 1, "is blank; it says what the graph was made from"),
    bad("agentic-v2/bad_hash_count.jsonl", 2, "hash_ids: has"),
    bad("agentic-v2/bad_hash_count_long.jsonl", 2, "hash_ids: has"),
    bad_file("agentic-v2/bad_header_only.jsonl", "has no requests"),
    bad("agentic-v2/bad_join_dispatch.jsonl", 3, "only a `spawn` may have the trigger `dispatch`"),
    bad("agentic-v2/bad_missing_not_before.jsonl", 2, "missing field `not_before_ms`"),
    bad("agentic-v2/bad_negative_delay.jsonl", 3, "delay_ms: -1 ms is negative"),
    bad("agentic-v2/bad_negative_not_before.jsonl", 2, "not_before_ms: -2 ms is negative"),
    bad("agentic-v2/bad_no_root.jsonl", 2, "go round in a circle"),
    bad("agentic-v2/bad_ordinal_gap.jsonl", 3, "source_play_ordinal: 2 stands where 1 is expected"),
    bad("agentic-v2/bad_ordinal_partial.jsonl", 2, "source_play_ordinal: other plays have none"),
    bad("agentic-v2/bad_relation.jsonl", 3, "unknown variant"),
    bad("agentic-v2/bad_schema.jsonl", 1, "missing field `request_id`"),
    bad("agentic-v2/bad_scope.jsonl", 1, "hash_id_scope: \"global\" is not known"),
    bad("agentic-v2/bad_self.jsonl", 2, "waits for itself"),
    bad("agentic-v2/bad_sequence_dispatch.jsonl", 3, "only a `spawn` may have the trigger `dispatch`"),
    bad("agentic-v2/bad_unknown_dep.jsonl", 3, "there is no such request"),
    bad("agentic-v2/bad_version.jsonl", 1, "version: 3 is not known"),
    bad("agentic-v2/bad_zero_input.jsonl", 2, "input_length: is 0"),
    bad("applied/bad_array_length.jsonl", 1, "entries, but num_turns is"),
    bad("applied/bad_missing_field.jsonl", 1, "missing field"),
    bad("applied/bad_negative_latency.jsonl", 1, "tool_call_latency[0]: -0.1 s is out of range"),
    bad("applied/bad_zero_prompt.jsonl", 1, "input_prompt_length: is 0"),
    bad("dynamo/bad_dup_id.jsonl", 2, "is there already"),
    bad("dynamo/bad_event.jsonl", 1, "event_type: "),
    bad("dynamo/bad_hash_count_agentic.jsonl", 1, "hash"),
    bad("dynamo/bad_missing_output.jsonl", 1, "missing field `output_tokens`"),
    bad("dynamo/bad_missing_replay.jsonl", 1, "missing field `replay`"),
    bad("dynamo/bad_mixed_block.jsonl", 2, "trace_block_size: is 64, but other records have 32"),
    bad("dynamo/bad_mixed_context.jsonl", 2, "agent_context: is missing"),
    bad("dynamo/bad_neg_duration.jsonl", 1, "request.total_time_ms: -10 ms is out of range"),
    bad_file("dynamo/bad_no_requests.jsonl", "has no requests"),
    bad("dynamo/bad_parent_conflict.jsonl", 4, "agent_context.parent_session_id: is"),
    bad("dynamo/bad_schema.jsonl", 1, "schema: "),
    bad("dynamo/bad_tool_mode.jsonl", 2, "tool.claude.execution_mode: unknown variant"),
    bad("dynamo/bad_unknown_parent.jsonl", 1, "has no requests in this trace"),
    bad("dynamo/overlap_in_session.jsonl", 2, "which it has to wait for"),
    bad("mooncake-delta/bad_zero_delta.jsonl", 2, "input_length: is 0"),
    bad_file("weka/bad_blocking_empty.json", "requests[1]: requests: is empty"),
    bad_file("weka/bad_empty_id.json", "id: is blank"),
    bad_file("weka/bad_extension.txt", "is no Weka trace by its name"),
    bad_file("weka/bad_negative_api.json", "requests[0]: api_time: -0.5 s is out of range"),
    bad("weka/bad_negative_duration.json", 42, "requests[1].duration_ms: invalid value"),
    bad_file("weka/bad_negative_t.json", "requests[0]: t: -1 s is out of range"),
    bad_file("weka/bad_nested_subagent.json", "a subagent within a subagent"),
    bad_file("weka/bad_no_parent.json", "has no request outside of subagents"),
    bad_file("weka/bad_orphan_subagent.json", "stands before every outer request"),
    bad_file("weka/bad_scope.json", "hash_id_scope: \"global\" is not known"),
    bad_file("weka/bad_status.json", "status: \"failed\" is not known"),
    bad_file("weka/bad_two_objects.json", "something follows the file's JSON object"),
];

/// More of them, of folders and of rules that only the whole can break.
const MORE_BAD: [Bad; 4] = [
    bad_file("weka/bad_type.json", "is not known; expected `n`, `s` or `subagent`"),
    bad_file("weka/bad_undeclared_model.json", "is not among the `models` of the trace"),
    bad_file("weka/bad_zero_input.json", "in: is 0"),
    bad_file("weka/corpus_bad_block/two.json", "block_size: is 16, but the plays before have 8"),
];

/// Right under the later rules, wrong under the strict ones that hold if nothing else is asked for.
const STRICTLY_BAD: [Bad; 5] = [
    bad_file("weka/basis_early_inner.json", "requests[1].requests[0]: t: 4 s is before 5 s"),
    bad_file("weka/ok_missing_api_time_v13.json", "api_time: is missing"),
    bad_file("weka/ok_mixed_models_v13.json", "model: is"),
    bad_file("weka/ok_multi_play_v13.jsonl", "is no Weka trace by its name"),
    bad_file("weka/ok_relative_v13.json", "requests[1].requests[0]: t: 0.1 s is before 10.5 s"),
];

#[test]
fn every_fixture_has_an_outcome() {
    let bad = || BAD.iter().chain(&MORE_BAD).map(|bad| bad.file.trim_end_matches("/two.json"));
    let known = || GOOD.iter().map(|good| good.file).chain(bad());
    let unlisted: Vec<_> = FOLDERS.iter().flat_map(|folder| unlisted(folder, known())).collect();
    assert_eq!(unlisted, [""; 0]);
}

#[test]
fn good_traces_are_played_to_the_last_token() {
    let complaints = in_parallel(&GOOD, |good| complain_of_good(good, traffic(good.file, true)));
    assert_eq!(complaints.concat(), [""; 0]);
}

#[test]
fn bad_traces_are_refused_with_file_line_and_reason() {
    let all: Vec<&Bad> = BAD.iter().chain(&MORE_BAD).collect();
    let complaints = in_parallel(&all, |bad| complain_of_bad(bad, &traffic(bad.file, false)));
    assert_eq!(complaints.into_iter().flatten().collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_strict_rules_of_weka_hold_unless_others_are_asked_for() {
    let complaints = in_parallel(&STRICTLY_BAD, |bad| complain_of_bad(bad, &traffic(bad.file, false)));
    assert_eq!(complaints.into_iter().flatten().collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_link_in_a_corpus_is_refused() {
    let desk = Desk::new();
    let corpus = desk.path("corpus");
    fs::create_dir(&corpus).unwrap();
    let play = root().join(fixture("weka/corpus_ok/a/one.json"));
    fs::copy(&play, corpus.join("one.json")).unwrap();
    std::os::unix::fs::symlink(play, corpus.join("two.json")).unwrap();
    let traffic = json!({
        "source": { "type": "trace", "format": "weka", "paths": [corpus] },
        "load": { "type": "trace_timestamps" },
    });
    let finished = try_to_play(&desk, &traffic);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("corpus/two.json: is a symbolic link"), "{}", finished.stderr);
}

#[test]
fn shards_are_put_together_whatever_their_order() {
    let shards = ["dynamo/ok_standard.jsonl", "dynamo/ok_standard_shard2.jsonl.gz"].map(fixture);
    let [one, other] = shards;
    let played = [[&one, &other], [&other, &one]].map(|paths| {
        let traffic = json!({
            "source": { "type": "trace", "format": "dynamo", "paths": paths },
            "load": { "type": "trace_timestamps" },
        });
        Desk::new().play(&common::fixtures::on_one_worker(traffic))
    });
    let totals = ["num_requests", "total_input_tokens", "total_output_tokens"].map(|name| played[0].figure(name));
    assert_eq!(totals, [3.0, 146.0, 15.0]);
    let without_lines = played.map(|played| played.rows_without(&["source_line"]));
    assert_eq!(without_lines[0], without_lines[1]);
}

#[test]
fn a_block_size_that_differs_from_the_trace_is_refused() {
    for (file, line) in [("dynamo/ok_standard.jsonl", "trace_block_size: is 32"), ("weka/ok_fork_streams.json", "is 8")]
    {
        let mut traffic = traffic(file, false);
        traffic["source"]["block_size"] = json!(48);
        let finished = try_to_play(&Desk::new(), &traffic);
        assert_eq!(finished.code, Some(1), "{file}");
        assert!(finished.stderr.contains(line) && finished.stderr.contains("48"), "{}", finished.stderr);
    }
}

#[test]
fn lanes_are_for_agents_and_agents_for_their_times() {
    let mut lanes = traffic("dynamo/ok_standard.jsonl", false);
    lanes["load"]["agentic_lanes"] = json!(2);
    let mut closed = traffic("dynamo/ok_agentic_tool.jsonl", false);
    closed["load"] = json!({ "type": "concurrency", "concurrency": 2 });
    for (traffic, message) in [(lanes, "has no agents in it"), (closed, "needs `traffic.load.type: trace_timestamps`")]
    {
        let finished = try_to_play(&Desk::new(), &traffic);
        assert_eq!(finished.code, Some(1));
        assert!(finished.stderr.contains(message), "{}", finished.stderr);
    }
}

/// How a fixture is played; `leniently` where it needs more than the strict rules of Weka.
fn traffic(file: &str, leniently: bool) -> Value {
    let (folder, name) = file.split_once('/').unwrap();
    let format = if folder.starts_with("agentic") { "agentic_mooncake" } else { folder };
    let format = if folder == "applied" { "applied_compute_agentic" } else { format };
    // A message names the file at fault, the configuration the corpus.
    let path = fixture(file.trim_end_matches("/two.json"));
    let mut traffic = json!({
        "source": { "type": "trace", "format": format, "paths": [path] },
        "load": { "type": "trace_timestamps" },
    });
    if !["dynamo", "weka"].contains(&folder) {
        traffic["source"]["block_size"] = json!(64);
    }
    if folder == "applied" {
        traffic["load"] = json!({ "type": "concurrency", "concurrency": 2 });
    }
    if leniently && name.contains("_v13") && folder == "weka" {
        traffic["source"]["weka_rules"] = json!("lenient");
    }
    if leniently && (name.contains("relative") || name.contains("early")) {
        traffic["source"]["nested_timestamp_basis"] = json!("auto");
    }
    traffic
}
