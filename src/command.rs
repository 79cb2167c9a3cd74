//! The program: parses the command line, runs the command, prints, and says how it went.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::check::check;
use crate::cli::{Cli, Command};
use crate::error::{CommandError, exit_code};
use crate::interrupt::Interrupt;
use crate::output::to_pretty_json;
use crate::perf_db::perf_db;
use crate::predict::predict;
use crate::trace::trace;

/// Runs the program with the process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        Command::Predict(args) => predict(args, &Interrupt::install(), print),
        Command::Check(args) => check(args).and_then(|text| print(&text)),
        Command::Trace(command) => trace(command, &Interrupt::install(), print),
        Command::PerfDb(command) => perf_db(command).and_then(|text| print(&text)),
        Command::Schema => print(&to_pretty_json(dynosim_schemas::config::json_schema())),
    };
    match outcome {
        Ok(()) => ExitCode::from(exit_code::SUCCESS),
        Err(error) => {
            // If even stderr is gone, the exit code still tells.
            drop(writeln!(std::io::stderr(), "error: {error}"));
            ExitCode::from(error.exit_code)
        }
    }
}

/// Writes the result to standard output. Whoever closed it early, as `head` does, has seen enough.
fn print(text: &str) -> Result<(), CommandError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(CommandError::execution(format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}
