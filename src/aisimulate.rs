//! The `aisimulate` command: the same program under the name that published walk-throughs use.

fn main() -> std::process::ExitCode {
    dynosim::command::main()
}
