//! `dynosim trace`: what can be done with a trace but to play it.

mod args;
mod convert;
mod publish;

pub use args::{ConvertArgs, FormatArg, NestedBasisArg, Target, TraceCommand, TraceInput, WekaRulesArg};

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
    }
}
