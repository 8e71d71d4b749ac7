//! Running other programs, with a line that says which.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Verdict;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The folder that a word names; what begins with a dash is an option that stands in the wrong place.
pub(crate) fn folder(word: &str) -> Result<&Path, String> {
    match word.starts_with('-') {
        true => Err(format!("{word}: a folder is to stand here; one of that name is ./{word}")),
        false => Ok(Path::new(word)),
    }
}

/// Whether help is asked for.
pub(crate) fn asks_help(words: &[&str]) -> bool {
    words.iter().any(|word| matches!(*word, "--help" | "-h"))
}

/// Runs `cargo` in the root.
pub(crate) fn cargo(args: &[&str]) -> Verdict {
    cargo_with(args, &[])
}

/// As [`cargo`], with environment variables.
pub(crate) fn cargo_with(args: &[&str], variables: &[(&str, &str)]) -> Verdict {
    println!("$ cargo {}", args.join(" "));
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root()).envs(variables.iter().copied());
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", args.join(" "))) }
}

/// Whether there is a cargo to build with.
pub(crate) fn has_cargo() -> bool {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let found = Command::new(cargo).arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success()) && root().join("Cargo.toml").exists()
}

/// Runs this command again, compiled with optimisation.
pub(crate) fn again_in_release(args: &[String]) -> Verdict {
    let mut words = vec!["run", "--quiet", "--release", "--package", "xtask", "--"];
    words.extend(args.iter().map(String::as_str));
    cargo(&words)
}

/// The target folder that this program was built into.
pub(crate) fn target() -> PathBuf {
    let built = std::env::current_exe().ok();
    let folder = built.as_deref().and_then(Path::parent).and_then(Path::parent);
    folder.map_or_else(|| root().join("target"), Path::to_path_buf)
}

/// What a program prints; a failure comes with all that it said.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| format!("cannot run {name}: {error}"))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        return Ok(text);
    }
    Err(format!("{name}: {}\n{text}{}", done.status, String::from_utf8_lossy(&done.stderr)))
}

/// Installs a Debian package; whether that could be done.
pub(crate) fn install(package: &str) -> bool {
    println!("$ apt-get install {package}");
    let quiet = |words: &[&str]| {
        let done = Command::new("apt-get").args(words).stdout(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", package];
    quiet(&install) || quiet(&["update", "--quiet"]) && quiet(&install)
}
