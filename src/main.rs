//! The `dynosim` command.

fn main() -> std::process::ExitCode {
    dynosim::command::main()
}
