//! Debian's Slurm packages.

use lab_base::{LabError, packages};

use crate::options::Options;

/// Debian's slurmctld has Lua 5.1; others are built with 5.4, under which rules must run too.
const ALWAYS: &[&str] =
    &["munge", "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "lua5.4"];
const ACCOUNTING: &[&str] = &["slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server"];
const REST: &[&str] = &["slurmrestd", "slurm-wlm-jwt-plugin"];

/// The packages that such a cluster needs.
fn wanted(options: &Options) -> Vec<&'static str> {
    let mut wanted = ALWAYS.to_vec();
    if options.accounting {
        wanted.extend(ACCOUNTING);
    }
    if options.rest {
        wanted.extend(REST);
    }
    wanted
}

/// The packages that such a cluster needs and this machine lacks.
///
/// # Errors
/// As [`packages::missing`].
pub fn missing(options: &Options) -> Result<Vec<&'static str>, LabError> {
    packages::missing(&wanted(options))
}

/// Installs what is missing, without recommended packages, and returns what that was.
///
/// # Errors
/// As [`packages::install`].
pub fn install(options: &Options) -> Result<Vec<&'static str>, LabError> {
    packages::install(&wanted(options))
}

/// Whether a test can have a cluster here. Installs what is missing; where that cannot be, it says by the test's name
/// that this is skipped.
///
/// # Panics
/// What is wrong is not that packages cannot be had.
pub fn can_be_had(test: &str, options: &Options) -> bool {
    let told = |names: Vec<&str>| names.iter().map(|name| format!("installed {name}")).collect();
    packages::can_be_had(test, install(options).map(told))
}
