//! Runs dynosim and its reference in turn on the same workloads, or dynosim alone on growing ones,
//! and prints Markdown tables for BENCHMARKS.md.
//!
//! Whole processes are measured: start, reading, simulation and writing. dynosim writes its
//! per-request table as it always does; the reference writes none.

mod error;
mod growth;
mod measure;
mod mooncake;
mod side_by_side;
mod spread;
mod workloads;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use error::Failure;

/// Compare dynosim with its reference, or with itself under more load.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// The dynosim program
    #[arg(long, default_value = "target/release/dynosim")]
    dynosim: PathBuf,

    /// The reference harness
    #[arg(long, default_value = "target/peer/release/peer")]
    peer: PathBuf,

    /// Measured runs of each program on each workload, after one warm-up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Only workloads whose name contains this; repeatable
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// The conversation trace (Mooncake, 512 tokens per id)
    #[arg(long, default_value = "../shared/traces/conversation_trace.jsonl")]
    conversation: PathBuf,

    /// The synthetic trace (Mooncake, 512 tokens per id)
    #[arg(long, default_value = "../shared/traces/synthetic_trace.jsonl")]
    synthetic_trace: PathBuf,

    /// Measure dynosim alone, at a base size and at ten times that
    #[arg(long)]
    growth: bool,

    /// Base number of requests for `--growth`
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..))]
    base: u64,

    /// Existing folder for generated traces and results [default: a temporary one, removed at the end]
    #[arg(long)]
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let outcome = match arguments.get(1) {
        Some(word) if word == measure::HELPER => measure::help(&arguments[2..]),
        _ => compare(&Options::parse()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If even stderr is gone, the exit code still tells.
            drop(writeln!(io::stderr(), "error: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<(), Failure> {
    let temporary = match options.folder {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(|e| Failure::new(format!("cannot make a temporary folder: {e}")))?),
    };
    let folder = options.folder.as_deref().or(temporary.as_ref().map(tempfile::TempDir::path));
    let Some(folder) = folder else { return Err(Failure::new("there is no folder to work in")) };
    let programs = workloads::Programs { dynosim: options.dynosim.clone(), peer: options.peer.clone(), folder };
    if options.growth {
        return growth::run(&programs, options.base, options.runs, &options.only);
    }
    let workloads = workloads::table(&options.conversation, &options.synthetic_trace);
    side_by_side::run(&programs, &workloads, options.runs, &options.only)
}

/// Whether `--only` lets a name through.
fn is_wanted(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
}

/// Prints lines of the result.
fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    written.map_err(|e| Failure::new(format!("cannot write to standard output: {e}")))
}

/// Says on standard error what is being done: runs can take minutes.
fn tell(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}
