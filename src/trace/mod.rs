//! `dynosim trace`: what can be done with a trace but to play it.

mod args;
mod convert;
mod export;
mod mooncake_file;
mod publish;
mod stats;

pub use args::{
    ConvertArgs, ExportArgs, FormatArg, NestedBasisArg, StatsArgs, Target, TraceCommand, TraceInput, WekaRulesArg,
};

use crate::error::CommandError;
use crate::interrupt::Interrupt;

/// Runs one of the commands; `print` gets its result.
///
/// # Errors
/// As the command itself.
pub fn trace(
    command: &TraceCommand,
    interrupt: &Interrupt,
    print: impl Fn(&str) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    match command {
        TraceCommand::Convert(args) => print(&convert::convert(args, interrupt)?),
        TraceCommand::Export(args) => print(&export::export(args, interrupt)?),
        TraceCommand::Stats(args) => print(&stats::stats(args, interrupt)?),
    }
}
