//! What tests of shares on a node have in common: a cluster with hotpot on it, jobs that use their GPUs as they
//! are told, and what a node remembers of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use fake_gpu::Gpus;
use fake_machine::Machine;
use node::journal::{Hold, Journal};
use slurm_lab::{Cluster, Daemon, LabError, Options};

/// All that a site has, built if it is not.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut line = vec!["build", "-q"];
        for part in ["cli", "limiter", "spank", "fake-nvml", "fake-cuda", "fake-tools"] {
            line.extend(["-p", part]);
        }
        let done = Command::new(env!("CARGO")).args(line).status().unwrap();
        assert!(done.success(), "hotpot is built");
        std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf()
    })
}

/// A cluster with hotpot and a folder to work in that everybody may write to; both gone at the end.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) work: PathBuf,
    /// `tests/clients/gpu.c`.
    pub(crate) client: String,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.cluster.down();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.work);
        }
    }
}

impl Site {
    /// `None`, said by the test's name, where real Slurm or a C compiler cannot be had.
    pub(crate) fn up(test: &str, options: Options) -> Option<Self> {
        Self::up_with(test, options, built(), "")
    }

    /// * `built` — where hotpot's parts are.
    /// * `conf` — lines for hotpot.conf; `@WORK@` is the folder to work in.
    pub(crate) fn up_with(test: &str, options: Options, built: &Path, conf: &str) -> Option<Self> {
        if !slurm_lab::can_be_had(test, &options) {
            return None;
        }
        let work = folder();
        let client = compiled(test, &work)?;
        let lab = work.join("lab");
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm");
        let mut options = options.with_hotpot(&lab, built, &deploy).unwrap();
        let place = work.display().to_string();
        // A job that goes back into the queue waits for as long as its credential holds, and then until Slurm looks
        // again: where nothing else happens, once in a minute.
        let auth = format!(
            "AuthInfo=socket={place}/lab/run/munge.sock,cred_expire=5\n\
             SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1,bf_continue\n"
        );
        options.slurm_conf.push_str(&auth);
        let ours = options.files.iter_mut().find(|(name, _)| name == "hotpot.conf").unwrap();
        ours.1.push_str(&conf.replace("@WORK@", &place));
        let cluster = match Cluster::up(&lab, &options) {
            Ok(cluster) => cluster,
            // This machine may have no cgroups that constrain devices.
            Err(LabError::Options(why)) if options.cgroup => {
                eprintln!("skipped: {test}: {why}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let site = Self { cluster, work, client };
        site.cluster.tell_hotpot(built).unwrap();
        Some(site)
    }

    /// Runs a command to its end; its exit status is 0, and this is what it printed.
    #[track_caller]
    pub(crate) fn does(&self, line: &[&str]) -> String {
        self.cluster.run(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Runs a command to its end, which comes within a minute.
    pub(crate) fn tries(&self, line: &[&str]) -> Output {
        self.cluster.command("timeout").arg("60").args(line).output().unwrap()
    }

    /// Submits a job; returns its number. `@` in its script is the client.
    #[track_caller]
    pub(crate) fn submit(&self, words: &[&str], script: &str) -> String {
        self.submit_by(&[], words, script)
    }

    /// * `by` — a program that runs sbatch as another user.
    #[track_caller]
    pub(crate) fn submit_by(&self, by: &[&str], words: &[&str], script: &str) -> String {
        let script = script.replace('@', &self.client);
        let (out, wrap) =
            (format!("--output={}/%j.out", self.work.display()), format!("--wrap={script}"));
        let first =
            ["sbatch", "--parsable", "--mem=16", "--chdir=/tmp", "--open-mode=append", &out, &wrap];
        self.does(&[by, &first, words].concat()).trim().to_owned()
    }

    /// A file by which tests and jobs tell each other something.
    pub(crate) fn flag(&self, name: &str) -> String {
        self.work.join(name).display().to_string()
    }

    /// Makes such a file.
    pub(crate) fn raise(&self, name: &str) {
        fs::write(self.flag(name), "").unwrap();
    }

    /// What a job has printed.
    pub(crate) fn out(&self, job: &str) -> String {
        fs::read_to_string(self.work.join(format!("{job}.out"))).unwrap_or_default()
    }

    /// Waits until a job has printed a word.
    #[track_caller]
    pub(crate) fn until_says(&self, job: &str, word: &str) -> String {
        let says = |_: &Cluster| Some(self.out(job)).filter(|out| out.contains(word));
        self.until(&format!("job {job} to say {word}"), says)
    }

    /// Waits until there is such a file.
    #[track_caller]
    pub(crate) fn until_raised(&self, name: &str) {
        self.until(name, |_| Path::new(&self.flag(name)).exists().then_some(()));
    }

    /// Waits for a job's state, which may be one of several.
    #[track_caller]
    pub(crate) fn until_is(&self, job: &str, states: &[&str]) -> String {
        let is = |_: &Cluster| {
            let state = self.field(job, "JobState");
            states.contains(&state.as_str()).then_some(state)
        };
        self.until(&format!("job {job} to be {states:?}"), is)
    }

    /// Waits until a job is over; returns what it printed.
    #[track_caller]
    pub(crate) fn finish(&self, job: &str) -> String {
        self.until_is(job, &["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"]);
        self.out(job)
    }

    /// Waits until there is something to see; says what the node's Prologs said if there never is.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, look: impl FnMut(&Cluster) -> Option<T>) -> T {
        self.cluster.until(what, look).unwrap_or_else(|error| {
            let log = self.cluster.folder().join("log/hotpot.n1.log");
            panic!("{error}\n{}", fs::read_to_string(log).unwrap_or_default())
        })
    }

    /// What `scontrol show job` has for a key; empty if nothing.
    pub(crate) fn field(&self, job: &str, key: &str) -> String {
        let shown = self.cluster.run(&["scontrol", "-o", "show", "job", job]).unwrap_or_default();
        let after = shown.split(&format!(" {key}=")).nth(1).unwrap_or_default();
        after.split(' ').next().unwrap_or_default().trim().to_owned()
    }

    /// A job's AdminComment.
    pub(crate) fn comment(&self, job: &str) -> String {
        let shown = self.does(&["scontrol", "show", "job", job]);
        let lines = shown.lines().filter_map(|line| line.trim().strip_prefix("AdminComment="));
        lines.collect()
    }

    /// A node's simulated machine.
    pub(crate) fn machine(&self, node: &str) -> Machine {
        Machine::open(self.cluster.machine(node).join("machine")).unwrap()
    }

    /// What happens on its GPUs.
    pub(crate) fn gpus(&self, node: &str) -> Gpus {
        Gpus::open(&self.machine(node)).unwrap()
    }

    /// The node's book of who holds what.
    pub(crate) fn journal(&self, node: &str) -> Journal {
        Journal::open(&self.cluster.machine(node).join("state")).unwrap()
    }

    /// What a job holds by that book.
    pub(crate) fn held(&self, node: &str, job: &str) -> Vec<Hold> {
        let mut holds = self.journal(node).holds().unwrap();
        holds.retain(|hold| hold.who == format!("slurm/{job}"));
        holds
    }

    /// All that a node still has of a job, in words.
    pub(crate) fn left(&self, node: &str, job: &str) -> Vec<String> {
        let mut left: Vec<String> =
            self.held(node, job).iter().map(|hold| format!("{hold:?}")).collect();
        let machine = self.cluster.machine(node);
        let files =
            ["task", "grants", "lock"].map(|kind| machine.join(format!("jobs/{job}.{kind}")));
        let caps = machine.join("state/caps/slurm").join(job);
        let files = files.into_iter().chain([caps]).filter(|path| path.exists());
        left.extend(files.map(|path| path.display().to_string()));
        left
    }

    /// Waits until a node has nothing of a job any more.
    #[track_caller]
    pub(crate) fn until_undone(&self, node: &str, job: &str) {
        let undone = |_: &Cluster| self.left(node, job).is_empty().then_some(());
        self.cluster.until("nothing to be left", undone).unwrap_or_else(|error| {
            panic!("job {job} has left {:?}\n{error}", self.left(node, job));
        });
    }

    /// Runs hotpot's script of that name as Slurm would on a node, for a job if there is one.
    pub(crate) fn script(&self, name: &str, node: &str, job: Option<&str>) -> Output {
        let program = self.cluster.etc().join(name);
        let mut command = self.cluster.command(program.to_str().unwrap());
        command.env("SLURMD_NODENAME", node);
        if let Some(job) = job {
            command.env("SLURM_JOB_ID", job);
        }
        command.output().unwrap()
    }

    /// Kills a node's slurmd, and whatever else, and starts it again.
    pub(crate) fn restart_slurmd(&self, node: &str, meanwhile: impl FnOnce()) {
        let slurmd = Daemon::Slurmd(node.into());
        self.cluster.kill(&slurmd);
        meanwhile();
        self.cluster.start(&slurmd).unwrap();
    }
}

/// A folder of its own whose path is short, as sockets lie in it; everybody may write there.
fn folder() -> PathBuf {
    static SITES: AtomicU32 = AtomicU32::new(0);
    let name = format!("hotpot-node-{}-{}", std::process::id(), SITES.fetch_add(1, Relaxed));
    let work = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).unwrap();
    fs::set_permissions(&work, PermissionsExt::from_mode(0o1777)).unwrap();
    work
}

fn compiled(test: &str, work: &Path) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/gpu.c");
    let client = work.join("gpu");
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-Wall", "-Werror"]).arg(source).arg("-o").arg(&client);
    match command.arg("-ldl").status() {
        Ok(status) => assert!(status.success(), "the client does not compile"),
        Err(error) => {
            eprintln!("skipped: {test}: no C compiler: {error}");
            return None;
        }
    }
    Some(client.display().to_string())
}
