//! Small traces, right and wrong, and what the program makes of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Desk, Finished, config, finish, predict, root, worker};

/// A trace that can be played.
pub struct Good {
    pub file: &'static str,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub reused_tokens: Option<u64>,
    /// How the digest of its graph starts, if it is one.
    pub digest: Option<&'static str>,
}

/// A trace that cannot: the line that is at fault, if one is, and the essential part of the message.
pub struct Bad {
    pub file: &'static str,
    pub line: Option<u64>,
    pub message: &'static str,
}

pub const fn good(file: &'static str, requests: u64, input_tokens: u64, output_tokens: u64) -> Good {
    Good { file, requests, input_tokens, output_tokens, reused_tokens: None, digest: None }
}

pub const fn reusing(good: Good, reused_tokens: u64) -> Good {
    Good { reused_tokens: Some(reused_tokens), ..good }
}

pub const fn graph(good: Good, digest: &'static str) -> Good {
    Good { digest: Some(digest), ..good }
}

pub const fn bad(file: &'static str, line: u64, message: &'static str) -> Bad {
    Bad { file, line: Some(line), message }
}

pub const fn bad_file(file: &'static str, message: &'static str) -> Bad {
    Bad { file, line: None, message }
}

/// A file or folder among the fixtures, from the root of the repository.
pub fn fixture(file: &str) -> PathBuf {
    Path::new("tests/fixtures").join(file)
}

/// The entries of a folder of fixtures that no outcome is known of, and outcomes without an entry.
pub fn unlisted<'a>(folder: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let entries = fs::read_dir(root().join(fixture(folder))).unwrap();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let prefix = format!("{folder}/");
    let listed: Vec<_> = known.filter_map(|file| file.strip_prefix(&prefix)).map(str::to_owned).collect();
    let missing = |of: &[String], other: &[String]| -> Vec<String> {
        of.iter().filter(|name| !other.contains(name)).map(|name| format!("{prefix}{name}")).collect()
    };
    [missing(&files, &listed), missing(&listed, &files)].concat()
}

/// What is wrong with what the program makes of a trace that can be played.
pub fn complain_of_good(good: &Good, traffic: Value) -> Vec<String> {
    let desk = Desk::new();
    let played = desk.play(&on_one_worker(traffic));
    let mut complaints = Vec::new();
    let mut expect = |figure: &str, wanted: u64| {
        let got = played.figure(figure);
        if got != wanted as f64 {
            complaints.push(format!("{}: {figure}: want {wanted}, got {got}", good.file));
        }
    };
    expect("num_requests", good.requests);
    expect("completed_requests", good.requests);
    expect("total_input_tokens", good.input_tokens);
    expect("total_output_tokens", good.output_tokens);
    let reused: i64 = played.rows.iter().filter_map(|row| row.int_or_null("reused_tokens")).sum();
    if good.reused_tokens.is_some_and(|wanted| wanted as i64 != reused) {
        complaints.push(format!("{}: reuses {reused} tokens, not {:?}", good.file, good.reused_tokens));
    }
    let digest = played.report["provenance"]["agentic_graph"]["graph_digest"].as_str();
    let agrees = match (good.digest, digest) {
        (Some(wanted), Some(got)) => got.starts_with(wanted),
        (wanted, got) => wanted == got,
    };
    if !agrees {
        complaints.push(format!("{}: graph digest: want {:?}, got {digest:?}", good.file, good.digest));
    }
    complaints
}

/// What is wrong with how the program refuses a trace that cannot be played.
pub fn complain_of_bad(bad: &Bad, traffic: &Value) -> Option<String> {
    let desk = Desk::new();
    let finished = try_to_play(&desk, traffic);
    let place = match bad.line {
        Some(line) => format!("{}:{line}: ", bad.file),
        None => format!("{}: ", bad.file),
    };
    let said = &finished.stderr;
    let right = finished.code == Some(1)
        && finished.stdout.is_empty()
        && said.lines().count() == 1
        && said.contains(&place)
        && said.contains(bad.message)
        && !desk.out().exists();
    (!right).then(|| {
        let left = if desk.out().exists() { "left a folder" } else { "left nothing" };
        format!("{}: want `{place}` and `{}`; exit code {:?}, {left}: {said}", bad.file, bad.message, finished.code)
    })
}

/// Plays traffic on one worker, or tries to.
pub fn try_to_play(desk: &Desk, traffic: &Value) -> Finished {
    finish(&mut predict(&desk.config(&on_one_worker(traffic.clone())), &desk.out()))
}

/// A configuration: this traffic on one worker.
pub fn on_one_worker(traffic: Value) -> Value {
    config(traffic, worker(64, 1024))
}
