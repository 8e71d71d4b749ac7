//! The simulated `nvidia-smi`: the length of a GPU's turns.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    fake_tools::smi::main(&arguments)
}
