//! Traces that nobody writes by accident: refused at once, in little memory, with nothing left behind.
#![cfg(unix)]

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::fixtures::on_one_worker;
use common::{Desk, Finished, start, wait_at_most};
use serde_json::{Value, json};

/// What a run may take: address space in KiB, and time.
const MOST_KIB: u64 = 3 << 20;
const LONGEST: Duration = Duration::from_secs(300);

const LINE_FORMATS: [&str; 9] = [
    "mooncake",
    "mooncake-delta",
    "agentic_mooncake",
    "applied_compute_agentic",
    "dynamo",
    "qwen_bailian",
    "azure_llm",
    "burstgpt",
    "vidur",
];

fn traffic(format: &str, path: &Path) -> Value {
    let load = match format {
        "applied_compute_agentic" => json!({ "type": "concurrency", "concurrency": 1 }),
        _ => json!({ "type": "trace_timestamps" }),
    };
    json!({ "source": { "type": "trace", "format": format, "paths": [path] }, "load": load })
}

/// Plays a trace under a limit of memory.
fn play(desk: &Desk, traffic: Value) -> Finished {
    let config = desk.config(&on_one_worker(traffic));
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MOST_KIB} && exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_dynosim")]);
    command.args(["predict", "--stack", "dynamo", "--config"]).arg(config).arg("--output-dir").arg(desk.out());
    wait_at_most(LONGEST, start(&mut command)).expect("the run ends by itself")
}

fn refused(desk: &Desk, format: &str, path: &Path, message: &str) {
    let finished = play(desk, traffic(format, path));
    assert_eq!(finished.code, Some(1), "{format}: {}", finished.stderr);
    assert!(finished.stderr.contains(message), "{format}: {}", finished.stderr);
    assert_eq!(finished.stderr.lines().count(), 1, "{format}: {}", finished.stderr);
    assert!(finished.stderr.len() < 1000, "{format}: {}", finished.stderr);
    assert!(!desk.out().exists(), "{format}: something was written");
}

#[test]
fn a_line_of_two_gigabytes() {
    let desk = Desk::new();
    let path = desk.path("long.jsonl");
    // All of it is a hole.
    File::create(&path).unwrap().set_len(2 << 30).unwrap();
    for format in LINE_FORMATS {
        refused(&desk, format, &path, "long.jsonl:1: the line is longer than 64 MiB");
    }
}

#[test]
fn a_thousand_million_hash_ids() {
    let desk = Desk::new();
    let path = desk.path("ids.jsonl.zst");
    let pack = |text: &[u8]| zstd::stream::encode_all(text, 1).unwrap();
    let mut file = File::create(&path).unwrap();
    file.write_all(&pack(br#"{"timestamp": 0, "output_length": 1, "hash_ids": [0"#)).unwrap();
    let million = pack(&b",7".repeat(1_000_000));
    (0..1000).for_each(|_| file.write_all(&million).unwrap());
    file.write_all(&pack(b"]}\n")).unwrap();
    refused(&desk, "mooncake", &path, "ids.jsonl.zst:1: the line is longer than 64 MiB");
}

#[test]
fn json_that_is_nested_very_deeply() {
    let desk = Desk::new();
    for field in ["hash_ids", "nobody_reads_this"] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let depth = 4_000_000;
            let deep = format!("{{\"{field}\":{}1{}}}\n", open.repeat(depth), close.repeat(depth));
            let path = desk.write("deep.jsonl", &deep);
            for format in ["mooncake", "agentic_mooncake", "applied_compute_agentic", "dynamo", "qwen_bailian"] {
                refused(&desk, format, &path, "deep.jsonl:1: ");
            }
            let path = desk.write("deep.json", &deep);
            refused(&desk, "weka", &path, "deep.json:1: ");
        }
    }
}

#[test]
fn a_play_that_is_longer_than_any() {
    let desk = Desk::new();
    let path = desk.path("play.json");
    File::create(&path).unwrap().set_len(2 << 30).unwrap();
    refused(&desk, "weka", &path, "play.json: is longer than 256 MiB");
}

#[test]
fn pipes_and_devices_are_not_waited_for() {
    let desk = Desk::new();
    let pipe = desk.path("pipe.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for format in LINE_FORMATS.into_iter().chain(["weka"]) {
        refused(&desk, format, &pipe, "pipe.json: is a pipe or a device; save the trace to a file");
    }
    for format in LINE_FORMATS {
        refused(&desk, format, Path::new("/dev/zero"), "/dev/zero: is a pipe or a device");
    }
    let corpus = desk.path("corpus");
    fs::create_dir(&corpus).unwrap();
    fs::rename(&pipe, corpus.join("pipe.json")).unwrap();
    refused(&desk, "weka", &corpus, "corpus/pipe.json: is a pipe or a device");
}

#[test]
fn a_wrong_row_far_down_a_long_file_is_named() {
    let desk = Desk::new();
    let path = desk.path("million.jsonl");
    let mut text = String::new();
    for row in 0..1_000_000 {
        let output = if row == 999_990 { "\"many\"" } else { "3" };
        text += &format!("{{\"timestamp\":{row},\"output_length\":{output},\"hash_ids\":[{row}]}}\n");
    }
    fs::write(&path, text).unwrap();
    // The simulation is over soon; what comes after is read all the same.
    let mut traffic = traffic("mooncake", &path);
    traffic["stop"] = json!({ "max_virtual_time_seconds": 0.1 });
    let finished = play(&desk, traffic);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""));
    let place = "million.jsonl:999991: output_length: invalid type: string \"many\", expected a whole number from 0 on";
    assert!(finished.stderr.contains(place), "{}", finished.stderr);
    assert!(!desk.out().exists());
}
