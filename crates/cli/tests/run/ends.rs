//! How tasks end: nothing of them is left running, whatever they do.

use std::time::Instant;

use crate::bench::{Bench, can_make_cgroups, processes};
use crate::support::skip;

#[test]
fn statuses_and_signals_are_told() {
    let bench = Bench::new("status");
    bench.script(
        "s.sbatch",
        "--array=0-2\n--job-name=s\n--output=/dev/null",
        "[ $SLURM_ARRAY_TASK_ID = 2 ] && kill -SEGV $$; exit $SLURM_ARRAY_TASK_ID",
    );
    bench.script("x.sbatch", "--job-name=x\n--chdir=/\n--output=/dev/null", "true");
    bench.place.write("x.toml", "[[workload]]\nname = \"gone\"\ncommand = [\"no-such-program\"]\n");
    let done = bench.run("run s.sbatch x.sbatch x.toml");
    assert_eq!(done.code, 1);
    for expected in [
        "s[1]: exit status 1",
        "s[2]: killed by SIGSEGV",
        "gone: not started: cannot execute no-such-program",
    ] {
        assert!(done.err.contains(expected), "{expected}: {}", done.err);
    }
    assert!(!done.err.contains("s[0]"), "{}", done.err);
}

#[test]
fn a_task_that_ignores_term_is_killed_at_its_limit() {
    let bench = Bench::new("limit-kill");
    bench.script(
        "t.sbatch",
        "--job-name=t\n--time=0:03\n--signal=B:USR1@1\n--output=t.txt",
        "trap '' TERM; trap 'echo warned' USR1; sleep 4001 & sleep 4001 & wait; wait; wait",
    );
    let begun = Instant::now();
    let done = bench.run("run t.sbatch --grace 300ms");
    assert_eq!(done.code, 1);
    assert!(done.err.contains("t: time limit reached"), "{}", done.err);
    assert!(bench.read("t.txt").contains("warned"));
    assert!(begun.elapsed().as_secs() < 30);
    assert_eq!(processes("sleep\u{0}4001"), Vec::<u32>::new());
}

#[test]
fn a_warning_goes_to_what_a_script_has_started_and_not_to_the_script() {
    let bench = Bench::new("warning");
    bench.script(
        "w.sbatch",
        "--time=0:05\n--signal=USR1@3\n--output=w.txt",
        "sh -c 'trap \"echo step; exit 7\" USR1; echo up; while :; do sleep 0.1; done'; echo script $?",
    );
    let done = bench.run("run w.sbatch");
    let text = bench.read("w.txt");
    assert!(done.code == 0 && text.ends_with("step\nscript 7\n"), "{text} {}", done.err);
}

#[test]
fn a_run_under_nohup_lives_on_after_a_hangup() {
    let bench = Bench::new("nohup");
    bench.script(
        "n.sbatch",
        "--output=n.txt",
        "echo up; until [ -e go ]; do sleep 0.05; done; echo end",
    );
    let mut command = bench.place.command("nohup");
    command.args([crate::support::PROGRAM, "run", "n.sbatch"]);
    command.env("HOTPOT_STATE_DIR", bench.place.path("state"));
    let mut run = bench.start(command);
    bench.until("it is up", || bench.read("n.txt") == "up\n");
    run.signal("HUP");
    run.signal("HUP");
    bench.place.write("go", "");
    assert_eq!((run.wait(), bench.read("n.txt").as_str()), (0, "up\nend\n"), "{}", bench.said());
}

#[test]
fn a_second_hangup_does_not_cut_the_grace_short() {
    let bench = Bench::new("two-hups");
    bench.script(
        "h.sbatch",
        "--output=h.txt",
        "trap 'sleep 0.5; echo saved; exit 0' TERM; echo up; sleep 4008 & wait",
    );
    let mut run = bench.start(bench.command("run h.sbatch"));
    bench.until("it is up", || bench.read("h.txt") == "up\n");
    run.signal("HUP");
    bench.until("it has been told", || bench.said().contains("told to end"));
    run.signal("TERM");
    assert_eq!((run.wait(), bench.read("h.txt").as_str()), (1, "up\nsaved\n"), "{}", bench.said());
    assert_eq!(processes("sleep\u{0}4008"), Vec::<u32>::new());
}

#[test]
fn what_a_task_leaves_in_the_background_ends_with_it() {
    if !can_make_cgroups() {
        return skip("a process that wipes its variables is held by a cgroup only");
    }
    let bench = Bench::new("daemon");
    // Out of its group and its session, its parent gone, its variables wiped.
    bench.script(
        "d.sbatch",
        "--gpus=1\n--output=/dev/null",
        "setsid env -i sh -c 'trap \"\" TERM; sleep 4002 & sleep 4002' & sleep 0.2; exit 0",
    );
    let done = bench.run("run d.sbatch --grace 300ms --simulate-gpus t4:1");
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(processes("sleep\u{0}4002"), Vec::<u32>::new());
}

#[test]
fn the_first_stop_lets_tasks_end_and_the_second_does_not() {
    for (name, signal) in [("int", "INT"), ("term", "TERM"), ("hup", "HUP")] {
        let bench = Bench::new(&format!("stop-{name}"));
        bench.script(
            "p.sbatch",
            "--array=1-4%2\n--output=%a.txt",
            "trap 'echo tidied; exit 0' TERM; echo up; sleep 4003 & wait",
        );
        let mut run = bench.start(bench.command("run p.sbatch --grace 20s"));
        bench.until("both are up", || bench.read("1.txt") + &bench.read("2.txt") == "up\nup\n");
        run.signal(signal);
        assert_eq!(run.wait(), 1);
        assert_eq!(bench.read("1.txt"), "up\ntidied\n", "{}", bench.said());
        assert!(!bench.place.path("3.txt").exists());
        assert!(bench.said().contains("told to end"), "{}", bench.said());
    }
    let bench = Bench::new("stop-twice");
    bench.script(
        "p.sbatch",
        "--output=p.txt",
        "trap '' TERM; echo up; sleep 4004; sleep 4004; sleep 4004",
    );
    let mut run = bench.start(bench.command("run p.sbatch --grace 1h"));
    bench.until("it is up", || bench.read("p.txt") == "up\n");
    run.signal("INT");
    bench.until("it has been told", || bench.said().contains("told to end"));
    run.signal("INT");
    assert_eq!(run.wait(), 1);
    assert_eq!(processes("sleep\u{0}4004"), Vec::<u32>::new());
    assert_eq!(processes("sleep\u{0}4003"), Vec::<u32>::new());
}

#[test]
fn many_failures_are_counted_and_few_are_named() {
    let bench = Bench::new("many");
    bench.script("f.sbatch", "--array=1-30\n--job-name=f\n--output=/dev/null", "exit 9");
    let done = bench.run("run f.sbatch --cpus 4");
    assert_eq!(done.code, 1);
    assert_eq!(done.err.matches("exit status 9").count(), 10);
    assert!(done.out.contains("0 of 30 tasks done, 30 failed"), "{}", done.out);
}

#[test]
fn a_task_that_leaves_its_cgroup_is_ended_all_the_same() {
    if !can_make_cgroups() {
        return skip("there is no cgroup to leave");
    }
    let bench = Bench::new("escape");
    bench.script(
        "e.sbatch",
        "--job-name=e\n--time=0:02\n--output=e.txt",
        "for mount in /sys/fs/cgroup /sys/fs/cgroup/unified; do [ -e $mount/cgroup.controllers ] && echo $$ > $mount/cgroup.procs; done\n\
         ( exec sleep 4009 ) & exec sleep 4009",
    );
    let done = bench.run("run e.sbatch --grace 300ms");
    assert!(done.err.contains("e: time limit reached"), "{}", done.err);
    assert_eq!(processes("sleep\u{0}4009"), Vec::<u32>::new());
}

#[test]
fn a_run_that_still_reads_its_files_can_be_stopped() {
    let bench = Bench::new("reading");
    let pipe = bench.place.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    let mut run = bench.start(bench.command("run pipe"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    run.signal("TERM");
    assert_eq!(run.wait(), -1);
}
