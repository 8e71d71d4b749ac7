//! Files under stress: a full disk, two writers, a killed process, folders and files without rights.

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Done, Place, skip};

const JOBS: &str = "[[workload]]\nname = 'a'\ngpus = 1\nruns = '1h'\ncount = 40\n";

/// A queue that never empties: some seconds of work.
fn overload(tasks: usize) -> String {
    let row = |at: usize| format!("t{at},4000,8192,1,{},{at},{}\n", 100 + at % 900, at + 90_000);
    let head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n";
    head.to_string() + &(0..tasks).map(row).collect::<String>()
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(".r.html.") && name.ends_with(".tmp")
}

fn signal(child: &Child, name: &str) {
    let line = format!("kill -{name} {}", child.id());
    let sent = Command::new("bash").args(["-c", &line]).status().expect("bash runs");
    assert!(sent.success(), "{line}");
}

/// A file system of 16 KiB; gone when dropped.
struct TinyDisk(PathBuf);

impl TinyDisk {
    /// `None` where mounting is not allowed.
    fn mount(folder: &Path) -> Option<Self> {
        fs::create_dir(folder).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"]).arg(folder);
        let done = mount.stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success()).then(|| Self(folder.to_path_buf()))
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _best_effort = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_keeps_the_old_report_and_nothing_half_written() {
    let place = Place::new("full-disk");
    place.write("jobs.toml", JOBS);
    let disk = place.path("disk");
    let Some(_mounted) = TinyDisk::mount(&disk) else {
        return skip("only root can mount a small disk");
    };
    fs::write(disk.join("r.html"), "old").expect("room for three bytes");
    let done = place.run("simulate jobs.toml --gpus t4:8 --report disk/r.html");
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.err.contains("cannot write disk/r.html"), "{done:?}");
    assert!(done.err.contains("No space left") && done.err.contains("free some space"), "{done:?}");
    assert!(done.out.contains("Allocated at the end"), "the table is lost: {done:?}");
    assert_eq!(fs::read_to_string(disk.join("r.html")).expect("the old report"), "old");
    assert_eq!(fs::read_dir(&disk).expect("the disk").count(), 1, "something is left behind");
}

#[test]
fn of_two_writers_one_wins_whole() {
    let place = Place::new("two-writers");
    place.write("jobs.toml", JOBS);
    let command = |policy: &str, report: &str| {
        let line = format!("simulate jobs.toml --gpus t4:8 --policy {policy} --report {report}");
        let mut command = place.hotpot(&line);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let whole = ["fgd", "spread"].map(|policy| {
        assert!(command(policy, policy).status().expect("a run").success());
        fs::read(place.path(policy)).expect("a report")
    });
    for round in 0..10 {
        let writers = ["fgd", "spread"].map(|policy| command(policy, "r.html").spawn());
        for mut writer in writers.map(|writer| writer.expect("a run")) {
            assert!(writer.wait().expect("an end").success());
        }
        let found = fs::read(place.path("r.html")).expect("a report");
        assert!(whole.contains(&found), "round {round}: {} bytes of a mixture", found.len());
    }
    assert_eq!(place.files(), ["fgd", "jobs.toml", "r.html", "spread"]);
}

/// What `kill -9` can leave behind is a temporary file, `.r.html.PID-0.tmp`; never part of a report.
#[test]
fn a_killed_run_leaves_the_old_report_or_a_whole_new_one() {
    let place = Place::new("killed");
    place.write("jobs.toml", JOBS);
    let line = "simulate jobs.toml --gpus t4:8 --report r.html";
    let begun = Instant::now();
    assert_eq!(place.run(line).code, 0);
    let full = begun.elapsed();
    let whole = fs::read(place.path("r.html")).expect("a report");
    for step in 0..24_u32 {
        place.write("r.html", "old");
        let mut run = place.hotpot(line);
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a run");
        sleep(full * step / 20);
        let _may_have_ended = child.kill();
        child.wait().expect("an end");
        let found = fs::read(place.path("r.html")).expect("a report");
        assert!(found == whole || found == b"old", "step {step}: {} bytes", found.len());
    }
    let mut files = place.files();
    files.retain(|name| !is_temporary(name));
    assert_eq!(files, ["jobs.toml", "r.html"]);
    assert_eq!(place.run(line).code, 0, "leftovers are in the way");
}

#[test]
fn an_interrupted_run_ends_at_once_and_quietly() {
    let place = Place::new("interrupted");
    place.write("tasks.csv", overload(60_000));
    let mut run = place.hotpot("simulate tasks.csv --gpus t4:4 --report r.html --csv s.csv");
    let piped = run.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("a run");
    sleep(Duration::from_millis(700));
    assert_eq!(child.try_wait().expect("a state"), None, "the run is too short for this test");
    let begun = Instant::now();
    signal(&child, "INT");
    let status = child.wait().expect("an end");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(status.code(), None, "a shell must see that a signal ended it");
    let mut told = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut told).expect("text");
    child.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    assert_eq!(told, "");
    assert_eq!(place.files(), ["tasks.csv"]);
}

#[test]
fn what_may_not_be_read_or_written_is_said() {
    let place = Place::new("rights");
    let jobs = place.write("jobs.toml", JOBS);
    let locked = place.path("locked");
    fs::create_dir(&locked).expect("a folder");
    fs::set_permissions(&jobs, fs::Permissions::from_mode(0o000)).expect("an own file");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).expect("an own folder");
    if fs::read(&jobs).is_ok() {
        return skip("root may read everything");
    }
    let done = place.run("plan jobs.toml --gpus t4:1");
    assert_eq!((done.code, done.out.as_str()), (2, ""));
    assert!(done.err.contains("jobs.toml: cannot be read: Permission denied"), "{done:?}");
    fs::set_permissions(&jobs, fs::Permissions::from_mode(0o600)).expect("an own file");
    let done = place.run("simulate jobs.toml --gpus t4:1 --report locked/r.html");
    assert_eq!(done.code, 1);
    assert!(done.err.contains("name a folder you may write to"), "{done:?}");
}

/// Rights, as far as a user without any can be had: root tries as `nobody`.
#[test]
fn root_tests_rights_as_nobody() {
    let place = Place::new("nobody");
    place.write("jobs.toml", JOBS);
    let program = fs::read(support::PROGRAM).expect("the program");
    let copy = std::env::temp_dir().join(format!("hotpot-{}", std::process::id()));
    fs::write(&copy, program).expect("a copy that nobody can reach");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("an own file");
    let secret = copy.with_extension("toml");
    fs::write(&secret, JOBS).expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("an own file");
    let mut run = place.command("setpriv");
    run.args(["--reuid=65534", "--clear-groups"]).arg(&copy).args(["plan", "--gpus", "t4:1"]);
    let output = run.arg(&secret).current_dir("/").output();
    let _best_effort = (fs::remove_file(&copy), fs::remove_file(&secret));
    let Ok(output) = output else { return skip("no setpriv") };
    let done = Done::of(output);
    if done.err.starts_with("setpriv") {
        return skip(&done.err);
    }
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("Permission denied"), "{done:?}");
    assert!(done.err.contains("ask for the right to read it"), "{done:?}");
}
