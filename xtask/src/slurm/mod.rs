//! What hotpot makes of Slurm, measured on a real cluster on this host: `arrays` is how busy short tasks keep
//! GPUs, `churn` whether a card is ever given twice.

pub(crate) mod arrays;
pub(crate) mod churn;

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use slurm_lab::{Cluster, LabError, Options};

use crate::shell;

/// A cluster with or without hotpot, and where it and its files are.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    pub(crate) built: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Bench {
    /// Brings a cluster up.
    ///
    /// * `with_hotpot` — with its plugin, rules, Prolog and Epilog.
    pub(crate) fn up(name: &str, options: Options, with_hotpot: bool) -> Result<Self, String> {
        let said = |error: LabError| error.to_string();
        let built = built()?;
        // Sockets lie in it, whose paths must be short.
        let folder = std::env::temp_dir().join(format!("hotpot-{name}-{}", std::process::id()));
        let lab = folder.join("lab");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let options = if with_hotpot {
            let deploy = shell::root().join("deploy/slurm");
            options.with_hotpot(&lab, &built, &deploy).map_err(said)?
        } else {
            options
        };
        let cluster = Cluster::up(&lab, &options).map_err(said)?;
        if with_hotpot {
            cluster.tell_hotpot(&built).map_err(said)?;
        }
        Ok(Self { cluster, built, folder })
    }

    /// Runs a program of Slurm's or ours in the bench's folder and returns what it printed.
    pub(crate) fn run(&self, program: &str, words: &[&str]) -> Result<String, String> {
        let mut command = self.cluster.command(program);
        command.args(words).current_dir(&self.folder);
        shell::output(&mut command)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.cluster.down();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The folder of the programs as users run them, built once: what is compared must be the same all the time.
pub(crate) fn built() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Result<PathBuf, String> {
    let mut words = vec!["build", "--quiet"];
    if !cfg!(debug_assertions) {
        words.push("--release");
    }
    for package in ["cli", "spank", "limiter", "fake-nvml", "fake-cuda", "fake-tools"] {
        words.extend(["-p", package]);
    }
    shell::cargo(&words)?;
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    Ok(shell::target().join(profile))
}
