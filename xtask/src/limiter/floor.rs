//! The limiter built against an old C library, so that it can be loaded in old containers: by
//! `cargo-zigbuild` and Zig, both pinned and kept under the target folder.

use std::path::PathBuf;

use super::library::FLOOR;
use crate::python::{CARGO_ZIGBUILD, Python, ZIGLANG};
use crate::shell;

/// Builds it; where the library is.
pub(super) fn build() -> Result<PathBuf, String> {
    let python = Python::with("python-zig", &[CARGO_ZIGBUILD, ZIGLANG])?;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = format!("{triple}.{}.{}", FLOOR.0, FLOOR.1);
    let folder = shell::target().join("old-systems");
    let mut build = python.program("cargo-zigbuild");
    build.args(["zigbuild", "--release", "--quiet", "-p", "limiter", "--target", &target]);
    build.current_dir(shell::root()).env("CARGO_TARGET_DIR", &folder);
    // Zig is found as a module of the first `python3`.
    let paths = std::env::var("PATH").unwrap_or_default();
    build.env("PATH", format!("{}:{paths}", python.programs().display()));
    println!("$ cargo zigbuild --release -p limiter --target {target}");
    shell::output(&mut build)?;
    Ok(folder.join(triple).join("release/libhotpot_limiter.so"))
}
