//! Turns through the simulated `nvidia-smi`: set, refused, silent.

mod tools;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use node::time_slice::{TimeSlice, Turn};
use node::tool::{Tool, ToolError};
use tools::Place;

const GPU: &str = "GPU-11111111-2222-3333-4444-555555555555";

/// `nvidia-smi` on a machine with one GPU, with a fault if asked for.
fn time_slice(place: &Place, fault: &str) -> TimeSlice {
    let state = format!("{{\"gpus\":[\"{GPU}\"]}}");
    fs::write(place.0.join("machine.json"), state).expect("a machine");
    let (program, script) = (tools::folder().join("nvidia-smi"), place.0.join("smi.sh"));
    let (program, machine) = (program.display(), place.0.display());
    let variables = format!("HOTPOT_FAKE_MACHINE={machine} HOTPOT_FAKE_SMI={fault}");
    fs::write(&script, format!("#!/bin/sh\n{variables} exec {program} \"$@\"\n"))
        .expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("our file");
    TimeSlice::with(Tool::at(script).within(Duration::from_secs(2)))
}

#[test]
fn each_length_reaches_the_gpu() {
    let place = Place::new("turns");
    let time_slice = time_slice(&place, "");
    for (turn, number) in Turn::ALL.into_iter().zip(["0", "1", "2", "3"]) {
        time_slice.set(GPU, turn).unwrap();
        let set = fs::read_to_string(place.0.join(format!("timeslice-{GPU}"))).unwrap();
        assert_eq!(set, number);
        assert_eq!(Turn::parse(turn.as_str()), Some(turn));
    }
    assert_eq!(Turn::parse("endless"), None);
}

#[test]
fn a_refusal_is_told_in_the_tools_words() {
    let place = Place::new("refuse");
    let unknown = time_slice(&place, "").set("GPU-none", Turn::Long).unwrap_err().to_string();
    assert!(unknown.contains("--set-timeslice 3") && unknown.contains("No devices"), "{unknown}");
    let broken = time_slice(&place, "fail").set(GPU, Turn::Long).unwrap_err().to_string();
    assert!(broken.contains("Driver/library version mismatch"), "{broken}");
}

#[test]
fn a_silent_tool_is_an_error() {
    let place = Place::new("silent");
    let silent = time_slice(&place, "hang").set(GPU, Turn::Short).unwrap_err();
    assert!(matches!(silent, ToolError::Silent { .. }), "{silent}");
}

#[test]
fn a_missing_tool_is_absent_and_says_why() {
    if tools::is_missing("a_missing_tool_is_absent_and_says_why", "HOTPOT_NVIDIA_SMI") {
        let probed = format!("{:?}", TimeSlice::probe());
        assert!(probed.contains("HOTPOT_NVIDIA_SMI"), "{probed}");
    }
}
