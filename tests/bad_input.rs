//! Wrong input: an exit code, one message that says what to do, and nothing changed on disk.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{
    Desk, closed_loop, config, dynosim, finish, own_chat_from, own_chat_lines, predict, recorded, skip, worker,
};
use serde_json::{Value, json};

const USAGE: i32 = 2;
const EXECUTION: i32 = 1;

/// A configuration that is in order.
fn sound() -> Value {
    config(closed_loop(100, 4, 2, 4), worker(64, 1024))
}

/// Runs a command that has to fail like this, and leave everything on the desk as it was.
fn refused(desk: &Desk, command: &mut Command, code: i32, message: &[&str]) -> String {
    let before = desk.snapshot();
    let finished = finish(command);
    assert_eq!(finished.code, Some(code), "{}", finished.stderr);
    for part in message {
        assert!(finished.stderr.contains(part), "`{part}` is not in: {}", finished.stderr);
    }
    assert_eq!(finished.stdout, "");
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    let after = desk.snapshot();
    let (left, right): (Vec<_>, Vec<_>) = (before.keys().collect(), after.keys().collect());
    assert_eq!(left, right, "files came or went");
    assert!(before == after, "a file has changed");
    finished.stderr
}

/// Expects the refusal of a configuration, given as text.
fn config_refused(text: &str, message: &[&str]) {
    let desk = Desk::new();
    let path = desk.write("bad.yaml", text);
    let said = refused(&desk, &mut predict(&path, &desk.out()), USAGE, message);
    assert_eq!(said.lines().count(), 1, "a message is one line: {said}");
}

/// Expects the refusal of a sound configuration in which one value is replaced.
fn override_refused(assignment: &str, message: &[&str]) {
    let desk = Desk::new();
    let path = desk.config(&sound());
    refused(&desk, predict(&path, &desk.out()).args(["--set", assignment]), USAGE, message);
}

/// Leaves an earlier run's results in the output folder.
fn with_old_results() -> Desk {
    let desk = Desk::new();
    desk.play_with(&sound(), &["--capture-per-request"]);
    desk
}

// The configuration.

#[test]
fn a_configuration_that_does_not_exist() {
    let desk = Desk::new();
    let mut command = predict(&desk.path("none.yaml"), &desk.out());
    refused(&desk, &mut command, USAGE, &["none.yaml", "cannot read the configuration", "No such file"]);
}

#[test]
fn a_configuration_that_is_a_folder() {
    let desk = Desk::new();
    let mut command = predict(desk.folder(), &desk.out());
    refused(&desk, &mut command, USAGE, &["cannot read the configuration", "give the YAML file itself"]);
}

#[test]
fn a_configuration_that_is_not_utf8() {
    let desk = Desk::new();
    let path = desk.write("latin1.yaml", b"# fine\nengine:\n  model: caf\xe9\n");
    refused(&desk, &mut predict(&path, &desk.out()), USAGE, &["latin1.yaml:3: is not UTF-8", "save the file as UTF-8"]);
}

#[test]
fn a_configuration_that_is_not_yaml() {
    config_refused("engine:\n  model: [unclosed\n  hardware: x\n", &["bad.yaml:"]);
}

#[test]
fn an_empty_configuration() {
    config_refused("", &["bad.yaml"]);
}

#[test]
fn a_field_with_a_slip_in_its_name_comes_with_the_right_name() {
    let text = "engine:\n  model: m\n  hardware: h200_sxm\n  contextlength: 4096\n  workers: {aggregated: {}}\n";
    config_refused(text, &["bad.yaml:4:3: engine.contextlength: unknown field", "did you mean `context_length`?"]);
}

#[test]
fn text_where_a_number_belongs() {
    override_refused(
        "engine.workers.aggregated.parallelism.replicas=two",
        &["--set engine.workers.aggregated.parallelism.replicas: expected a whole number, found the text \"two\""],
    );
}

#[test]
fn a_number_out_of_range() {
    override_refused("traffic.stop.requests=0", &["--set traffic.stop.requests: 0 is out of range", "from 1 to"]);
}

#[test]
fn a_search_domain_where_predict_wants_one_value() {
    override_refused(
        "engine.workers.aggregated.parallelism.replicas={choices: [1, 2, 4]}",
        &["`choices` is a search domain", "one concrete value"],
    );
}

#[test]
fn a_router_without_the_stack_that_has_one() {
    let desk = Desk::new();
    let mut with_router = sound();
    with_router["router"] = json!({ "policy": "round_robin" });
    let mut command = dynosim();
    command.args(["predict", "--stack", "engine", "-c"]).arg(desk.config(&with_router));
    let message = ["router: the engine stack has no such section", "pass `--stack dynamo`"];
    refused(&desk, command.arg("--output-dir").arg(desk.out()), USAGE, &message);
}

#[test]
fn a_trace_cannot_be_sent_at_a_rate() {
    let desk = Desk::new();
    let mut traffic = recorded(&desk.write("trace.jsonl", ""), 64);
    traffic["load"] = json!({ "type": "constant_rate", "requests_per_second": 5 });
    let path = desk.config(&config(traffic, worker(64, 64)));
    refused(&desk, &mut predict(&path, &desk.out()), USAGE, &["a trace cannot be sent at a rate", "trace_timestamps"]);
}

#[test]
fn what_is_not_simulated_yet_is_refused_rather_than_ignored() {
    let enabled = "planner={policy: enabled, enable_throughput_scaling: false}";
    override_refused(enabled, &["`policy: enabled` is not available yet"]);
}

#[test]
fn deployments_that_cannot_be_are_refused_with_the_reason() {
    let worker = "engine.workers.aggregated";
    let cases = [
        ("router.policy=kv_router", "`kv_router` needs more than one worker to choose from"),
        ("router={policy: kv_router, queue: {}}", "router.queue.threshold: is required"),
        ("router={policy: round_robin, seed: 3}", "`seed` does not go with `round_robin`"),
        (&format!("{worker}.scheduler.policy=lpm"), "only sglang orders waiting requests"),
        (&format!("{worker}.scheduler.prefill_schedule_interval=2"), "only vllm with `attention_data` above 1"),
    ];
    for (assignment, message) in cases {
        override_refused(assignment, &[message]);
    }
}

#[test]
fn sglang_chunks_are_whole_blocks() {
    let desk = Desk::new();
    let mut command = predict(&desk.config(&sound()), &desk.out());
    command.args([
        "--set",
        "engine.backend=sglang",
        "--set",
        "engine.workers.aggregated.scheduler.max_batched_tokens=100",
    ]);
    refused(&desk, &mut command, USAGE, &["scheduler.max_batched_tokens", "use a multiple of 64"]);
}

// The command line.

#[test]
fn an_override_without_a_value() {
    override_refused("traffic.load.concurrency", &["--set: `traffic.load.concurrency` has no `=`", "write PATH=VALUE"]);
}

#[test]
fn an_override_of_a_list_element() {
    override_refused("traffic.source.paths.0=a.jsonl", &["list elements cannot be set one by one"]);
}

#[test]
fn an_override_through_a_value_that_has_no_fields() {
    override_refused("engine.model.name=x", &["`engine.model` is the text", "set `engine.model` as a whole"]);
}

#[test]
fn an_override_that_is_not_yaml() {
    override_refused("engine.workers={aggregated: [", &["--set engine.workers"]);
}

#[test]
fn an_unknown_option() {
    let desk = Desk::new();
    let mut command = predict(&desk.config(&sound()), &desk.out());
    refused(&desk, command.arg("--outputdir=x"), USAGE, &["unexpected argument '--outputdir'", "--output-dir"]);
}

#[test]
fn a_missing_configuration_option() {
    let desk = Desk::new();
    refused(&desk, dynosim().arg("predict"), USAGE, &["--config <PATH>"]);
}

#[test]
fn a_stack_that_does_not_exist() {
    let desk = Desk::new();
    let mut command = dynosim();
    command.args(["predict", "--stack", "ray", "-c"]).arg(desk.config(&sound()));
    refused(&desk, &mut command, USAGE, &["invalid value 'ray'", "engine, dynamo"]);
}

// The output folder.

#[test]
fn an_output_folder_that_is_a_file() {
    let desk = Desk::new();
    let file = desk.write("results", "precious");
    let path = desk.config(&sound());
    refused(&desk, &mut predict(&path, &file), USAGE, &["results is not a folder", "another `--output-dir`"]);
    refused(&desk, &mut predict(&path, &file.join("below")), USAGE, &["results is not a folder"]);
}

#[test]
fn an_output_folder_with_older_results() {
    let desk = with_old_results();
    let mut command = predict(&desk.path("config.yaml"), &desk.out());
    refused(&desk, &mut command, USAGE, &["is not empty", "pass `--overwrite`"]);
}

#[test]
fn a_folder_in_the_place_of_the_report() {
    let desk = Desk::new();
    fs::create_dir_all(desk.out().join("prediction.json/notes")).unwrap();
    let mut command = predict(&desk.config(&sound()), &desk.out());
    refused(&desk, command.arg("--overwrite"), USAGE, &["prediction.json is a folder", "move it away"]);
}

#[test]
fn an_output_folder_without_a_name() {
    let desk = Desk::new();
    refused(
        &desk,
        &mut predict(&desk.config(&sound()), Path::new("")),
        USAGE,
        &["a value is required for '--output-dir"],
    );
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_folder_that_nobody_may_create() {
    let desk = Desk::new();
    // Not even root can create a folder there.
    let mut command = predict(&desk.config(&sound()), Path::new("/proc/dynosim-results"));
    refused(&desk, &mut command, USAGE, &["cannot create the output folder /proc/dynosim-results"]);
}

#[cfg(unix)]
#[test]
fn an_output_folder_that_may_not_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let desk = Desk::new();
    let out = desk.out();
    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(out.join("trial"), "").is_ok() {
        return skip("an_output_folder_that_may_not_be_written", "this user may write everywhere");
    }
    let mut command = predict(&desk.config(&sound()), &out);
    refused(&desk, &mut command, USAGE, &["cannot write to the output folder", "allow writing there"]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_folder_on_a_read_only_disk() {
    let desk = Desk::new();
    fs::create_dir(desk.out()).unwrap();
    let Some(_disk) = Disk::mount(&desk.out(), "ro,size=64k") else {
        return skip("an_output_folder_on_a_read_only_disk", "no disk can be mounted here");
    };
    let path = desk.config(&sound());
    let message = ["cannot write to the output folder", "Read-only file system", "allow writing there"];
    refused(&desk, &mut predict(&path, &desk.out()), USAGE, &message);
    let message = ["cannot create the output folder", "Read-only file system"];
    refused(&desk, &mut predict(&path, &desk.out().join("new")), USAGE, &message);
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_becomes_full() {
    let desk = Desk::new();
    let out = desk.out();
    fs::create_dir(&out).unwrap();
    let Some(_disk) = Disk::mount(&out, "size=128k") else {
        return skip("a_disk_that_becomes_full", "no disk can be mounted here");
    };
    desk.play(&sound());
    let mut large = own_chat_from(&desk.write("trace.jsonl", own_chat_lines().join("\n")));
    large["engine"]["workers"]["aggregated"]["timing"] = json!({ "type": "fixed", "prefill_ms": 1, "decode_ms": 0.1 });
    let path = desk.config(&large);
    let mut command = predict(&path, &out);
    let message = ["cannot write", "No space left on device", "free some space"];
    refused(&desk, command.args(["--overwrite", "--capture-per-request"]), EXECUTION, &message);
}

/// A small disk in memory, for as long as it is kept.
#[cfg(target_os = "linux")]
struct Disk(PathBuf);

#[cfg(target_os = "linux")]
impl Disk {
    /// `None` where this user may not mount, or there is no `mount`.
    fn mount(at: &Path, options: &str) -> Option<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at);
        let mounted = command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then(|| Self(at.to_owned()))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).status());
    }
}

// The trace.

/// Expects a run over this trace to fail, with older results in the way that stay.
fn trace_refused(desk: &Desk, trace: &Path, message: &[&str]) {
    let path = desk.config(&own_chat_from(trace));
    refused(desk, &mut predict(&path, &desk.path("fresh/out")), EXECUTION, message);
    refused(desk, predict(&path, &desk.out()).arg("--overwrite"), EXECUTION, message);
}

#[test]
fn a_trace_that_does_not_exist() {
    let desk = with_old_results();
    trace_refused(&desk, &desk.path("none.jsonl"), &["none.jsonl: there is no such trace file"]);
}

#[test]
fn a_trace_that_is_a_folder() {
    let desk = with_old_results();
    trace_refused(&desk, desk.folder(), &["is a folder; give the trace file itself"]);
}

#[test]
fn a_trace_that_was_cut_off_in_the_middle_of_a_line() {
    let desk = with_old_results();
    let text = own_chat_lines().join("\n");
    let cut = text.len() - 30;
    let trace = desk.write("trace.jsonl", &text[..cut]);
    trace_refused(&desk, &trace, &["trace.jsonl:1183: ", "ends in the middle", "is the file cut off?"]);
}

#[test]
fn a_trace_with_a_wrong_line_after_the_end_of_the_simulation() {
    let desk = with_old_results();
    let trace = desk.write("trace.jsonl", own_chat_lines().join("\n") + "\nnonsense\n");
    let mut cut_off = own_chat_from(&trace);
    cut_off["traffic"]["stop"] = json!({ "max_virtual_time_seconds": 10 });
    let mut command = predict(&desk.config(&cut_off), &desk.out());
    refused(&desk, command.arg("--overwrite"), EXECUTION, &["trace.jsonl:1184: "]);
}

#[test]
fn a_trace_with_another_block_size_than_was_said() {
    let desk = with_old_results();
    let trace = desk.write("trace.jsonl", own_chat_lines().join("\n"));
    let mut wrong = own_chat_from(&trace);
    wrong["traffic"]["source"]["block_size"] = json!(64);
    let mut command = predict(&desk.config(&wrong), &desk.out());
    let message = ["trace.jsonl:1: input_length", "is `traffic.source.block_size` the block size of this trace?"];
    refused(&desk, command.arg("--overwrite"), EXECUTION, &message);
}

// Other circumstances.

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let desk = Desk::new();
    let mut command = predict(&desk.config(&sound()), &desk.out());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(desk.out().join("prediction.json").is_file());
}

#[test]
fn the_results_of_an_earlier_run_are_replaced_as_a_whole() {
    let desk = with_old_results();
    desk.write("out/notes.txt", "mine");
    assert!(desk.out().join("requests.jsonl").is_file());
    desk.play(&sound());
    let mut names: Vec<_> =
        fs::read_dir(desk.out()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["notes.txt", "prediction.json", "requests.parquet"], "the folder never mixes two runs");
}

#[test]
#[cfg(target_os = "linux")]
fn a_standard_output_that_cannot_be_written() {
    let desk = Desk::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = predict(&desk.config(&sound()), &desk.out()).stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(EXECUTION));
    assert!(!desk.out().exists(), "what could not be told is not kept");
}

#[test]
fn trace_times_that_no_clock_shows() {
    let row = |time: &str| format!("{{{time},\"input_length\":64,\"output_length\":2,\"hash_ids\":[1]}}\n");
    for (time, field) in [("\"timestamp\":1e308", "timestamp"), ("\"timestamp\":0,\"delay\":1e16", "delay")] {
        let desk = Desk::new();
        let trace = desk.write("far.jsonl", row("\"timestamp\":0") + &row(time));
        let path = desk.config(&config(recorded(&trace, 64), worker(64, 1024)));
        refused(&desk, &mut predict(&path, &desk.out()), EXECUTION, &["far.jsonl:2", field, "1e15"]);
    }
}
