//! A simulated machine that several commands use: what they see of each other, and who takes it away.

use std::path::{Path, PathBuf};
use std::process::Command;

use caps::{Caps, Kind, Ledger, ProcessId};
use fake_machine::{Machine, Process};

use crate::bench::{Bench, library};
use crate::support::Done;

const MIB: u64 = 1 << 20;
/// A capped task that says its number and where its caps are, and stays until the test lets go.
const ASKS: &str = "--gpu-mem=2G\n--gpu-share=memory-capped\n--job-name=c\n--output=c.out";
const WAITS: &str =
    "echo $$ $HOTPOT_CAPS > up.new; mv up.new up; until [ -e go ]; do sleep 0.02; done";

fn command(bench: &Bench, arguments: &str) -> Command {
    let mut command = bench.command(arguments);
    // Another library in the limiter's place: what it would write down the test writes.
    command.env("HOTPOT_LIMITER", library());
    command
}

fn run(bench: &Bench, arguments: &str) -> Done {
    Done::of(command(bench, arguments).output().expect("the program runs"))
}

/// The folder that a run in the background has told.
fn told(bench: &Bench) -> PathBuf {
    let hint = "watch it with: hotpot top --simulate-gpus ";
    let folder = || bench.said().lines().find_map(|line| Some(line.strip_prefix(hint)?.to_owned()));
    bench.until("the run tells its folder", || folder().is_some());
    folder().expect("as it was told").into()
}

/// Has a process hold memory on the first GPU.
fn hold(folder: &Path, pid: u32, mib: u64) {
    let machine = Machine::open(folder.join("machine")).expect("the machine is up");
    let add = |state: &mut fake_machine::State| {
        state.gpu_mut(0)?.add(Process::compute(pid, mib));
        Ok(())
    };
    machine.edit(add).expect("a process more");
}

#[test]
fn a_run_on_simulated_gpus_is_watched_from_beside() {
    let bench = Bench::new("joined-watched");
    bench.script("c.sbatch", ASKS, WAITS);
    let mut first = bench.start(command(&bench, "run c.sbatch --simulate-gpus t4:1"));
    let folder = told(&bench);
    bench.until("the task is up", || bench.place.path("up").exists());
    let up = bench.read("up");
    let (pid, caps) = up.trim().split_once(' ').expect("a number and a path");
    hold(&folder, pid.parse().expect("a number"), 700);
    let caps = Caps::parse(&std::fs::read_to_string(caps).expect("its caps")).expect("caps");
    let books = Ledger::open(&caps.gpus[0].ledger).expect("made before the task");
    let slot = books.join(ProcessId::own()).expect("a row");
    books.reserve(slot, Kind::Context, 300 * MIB, None).expect("no cap");
    books.reserve(slot, Kind::Plain, 1236 * MIB, None).expect("no cap");

    let beside = |verb: &str| run(&bench, &format!("{verb} --simulate-gpus {}", folder.display()));
    let tenant = format!("1.{}/1   700 MiB used   of 2.29 GiB   ", first.child.id());
    // What a run's tasks hold is published once a second.
    bench.until("the task is seen", || beside("top --once").out.contains(&tenant));
    let top = beside("top --once");
    assert_eq!((top.code, top.err.as_str()), (0, ""), "{top:?}");
    assert!(top.out.contains("SIMULATED") && top.out.contains("0.7 /  15.0"), "{}", top.out);
    let agent = beside("agent --once").out;
    assert!(agent.contains("hotpot_tenant_memory_booked_bytes"), "{agent}");
    let explained = run(&bench, "explain c --run last");
    let now = "holds 1.5 GiB (300 MiB of it for contexts) now, 1.5 GiB at most so far; ";
    assert!(explained.out.contains("of run 1: running"), "{explained:?}");
    assert!(explained.out.contains(now), "{}", explained.out);
    let given = "memory-capped: 2.29 GiB (cooperative), of which 300 MiB for a context";
    assert!(explained.out.contains(given) || explained.out.contains("(hard), of which 300 MiB"));
    let json = run(&bench, "explain c --run last --output json");
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!(json["gpus"][0]["account"]["memory_bytes"]["plain"], 1236 * MIB);
    drop(books);

    bench.place.write("go", "");
    assert_eq!(first.wait(), 0, "{}", bench.said());
    let late = beside("top --once");
    assert!(late.code == 2 && late.err.contains("No such file or directory"), "{late:?}");
    assert!(late.err.contains("write MODEL:COUNT such as"), "{late:?}");
    let explained = run(&bench, "explain c --run last");
    assert!(explained.out.contains("held at most 1.5 GiB; "), "{}", explained.out);
}

/// The machine goes with the last who uses it, and a run that is continued makes one like it.
#[test]
fn two_runs_share_a_simulated_machine() {
    let bench = Bench::new("joined-shared");
    bench.script("c.sbatch", ASKS, WAITS);
    let mut first = bench.start(command(&bench, "run c.sbatch --devices 0 --simulate-gpus t4:2"));
    let folder = told(&bench);
    bench.until("its task is up", || bench.place.path("up").exists());
    bench.script(
        "d.sbatch",
        "--gpus=1\n--output=d.out",
        "echo $SLURM_JOB_GPUS; touch other; until [ -e end ]; do sleep 0.02; done; [ -e well ]",
    );
    let arguments = format!("run d.sbatch --simulate-gpus {}", folder.display());
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| run(&bench, &arguments));
        bench.until("the other's task is up", || bench.place.path("other").exists());
        bench.place.write("go", "");
        assert_eq!(first.wait(), 0, "{}", bench.said());
        assert!(folder.join("machine").exists(), "somebody is there");
        bench.place.write("end", "");
        second.join().expect("no panic")
    });
    assert_eq!((second.code, bench.read("d.out").as_str()), (1, "1\n"), "{second:?}");
    assert!(second.err.contains("left out: GPU 0"), "{second:?}");
    bench.until("the last one takes it away", || !folder.exists());
    bench.place.write("well", "");
    let again = run(&bench, "run --resume --retry-failed");
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.err.contains("GPUs are simulated"), "{again:?}");
}
