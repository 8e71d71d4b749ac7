//! The simulated `nvidia-smi`: an overview of the GPUs, and the length of their turns.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    fake_tools::smi::main(&arguments)
}
