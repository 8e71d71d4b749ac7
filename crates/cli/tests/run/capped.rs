//! Shares whose caps the limiter holds: what a task finds, what is told of what it was refused, and that
//! nothing of it stays. The library is another one here, and what it would write into the task's account
//! the tests write.

use std::path::PathBuf;
use std::process::Command;

use caps::{Caps, Kind, Ledger, OverCap, ProcessId};
use fake_machine::Code;

use crate::bench::{Bench, Shown, library};
use crate::support::Done;

/// What a task asks for, its error output apart.
const ASKS: &str = "--gpu-mem=2G\n--gpu-compute=30%\n--gpu-share=memory-capped\n--job-name=c\n--output=c.out\n--error=c.err";
/// 2 GiB and a T4's context, which is booked as well.
const CAP: &str = "2462056448";
/// What the catalogue says that a context takes on it, in bytes.
const CONTEXT: u64 = 300 << 20;
/// Until the test lets go.
const WAITS: &str =
    "echo $HOTPOT_CAPS > caps.new; mv caps.new caps; until [ -e go ]; do sleep 0.02; done";

/// A simulated T4 that holds no memory by itself.
fn machine(bench: &Bench) -> Shown {
    let shown = bench.machine("t4:1");
    let no = |state: &mut fake_machine::State| {
        state.fail("nvmlDeviceSetMemoryLimits_v1", 0, Code::NoPermission);
        Ok(())
    };
    shown.machine.edit(no).expect("a fault");
    shown
}

/// A command on that machine, with a library in the limiter's place.
fn command(bench: &Bench, shown: &Shown, arguments: &str) -> Command {
    let mut command = bench.command(arguments);
    shown.to(&mut command).env("HOTPOT_LIMITER", library());
    command
}

fn output(mut command: Command) -> Done {
    Done::of(command.output().expect("the program runs"))
}

/// The caps of the task that runs, once it says where they are.
fn caps(bench: &Bench) -> (PathBuf, Caps) {
    bench.until("the task is up", || bench.place.path("caps").exists());
    let path = PathBuf::from(bench.read("caps").trim());
    let text = std::fs::read_to_string(&path).expect("its caps");
    (path, Caps::parse(&text).expect("a caps file"))
}

#[test]
fn a_task_finds_its_caps_and_what_it_wants_preloaded_itself() {
    let bench = Bench::new("capped-finds");
    let shown = machine(&bench);
    let own = bench.place.path("own.so");
    std::fs::copy(library(), &own).expect("a library");
    bench.script(
        "c.sbatch",
        ASKS,
        "echo $LD_PRELOAD; stat -c %a $HOTPOT_CAPS; tr '\\n' ' ' < $HOTPOT_CAPS",
    );
    let mut run = command(&bench, &shown, "run c.sbatch");
    run.env("LD_PRELOAD", &own);
    let done = output(run);
    let text = bench.read("c.out");
    let library = std::fs::canonicalize(library()).expect("it is there");
    let preload = format!("{}:{}\n444\n", library.display(), own.display());
    assert!(text.starts_with(&preload), "{text} {} {}", done.err, bench.read("c.err"));
    let rest = "compute = 300 weight = 300 priority = 0 floor = 50 conserving = yes ledger = ";
    assert!(text.contains("tenant = 1.") && text.contains("/1 [GPU-"), "{text}");
    assert!(text.contains(&format!("] memory = {CAP} context = {CONTEXT} {rest}")), "{text}");
    let left = std::fs::read_dir(bench.place.path("state/caps")).expect("a folder").count();
    assert_eq!(left, 0, "the task's files are gone");
    assert!(done.out.contains("1 of 1 tasks done"), "{} {}", done.out, done.err);
}

#[test]
fn caps_of_a_killed_run_go_with_the_next() {
    let bench = Bench::new("capped-killed");
    let shown = machine(&bench);
    bench.script("c.sbatch", ASKS, WAITS);
    let mut run = bench.start(command(&bench, &shown, "run c.sbatch"));
    let (path, _) = caps(&bench);
    run.signal("KILL");
    run.wait();
    assert!(path.exists());
    bench.place.write("go", "");
    let done = output(command(&bench, &shown, "run c.sbatch"));
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(!path.exists(), "left behind by the killed run");
}

#[test]
fn what_the_cap_refused_is_told_to_everybody_concerned() {
    let bench = Bench::new("capped-refused");
    let shown = machine(&bench);
    bench.script("c.sbatch", ASKS, &format!("{WAITS}; printf 'out of memory' >&2; exit 7"));
    let mut run = bench.start(command(&bench, &shown, "run c.sbatch"));
    let (_, caps) = caps(&bench);
    let given = &caps.gpus[0];
    let books = Ledger::open(&given.ledger).expect("made before the task");
    let slot = books.join(ProcessId::own()).expect("a row");
    books.reserve(slot, Kind::Plain, 3 << 29, given.memory_bytes).expect("it fits");
    books.refused(OverCap { asked: 1 << 30, held: 3 << 29, cap: given.memory_bytes.unwrap_or(0) });
    books.count(40, 3_600_000, (4, 500_000));
    let agent = |bench: &Bench| output(command(bench, &shown, "agent --once"));
    let booked = "hotpot_tenant_memory_booked_bytes";
    bench.until("the agent tells of it", || agent(&bench).out.contains(booked));
    let told = agent(&bench).out;
    let value = |name: &str| {
        let line = told.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.to_owned())
    };
    let plain = told.lines().find(|line| line.starts_with(booked) && line.contains("\"plain\""));
    assert!(plain.is_some_and(|line| line.ends_with(" 1610612736")), "{told}");
    assert_eq!(value("hotpot_tenant_memory_cap_bytes").as_deref(), Some(CAP), "{told}");
    assert_eq!(value("hotpot_tenant_gpu_seconds_total").as_deref(), Some("3.6"), "{told}");
    let explained = output(command(&bench, &shown, "explain c --run last"));
    assert!(explained.code == 0 && explained.out.contains("of run 1: running"), "{explained:?}");
    bench.place.write("go", "");
    assert_eq!(run.wait(), 1);
    let why = format!(
        "GPU 0: the memory cap of this task (2.29 GiB) refused 1 allocation; the last asked for 1 GiB \
         while 1.5 GiB were held (process {})",
        std::process::id()
    );
    assert_eq!(bench.read("c.err"), format!("out of memory\nhotpot: {why}\n"));
    assert!(bench.said().contains(&format!("c: {why}")), "{}", bench.said());
    let explained = output(command(&bench, &shown, "explain c --run 1"));
    assert_eq!(explained.code, 1, "{}", explained.err);
    let shown_lines: Vec<&str> = explained.out.lines().collect();
    assert_eq!(shown_lines[0], "c (1) of run 1: exit status 7");
    assert!(
        explained.out.contains(
            "memory-capped: 2.29 GiB (cooperative), of which 300 MiB for a context, 30 %"
        ),
        "{}",
        explained.out
    );
    assert!(explained.out.contains("held at most 1.5 GiB; 3.600 s of GPU time, 40 launches, 4 of"));
    assert!(explained.out.contains(&why), "{}", explained.out);
    let json = output(command(&bench, &shown, "explain #1 --run 1 --output json"));
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json["refusals"][0], why.as_str());
    assert_eq!(json["gpus"][0]["account"]["over_cap"]["asked_bytes"], 1 << 30);
    assert_eq!(json["gpus"][0]["memory"]["enforcement"], "cooperative");
}

#[test]
fn a_task_that_did_its_work_is_not_told_and_the_summary_counts_it() {
    let bench = Bench::new("capped-summary");
    let shown = machine(&bench);
    bench.script("c.sbatch", ASKS, WAITS);
    let mut run = command(&bench, &shown, "run c.sbatch --output json");
    let done = std::thread::scope(|scope| {
        let done = scope.spawn(|| run.output().expect("the program runs"));
        let (_, caps) = caps(&bench);
        let books = Ledger::open(&caps.gpus[0].ledger).expect("made before the task");
        books.card_full(1 << 30, 1 << 20);
        books.count(1, 3_600_000_000, (0, 0));
        bench.place.write("go", "");
        Done::of(done.join().expect("no panic"))
    });
    let json: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!((done.code, &json["memory_refused"]), (0, &1.into()), "{}", done.err);
    let why = json["memory_refusals"][0].as_str().expect("a sentence");
    assert!(why.starts_with("c: GPU 0: the card itself was full"), "{why}");
    assert_eq!(json["gpu_hours_booked"], 1.0);
    assert_eq!(bench.read("c.err"), "");
    let explained = output(command(&bench, &shown, "explain c --run last"));
    assert!(explained.code == 0 && explained.out.contains("card itself was full"), "{explained:?}");
}

#[test]
fn tasks_are_found_by_name_label_and_number() {
    let bench = Bench::new("explain-tasks");
    bench.script(
        "a.sbatch",
        "--array=3-4\n--job-name=a\n--output=/dev/null",
        "[ $SLURM_ARRAY_TASK_ID = 3 ]",
    );
    assert_eq!(bench.run("run a.sbatch").code, 1);
    for (wanted, first, code) in [
        ("a[3]", "a[3] (1_3) of run 1: done", 0),
        ("1_4", "a[4] (1_4) of run 1: exit status 1", 1),
        ("#2", "a[4] (1_4) of run 1: exit status 1", 1),
    ] {
        let done = bench.run(&format!("explain {wanted} --run last"));
        assert_eq!((done.out.lines().next(), done.code), (Some(first), code), "{}", done.err);
    }
    let done = bench.run("explain b --run 1");
    assert!(done.code == 2 && done.err.contains("its tasks are a[3], a[4]"), "{done:?}");
    let done = bench.run("explain a[3] --run 9");
    assert!(done.code == 1 && done.err.contains("knows no run 9"), "{done:?}");
    let done = bench.run("explain a[3] --run 1 --state nowhere");
    assert!(done.code == 2 && done.err.contains("--state"), "{done:?}");
}
