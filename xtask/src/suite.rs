//! Everything that CI checks, in the order in which failures are cheapest to find.

use std::process::{Command, Stdio};

use crate::{Verdict, fakes, reproduce, shell, tidy};

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
    install("faketime");
    shell::cargo(&["test", "--workspace"])?;
    fakes::run()?;
    reproduce::slice()
}

/// Installs a Debian package that a test uses and would be skipped without.
fn install(package: &str) {
    let there = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if there(package) {
        return;
    }
    println!("$ apt-get install {package}");
    let quiet = |words: &[&str]| {
        let done = Command::new("apt-get").args(words).stdout(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", package];
    let done = quiet(&install) || quiet(&["update", "--quiet"]) && quiet(&install);
    if !done {
        println!("skipped: what needs {package}, which could not be installed");
    }
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
