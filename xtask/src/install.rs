//! Puts the program, the limiter that it preloads into tasks, the simulated driver that it needs for
//! `--simulate-gpus`, and what Slurm needs where they belong.

use std::fs;
use std::path::Path;

use crate::{Verdict, shell};

/// What comes with the program. The simulated driver's programs must never lie on a PATH.
const COMPANIONS: [&str; 7] = [
    "libhotpot_limiter.so",
    "libhotpot_spank.so",
    "libhotpot_fake_nvml.so",
    "libhotpot_fake_cuda.so",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-smi",
];

/// * `prefix` — holds `bin` and `lib`, such as `/usr/local` or `~/.local`.
pub(crate) fn run(prefix: &str) -> Verdict {
    let prefix = shell::folder(prefix)?;
    shell::cargo(&[
        "build",
        "--release",
        "--locked",
        "-p",
        "cli",
        "-p",
        "limiter",
        "-p",
        "spank",
        "-p",
        "fake-nvml",
        "-p",
        "fake-cuda",
        "-p",
        "fake-tools",
    ])?;
    let built = shell::target().join("release");
    put(&built, &prefix.join("bin"), "hotpot")?;
    for companion in COMPANIONS {
        put(&built, &prefix.join("lib/hotpot"), companion)?;
    }
    for name in entries(&shell::root().join("deploy/slurm"))? {
        put(&shell::root().join("deploy/slurm"), &prefix.join("lib/hotpot/slurm"), &name)?;
    }
    name_plugin(prefix)?;
    println!(
        "{} is ready; the limiter, the simulated driver and what Slurm needs are in {}",
        prefix.join("bin/hotpot").display(),
        prefix.join("lib/hotpot").display()
    );
    Ok(())
}

/// Slurm wants the whole path of a plugin.
fn name_plugin(prefix: &Path) -> Verdict {
    let path = prefix.join("lib/hotpot/slurm/spank.conf");
    let failure = |error: std::io::Error| format!("{}: {error}", path.display());
    let text = fs::read_to_string(&path).map_err(failure)?;
    let lib = prefix.join("lib/hotpot").display().to_string();
    fs::write(&path, text.replace("/usr/lib/hotpot", &lib)).map_err(failure)
}

/// Names of the files of a folder.
fn entries(folder: &Path) -> Result<Vec<String>, String> {
    let listed = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names = listed.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.collect())
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
