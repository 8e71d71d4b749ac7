//! The simulated MPS control program: starts the daemon, or speaks to one that runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    fake_tools::mps::main(&arguments)
}
