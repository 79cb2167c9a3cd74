//! Runs a program to its end and says what that cost.
//!
//! The kernel keeps the peak memory of *all* children of a process together. So each run has a small
//! process of its own around it, this program under another name of its work, whose only child is
//! the one to be measured. It also has to be small because a child's peak starts at its parent's.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::error::Failure;

/// The first argument that makes this program such a process.
pub const HELPER: &str = "measure-one";

/// What a run cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// From start to end.
    pub wall_s: f64,
    /// Processor time of all threads, in user and system mode.
    pub cpu_s: f64,
    /// Peak resident memory.
    pub peak_mib: f64,
}

/// Runs `program`; an exit code other than 0 is a failure that tells what it wrote to stderr.
pub fn run(program: &Path, arguments: &[&OsStr]) -> Result<Cost, Failure> {
    let myself = std::env::current_exe().map_err(|e| Failure::new(format!("cannot find this program: {e}")))?;
    let output = Command::new(myself)
        .arg(HELPER)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Failure::new(format!("cannot start the measuring process: {e}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(text.trim().trim_start_matches("error: ")));
    }
    let told: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    let number = |key: &str| told.as_ref().and_then(|told| told[key].as_f64());
    match (number("wall_s"), number("cpu_s"), number("peak_mib")) {
        (Some(wall_s), Some(cpu_s), Some(peak_mib)) => Ok(Cost { wall_s, cpu_s, peak_mib }),
        _ => Err(Failure::new("the measuring process did not say what it measured")),
    }
}

/// The measuring process: runs the given command and prints its cost as JSON.
#[cfg(unix)]
pub fn help(command: &[OsString]) -> Result<(), Failure> {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;

    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::new("there is nothing to measure"));
    };
    let name = Path::new(program).display();
    let start = std::time::Instant::now();
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Failure::new(format!("cannot run {name}: {e}; build it, or say where it is")))?;
    let wall_s = start.elapsed().as_secs_f64();
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("{name} failed ({}): {}", output.status, text.trim())));
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_err(|e| Failure::new(format!("cannot read what {name} has used: {e}")))?;
    let cpu_s = (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6;
    let units_per_mib = if cfg!(target_os = "macos") { 1024.0 * 1024.0 } else { 1024.0 };
    let peak_mib = usage.max_rss() as f64 / units_per_mib;
    crate::print(&serde_json::json!({ "wall_s": wall_s, "cpu_s": cpu_s, "peak_mib": peak_mib }).to_string())
}

/// Elsewhere there is no such figure.
#[cfg(not(unix))]
pub fn help(_command: &[OsString]) -> Result<(), Failure> {
    Err(Failure::new("measuring the memory of a process needs Unix; run this on Linux"))
}
