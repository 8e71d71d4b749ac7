//! Debian's Slurm packages: which are missing, and having them installed.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::claim::Claim;
use crate::error::LabError;
use crate::options::Options;

/// Debian's slurmctld has Lua 5.1; others are built with 5.4, under which rules must run too.
const ALWAYS: &[&str] =
    &["munge", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "lua5.4"];
const ACCOUNTING: &[&str] = &["slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server"];
const REST: &[&str] = &["slurmrestd", "slurm-wlm-jwt-plugin"];

/// The packages that such a cluster needs and this machine lacks.
///
/// # Errors
/// This is no Debian, or not root: daemons and jobs of several users need it.
pub fn missing(options: &Options) -> Result<Vec<&'static str>, LabError> {
    let mut wanted = ALWAYS.to_vec();
    if options.accounting {
        wanted.extend(ACCOUNTING);
    }
    if options.rest {
        wanted.extend(REST);
    }
    let refuse = |why: &str| LabError::Packages { missing: wanted.join(" "), why: why.into() };
    if !nix::unistd::Uid::effective().is_root() {
        return Err(refuse("a lab needs root; run it as root, or in a container"));
    }
    let asked = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"])
        .args(&wanted)
        .output();
    let asked =
        asked.map_err(|_| refuse("there is no dpkg-query; a lab needs Debian or its like"))?;
    let known = String::from_utf8_lossy(&asked.stdout);
    let installed = |name: &str| known.lines().any(|line| line == format!("{name} installed"));
    Ok(wanted.iter().copied().filter(|name| !installed(name)).collect())
}

/// Whether a test can have a cluster here. Installs what is missing; where that cannot be, it says by the test's name
/// that this is skipped.
///
/// # Panics
/// What is wrong is not that packages cannot be had.
#[allow(clippy::print_stderr, clippy::panic, reason = "for tests: this is what they say")]
pub fn can_be_had(test: &str, options: &Options) -> bool {
    match install(options) {
        Ok(installed) if installed.is_empty() => true,
        Ok(installed) => {
            eprintln!("installed {}", installed.join(" "));
            true
        }
        Err(error @ LabError::Packages { .. }) => {
            eprintln!("skipped: {test}: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Installs what is missing, without recommended packages, and returns what that was.
///
/// # Errors
/// [`missing`]'s, or that apt-get fails.
pub fn install(options: &Options) -> Result<Vec<&'static str>, LabError> {
    if missing(options)?.is_empty() {
        return Ok(Vec::new());
    }
    // Of labs that come up at once, one installs.
    let _turn = Claim::wait("install", Duration::from_secs(300))?;
    let missing = missing(options)?;
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
