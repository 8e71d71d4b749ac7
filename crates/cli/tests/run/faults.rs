//! What goes wrong below a run: drivers, GPUs, disks, clocks, and a second run.

use std::process::Command;

use crate::bench::{Bench, library};
use crate::support::Done;

fn output(command: &mut Command) -> Done {
    Done::of(command.output().expect("the program runs"))
}

#[test]
fn without_a_driver_a_run_says_so_and_how_to_go_on() {
    let bench = Bench::new("no-driver");
    bench.script("g.sbatch", "--gpus=1\n--output=/dev/null", "true");
    let done = output(bench.command("run g.sbatch").env("HOTPOT_NVML", "/nowhere/lib.so"));
    assert_eq!(done.code, 1);
    assert!(done.err.contains("no NVIDIA driver"), "{}", done.err);
    assert!(done.err.contains("--simulate-gpus"), "{}", done.err);
}

#[test]
fn two_runs_do_not_sit_on_one_gpu() {
    let bench = Bench::new("two");
    let shown = bench.machine("t4:2");
    bench.script(
        "a.sbatch",
        "--gpus=1\n--output=a.txt",
        "echo $SLURM_JOB_GPUS; until [ -e go ]; do sleep 0.05; done",
    );
    bench.script("b.sbatch", "--gpus=1\n--output=b.txt", "echo $SLURM_JOB_GPUS");
    let mut first = bench.command("run a.sbatch --devices 0");
    shown.to(&mut first);
    let mut first = bench.start(first);
    bench.until("the first is up", || bench.read("a.txt") == "0\n");
    // What is left is used; what is taken is refused, or waited for.
    let done = output(shown.to(&mut bench.command("run b.sbatch")));
    assert_eq!((done.code, bench.read("b.txt").as_str()), (0, "1\n"), "{}", done.err);
    assert!(done.err.contains("GPU 0 is used by hotpot run"), "{}", done.err);
    let done = output(shown.to(&mut bench.command("run b.sbatch --devices 0")));
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.err.contains("--wait"), "{}", done.err);
    let mut waits = bench.command("run b.sbatch --devices 0 --wait");
    let waits = std::thread::scope(|scope| {
        let waits = scope.spawn(|| output(shown.to(&mut waits)));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!waits.is_finished());
        bench.place.write("go", "");
        waits.join().expect("the program runs")
    });
    assert_eq!((waits.code, bench.read("b.txt").as_str()), (0, "0\n"), "{}", waits.err);
    assert_eq!(first.wait(), 0);
}

#[test]
fn tasks_on_a_lost_gpu_are_run_again_on_another() {
    let bench = Bench::new("lost");
    let shown = bench.machine("t4:2");
    bench.script(
        "l.sbatch",
        "--array=1-2\n--gpus=1\n--job-name=l\n--output=%a.txt",
        "echo $SLURM_JOB_GPUS >> gpus; [ $SLURM_JOB_GPUS = 1 ] && [ ! -e lost ] && { touch up; sleep 4007; }\n\
         sleep 0.1",
    );
    let mut command = bench.command("run l.sbatch --grace 500ms");
    shown.to(&mut command);
    let mut run = bench.start(command);
    bench.until("one is on the second GPU", || bench.place.path("up").exists());
    bench.place.write("lost", "");
    shown
        .machine
        .edit(|state| {
            state.gpu_mut(1)?.lost = true;
            Ok(())
        })
        .expect("a fault");
    assert_eq!(run.wait(), 0, "{}", bench.said());
    assert!(bench.said().contains("GPU 1 is set aside"), "{}", bench.said());
    assert!(bench.said().contains("is started again"), "{}", bench.said());
    assert!(bench.read("gpus").ends_with("0\n"), "{}", bench.read("gpus"));
}

#[test]
fn a_killed_mps_daemon_is_started_anew() {
    let bench = Bench::new("mps");
    bench.script(
        "m.sbatch",
        "--gpu-mem=2G\n--gpu-share=mps\n--job-name=m\n--output=m.txt",
        "daemon() { grep -lsz CUDA_MPS_PIPE_DIRECTORY=$CUDA_MPS_PIPE_DIRECTORY /proc/[0-9]*/environ 2>/dev/null |\n\
         cut -d/ -f3 | while read -r pid; do grep -qs nvidia-cuda-mps /proc/$pid/comm && echo $pid; done; }\n\
         echo first; [ $SLURM_RESTART_COUNT = 1 ] && exit 0\n\
         kill -9 $(daemon); for _ in $(seq 300); do [ -n \"$(daemon)\" ] && exit 1; sleep 0.1; done; exit 3",
    );
    let done = bench.run("run m.sbatch --simulate-gpus a100-80gb:1");
    assert!(done.err.contains("MPS is up again"), "{}", done.err);
    assert!(done.err.contains("m is started again"), "{}", done.err);
    assert_eq!((done.code, bench.read("m.txt").as_str()), (0, "first\nfirst\n"), "{}", done.err);
}

#[test]
fn an_xid_is_told_and_a_fatal_one_sets_the_gpu_aside() {
    let bench = Bench::new("xid");
    let shown = bench.machine("a100-80gb:1");
    bench.script("x.sbatch", "--gpus=1\n--job-name=x\n--output=x.txt", "echo up; sleep 60");
    let mut command = bench.command("run x.sbatch --grace 500ms");
    shown.to(&mut command);
    let mut run = bench.start(command);
    bench.until("it is up", || bench.read("x.txt") == "up\n");
    let xid = |code| {
        shown
            .machine
            .edit(|state| {
                state.report_xid(0, code);
                Ok(())
            })
            .expect("an event")
    };
    // Events count from when the run first measures.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    xid(31);
    bench.until("it is told", || bench.said().contains("Xid 31"));
    xid(79);
    assert_eq!(run.wait(), 1, "{}", bench.said());
    assert!(bench.said().contains("GPU 0 is set aside: Xid 79"), "{}", bench.said());
}

#[test]
fn a_full_disk_stops_new_starts_until_there_is_room() {
    let bench = Bench::new("full");
    let state = bench.place.path("state");
    std::fs::create_dir(&state).expect("a folder");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=600k", "none"]).arg(&state).status();
    if !mounted.is_ok_and(|status| status.success()) {
        crate::support::skip("a file system of its own takes root");
        return;
    }
    bench.script("f.sbatch", "--array=1-40%2\n--output=/dev/null", "sleep 0.05; echo >> ended");
    let mut run = bench.start(bench.command("run f.sbatch"));
    bench.until("some have ended", || bench.read("ended").lines().count() > 4);
    let filler = state.join("filler");
    let filled = std::fs::write(&filler, vec![0u8; 1 << 20]);
    bench.until("the full disk is told", || bench.said().contains("until then no task is started"));
    // Those that run end; then nothing more happens.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let at = bench.read("ended").lines().count();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let still_at = bench.read("ended").lines().count();
    std::fs::remove_file(&filler).expect("room again");
    let code = run.wait();
    let told = bench.said();
    let unmounted = Command::new("umount").arg(&state).status();
    assert!(filled.is_err() && unmounted.is_ok_and(|status| status.success()));
    assert!(at == still_at && at < 40, "{at} {still_at}");
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("free some space") && told.contains("going on"), "{told}");
    assert_eq!(bench.read("ended").lines().count(), 40);
}

#[test]
fn a_jump_of_the_clock_changes_nothing() {
    let bench = Bench::new("clock");
    let faked = Command::new("faketime").arg("--version").output();
    if !faked.is_ok_and(|output| output.status.success()) {
        crate::support::skip("faketime is not installed (Debian package faketime)");
        return;
    }
    // The program's calendar is what the file says, and jumps a day ahead and then back.
    bench.script(
        "j.sbatch",
        "--array=1-6%1\n--time=1\n--output=/dev/null",
        "unset LD_PRELOAD FAKETIME_TIMESTAMP_FILE; sleep 0.2; echo >> ended\n\
         [ $SLURM_ARRAY_TASK_ID = 2 ] && echo +1d > clock; [ $SLURM_ARRAY_TASK_ID = 4 ] && echo -3d > clock; true",
    );
    bench.place.write("clock", "+0");
    let mut command = bench.place.command("faketime");
    command.args(["-f", "+0", crate::support::PROGRAM, "run", "j.sbatch", "--output", "json"]);
    command.env("HOTPOT_STATE_DIR", bench.place.path("state"));
    command.env("FAKETIME_TIMESTAMP_FILE", bench.place.path("clock"));
    command.env("FAKETIME_NO_CACHE", "1").env("DONT_FAKE_MONOTONIC", "1");
    let done = output(&mut command);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(bench.read("ended").lines().count(), 6);
    let figures: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    let makespan_ms = figures["makespan_ms"].as_u64().expect("a number");
    assert!((1200..60_000).contains(&makespan_ms), "{makespan_ms}");
}

#[test]
fn an_old_driver_still_runs_whole_gpus() {
    let bench = Bench::new("old");
    let shown = bench.machine("a100-80gb:1");
    let old = bench.place.path("libold.so");
    let lacks = ["nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMPSComputeRunningProcesses_v3"];
    fake_machine::without_symbols(&library(), &old, &lacks).expect("an older driver");
    bench.script("o.sbatch", "--gpus=1\n--output=o.txt", "echo done");
    let mut command = bench.command("run o.sbatch");
    let done = output(shown.to(&mut command).env("HOTPOT_NVML", &old));
    assert_eq!((done.code, bench.read("o.txt").as_str()), (0, "done\n"), "{}", done.err);
}

#[test]
fn a_run_inside_a_run_has_a_machine_of_its_own() {
    let bench = Bench::new("nested");
    bench.script("inner.sbatch", "--gpus=1\n--output=/dev/null", "true");
    let inner =
        "HOTPOT_STATE_DIR=$PWD/inner hotpot run inner.sbatch --simulate-gpus t4:1 || exit 5";
    bench.script(
        "outer.sbatch",
        "--array=1-2%1\n--gpus=1\n--output=o.txt\n--open-mode=append",
        inner,
    );
    let done = bench.run("run outer.sbatch --simulate-gpus t4:1");
    assert_eq!(done.code, 0, "{} {}", done.err, bench.read("o.txt"));
    assert_eq!(bench.read("o.txt").matches("1 of 1 tasks done").count(), 2);
}

#[test]
fn a_program_that_cannot_be_executed_costs_one_task() {
    let bench = Bench::new("spawn");
    bench.place.write("mixed.toml", "[[workload]]\nname = \"bad\"\narray = \"1-3\"\ngpus = 1\ncommand = [\"./none\"]\n\n[[workload]]\nname = \"good\"\ngpus = 1\ncommand = \"true\"\n");
    let done = bench.run("run mixed.toml --simulate-gpus t4:1");
    assert_eq!(done.code, 1);
    assert!(done.out.contains("1 of 4 tasks done, 3 failed"), "{} {}", done.out, done.err);
    assert!(done.err.contains("bad[3]: not started: cannot execute ./none"), "{}", done.err);
}
