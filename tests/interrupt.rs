//! Ctrl-C in the middle of a long run.
#![cfg(unix)]

mod common;

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use common::{Desk, closed_loop, config, predict, start, wait_at_most, worker};
use serde_json::Value;

/// Looks at a child at most this often before giving up on it.
const LOOKS: u32 = 3000;
const LONGEST_END: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A run that takes much longer than any test has.
fn long_run() -> Value {
    config(closed_loop(256, 16, 64, 3_000_000), worker(64, 16_384))
}

fn start_long_run(desk: &Desk, options: &[&str]) -> Child {
    start(predict(&desk.config(&long_run()), &desk.out()).args(options))
}

/// Waits until the run is writing rows, and then a little.
fn let_it_work(desk: &Desk, child: &mut Child) {
    let writes = || {
        let entries = fs::read_dir(desk.out()).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(".requests.parquet"))
    };
    for _ in 0..LOOKS {
        assert!(child.try_wait().unwrap().is_none(), "the run has ended too early");
        if writes() {
            return std::thread::sleep(Duration::from_millis(500));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    panic!("the run does not begin");
}

fn signal(child: &Child, name: &str) {
    // The shell has `kill` built in, wherever the program may be missing.
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(sent.success());
}

fn interrupted(desk: &Desk, options: &[&str], signal_name: &str) {
    let mut child = start_long_run(desk, options);
    let_it_work(desk, &mut child);
    signal(&child, signal_name);
    let finished = wait_at_most(LONGEST_END, child).expect("the run ends when it is told to");
    assert_eq!(finished.code, Some(130), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    assert!(finished.stderr.starts_with("error: interrupted"), "{}", finished.stderr);
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let desk = Desk::new();
    interrupted(&desk, &["--capture-per-request"], "INT");
    assert!(!desk.out().exists(), "the folder that the run created has to go too");
}

#[test]
fn an_interrupted_run_leaves_an_empty_folder_empty() {
    let desk = Desk::new();
    fs::create_dir(desk.out()).unwrap();
    interrupted(&desk, &[], "TERM");
    assert_eq!(fs::read_dir(desk.out()).unwrap().count(), 0);
}

#[test]
fn an_interrupted_run_keeps_the_results_that_it_would_have_replaced() {
    let desk = Desk::new();
    desk.play_with(&config(closed_loop(100, 4, 2, 4), worker(64, 1024)), &["--capture-per-request"]);
    desk.config(&long_run());
    let before = desk.snapshot();
    interrupted(&desk, &["--overwrite"], "INT");
    assert!(desk.snapshot() == before);
}

#[test]
fn the_run_after_a_killed_one_succeeds_and_tidies_up() {
    let desk = Desk::new();
    let mut child = start_long_run(&desk, &[]);
    let_it_work(&desk, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!desk.out().join("prediction.json").exists());
    desk.play(&config(closed_loop(100, 4, 2, 4), worker(64, 1024)));
    assert_eq!(fs::read_dir(desk.out()).unwrap().count(), 2, "only the two results are there");
}
