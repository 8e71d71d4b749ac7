//! What jobs used reaches Slurm's accounting, and what is said of jobs there: on a real cluster with hotpot.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use slurm::usage::UsedOn;
use slurm_lab::{Cluster, Options};

use support::site::built;

/// A cluster with accounting and hotpot on its two nodes; gone at the end.
struct Site {
    cluster: Cluster,
    built: PathBuf,
    holds: PathBuf,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.cluster.down();
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(self.cluster.folder());
        }
    }
}

/// `None`, said by the test's name, where real Slurm or a C compiler cannot be had.
fn up(test: &str) -> Option<Site> {
    let (folder, built) =
        (std::env::temp_dir().join(format!("seeing-{}", std::process::id())), built().to_owned());
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm");
    let options = Options { gpus: 2, accounting: true, ..Options::default() };
    let options = options.with_hotpot(&folder, &built, &deploy).unwrap();
    if !slurm_lab::can_be_had(test, &options) {
        return None;
    }
    let _ = fs::remove_dir_all(&folder);
    let cluster = Cluster::up(&folder, &options).unwrap_or_else(|error| panic!("{error}"));
    cluster.tell_hotpot(&built).unwrap();
    let holds = folder.join("holds");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeing/holds.c");
    let compiled = Command::new("cc").arg(source).arg("-o").arg(&holds).arg("-ldl").status();
    let site = Site { cluster, built, holds };
    match compiled {
        Ok(status) => assert!(status.success(), "the client does not compile"),
        Err(error) => {
            eprintln!("skipped: {test}: no C compiler: {error}");
            return None;
        }
    }
    Some(site)
}

impl Site {
    fn hotpot(&self, words: &[&str]) -> Output {
        let program = self.built.join("hotpot");
        self.cluster.command(program.to_str().unwrap()).args(words).output().unwrap()
    }

    fn said(&self, words: &[&str]) -> String {
        let output = self.hotpot(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Submits a job whose tasks take so much memory.
    fn submit(&self, words: &[&str], mib: u32) -> String {
        self.submit_script(words, &format!("srun {} {mib}", self.holds.display()))
    }

    fn submit_script(&self, words: &[&str], script: &str) -> String {
        let first = ["sbatch", "--parsable", "--output=/dev/null", "--mem=16", "--time=20"];
        let script = format!("--wrap={script}");
        self.cluster.run(&[&first[..], words, &[&script]].concat()).unwrap().trim().to_string()
    }

    /// Submits a script that holds so much by `hotpot slurm run --right-size`; what was said, and the job.
    ///
    /// * `lines` — for sbatch.
    fn right_sized(&self, words: &[&str], lines: &str, mib: u32) -> (String, String) {
        let script = self.cluster.folder().join("embed.sbatch");
        let holds = self.holds.display();
        let lines = format!("#SBATCH --output=/dev/null --mem=16 --time=20 {lines}");
        fs::write(&script, format!("#!/bin/sh\n{lines}\nsrun {holds} {mib}\n")).unwrap();
        let first = ["slurm", "run", "--right-size"];
        let output = self.hotpot(&[&first[..], words, &[script.to_str().unwrap()]].concat());
        assert!(output.status.success(), "{words:?}: {output:?}");
        let job = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        (String::from_utf8(output.stderr).unwrap(), job)
    }

    /// What stands in a job's record of what it asks.
    fn asked(&self, job: &str) -> String {
        let shown = self.cluster.run(&["scontrol", "-o", "show", "job", job]).unwrap();
        let asked = |line: &str| Some(line.split_once("hotpot(")?.1.split_once(')')?.0.to_owned());
        shown.lines().find_map(asked).unwrap_or_default()
    }

    /// What accounting says of a job's tasks, once there are so many words in all.
    fn used(&self, job: &str, words: usize) -> Vec<(String, Vec<UsedOn>)> {
        let line =
            ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,AdminComment"];
        let line = [&line[..], &["--jobs", job]].concat();
        let look = |cluster: &Cluster| {
            let text = cluster.run(&line).ok()?;
            let rows = text.lines().filter_map(|row| row.split_once('|'));
            let rows = rows.map(|(id, comment)| (id.to_string(), UsedOn::all_of(comment)));
            let rows: Vec<_> = rows.collect();
            (rows.iter().map(|(_, used)| used.len()).sum::<usize>() == words).then_some(rows)
        };
        self.cluster.until(&format!("{words} words of job {job}"), look).unwrap()
    }

    /// How many words wait on a node after `hotpot slurm tidy` has run there.
    ///
    /// * `instead` — variables that name programs instead of Slurm's.
    fn tidied(&self, node: &str, instead: &[(&str, &str)]) -> usize {
        let tidy = self.cluster.etc().join("hotpot-tidy");
        let mut command = self.cluster.command(tidy.to_str().unwrap());
        command.envs(instead.iter().copied());
        let status = command.env("SLURMD_NODENAME", node).status();
        assert!(status.unwrap().success(), "nothing of this is a fault of the node");
        self.words_on(node)
    }

    fn words_on(&self, node: &str) -> usize {
        let entries = fs::read_dir(self.cluster.machine(node).join("jobs")).unwrap().flatten();
        entries.filter(|it| it.path().extension().is_some_and(|it| it == "used")).count()
    }

    /// Waits until a word is in a job's record for good: slurmctld may write the record once more without it.
    fn until_kept(&self, job: &str) -> UsedOn {
        let used = self.used(job, 1).remove(0).1.remove(0);
        let kept = |_: &Cluster| (self.words_on(&used.node) == 0).then_some(());
        self.cluster.until("the words to be kept", kept).unwrap();
        used
    }
}

#[test]
fn what_jobs_used_reaches_their_records_and_is_told() {
    let test = "what_jobs_used_reaches_their_records_and_is_told";
    let Some(site) = up(test) else { return };
    // All tasks of an array, and two nodes that write to one record at once.
    let array = site.submit(&["--array=1-5", "--job-name=embed", "--gpu-mem=4G"], 512);
    let wide = site.submit(&["--nodes=2", "--job-name=wide", "--gpu-mem=2G"], 256);
    let tasks = site.used(&array, 5);
    for (id, used) in &tasks {
        assert_eq!((used.len(), used[0].refused), (1, 0), "{id}");
        assert!((512..1536).contains(&used[0].memory_mib), "a context is on top: {used:?}");
    }
    let nodes = site.used(&wide, 2).remove(0).1;
    let mut names: Vec<&str> = nodes.iter().map(|used| used.node.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["n1", "n2"]);

    let told = site.said(&["explain", &format!("{array}_2")]);
    assert!(told.contains("held at most ") && told.contains("completed"), "{told}");
    let report =
        site.said(&["report", "slurm", "--by", "name", "--min-runs", "3", "--output", "json"]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let sizes = report["sizes"].as_array().unwrap();
    let embed = sizes.iter().find(|size| size["name"] == "embed").unwrap();
    assert_eq!((&embed["runs"], &embed["asked_mib"]), (&5.into(), &4096.into()), "{embed}");
    assert!(embed["ask_mib"].as_u64().unwrap() < 4096, "{embed}");
    let size = site.said(&["slurm", "size", "embed", "--user", "root", "--min-runs", "3"]);
    assert!(size.starts_with("--gpu-mem="), "{size}");
    let again = site.submit(&["--job-name=embed", size.trim()], 512);
    assert_eq!(site.used(&again, 1)[0].1[0].refused, 0, "it fits into what was suggested");

    // A word waits on its node while accounting does not answer, and until the job is over.
    let running = site.submit_script(&["--nodelist=n2"], "sleep 600");
    let folder = site.cluster.machine("n2").join("jobs");
    let one = UsedOn { node: "n2".into(), memory_mib: 77, launches: 1, ..UsedOn::default() };
    slurm::usage::write(&folder, running.parse().unwrap(), &one).unwrap();
    assert_eq!(site.tidied("n2", &[("HOTPOT_SACCT", "/bin/false")]), 1, "sacct fails");
    assert_eq!(site.tidied("n2", &[]), 1, "it is not over");
    site.cluster.run(&["scancel", &running]).unwrap();
    let taken = |_: &Cluster| (site.tidied("n2", &[]) == 0).then_some(());
    site.cluster.until("the word to be taken", taken).unwrap();
    assert_eq!(site.used(&running, 1)[0].1, [one]);
    passes_over_what_is_refused(&site);
    right_sizes(&site);
    counts_accounts_below(&site);
}

/// Accounting takes no change of one job's record: the words of others are brought all the same.
fn passes_over_what_is_refused(site: &Site) {
    let jobs = [0, 1].map(|_| site.submit_script(&["--nodelist=n2", "--wait"], "true"));
    let folder = site.cluster.machine("n2").join("jobs");
    let one = UsedOn { node: "n2".into(), memory_mib: 78, launches: 1, ..UsedOn::default() };
    for job in &jobs {
        slurm::usage::write(&folder, job.parse().unwrap(), &one).unwrap();
    }
    let program = site.cluster.folder().join("refuses");
    let refuses = format!(
        "#!/bin/sh\ncase \"$*\" in *\"jobid={} \"*) echo no >&2; exit 1;; esac\nexec sacctmgr \"$@\"\n",
        jobs[0]
    );
    fs::write(&program, refuses).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let instead = [("HOTPOT_SACCTMGR", program.to_str().unwrap())];
    let other = |_: &Cluster| (site.tidied("n2", &instead) == 1).then_some(());
    site.cluster.until("the other's word to be taken", other).unwrap();
    assert_eq!(site.used(&jobs[1], 1)[0].1, [one]);
    let both = |_: &Cluster| (site.tidied("n2", &[]) == 0).then_some(());
    site.cluster.until("both words to be taken", both).unwrap();
}

/// What an account may hold is for those below it too.
fn counts_accounts_below(site: &Site) {
    for words in [
        &["add", "account", "above", "grptres=billing=900"][..],
        &["add", "account", "below", "parent=above"],
        &["add", "user", "root", "account=below"],
    ] {
        site.cluster.run(&[&["sacctmgr", "--immediate"], words].concat()).unwrap();
    }
    let words = ["--account=below", "--gres=gpu:2", "--nodes=1"];
    let job = site.submit_script(&words, "sleep 600");
    let held = |_: &Cluster| {
        let text = site.said(&["report", "slurm", "--output", "json"]);
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let quotas = report["quotas"].as_array().unwrap();
        let above = quotas.iter().find(|quota| quota["of"] == "account above");
        above.is_some_and(|quota| quota["held_gpus"] == 2.0).then_some(())
    };
    site.cluster.until("two GPUs to be held under account above", held).unwrap();
    site.cluster.run(&["scancel", &job]).unwrap();
}

/// After runs named `embed` that asked 4 GiB and held 512 MiB and a context.
fn right_sizes(site: &Site) {
    let lines = "--job-name=embed --gpu-mem=4G";
    let (said, job) = site.right_sized(&["--parsable"], lines, 512);
    assert!(said.contains("embed: asked 4 GiB, never above "), "{said}");
    assert!(said.contains("; asking 1.25 GiB (--gpu-mem=1280M)"), "{said}");
    assert_eq!(site.asked(&job), "gpu-mem=1280", "over the script's word");
    let place = format!("--folder={}", site.cluster.folder().join("arrays").display());
    let array = ["--wait", &place, "--parsable", "--array=1-4%2", "--job-name=embed"];
    let (said, job) = site.right_sized(&array, "--gpu-mem=4G", 512);
    assert!(said.contains("(--gpu-mem=1280M)"), "{said}");
    let job = job.lines().next().unwrap();
    assert_eq!(site.asked(job), "gpu-mem=1280", "pilots too");

    let (said, job) = site.right_sized(&["--parsable", "--gpu-mem=3G"], lines, 512);
    assert!(said.contains("embed: --gpu-mem=3G is the user's word"), "{said}");
    assert_eq!(site.asked(&job), "gpu-mem=3072");
    let (said, job) = site.right_sized(&["--parsable"], "--job-name=embed --gres=gpu:1", 512);
    assert!(said.contains("write --gpu-mem=1280M in its place"), "{said}");
    assert_eq!(site.asked(&job), "", "a whole card stays one");
    let (said, job) = site.right_sized(&["--parsable"], "--gpu-mem=4G", 512);
    assert!(said.contains("embed.sbatch: no earlier run of it was measured"), "{said}");
    assert_eq!(site.asked(&job), "gpu-mem=4096");

    // One run that needs more than it gets, and none that asks as little is made smaller again.
    let small = site.submit(&["--job-name=embed", "--gpu-mem=1G"], 2048);
    assert_eq!(site.until_kept(&small).refused, 1);
    // sacct lists by time what it has shown by number before, but some seconds later.
    let is_told = |_: &Cluster| {
        let text = site.said(&["report", "slurm", "--by", "name", "--output", "json"]);
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let sizes = report["sizes"].as_array().unwrap();
        let embed = sizes.iter().find(|size| size["name"] == "embed");
        embed.is_some_and(|size| size["refused_runs"] == 1).then_some(())
    };
    site.cluster.until("the refusal in the report", is_told).unwrap();
    let (said, job) = site.right_sized(&["--parsable"], lines, 512);
    assert!(said.contains("1 was refused memory: no less"), "{said}");
    assert_eq!(site.asked(&job), "gpu-mem=4096");
    let (said, job) = site.right_sized(&["--parsable"], "--job-name=embed --gpu-mem=1G", 512);
    assert!(said.contains("asking 1.5 GiB (--gpu-mem=1536M)"), "{said}");
    assert_eq!(site.asked(&job), "gpu-mem=1536");
}

#[test]
fn jobs_in_the_queue_are_explained_and_others_are_not_known() {
    let test = "jobs_in_the_queue_are_explained_and_others_are_not_known";
    let options = Options { nodes: 1, gpus: 2, ..Options::default() };
    if !slurm_lab::can_be_had(test, &options) {
        return;
    }
    let folder = std::env::temp_dir().join(format!("seeing-queue-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let cluster = Cluster::up(&folder, &options).unwrap_or_else(|error| panic!("{error}"));
    let site = Site { cluster, built: built().to_owned(), holds: "true".into() };
    let submit = |words: &[&str]| {
        let first = ["sbatch", "--parsable", "--output=/dev/null", "--mem=16", "--wrap=sleep 600"];
        site.cluster.run(&[&first[..], words].concat()).unwrap().trim().to_string()
    };
    let holder = submit(&["--gres=gpu:2", "--time=10"]);
    let explained = |job: &str, state: &str| {
        let look = |_: &Cluster| {
            let text = site.said(&["explain", job, "--output", "json"]);
            let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
            (answer["state"] == state).then_some(answer)
        };
        site.cluster.until(&format!("job {job} to be {state}"), look).unwrap()
    };
    let runs = explained(&holder, "RUNNING");
    assert_eq!(runs["runs"]["on"][0]["gpus"].as_array().unwrap().len(), 2, "{runs}");
    let waiting = submit(&["--gres=shard:40", "--time=5"]);
    let waits = &explained(&waiting, "PENDING")["waits"];
    assert_eq!(waits["fits_now"], false, "{waits}");
    let within = waits["starts_within_s"].as_u64().unwrap();
    assert!((1..=600).contains(&within), "the holder's limit: {within}");
    let lack = &waits["nodes"][0]["lacks"][0];
    assert_eq!(
        (&lack["lack"], &lack["asked"], &lack["free"]),
        (&"parts".into(), &40.into(), &0.into())
    );
    assert_eq!(waits["nodes"][0]["gpus"][0]["holders"][0]["job"], holder.as_str());
    tells_of_arrays(&submit, &explained);
    let unknown = site.hotpot(&["explain", "4711"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("have such a job"), "{unknown:?}");
    let report = site.hotpot(&["report", "slurm"]);
    assert!(String::from_utf8_lossy(&report.stderr).contains("keeps no accounts"), "{report:?}");
    let (said, job) = site.right_sized(&["--parsable"], "--gres=gpu:1", 0);
    assert!(said.contains("keeps no accounts here"), "{said}");
    assert!(said.contains("; submitted as it stands") && job.parse::<u32>().is_ok(), "{said}");
}

/// Tasks that wait are found and counted: with a step between them, and in a list longer than Slurm shows.
fn tells_of_arrays(
    submit: &dyn Fn(&[&str]) -> String,
    explained: &dyn Fn(&str, &str) -> serde_json::Value,
) {
    let step = submit(&["--gres=gpu:2", "--array=0-100:2%5"]);
    assert_eq!(explained(&format!("{step}_44"), "PENDING")["array"]["waiting"], 51);
    let tasks: Vec<u32> = (0..200).filter(|task| [0, 3, 4].contains(&(task % 7))).collect();
    let list = tasks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let long = submit(&["--gres=gpu:2", &format!("--array={list}")]);
    let last = tasks[tasks.len() - 1];
    let answer = explained(&format!("{long}_{last}"), "PENDING");
    assert_eq!(answer["array"]["waiting"], tasks.len());
    assert!(answer["job"].as_str().unwrap().len() < 80, "{answer}");
}
