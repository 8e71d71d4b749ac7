//! Debian's packages: which are missing, and having them installed.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::claim::Claim;
use crate::error::LabError;

/// The packages of a list that this machine lacks.
///
/// # Errors
/// This is no Debian, or not root: daemons of several users need it.
pub fn missing(wanted: &[&'static str]) -> Result<Vec<&'static str>, LabError> {
    let refuse = |why: &str| LabError::Packages { missing: wanted.join(" "), why: why.into() };
    if !nix::unistd::Uid::effective().is_root() {
        return Err(refuse("a lab needs root; run it as root, or in a container"));
    }
    let asked = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"])
        .args(wanted)
        .output();
    let asked =
        asked.map_err(|_| refuse("there is no dpkg-query; a lab needs Debian or its like"))?;
    let known = String::from_utf8_lossy(&asked.stdout);
    let installed = |name: &str| known.lines().any(|line| line == format!("{name} installed"));
    Ok(wanted.iter().copied().filter(|name| !installed(name)).collect())
}

/// Installs what is missing, without recommended packages, and returns what that was.
///
/// # Errors
/// [`missing`]'s, or that apt-get fails.
pub fn install(wanted: &[&'static str]) -> Result<Vec<&'static str>, LabError> {
    if missing(wanted)?.is_empty() {
        return Ok(Vec::new());
    }
    // Of labs that come up at once, one installs.
    let _turn = Claim::wait("install", Duration::from_secs(300))?;
    let missing = missing(wanted)?;
    if missing.is_empty() {
        return Ok(missing);
    }
    let words = ["install", "--yes", "--quiet", "--no-install-recommends"];
    let words = [&words[..], &missing].concat();
    let done =
        apt_get(&words).or_else(|_| apt_get(&["update", "--quiet"]).and_then(|()| apt_get(&words)));
    done.map_err(|why| LabError::Packages { missing: missing.join(" "), why })?;
    Ok(missing)
}

fn apt_get(words: &[&str]) -> Result<(), String> {
    let done = Command::new("apt-get")
        .args(["-o", "DPkg::Lock::Timeout=300"])
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output();
    let done = done.map_err(|error| format!("apt-get: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("apt-get {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim()))
}

/// Whether a test can have a lab here. Says what was installed; where a lab cannot be had, it says by the test's name that
/// this is skipped.
///
/// * `installed` — what came of having missing things installed: what was done, nothing if all was there.
///
/// # Panics
/// What is wrong is not that something cannot be had.
#[allow(clippy::print_stderr, clippy::panic, reason = "for tests: this is what they say")]
pub fn can_be_had(test: &str, installed: Result<Vec<String>, LabError>) -> bool {
    match installed {
        Ok(done) => {
            done.iter().for_each(|done| eprintln!("{done}"));
            true
        }
        Err(error @ LabError::Packages { .. }) => {
            eprintln!("skipped: {test}: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}
