//! Everything that CI checks, in the order in which failures are cheapest to find.

use std::process::Command;
use std::thread::JoinHandle;

use slurm_lab::{LabError, Options};

use crate::{Verdict, advice, cuda, fakes, interference, metrics, reproduce, shell, slurm, tidy};

pub(crate) fn run() -> Verdict {
    tidy::run()?;
    packages();
    // Beside all that follows: tests that need a cluster wait for it.
    let kubernetes = std::thread::spawn(kubernetes_lab::install);
    if component("fmt") {
        shell::cargo(&["fmt", "--all", "--check"])?;
    }
    if component("clippy") {
        shell::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ])?;
    }
    shell::cargo_with(
        &["doc", "--workspace", "--no-deps", "--quiet"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )?;
    // Tests load the fake driver and start the program as they lie in the target folder.
    shell::cargo(&["build", "--workspace", "--quiet"])?;
    shell::cargo(&["test", "--workspace"])?;
    tell_kubernetes(kubernetes);
    interleavings()?;
    fakes::run()?;
    cuda::run()?;
    metrics::read_by_others()?;
    interference::slice()?;
    advice::slice()?;
    slurm::churn::slice()?;
    reproduce::slice()
}

/// Installs what tests need of Debian, once: faketime, and what a real Slurm cluster needs.
fn packages() {
    let faketime = Command::new("faketime").arg("--version").output().is_ok();
    if !faketime && !shell::install("faketime") {
        println!("skipped: what needs faketime, which could not be installed");
    }
    let all = Options { accounting: true, rest: true, ..Options::default() };
    match slurm_lab::install(&all) {
        Ok(installed) if installed.is_empty() => {}
        Ok(installed) => println!("installed {}", installed.join(" ")),
        Err(error) => println!("skipped: what needs a Slurm cluster: {error}"),
    }
}

/// Says what became of the programs of a real Kubernetes cluster.
fn tell_kubernetes(install: JoinHandle<Result<Vec<String>, LabError>>) {
    match install.join() {
        Ok(Ok(done)) => done.iter().for_each(|done| println!("{done}")),
        Ok(Err(error)) => println!("skipped: what needs a Kubernetes cluster: {error}"),
        Err(_) => {
            println!("skipped: what needs a Kubernetes cluster: its installation has panicked")
        }
    }
}

/// Every interleaving of a few threads on the pages that processes share, deaths included. Built into a
/// folder of its own, for the flag would have everything else built anew.
fn interleavings() -> Verdict {
    let folder = shell::target().join("loom");
    let folder = folder.to_string_lossy();
    let words =
        ["test", "--package", "caps", "--lib", "--release", "--quiet", "--target-dir", &folder];
    shell::cargo_with(
        &[&words[..], &["interleavings"]].concat(),
        &[("RUSTFLAGS", "--cfg loom -A dead_code")],
    )
}

/// Whether a cargo component is installed; a toolchain may come without.
fn component(name: &str) -> bool {
    let found = Command::new("cargo").args([name, "--version"]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: cargo {name} is not installed (rustup component add {name})");
    }
    there
}
