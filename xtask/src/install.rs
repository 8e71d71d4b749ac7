//! Puts the program, the limiter that it preloads into tasks, and the simulated driver that it needs for
//! `--simulate-gpus` where they belong.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Verdict, shell};

/// What comes with the program. The simulated driver's programs must never lie on a PATH.
const COMPANIONS: [&str; 6] = [
    "libhotpot_limiter.so",
    "libhotpot_fake_nvml.so",
    "libhotpot_fake_cuda.so",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-smi",
];

/// * `prefix` — holds `bin` and `lib`, such as `/usr/local` or `~/.local`.
pub(crate) fn run(prefix: &str) -> Verdict {
    shell::cargo(&[
        "build",
        "--release",
        "--locked",
        "-p",
        "cli",
        "-p",
        "limiter",
        "-p",
        "fake-nvml",
        "-p",
        "fake-cuda",
        "-p",
        "fake-tools",
    ])?;
    let (built, prefix) = (shell::target().join("release"), PathBuf::from(prefix));
    put(&built, &prefix.join("bin"), "hotpot")?;
    for companion in COMPANIONS {
        put(&built, &prefix.join("lib/hotpot"), companion)?;
    }
    println!(
        "{} is ready; the limiter and the simulated driver are in {}",
        prefix.join("bin/hotpot").display(),
        prefix.join("lib/hotpot").display()
    );
    Ok(())
}

/// Copies beside the target and renames, so that a program that runs goes on undisturbed.
fn put(from: &Path, folder: &Path, name: &str) -> Verdict {
    let failure = |error: std::io::Error| {
        format!("{}: {error}; name a folder that you can write to", folder.join(name).display())
    };
    fs::create_dir_all(folder).map_err(failure)?;
    let fresh = folder.join(format!(".{name}.new"));
    fs::copy(from.join(name), &fresh).map_err(failure)?;
    fs::rename(&fresh, folder.join(name)).map_err(failure)
}
