//! The commands of `nvidia-smi`. `compute-policy` remembers the length of turns in the simulated machine's
//! folder; its arguments are those that NVIDIA's driver for dynamic resource allocation in Kubernetes gives.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use crate::overview;

/// Name of the file that holds a GPU's length of turns, 0 to 3, in the machine's folder.
pub fn file_name(gpu: &str) -> String {
    format!("timeslice-{gpu}")
}

/// Runs one command; `HOTPOT_FAKE_SMI=hang` makes it hang, `fail` makes it fail.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program's main")]
pub fn main(arguments: &[String]) -> ExitCode {
    match env::var("HOTPOT_FAKE_SMI").as_deref() {
        Ok("hang") => loop {
            std::thread::park();
        },
        Ok("fail") => {
            println!("Failed to initialize NVML: Driver/library version mismatch");
            return ExitCode::from(18);
        }
        _ => {}
    }
    match answer(arguments) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(said) => {
            eprintln!("{said}");
            ExitCode::from(2)
        }
    }
}

fn answer(arguments: &[String]) -> Result<String, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => overview::overview(&overview::open()?),
        ["-L" | "--list-gpus"] => overview::list(&overview::open()?),
        ["compute-policy", "-i", gpu, "--set-timeslice", length] => set(gpu, length),
        _ => Err(format!("the simulated nvidia-smi cannot do: {}", words.join(" "))),
    }
}

/// Sets the length of a GPU's turns.
fn set(gpu: &str, length: &str) -> Result<String, String> {
    let folder = env::var_os("HOTPOT_FAKE_MACHINE").map(PathBuf::from);
    let folder = folder.ok_or("No devices were found: HOTPOT_FAKE_MACHINE names no machine")?;
    let state = fs::read_to_string(folder.join("machine.json"));
    let state = state.map_err(|error| format!("{}: {error}", folder.display()))?;
    if !gpu.starts_with("GPU-") || !state.contains(gpu) {
        return Err(format!("No devices were found: {gpu}"));
    }
    if !matches!(length, "0" | "1" | "2" | "3") {
        return Err(format!("Invalid timeslice: {length}"));
    }
    let file = folder.join(file_name(gpu));
    fs::write(&file, length).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(format!("Successfully set the timeslice for GPU {gpu} to {length}."))
}
