//! Caps of jobs on a real cluster with simulated GPUs: what a job may take beside its neighbours, what it sees of
//! its card, and whose its files are.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Mutex;

use fake_gpu::Gpus;
use slurm_lab::{Cluster, Options};
use support::site::Site;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: &str = "2";
const GIB: u64 = 1 << 30;
/// GPU time over which shares are looked at, and how far they may be off, in percent.
const WINDOW_NS: u64 = 6_000_000_000;
const POINTS: f64 = 3.0;

/// Shares of time are not to be measured while others use the CPUs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn one_card() -> Options {
    Options { nodes: 1, gpus: 1, ..Options::default() }
}

/// The last words of the line that begins so.
fn line<'a>(out: &'a str, first: &str) -> Vec<&'a str> {
    let found = out.lines().find_map(|line| line.strip_prefix(first));
    found.unwrap_or_else(|| panic!("no line `{first}` in: {out}")).split_whitespace().collect()
}

fn mib(word: &str) -> u64 {
    word.parse().unwrap()
}

/// Memory that all processes on a node hold, by process.
fn held(gpus: &Gpus) -> BTreeMap<u32, u64> {
    let held = gpus.held();
    held.iter().map(|held| (held.pid, held.bytes.iter().sum())).collect()
}

#[test]
fn a_job_gets_what_it_asked_and_no_more_and_its_neighbour_notices_nothing() {
    let test = "a_job_gets_what_it_asked_and_no_more_and_its_neighbour_notices_nothing";
    let _alone = ONE_AT_A_TIME.lock();
    let Some(site) = Site::up(test, one_card()) else { return };
    let leave = site.flag("leave");
    let neighbour =
        site.submit(&["--gpu-mem=12G"], &format!("@ alloc 10240 pid wait {leave} alloc 512 info"));
    let pid: u32 = mib(line(&site.until_says(&neighbour, "pid"), "pid")[0]) as u32;
    let gpus = site.gpus("n1");
    let before = held(&gpus)[&pid];
    assert!(before >= 10 * GIB, "{before}");

    // The same in a batch script, in a step of it, and by srun alone.
    let over = "alloc 1024 alloc 4096 info alloc 512";
    let looks = |out: &str| {
        assert_eq!(line(out, "alloc 1024"), ["0"], "{out}");
        assert_eq!(line(out, "alloc 4096"), [OUT_OF_MEMORY], "{out}");
        assert_eq!(line(out, "alloc 512"), ["0"], "{out}");
        let seen = line(out, "info");
        let (free, total, nvml) = (mib(seen[0]), mib(seen[1]), mib(seen[2]));
        assert!((2048..3072).contains(&total) && nvml == total && free <= 1024, "{out}");
    };
    let batch = site.submit(&["--gpu-mem=2G"], &format!("@ {over}"));
    looks(&site.finish(&batch));
    let step = site.submit(&["--gpu-mem=2G"], &format!("srun @ {over}"));
    looks(&site.finish(&step));
    let words: Vec<&str> = over.split(' ').collect();
    let alone = ["srun", "--mem=16", "--gpu-mem=2G", &site.client];
    let alone = site.tries(&[&alone[..], &words].concat());
    looks(&String::from_utf8_lossy(&alone.stdout));

    // Plain shards stand for as much memory: 8 of 256 MiB, the context among it.
    let shards = site.submit(&["--gres=shard:8"], "@ alloc 1024 alloc 1024 info");
    let out = site.finish(&shards);
    assert!(out.starts_with("alloc 1024 0\nalloc 1024 2\n"), "{out}");
    assert_eq!(line(&out, "info")[1..], ["2048", "2048"], "{out}");

    assert_eq!(held(&gpus)[&pid], before, "the neighbour has what it had");
    site.raise("leave");
    let out = site.finish(&neighbour);
    assert_eq!(line(&out, "alloc 512"), ["0"], "{out}");
}

#[test]
fn the_processes_of_a_job_are_counted_together() {
    let test = "the_processes_of_a_job_are_counted_together";
    let _alone = ONE_AT_A_TIME.lock();
    let Some(site) = Site::up(test, one_card()) else { return };
    let (holds, over) = (site.flag("holds"), site.flag("over"));
    // The first holds its part until the others were refused: one of the script, one of a step.
    let script = format!(
        "@ alloc 1200 touch {holds} wait {over} & @ wait {holds} alloc 1300; srun --overlap @ alloc 1400; \
         touch {over}; wait; @ alloc 1500"
    );
    let job = site.submit(&["--gpu-mem=2G"], &script);
    let out = site.finish(&job);
    let codes =
        ["1200", "1300", "1400", "1500"].map(|size| line(&out, &format!("alloc {size}"))[0]);
    assert_eq!(codes, ["0", OUT_OF_MEMORY, OUT_OF_MEMORY, "0"], "{out}");
}

/// A user who administers nothing, if there is one who can read the limiter where it was built.
fn other_user(site: &Site) -> Vec<&'static str> {
    let by = ["runuser", "-u", "nobody", "--"];
    let limiter = support::site::built().join("libhotpot_limiter.so");
    let reads = Command::new(by[0]).args(&by[1..]).arg("test").arg("-r").arg(limiter).status();
    let runs = site.tries(&[&by[..], &["test", "-x", &site.client]].concat()).status.success();
    if reads.is_ok_and(|status| status.success()) && runs { by.to_vec() } else { Vec::new() }
}

#[test]
fn jobs_of_two_users_divide_a_card_as_they_asked() {
    let test = "jobs_of_two_users_divide_a_card_as_they_asked";
    let _alone = ONE_AT_A_TIME.lock();
    let Some(site) = Site::up(test, one_card()) else { return };
    let by = other_user(&site);
    let words = ["--gpu-mem=2G", "--gpu-compute=20%"];
    let small = site.submit_by(&by, &words, "@ alloc 1024 alloc 4096 pid spin 5000000");
    let words = ["--gpu-mem=4G", "--gpu-compute=80%"];
    let large = site.submit(&words, "@ alloc 2048 alloc 8192 pid spin 5000000");
    let pids = [&small, &large].map(|job| {
        let out = site.until_says(job, "spins");
        assert!(out.contains(" 0\n") && out.contains(&format!(" {OUT_OF_MEMORY}\n")), "{out}");
        mib(line(&out, "pid")[0]) as u32
    });
    if !by.is_empty() {
        let users = pids.map(|pid| fs::metadata(format!("/proc/{pid}")).unwrap().uid());
        assert!(users[0] != 0 && users[1] == 0, "{users:?}");
        // What a job's processes write is theirs alone.
        for (job, user) in [(&small, users[0]), (&large, users[1])] {
            let folder = site.cluster.machine("n1").join("state/caps/slurm").join(job);
            let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
            let ledger =
                files.iter().find(|file| file.path().extension().is_some_and(|it| it == "ledger"));
            let about = ledger.unwrap().metadata().unwrap();
            assert_eq!((about.uid(), about.mode() & 0o777), (user, 0o600), "{folder:?}");
            let caps = fs::metadata(folder.join("caps")).unwrap();
            assert_eq!((caps.uid(), caps.mode() & 0o222), (0, 0), "{folder:?}");
        }
    }
    let (gpus, mut begun) = (site.gpus("n1"), None);
    let busy = || pids.map(|pid| busy_ns(&gpus, pid));
    let had = site.until("some seconds of GPU time", |_: &Cluster| {
        let (first, now) = (*begun.get_or_insert_with(busy), busy());
        let had = [now[0] - first[0], now[1] - first[1]];
        (had[0] + had[1] >= WINDOW_NS).then_some(had)
    });
    let percent = had[0] as f64 * 100.0 / (had[0] + had[1]) as f64;
    eprintln!(
        "20/80 of a card, of {} users: {percent:.1}/{:.1}",
        1 + by.len().min(1),
        100.0 - percent
    );
    assert!((percent - 20.0).abs() <= POINTS, "{percent:.1}");
    site.does(&["scancel", &small, &large]);
    [small, large].iter().for_each(|job| site.until_undone("n1", job));
}

#[test]
fn a_card_with_an_mps_daemon_serves_users_who_are_not_root() {
    let test = "a_card_with_an_mps_daemon_serves_users_who_are_not_root";
    let _alone = ONE_AT_A_TIME.lock();
    let Some(site) = Site::up(test, one_card()) else { return };
    let by = other_user(&site);
    let words = ["--gpu-mem=2G", "--gpu-share=mps"];
    // What a client may take at most is the real driver's to hold; the simulated one does not.
    let job = site.submit_by(&by, &words, "@ alloc 1024");
    assert_eq!(site.finish(&job), "alloc 1024 0\n");
    site.until_undone("n1", &job);
}

fn busy_ns(gpus: &Gpus, pid: u32) -> u64 {
    gpus.busy_ns().into_iter().filter(|busy| busy.0 == pid).map(|busy| busy.2).sum()
}

#[test]
fn the_jobs_of_a_gpu_are_written_down_for_its_exporter() {
    let test = "the_jobs_of_a_gpu_are_written_down_for_its_exporter";
    let _alone = ONE_AT_A_TIME.lock();
    let options = Options { nodes: 1, gpus: 2, ..Options::default() };
    let built = support::site::built();
    let Some(site) = Site::up_with(test, options, built, "JobMapping=@WORK@/mapping\n") else {
        return;
    };
    let of =
        |gpu: u32| fs::read_to_string(site.work.join(format!("mapping/{gpu}"))).unwrap_or_default();
    let wait = |name: &str| {
        format!("@ touch {} wait {}", site.flag(&format!("{name}.up")), site.flag(name))
    };
    let (one, two) = (
        site.submit(&["--gpu-mem=1G"], &wait("one")),
        site.submit(&["--gpu-mem=1G"], &wait("two")),
    );
    let whole = site.submit(&["--gres=gpu:1"], &wait("whole"));
    ["one.up", "two.up", "whole.up"].iter().for_each(|name| site.until_raised(name));
    assert_eq!((of(0), of(1)), (format!("{one}\n{two}\n"), format!("{whole}\n")));
    site.raise("one");
    site.raise("whole");
    site.until_undone("n1", &one);
    site.until_undone("n1", &whole);
    assert_eq!((of(0), of(1)), (format!("{two}\n"), String::new()));
    site.raise("two");
    site.until_undone("n1", &two);
    assert_eq!(of(0), "");
}
