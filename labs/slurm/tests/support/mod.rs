//! What tests with real clusters share: a folder, skipping, jobs.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use slurm_lab::{Cluster, Options};

/// A folder for one test, removed at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("slurm-lab-{}-{name}", std::process::id()));
        // Left over from a process that is gone.
        let _ = std::fs::remove_dir_all(&place);
        Self(place)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A cluster in a folder, or `None`, said by the test's name, where real Slurm cannot be had.
pub(crate) fn up(test: &str, folder: &Folder, options: &Options) -> Option<Cluster> {
    if !slurm_lab::can_be_had(test, options) {
        return None;
    }
    let began = Instant::now();
    let cluster = Cluster::up(&folder.0, options).unwrap();
    eprintln!("{test}: a cluster came up in {} ms", began.elapsed().as_millis());
    Some(cluster)
}

/// Submits a job that runs `script`; returns its number.
pub(crate) fn submit(cluster: &Cluster, words: &[&str], script: &str) -> String {
    let wrap = format!("--wrap={script}");
    let line = [&["sbatch", "--parsable", "--output=/dev/null", "--mem=16"], words, &[&wrap]];
    cluster.run(&line.concat()).unwrap().trim().to_string()
}

/// A script that writes what `words` expand to into a file, all at once, and stays.
pub(crate) fn tell(file: &Path, words: &str) -> String {
    format!("echo {words} >{0}.new; mv {0}.new {0}; sleep 600", file.display())
}

/// Submits a job that tells what `words` expand to in it, and waits for that.
pub(crate) fn seen(cluster: &Cluster, words: &[&str], told: &str) -> String {
    let file = cluster.folder().join("seen");
    let _ = std::fs::remove_file(&file);
    submit(cluster, words, &tell(&file, told));
    cluster
        .until("what a job tells", |_| std::fs::read_to_string(&file).ok())
        .unwrap()
        .trim()
        .into()
}

/// Waits until a job is in a state.
pub(crate) fn until_state(cluster: &Cluster, job: &str, state: &str) {
    let what = format!("job {job} to be {state}");
    let look = |cluster: &Cluster| {
        let shown = cluster.run(&["scontrol", "show", "job", job]).ok()?;
        shown.contains(&format!("JobState={state}")).then_some(())
    };
    cluster.until(&what, look).unwrap();
}

/// The processes whose arguments, environment or files name a folder, but for this one.
pub(crate) fn processes_of(folder: &Path) -> Vec<String> {
    let place = folder.to_str().unwrap();
    let mut found = Vec::new();
    let numbered = |name: &str| name.parse::<u32>().is_ok_and(|pid| pid != std::process::id());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if !entry.file_name().to_str().is_some_and(numbered) {
            continue;
        }
        let text = |name: &str| {
            let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let files = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let mut links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        let said = text("cmdline");
        let names = said.contains(place) || text("environ").contains(place);
        if names || links.any(|link| link.starts_with(folder)) {
            found.push(format!("{:?} {said}", entry.file_name()));
        }
    }
    found
}
