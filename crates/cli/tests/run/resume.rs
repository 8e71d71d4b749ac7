//! A run that was interrupted goes on where it stopped, however it was stopped.

use crate::bench::{Bench, processes};
use crate::support::Done;

const TASKS: usize = 12;

/// An array whose tasks note each start; every third fails.
fn script(bench: &Bench, nap: &str) {
    bench.script(
        "r.sbatch",
        "--array=1-12%3\n--job-name=r\n--output=%a.txt",
        &format!(
            "echo start $SLURM_RESTART_COUNT; echo $SLURM_ARRAY_TASK_ID >> begun; sleep {nap}; echo $SLURM_ARRAY_TASK_ID >> ended\n\
             [ $((SLURM_ARRAY_TASK_ID % 3)) != 0 ]"
        ),
    );
}

fn lines(bench: &Bench, name: &str) -> Vec<usize> {
    bench.read(name).lines().map(|line| line.parse().expect("an index")).collect()
}

#[test]
fn a_killed_run_goes_on_and_repeats_nothing_that_has_ended() {
    let bench = Bench::new("killed");
    // From the seventh on, tasks wait until they are let go.
    script(&bench, "0.05; until [ $SLURM_ARRAY_TASK_ID -lt 7 ] || [ -e go ]; do sleep 0.02; done");
    let mut run = bench.start(bench.command("run r.sbatch"));
    bench.until("one waits", || lines(&bench, "begun").contains(&7));
    bench.until("some have ended", || lines(&bench, "ended").len() >= 5);
    run.signal("KILL");
    run.wait();
    bench.place.write("go", "");
    bench.script("r.sbatch", "--array=1-99", "echo changed since >> begun");
    let before = lines(&bench, "ended").len();
    let done = bench.run("run --resume");
    assert_eq!(done.code, 1, "{}", done.err);
    let mut ended = lines(&bench, "ended");
    ended.sort_unstable();
    let mut once = ended.clone();
    once.dedup();
    assert_eq!(once, (1..=TASKS).collect::<Vec<_>>());
    // One that ended while the run was being killed may not have been seen to end.
    assert!(ended.len() - TASKS <= 3, "{before} before: {ended:?}");
    assert!(done.out.contains("8 of 12 tasks done, 4 failed"), "{}", done.out);
    // What was started twice kept what it had said the first time.
    let twice: Vec<usize> = (1..=TASKS)
        .filter(|index| lines(&bench, "begun").iter().filter(|begun| *begun == index).count() == 2)
        .collect();
    assert!(!twice.is_empty());
    for index in twice {
        assert_eq!(bench.read(&format!("{index}.txt")), "start 0\nstart 1\n");
    }
    let again = bench.run("run --resume");
    assert!(again.err.contains("nothing is left to continue"), "{}", again.err);
}

#[test]
fn of_two_that_continue_a_run_one_does() {
    let bench = Bench::new("both");
    script(&bench, "0.1");
    let mut run = bench.start(bench.command("run r.sbatch"));
    bench.until("some have begun", || lines(&bench, "begun").len() >= 3);
    run.signal("KILL");
    run.wait();
    let both: Vec<_> = std::thread::scope(|scope| {
        let each = || scope.spawn(|| bench.run("run --resume"));
        [each(), each()].into_iter().map(|it| it.join().expect("it runs")).collect()
    });
    let done = both.iter().filter(|done| done.out.contains("8 of 12 tasks done")).count();
    assert_eq!(done, 1, "{both:?}");
    let mut ended = lines(&bench, "ended");
    ended.sort_unstable();
    ended.dedup();
    assert_eq!(ended, (1..=TASKS).collect::<Vec<_>>());
}

#[test]
fn tasks_of_a_killed_run_are_ended_before_it_goes_on() {
    let bench = Bench::new("orphans");
    bench.script(
        "o.sbatch",
        "--output=/dev/null",
        "echo >> begun; [ $(wc -l < begun) = 2 ] && exit 0; setsid sh -c 'sleep 4005' & sleep 4005",
    );
    let mut run = bench.start(bench.command("run o.sbatch"));
    bench.until("it sleeps", || processes("sleep\u{0}4005").len() >= 2);
    run.signal("KILL");
    run.wait();
    let done = bench.run("run --resume");
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(processes("sleep\u{0}4005"), Vec::<u32>::new());
}

#[test]
fn an_interrupted_run_goes_on_and_failed_tasks_on_request() {
    let bench = Bench::new("interrupted");
    script(&bench, "0.1");
    let mut run = bench.start(bench.command("run r.sbatch --simulate-gpus t4:2"));
    bench.until("some have ended", || lines(&bench, "ended").len() >= 4);
    run.signal("INT");
    assert_eq!(run.wait(), 1);
    let done = bench.run("run --resume");
    assert!(done.out.contains("8 of 12 tasks done, 4 failed"), "{}", done.out);
    let mut ended = lines(&bench, "ended");
    let in_all = ended.len();
    ended.sort_unstable();
    ended.dedup();
    // A shell may still come to its last line when it is told to end.
    assert!(in_all - TASKS <= 3, "{in_all}");
    assert_eq!(ended, (1..=TASKS).collect::<Vec<_>>());
    let done = bench.run("run --resume --retry-failed");
    assert!(done.out.contains("8 of 12 tasks done, 4 failed"), "{} {}", done.out, done.err);
    assert_eq!(lines(&bench, "ended").len(), in_all + 4);
}

#[test]
fn what_there_is_not_cannot_be_continued() {
    let bench = Bench::new("nothing");
    let done = bench.run("run --resume");
    assert_eq!(done.code, 1);
    assert!(done.err.contains("knows no run"), "{}", done.err);
    bench.script("l.sbatch", "--output=l.txt", "echo up; sleep 4006");
    let mut run = bench.start(bench.command("run l.sbatch"));
    bench.until("it is up", || bench.read("l.txt") == "up\n");
    let done = bench.run("run --resume 1");
    assert!(done.err.contains("run 1 is still going on"), "{}", done.err);
    run.signal("INT");
    run.wait();
    assert_eq!(processes("sleep\u{0}4006"), Vec::<u32>::new());
}

#[test]
fn a_task_whose_end_is_known_is_not_repeated_for_what_it_left_behind() {
    let bench = Bench::new("leftover");
    bench.script(
        "l.sbatch",
        "--output=/dev/null",
        "( trap '' TERM; exec sleep 4010 ) & echo >> begun; sleep 0.1; exit 0",
    );
    let mut run = bench.start(bench.command("run l.sbatch"));
    bench.until("it has begun", || bench.read("begun") == "\n");
    std::thread::sleep(std::time::Duration::from_millis(700));
    run.signal("KILL");
    run.wait();
    let done = bench.run("run --resume");
    assert_eq!((done.code, bench.read("begun").as_str()), (0, "\n"), "{}", done.err);
    assert!(done.err.contains("1 of 1 tasks are over already"), "{}", done.err);
    assert_eq!(processes("sleep\u{0}4010"), Vec::<u32>::new());
}

#[test]
fn tasks_for_which_no_gpu_is_left_are_left_for_later() {
    let bench = Bench::new("stranded");
    bench.script(
        "m.sbatch",
        "--array=1-5\n--gpu-mem=2G\n--gpu-share=mps\n--output=m-%a.txt",
        "echo ok",
    );
    let broken = bench.place.write("broken", "#!/bin/sh\nexit 1\n");
    let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&broken, may_run).expect("a mode");
    let mut command = bench.command("run m.sbatch --simulate-gpus a100-80gb:2");
    let done = Done::of(command.env("HOTPOT_MPS_CONTROL", &broken).output().expect("it runs"));
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.err.contains("GPU 0 is set aside"), "{}", done.err);
    assert!(done.out.contains("5 tasks left"), "{} {}", done.out, done.err);
    let done = bench.run("run --resume");
    assert_eq!((done.code, bench.read("m-5.txt").as_str()), (0, "ok\n"), "{}", done.err);
}

#[test]
fn what_a_killed_run_has_left_of_its_simulated_machine_is_taken_away() {
    let bench = Bench::new("machines");
    // Addresses of sockets must be short.
    let temp = std::env::temp_dir().join(format!("hp{}", std::process::id()));
    std::fs::create_dir(&temp).expect("a folder");
    bench.script(
        "m.sbatch",
        "--gpu-mem=2G\n--gpu-share=mps\n--output=m.txt",
        "echo up; exec sleep 4011",
    );
    let mut command = bench.command("run m.sbatch --simulate-gpus a100-80gb:1");
    command.env("TMPDIR", &temp);
    let mut run = bench.start(command);
    bench.until("it is up", || bench.read("m.txt") == "up\n");
    run.signal("KILL");
    run.wait();
    let machines = || std::fs::read_dir(&temp).expect("the folder").count();
    assert_eq!(machines(), 1);
    bench.script("n.sbatch", "--gpus=1\n--output=/dev/null", "true");
    let mut command = bench.command("run n.sbatch --simulate-gpus a100-80gb:1");
    assert!(command.env("TMPDIR", &temp).status().expect("it runs").success());
    assert_eq!(machines(), 0);
    std::fs::remove_dir(&temp).expect("an empty folder");
    let daemons = processes(&temp.display().to_string());
    assert_eq!(daemons, Vec::<u32>::new());
}
