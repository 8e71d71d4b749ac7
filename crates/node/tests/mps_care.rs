//! MPS daemons under load and with clients: nobody is thrown off a GPU because something was slow or
//! could not be told.

mod simulated;
#[allow(dead_code, reason = "each test program uses a part of it")]
mod tools;

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs};

use fake_machine::{Code, Effect, Fault, MACHINE_VARIABLE, Machine as Simulated};
use fake_machine::{Process, ProcessKind};
use model::{Share, SharingMode};
use node::machine::{Machine, MachineOptions};
use node::mps::{Interface, Mps, MpsError};
use node::procfs::Procfs;
use simulated::{Scratch, again, edit, machine, on_machine, text};

const MODE: SharingMode = SharingMode::Mps { tenants_max: 8 };

fn open() -> Machine {
    Machine::open(MachineOptions::default()).expect("the machine opens")
}

fn uuid(simulated: &Simulated) -> String {
    simulated.read().gpu(0).expect("a GPU").uuid.clone()
}

/// The daemon's process, and its environment as it was started.
fn daemon(machine: &mut Machine, gpu: &str) -> (u32, String) {
    let share = Share::Mps { compute_milli: 250, memory_mib: 0 };
    let grant = machine.grant(gpu, share, "looks").expect("room");
    machine.revoke(&grant).expect("given back");
    let pipes = grant.env.iter().find(|(name, _)| name == "CUDA_MPS_PIPE_DIRECTORY");
    let pipes = PathBuf::from(&pipes.expect("a client's variable").1);
    let pid = fs::read_to_string(pipes.join("nvidia-cuda-mps-control.pid")).expect("it runs");
    let environment = fs::read_to_string(format!("/proc/{}/environ", pid.trim()));
    (pid.trim().parse().expect("a number"), environment.expect("ours"))
}

/// In the child, whose control program answers nothing while a file is there.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn child_with_a_slow_daemon() {
    let Some(folder) = env::var_os(MACHINE_VARIABLE).map(PathBuf::from) else { return };
    let slow = folder.with_file_name("slow");
    let gpu = uuid(&Simulated::open(&folder).expect("the machine"));
    let mut machine = open();
    machine.set_mode(&gpu, MODE).expect("it comes up");
    let (first, environment) = daemon(&mut machine, &gpu);
    assert!(!environment.contains("PERCENTAGE"), "our caps hold for all clients: {environment}");
    for _ in 0..2 {
        // Twice, twice: what counts is in a row.
        fs::write(&slow, "").expect("written");
        assert_eq!((machine.look_after(), machine.look_after()), (Vec::new(), Vec::new()));
        fs::remove_file(&slow).expect("ours");
        assert_eq!(machine.look_after(), Vec::new());
    }
    assert_eq!(daemon(&mut machine, &gpu).0, first, "a slow daemon was replaced");
    fs::write(&slow, "").expect("written");
    let mended = [machine.look_after(), machine.look_after(), machine.look_after()];
    assert!(mended[1].is_empty() && mended[2].len() == 1, "{mended:?}");
    assert!(mended[2][0].left.is_some(), "the new one does not answer either: {mended:?}");
    assert_eq!(machine.look_after(), Vec::new(), "what cannot be mended is told once");
    fs::remove_file(&slow).expect("ours");
    machine.restore(&[gpu]).expect("written");
}

#[test]
fn a_slow_daemon_keeps_its_clients() {
    let scratch = Scratch::new("slow-mps");
    machine(&scratch.path().join("machine"), "l40s:1");
    let program = tools::folder().join("nvidia-cuda-mps-control");
    let script = scratch.path().join("control.sh");
    let (slow, real) = (scratch.path().join("slow"), program.display());
    let text_of = format!(
        "#!/bin/sh\n[ -e {} ] && [ \"$1\" != -d ] && exit 0\nexec {real} \"$@\"\n",
        slow.display()
    );
    fs::write(&script, text_of).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).expect("our file");
    let mut child = again("child_with_a_slow_daemon", scratch.path());
    child.env("HOTPOT_MPS_CONTROL", &script);
    child.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10");
    let output = child.output().expect("the test program runs again");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("1 passed"), "{}", text(&output));
}

#[test]
fn clients_that_cannot_be_told() {
    tools::folder();
    on_machine("clients_that_cannot_be_told", "l40s:1", |simulated, _| {
        let gpu = uuid(simulated);
        let mut machine = open();
        machine.set_mode(&gpu, MODE).expect("it comes up");
        let (pid, _) = daemon(&mut machine, &gpu);
        let call = "nvmlDeviceGetMPSComputeRunningProcesses_v3";
        edit(simulated, |state| {
            let client = Process { kind: ProcessKind::Mps, ..Process::compute(4_000_000, 10) };
            state.gpu_mut(0)?.add(client.phantom());
            // One comes between the driver's telling how many there are and who they are.
            let effect = Effect::Arrive { gpu: 0, pid: 4_000_001, kind: ProcessKind::Mps };
            state.faults.push(Fault { call: call.into(), nth: 2, effect });
            Ok(())
        });
        let refused = machine.set_mode(&gpu, SharingMode::Exclusive).expect_err("clients");
        let words = refused.to_string();
        assert!(words.contains("4000000") && words.contains("4000001"), "{words}");
        edit(simulated, |state| {
            state.gpu_mut(0)?.processes.clear();
            state.faults.clear();
            state.fail(call, 0, Code::Unknown);
            Ok(())
        });
        machine.set_mode(&gpu, SharingMode::Exclusive).expect_err("nobody knows");
        assert_eq!(daemon(&mut machine, &gpu).0, pid);
        edit(simulated, |state| {
            state.faults.clear();
            Ok(())
        });
        let restored = machine.restore(&[gpu]).expect("written");
        assert!(restored.left.is_empty(), "{restored:?}");
        assert_eq!(Procfs::default().living(pid), None, "it was not ended");
    });
}

#[test]
fn a_daemon_of_others_on_the_gpu_is_noticed() {
    let place = tools::Place::new("foreign");
    let gpu = "GPU-22222222-2222-3333-4444-555555555555";
    let program = tools::folder().join("nvidia-cuda-mps-control");
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.args(arguments).env("CUDA_MPS_PIPE_DIRECTORY", place.0.join("theirs"));
        command.env("CUDA_MPS_LOG_DIRECTORY", &place.0).env("CUDA_VISIBLE_DEVICES", gpu);
        command.stdin(std::process::Stdio::null()).status().expect("it runs")
    };
    assert!(run(&["-d"]).success());
    let mps = Mps::with(node::tool::Tool::at(&program));
    let ours = place.0.join("m");
    let start = || mps.start(gpu, &ours, Interface::V2, Default::default());
    let refused = start().expect_err("two cannot serve one GPU").to_string();
    assert!(refused.contains("that is not hotpot's") && refused.contains(gpu), "{refused}");
    run(&["-q"]);
    let asked = Instant::now();
    let daemon = loop {
        match start() {
            // It ends a moment after it has said so.
            Err(MpsError::Foreign { .. }) if asked.elapsed() < Duration::from_secs(10) => {}
            other => break other.expect("theirs has ended"),
        }
    };
    daemon.stop().expect("it ends");
}
