//! What tests with real Slurm share: a cluster with the plugin and the rules, commands in it, files for its jobs.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use slurm_lab::{Cluster, Options};

/// One type of card, 4 in each of 2 nodes, without MIG.
pub(crate) const SITE: &str = r#"return { shard_mib = 1015, sharing = "capped", cards = {
    { type = "a100", memory_mib = 81252, context_mib = 324, shards = 80, per_node = 4, nodes = 2 } } }"#;

/// The same with MIG profiles.
pub(crate) const SITE_WITH_MIG: &str = r#"return { shard_mib = 1015, sharing = "capped", cards = {
    { type = "a100", memory_mib = 81252, context_mib = 324, shards = 80, per_node = 4, nodes = 2 } }, mig = {
    { type = "3g.40gb", card = "a100", memory_mib = 40448, compute_milli = 428, count = 2 },
    { type = "1g.10gb", card = "a100", memory_mib = 9728, compute_milli = 142, count = 8 } } }"#;

/// A cluster with all of hotpot's parts, in a folder that goes with it.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) folder: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.cluster.down();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Brings a cluster up; `None`, said by the test's name, where real Slurm cannot be had.
///
/// * `kind` — `required` or `optional`, as the plugin's line in `plugstack.conf` begins.
pub(crate) fn up(test: &str, kind: &str, rest: bool) -> Option<Site> {
    let mut options = Options { rest, ..Options::default() };
    if !slurm_lab::can_be_had(test, &options) {
        return None;
    }
    let folder = std::env::temp_dir().join(format!("spank-{}-{}", std::process::id(), short(test)));
    let _ = fs::remove_dir_all(&folder);
    let file = |name: &str, text: String| (name.to_string(), text);
    options.slurm_conf = "JobSubmitPlugins=lua\n".into();
    options.files = vec![
        file("plugstack.conf", stack(kind, &plugin(), &folder)),
        file("job_submit.lua", shipped("job_submit.lua")),
        file("hotpot.lua", shipped("hotpot.lua")),
        file("hotpot_site.lua", SITE.into()),
    ];
    let cluster = Cluster::up(&folder, &options).unwrap_or_else(|error| panic!("{error}"));
    Some(Site { cluster, folder })
}

/// A name that fits into the path of a socket.
fn short(test: &str) -> &str {
    test.get(..16).unwrap_or(test)
}

/// The plugin's line.
pub(crate) fn stack(kind: &str, plugin: &Path, folder: &Path) -> String {
    let place = folder.display();
    format!("{kind} {} jobs={place}/jobs/%n hotpot={place}/hotpot\n", plugin.display())
}

/// The plugin, as built.
pub(crate) fn plugin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("libhotpot_spank.so");
    assert!(path.exists(), "{}: build it first: cargo build -p spank", path.display());
    path
}

/// A file of `deploy/slurm`.
pub(crate) fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm").join(name);
    fs::read_to_string(path).unwrap()
}

impl Site {
    /// Runs a command to its end; its exit status is 0, and this is what it printed.
    #[track_caller]
    pub(crate) fn does(&self, line: &[&str]) -> String {
        self.cluster.run(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Runs a command to its end; it fails, and this is what it said.
    #[track_caller]
    pub(crate) fn fails(&self, line: &[&str]) -> String {
        let (program, words) = line.split_first().unwrap();
        let done = self.cluster.command(program).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success(), "{line:?} did not fail: {said}");
        said
    }

    /// Replaces a file beside `slurm.conf`.
    pub(crate) fn write(&self, name: &str, text: &str) {
        // Whole or not at all: commands read it meanwhile.
        let path = self.cluster.etc().join(name);
        let new = path.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }

    /// Submits a job that waits to be let go; returns its number.
    #[track_caller]
    pub(crate) fn held(&self, words: &[&str], script: &str) -> String {
        let wrap = format!("--wrap={script}");
        let out = format!("--output={}/%j.out", self.folder.display());
        let line = ["sbatch", "--parsable", "--hold", "--mem=100", &out, &wrap];
        self.does(&[&line, words].concat()).trim().to_string()
    }

    /// Writes the file that hotpot's Prolog would write for a job on node `n1`.
    pub(crate) fn task_file(&self, job: &str, text: &str) -> PathBuf {
        let jobs = self.folder.join("jobs/n1");
        fs::create_dir_all(&jobs).unwrap();
        let path = jobs.join(format!("{job}.task"));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        path
    }

    /// Lets a job go and waits for its end; returns its state and what it wrote.
    pub(crate) fn finish(&self, job: &str) -> (String, String) {
        self.does(&["scontrol", "release", job]);
        let state = self.cluster.until("the end of a job", |_| {
            let state = self.field(job, "JobState");
            let over = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"];
            over.contains(&state.as_str()).then_some(state)
        });
        let out = fs::read_to_string(self.folder.join(format!("{job}.out"))).unwrap_or_default();
        (state.unwrap(), out)
    }

    /// What `scontrol show job` has for a key; empty if nothing.
    pub(crate) fn field(&self, job: &str, key: &str) -> String {
        let shown = self.does(&["scontrol", "-o", "show", "job", job]);
        let after = shown.split(&format!(" {key}=")).nth(1).unwrap_or_default();
        after.split(' ').next().unwrap_or_default().trim().to_string()
    }
}
