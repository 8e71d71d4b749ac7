//! MPS daemons on the simulated control program: up, watched, adopted, ended, whatever they do.

mod tools;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use node::mps::{Caps, Daemon, ForeignDaemons, Interface, Mps, MpsError};
use node::tool::{Tool, ToolError};
use tools::Place;

const GPU: &str = "GPU-11111111-2222-3333-4444-555555555555";
const CAPS: Caps = Caps { compute_milli: 500, memory_mib: 4096 };

/// The control program; with a fault, a script that sets it.
fn mps(place: &Place, fault: &str) -> Mps {
    let program = tools::folder().join("nvidia-cuda-mps-control");
    let mut tool = Tool::at(&program);
    if !fault.is_empty() {
        let script = place.0.join("control.sh");
        let text =
            format!("#!/bin/sh\nHOTPOT_FAKE_MPS={fault} exec {} \"$@\"\n", program.display());
        fs::write(&script, text).expect("a script");
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("our file");
        tool = Tool::at(script);
    }
    Mps::with(tool.within(Duration::from_secs(5)))
}

fn start(place: &Place, fault: &str, interface: Interface) -> Daemon {
    mps(place, fault).start(GPU, &place.0.join("m"), interface, CAPS).expect("a daemon")
}

/// Asks the daemon as anybody could, outside the code under test.
fn ask(place: &Place, line: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", "echo \"$0\" | \"$1\"", line]);
    command.arg(tools::folder().join("nvidia-cuda-mps-control"));
    let output =
        command.env("CUDA_MPS_PIPE_DIRECTORY", place.0.join("m/pipe")).output().expect("sh runs");
    String::from_utf8(output.stdout).expect("text")
}

/// MPS processes of a folder, by what the kernel says.
fn living(place: &Place) -> Vec<String> {
    let pipes = place.0.join("m/pipe").display().to_string();
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let names = entries.filter_map(|entry| {
        let environment = fs::read_to_string(entry.path().join("environ")).ok()?;
        let ours = environment.contains(&format!("CUDA_MPS_PIPE_DIRECTORY={pipes}\0"));
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        ours.then(|| name.trim().to_string())
    });
    names.filter(|name| name.starts_with("nvidia-cuda")).collect()
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
    assert!(sent.expect("kill runs").success());
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).expect("it is there").permissions())
        & 0o777
}

#[test]
fn a_daemon_comes_up_with_its_caps_and_ends_without_a_trace() {
    let place = Place::new("up");
    // No other test's: what is served is looked up among all processes of the machine.
    let gpu = "GPU-33333333-2222-3333-4444-555555555555";
    let daemon = mps(&place, "").start(gpu, &place.0.join("m"), Interface::V2, CAPS);
    let daemon = daemon.expect("a daemon");
    daemon.health().unwrap();
    assert_eq!(ask(&place, "get_default_active_thread_percentage"), "50.0\n");
    assert_eq!(ask(&place, "get_default_device_pinned_mem_limit 0"), "4096M\n");
    assert!(node::mps::served_gpus().contains(gpu));
    let environment = fs::read_to_string(format!("/proc/{}/environ", daemon.pid())).unwrap();
    assert!(environment.contains(&format!("CUDA_VISIBLE_DEVICES={gpu}\0")), "{environment}");
    assert!([0o755, 0o700].contains(&mode(&place.0.join("m/pipe"))));
    let variables = daemon.variables(Caps { compute_milli: 100, memory_mib: 0 });
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    let expected =
        ["CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"];
    assert_eq!(names, expected);
    ask(&place, "start_server -uid 0");
    assert_eq!(daemon.servers().unwrap().len(), 1);
    daemon.stop().unwrap();
    assert!(!node::mps::served_gpus().contains(gpu));
    assert_eq!(living(&place), Vec::<String>::new());
    assert!(!place.0.join("m").exists());
}

#[test]
fn the_third_interface_takes_a_file_and_verbs() {
    let place = Place::new("v3");
    let daemon = start(&place, "", Interface::V3);
    let file = fs::read_to_string(place.0.join("m/mps.toml")).unwrap();
    assert!(file.contains(GPU) && file.contains("\"4096M\"") && file.contains("\"50\""), "{file}");
    assert_eq!(daemon.servers().unwrap(), ["hotpot"]);
    daemon.health().unwrap();
    daemon.stop().unwrap();
    assert_eq!(living(&place), Vec::<String>::new());
}

#[test]
fn after_a_crash_of_ours_the_daemon_is_adopted() {
    let place = Place::new("adopt");
    let folder = place.0.join("m");
    let first = start(&place, "", Interface::V2);
    let pid = first.pid();
    drop(first);
    let second = mps(&place, "").start(GPU, &folder, Interface::V2, CAPS);
    assert!(matches!(second, Err(MpsError::Runs { pid: found, .. }) if found == pid));
    let adopted = mps(&place, "").adopt(&folder, Interface::V2).unwrap().expect("it runs");
    assert_eq!(adopted.pid(), pid);
    adopted.stop().unwrap();
    assert!(mps(&place, "").adopt(&folder, Interface::V2).unwrap().is_none());
}

#[test]
fn the_number_of_a_stranger_is_not_taken_for_a_daemon() {
    let place = Place::new("strange");
    fs::create_dir_all(place.0.join("m/pipe")).unwrap();
    let file = place.0.join("m/pipe/nvidia-cuda-mps-control.pid");
    fs::write(file, std::process::id().to_string()).unwrap();
    assert!(mps(&place, "").adopt(&place.0.join("m"), Interface::V2).unwrap().is_none());
    Mps::clear(&place.0.join("m")).unwrap(); // And we still live.
}

#[test]
fn a_killed_daemon_is_noticed_and_its_server_is_cleared_before_the_next() {
    let place = Place::new("killed");
    let folder = place.0.join("m");
    let daemon = start(&place, "", Interface::V2);
    ask(&place, "start_server -uid 0");
    signal(daemon.pid(), "KILL");
    wait_until("health does not notice", || matches!(daemon.health(), Err(MpsError::Gone { .. })));
    assert_eq!(living(&place), ["nvidia-cuda-mps"], "the server outlives its daemon");
    assert!(mps(&place, "").adopt(&folder, Interface::V2).unwrap().is_none());
    let again = start(&place, "", Interface::V2);
    again.health().unwrap();
    assert_eq!(living(&place).len(), 1, "the old server is gone");
    again.stop().unwrap();
}

#[test]
fn a_daemon_that_hangs_is_an_error_and_can_be_ended() {
    let place = Place::new("hang");
    let tool = Tool::at(tools::folder().join("nvidia-cuda-mps-control"));
    let mps = Mps::with(tool.within(Duration::from_millis(700)));
    let daemon = start(&place, "", Interface::V2);
    signal(daemon.pid(), "STOP");
    let begun = Instant::now();
    let adopted = mps.adopt(&place.0.join("m"), Interface::V2);
    assert!(matches!(adopted, Err(MpsError::Tool(ToolError::Silent { .. }))), "{adopted:?}");
    assert!(begun.elapsed() < Duration::from_secs(30));
    Mps::clear(&place.0.join("m")).unwrap();
    assert_eq!(living(&place), Vec::<String>::new());
}

#[test]
fn one_that_will_not_quit_is_terminated_or_killed() {
    for fault in ["deaf", "stubborn"] {
        let place = Place::new(fault);
        let daemon = start(&place, fault, Interface::V2);
        daemon.stop().unwrap();
        assert_eq!(living(&place), Vec::<String>::new(), "{fault}");
    }
}

#[test]
fn one_that_does_not_come_up_leaves_nothing_and_says_why() {
    for fault in ["fail", "die"] {
        let place = Place::new(fault);
        let folder = place.0.join("m");
        let failed = mps(&place, fault).start(GPU, &folder, Interface::V2, CAPS).unwrap_err();
        assert!(matches!(failed, MpsError::Tool(ToolError::Failed { .. })), "{failed}");
        assert_eq!(living(&place), Vec::<String>::new(), "{fault}");
    }
    let place = Place::new("long");
    let folder = place.0.join("x".repeat(90));
    let long = mps(&place, "").start(GPU, &folder, Interface::V2, CAPS).unwrap_err();
    assert!(long.to_string().contains("choose a shorter state folder"), "{long}");
}

#[test]
fn what_is_missing_is_absent_and_says_why() {
    let old = Mps::probe(GPU, (6, 0), &ForeignDaemons::find());
    assert!(format!("{old:?}").contains("below 7.0"), "{old:?}");
    if tools::is_missing("what_is_missing_is_absent_and_says_why", "HOTPOT_MPS_CONTROL") {
        let missing = Mps::probe(GPU, (8, 0), &ForeignDaemons::find());
        assert!(format!("{missing:?}").contains("HOTPOT_MPS_CONTROL"), "{missing:?}");
    }
}
