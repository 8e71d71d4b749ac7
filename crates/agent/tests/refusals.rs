//! What the driver tells to root only, books to others or changes between two questions: told as far as
//! it is known, and not made up.

mod support;

use std::time::Duration;

use fake_machine::{Code, Effect, Fault, Process, ProcessKind};
use support::{Lab, Sleeper, value};

/// Not a test: what [`Lab::agent`] runs in a process of its own.
#[test]
#[ignore = "runs in a process of its own, started by the other tests"]
fn agent_process() {
    support::run_agent();
}

const MPS_LIST: &str = "nvmlDeviceGetMPSComputeRunningProcesses_v3";
const COMPUTE_LIST: &str = "nvmlDeviceGetComputeRunningProcesses_v3";

#[test]
fn in_mig_mode_an_agent_without_privilege_sees_devices_and_their_processes() {
    let lab = Lab::new("lowly", "h100-80gb:1");
    let sleeper = Sleeper::new();
    lab.edit(|state| {
        state.gpu_mut(0)?.set_mig(true)?;
        let instance = state.create_instance(0, 19, Some(4))?;
        let part = state.create_compute(0, instance, 0, None)?;
        state.gpu_mut(0)?.add(Process::compute(sleeper.pid(), 512).on(instance, part));
        state.unprivileged = true;
        Ok(())
    });
    let text = lab.agent(&[]).metrics();
    let small = ["profile=\"1g.10gb\""];
    assert_eq!(value(&text, "hotpot_mig_memory_used_bytes", &small), Some(512.0 * 1_048_576.0));
    assert_eq!(value(&text, "hotpot_mig_info", &small), Some(1.0));
    assert!(!text.contains("start=\""), "where it lies is not told");
    assert_eq!(value(&text, "hotpot_gpu_memory_used_bytes", &[]), None);
    assert_eq!(value(&text, "hotpot_gpu_processes", &[]), Some(1.0));
    let held = value(&text, "hotpot_tenant_memory_used_bytes", &["gpu_instance="]);
    assert_eq!(held, Some(512.0 * 1_048_576.0));
}

#[test]
fn refused_lists_are_not_told_as_no_processes() {
    let lab = Lab::new("refused", "h100-80gb:1");
    lab.edit(|state| {
        state.fail(COMPUTE_LIST, 0, Code::NoPermission);
        Ok(())
    });
    let text = lab.agent(&[]).metrics();
    assert_eq!(value(&text, "hotpot_gpu_processes", &[]), None);
    assert!(value(&text, "hotpot_gpu_memory_used_bytes", &[]).is_some());
}

#[test]
fn a_list_that_fails_once_is_not_told_in_part() {
    let lab = Lab::new("once", "h100-80gb:1");
    let sleeper = Sleeper::new();
    lab.edit(|state| {
        state.gpu_mut(0)?.add(Process::compute(sleeper.pid(), 512));
        state.fail(MPS_LIST, 1, Code::Unknown);
        Ok(())
    });
    let agent = lab.agent(&[]);
    let told = || value(&agent.metrics(), "hotpot_gpu_processes", &[]);
    assert_eq!([told(), told()], [None, Some(1.0)]);
}

#[test]
fn a_list_that_has_grown_is_read_again() {
    let lab = Lab::new("grown", "h100-80gb:1");
    lab.edit(|state| {
        let kind = ProcessKind::Mps;
        state.gpu_mut(0)?.add(Process { kind, ..Process::compute(7, 512).phantom() });
        // One more comes each time, between the question for the length and that for the items.
        for (nth, pid) in [(2, 8), (4, 9)] {
            let effect = Effect::Arrive { gpu: 0, pid, kind };
            state.faults.push(Fault { call: MPS_LIST.into(), nth, effect });
        }
        Ok(())
    });
    let text = lab.agent(&[]).metrics();
    assert_eq!(value(&text, "hotpot_gpu_processes", &[]), Some(3.0));
}

#[test]
fn what_mps_clients_use_is_not_made_up() {
    let lab = Lab::new("booked", "h100-80gb:1");
    let [idle, client, server] = [Sleeper::new(), Sleeper::new(), Sleeper::new()];
    let sm = || {
        let agent = lab.agent(&[]);
        agent.metrics();
        std::thread::sleep(Duration::from_millis(50));
        value(&agent.metrics(), "hotpot_tenant_sm_ratio", &[])
    };
    lab.edit(|state| {
        state.gpu_mut(0)?.add(Process::compute(idle.pid(), 512));
        state.gpu_mut(0)?.add(Process::compute(server.pid(), 30).busy(40));
        Ok(())
    });
    assert_eq!(sm(), Some(0.4), "who is not named has used nothing");
    lab.edit(|state| {
        let process = Process::compute(client.pid(), 512);
        state.gpu_mut(0)?.add(Process { kind: ProcessKind::Mps, ..process });
        Ok(())
    });
    assert_eq!(sm(), None, "what the client used is the server's");
}

#[test]
fn counters_over_a_period_are_had_however_quickly_scrapes_follow_one_another() {
    let lab = Lab::new("quick", "h100-80gb:1");
    let agent = lab.agent(&[]);
    let counter = || {
        std::thread::sleep(Duration::from_millis(45));
        value(&agent.metrics(), "hotpot_gpu_sm_active_ratio", &[])
    };
    let told: Vec<_> = (0..8).map(|_| counter()).collect();
    assert_eq!(told.last(), Some(&Some(0.0)), "{told:?}");
}
