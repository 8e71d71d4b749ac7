//! Everything that CI checks, in the order in which failures are cheapest to find.

use std::process::Command;

use crate::{Verdict, fakes, metrics, reproduce, shell, tidy};

pub(crate) fn run() -> Verdict {
    tidy::run()?;
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
    let faketime = Command::new("faketime").arg("--version").output().is_ok();
    if !faketime && !shell::install("faketime") {
        println!("skipped: what needs faketime, which could not be installed");
    }
    shell::cargo(&["test", "--workspace"])?;
    fakes::run()?;
    metrics::read_by_others()?;
    reproduce::slice()
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
