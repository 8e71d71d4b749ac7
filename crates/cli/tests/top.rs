//! `hotpot top` on a simulated machine: one picture, JSON, and the view on a terminal with its ends.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fake_machine::{Effect, Fault, GpuSpec, Machine, Process};
use serde_json::Value;
use support::{Done, Place, skip};

/// A folder with a machine of two GPUs, one of them in use, and the variables that show it.
fn place(name: &str) -> Place {
    let place = Place::new(name);
    let machine = GpuSpec::list("a100-80gb:2").expect("a list of GPUs");
    let machine = Machine::create(place.path("machine"), &machine).expect("a machine");
    let change = |state: &mut fake_machine::State| {
        state.gpu_mut(0)?.add(Process::compute(std::process::id(), 20_480).busy(40));
        Ok(())
    };
    machine.edit(change).expect("a change");
    place
}

fn library() -> std::path::PathBuf {
    let library = Path::new(support::PROGRAM).with_file_name("libhotpot_fake_nvml.so");
    assert!(library.exists(), "{library:?} is missing; run: cargo build -p fake-nvml");
    library
}

fn on_machine<'a>(place: &Place, command: &'a mut Command) -> &'a mut Command {
    command.env("HOTPOT_FAKE_MACHINE", place.path("machine"));
    command.env("HOTPOT_STATE_DIR", place.path("state")).env("HOTPOT_NVML", library())
}

fn run(place: &Place, arguments: &str) -> Done {
    Done::of(on_machine(place, &mut place.hotpot(arguments)).output().expect("hotpot runs"))
}

/// A line of bash on a terminal of 80 by 24, with keys typed after some seconds; `None` without
/// script(1).
fn on_terminal(place: &Place, line: &str, seconds: f64, keys: &str) -> Option<Done> {
    let typed = format!("sleep {seconds}; printf '{keys}'; sleep 1");
    let line = format!("stty cols 80 rows 24; stty -g >before; {line}; stty -g >after");
    let mut shell = place.command("bash");
    shell.args(["-c", &format!("({typed}) | script -qec \"$0\" /dev/null"), &line]);
    shell.env("TERM", "xterm-256color").env("SHELL", "/bin/bash").stderr(Stdio::inherit());
    let done = on_machine(place, &mut shell).output().ok().map(Done::of);
    let ran = done.filter(|_| place.path("after").exists());
    if ran.is_none() {
        skip("no script(1)");
    }
    ran
}

fn same_terminal(place: &Place) {
    let mode = |name: &str| std::fs::read_to_string(place.path(name)).expect("what stty says");
    assert_eq!(mode("before"), mode("after"), "the terminal is left in another mode");
}

#[test]
fn one_picture_where_there_is_no_terminal() {
    let place = place("top-once");
    let done = run(&place, "top");
    assert_eq!((done.code, done.err.as_str()), (0, ""), "{done:?}");
    assert!(done.out.starts_with("2 GPUs · 1 shares in use"), "{}", done.out);
    assert!(done.out.contains("SIMULATED") && done.out.contains("20.0 /  80.0"), "{}", done.out);
    assert!(done.out.contains("▌user") && done.out.contains("40 %"), "{}", done.out);
    assert!(!done.out.contains('\u{1b}'), "{}", done.out);
    assert_eq!(run(&place, "top --once").out, done.out);
}

#[test]
fn json_has_what_was_measured() {
    let place = place("top-json");
    let done = run(&place, "top --once --output json");
    let json: Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!(json["format"], "hotpot-top/1");
    assert_eq!(json["gpus"][0]["sharing"], "single");
    assert_eq!(json["gpus"][0]["processes"][0]["pid"], std::process::id());
    assert_eq!(json["gpus"][1]["sharing"], "idle");
    assert_eq!(json["gpus"][1]["parts"], Value::Array(Vec::new()));
}

#[test]
fn without_a_driver_it_says_the_way_on() {
    let place = Place::new("top-none");
    let mut command = place.hotpot("top");
    command.env("HOTPOT_NVML", "/nowhere/libnvidia-ml.so.1");
    let done = Done::of(command.output().unwrap());
    assert_eq!((done.code, done.out.as_str()), (1, ""));
    assert!(done.err.contains("no NVIDIA driver"), "{done:?}");
}

#[test]
fn the_view_comes_and_goes_with_a_key() {
    let place = place("top-keys");
    let Some(done) = on_terminal(&place, "hotpot top; echo code=$?", 1.5, "j\\rq") else { return };
    assert!(done.out.contains("\u{1b}[?1049h") && done.out.contains("\u{1b}[?1049l"), "{done:?}");
    assert!(done.out.contains("hotpot top") && done.out.contains("code=0"), "{done:?}");
    assert!(done.out.contains("What can hold a cap here"), "{done:?}");
    same_terminal(&place);
}

#[test]
fn control_c_ends_it() {
    let place = place("top-interrupt");
    let Some(done) = on_terminal(&place, "hotpot top; echo code=$?", 1.5, "\\003") else { return };
    assert!(done.out.contains("\u{1b}[?1049l") && done.out.contains("code=0"), "{done:?}");
    same_terminal(&place);
}

/// Also: whoever waits for it sees that a signal ended it (128 + 15).
#[test]
fn a_signal_ends_it_and_the_terminal_is_restored() {
    let place = place("top-signal");
    let line = "timeout --foreground --preserve-status -s TERM 1 hotpot top; echo code=$?";
    let Some(done) = on_terminal(&place, line, 1.5, "") else { return };
    assert!(done.out.contains("\u{1b}[?1049h") && done.out.contains("\u{1b}[?1049l"), "{done:?}");
    assert!(done.out.contains("code=143"), "{done:?}");
    same_terminal(&place);
}

/// The screen goes on, says so, and takes keys.
#[test]
fn a_driver_that_hangs_is_told() {
    let place = place("top-hang");
    let folder = place.path("machine");
    let hang = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        let call = "nvmlDeviceGetCount_v2".to_string();
        let fault = Fault { call, nth: 0, effect: Effect::SleepMs(120_000) };
        Machine::open(folder).unwrap().edit(|state| {
            state.faults.push(fault);
            Ok(())
        })
    });
    let line = "hotpot top --interval 100ms; echo code=$?";
    let done = on_terminal(&place, line, 9.0, "q");
    hang.join().unwrap().unwrap();
    let Some(done) = done else { return };
    assert!(done.out.contains("not") && done.out.contains("answered for"), "{done:?}");
    assert!(done.out.contains("code=0"), "{done:?}");
    same_terminal(&place);
}

#[test]
fn it_ends_with_its_terminal() {
    let place = place("hangup");
    // The terminal is script's: with it gone, and its hangup signal kept from us, nobody can press q.
    let mut shell = place.command("bash");
    let view = format!(
        "trap \"\" HUP; {} top --simulate-gpus t4:1 & echo $! > view; wait",
        support::PROGRAM
    );
    shell.args(["-c", "exec script -qec \"$0\" /dev/null", &view]);
    shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let Ok(mut script) = shell.spawn() else { return skip("no script(1)") };
    let number = || std::fs::read_to_string(place.path("view")).unwrap_or_default();
    let until = |is: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !is() && begun.elapsed().as_secs() < 20 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        is()
    };
    assert!(until(&|| !number().trim().is_empty()), "the view starts");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    script.kill().expect("it runs");
    script.wait().expect("it ends");
    let stat = format!("/proc/{}/stat", number().trim());
    let gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    assert!(until(&gone), "the view is still there");
}
