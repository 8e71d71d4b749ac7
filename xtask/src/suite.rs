//! Everything that CI checks, in the order in which failures are cheapest to find.

use crate::{Verdict, reproduce, shell, tidy};

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
    shell::cargo(&["test", "--workspace"])?;
    reproduce::slice()
}

/// Whether a cargo component is installed; a toolchain may come without.
fn component(name: &str) -> bool {
    let found = std::process::Command::new("cargo").args([name, "--version"]).output();
    let there = found.is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: cargo {name} is not installed (rustup component add {name})");
    }
    there
}
