//! An agent at work on a simulated machine: what it tells, whom it lets in, how it bears faults.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use fake_machine::{Code, Effect, Fault, Process, ProcessKind};
use nix::sys::signal::Signal;
use support::{Lab, Sleeper, exchange, value};

/// Not a test: what [`Lab::agent`] runs in a process of its own.
#[test]
#[ignore = "runs in a process of its own, started by the other tests"]
fn agent_process() {
    support::run_agent();
}

#[test]
fn a_scrape_tells_what_the_machine_shows() {
    let lab = Lab::new("shows", "h100-80gb:2");
    let sleeper = Sleeper::new();
    lab.edit(|state| {
        state.gpu_mut(1)?.add(Process::compute(sleeper.pid(), 2048).busy(40));
        state.gpu_mut(1)?.load.temperature_c = Some(66);
        state.gpu_mut(1)?.load.power_mw = Some(345_000);
        Ok(())
    });
    let agent = lab.agent(&[]);
    agent.metrics();
    std::thread::sleep(Duration::from_millis(150));
    let text = agent.metrics();
    let at = |name: &str| value(&text, name, &["gpu=\"1\""]);
    assert_eq!(value(&text, "hotpot_up", &[]), Some(1.0));
    assert_eq!(at("hotpot_gpu_busy_ratio"), Some(0.4));
    assert_eq!(at("hotpot_gpu_temperature_celsius"), Some(66.0));
    assert_eq!(at("hotpot_gpu_power_watts"), Some(345.0));
    assert_eq!(at("hotpot_gpu_sm_active_ratio"), Some(0.4));
    assert_eq!(at("hotpot_gpu_processes"), Some(1.0));
    assert_eq!(at("hotpot_tenant_memory_used_bytes"), Some(2048.0 * 1_048_576.0));
    assert_eq!(at("hotpot_tenant_sm_ratio"), Some(0.4));
    let size = at("hotpot_gpu_memory_size_bytes").unwrap();
    let free = at("DCGM_FI_DEV_FB_FREE_BYTES").unwrap();
    let used = at("hotpot_gpu_memory_used_bytes").unwrap();
    let reserved = at("hotpot_gpu_memory_reserved_bytes").unwrap();
    assert!((size - free - used - reserved).abs() < 1.0);
    drop(sleeper);
    assert_eq!(value(&agent.metrics(), "hotpot_gpu_processes", &["gpu=\"1\""]), Some(0.0));
}

#[test]
fn processes_of_each_kind_count_once() {
    let lab = Lab::new("kinds", "h100-80gb:1");
    let [compute, graphics, mps] = [Sleeper::new(), Sleeper::new(), Sleeper::new()];
    let of = |kind, pid| Process { kind, ..Process::compute(pid, 512) };
    lab.edit(|state| {
        let gpu = state.gpu_mut(0)?;
        gpu.add(of(ProcessKind::Compute, compute.pid()));
        gpu.add(of(ProcessKind::Graphics, compute.pid()));
        gpu.add(of(ProcessKind::Graphics, graphics.pid()));
        gpu.add(of(ProcessKind::Mps, mps.pid()));
        Ok(())
    });
    let text = lab.agent(&[]).metrics();
    assert_eq!(value(&text, "hotpot_gpu_processes", &[]), Some(3.0));
    let held = value(&text, "hotpot_tenant_memory_used_bytes", &[]);
    assert_eq!(held, Some(3.0 * 512.0 * 1_048_576.0));
}

#[test]
fn an_older_gpu_has_no_profile_counters_and_xids_are_counted() {
    let lab = Lab::new("xid", "a100-80gb:1");
    let agent = lab.agent(&[]);
    agent.metrics();
    std::thread::sleep(Duration::from_millis(150));
    let text = agent.metrics();
    assert_eq!(value(&text, "hotpot_gpu_last_xid", &[]), Some(0.0));
    assert!(!text.contains("_sm_active_ratio") && !text.contains("DCGM_FI_PROF"), "{text}");
    let report = |code| {
        lab.edit(|state| {
            state.report_xid(0, code);
            Ok(())
        });
    };
    for code in [13, 79, 13] {
        report(code);
        agent.metrics();
    }
    let text = agent.metrics();
    assert_eq!(value(&text, "hotpot_gpu_xid_events_total", &["xid=\"13\""]), Some(2.0));
    assert_eq!(value(&text, "hotpot_gpu_xid_events_total", &["xid=\"79\""]), Some(1.0));
    assert_eq!(value(&text, "DCGM_FI_DEV_XID_ERRORS", &[]), Some(13.0));
}

#[test]
fn a_lost_gpu_does_not_hide_the_others() {
    let lab = Lab::new("lost", "h100-80gb:2");
    let uuid = lab.machine.read().gpus[0].uuid.clone();
    let agent = lab.agent(&[]);
    agent.metrics();
    lab.edit(|state| {
        state.gpu_mut(0)?.lost = true;
        state.report_xid(0, 79);
        Ok(())
    });
    let text = agent.metrics();
    let xid = |text: &str| value(text, "hotpot_gpu_xid_events_total", &["xid=\"79\"", &uuid]);
    assert_eq!(xid(&text), Some(1.0), "in the very round in which it went away");
    assert_eq!(value(&text, "hotpot_up", &[]), Some(1.0));
    assert_eq!(value(&text, "hotpot_gpu_lost", &["gpu=\"0\""]), Some(1.0));
    assert_eq!(value(&text, "hotpot_gpu_temperature_celsius", &["gpu=\"0\""]), None);
    assert_eq!(value(&text, "hotpot_gpu_lost", &["gpu=\"1\""]), Some(0.0));
    assert!(value(&text, "hotpot_gpu_temperature_celsius", &["gpu=\"1\""]).is_some());
    // In another session with the driver, which would not know its name and its Xids.
    let text = agent.metrics();
    assert_eq!(value(&text, "hotpot_gpu_lost", &["gpu=\"0\"", &uuid]), Some(1.0));
    assert_eq!(xid(&text), Some(1.0));
    lab.edit(|state| {
        state.gpu_mut(0)?.lost = false;
        Ok(())
    });
    agent.metrics();
    let text = agent.metrics();
    assert_eq!(value(&text, "hotpot_gpu_lost", &["gpu=\"0\""]), Some(0.0));
    assert!(value(&text, "hotpot_gpu_temperature_celsius", &["gpu=\"0\""]).is_some());
    assert_eq!(xid(&text), Some(1.0), "not forgotten, and not counted twice");
}

#[test]
fn a_lost_gpu_is_not_looked_for_at_every_scrape() {
    let lab = Lab::new("seldom", "h100-80gb:2");
    // Thirty times 100 ms are to pass before the driver is opened anew.
    let agent = lab.agent(&[("INTERVAL", "100")]);
    let lost = |now: bool| {
        lab.edit(|state| {
            state.gpu_mut(0)?.lost = now;
            Ok(())
        });
        std::thread::sleep(Duration::from_millis(110));
        value(&agent.metrics(), "hotpot_gpu_lost", &["gpu=\"0\""])
    };
    let begun = Instant::now();
    assert_eq!(lost(true), Some(1.0));
    while lost(false) != Some(0.0) {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not come back");
    }
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[test]
fn a_driver_that_dies_is_told_of_and_tried_again() {
    let lab = Lab::new("dies", "h100-80gb:1");
    let mut agent = lab.agent(&[]);
    agent.metrics();
    lab.edit(|state| {
        state.fail("nvmlDeviceGetCount_v2", 0, Code::Unknown);
        Ok(())
    });
    let text = agent.metrics();
    assert_eq!(value(&text, "hotpot_up", &[]), Some(0.0));
    assert!(!text.contains("hotpot_gpu_"), "{text}");
    assert!(agent.said().starts_with("not measuring: "));
    agent.metrics();
    lab.edit(|state| {
        state.faults.clear();
        Ok(())
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    while value(&agent.metrics(), "hotpot_up", &[]) != Some(1.0) {
        assert!(Instant::now() < deadline, "the agent does not try again");
        std::thread::sleep(Duration::from_millis(100));
    }
    let (status, log) = agent.end(Signal::SIGTERM);
    assert!(status.success());
    assert_eq!(log.lines().next(), Some("measuring again"), "said once each: {log}");
}

#[test]
fn a_driver_that_hangs_holds_up_nothing_else() {
    let lab = Lab::new("hangs", "h100-80gb:1");
    let agent = lab.agent(&[]);
    agent.metrics();
    let call = "nvmlDeviceGetTemperature".to_string();
    let hang = Fault { call, nth: 0, effect: Effect::SleepMs(60_000) };
    lab.edit(|state| {
        state.faults.push(hang);
        Ok(())
    });
    let address = agent.address;
    let scrape = std::thread::spawn(move || support::get(address, "/metrics", ""));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(agent.get("/healthz", ""), (200, "ok\n".into()));
    assert!(!scrape.is_finished(), "the scrape still waits");
    // The driver hangs for a minute; that the answer comes before is what matters.
    let (status, text) = scrape.join().unwrap();
    assert_eq!((status, value(&text, "hotpot_up", &[])), (200, Some(0.0)));
    assert!(agent.end(Signal::SIGINT).0.success());
}

#[test]
fn without_a_driver_it_says_so_and_ends() {
    let lab = Lab::new("none", "h100-80gb:1");
    let (code, said) = lab.refusal(("HOTPOT_NVML", "/nonexistent.so"));
    assert_eq!(code, Some(7));
    assert!(said.contains("/nonexistent.so"), "{said}");
}

#[test]
fn others_are_let_in_with_the_token_only() {
    let lab = Lab::new("token", "h100-80gb:1");
    let token = lab.folder.join("token");
    std::fs::write(&token, "0123456789abcdef\n").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (code, said) = lab.refusal(("LISTEN", "0.0.0.0:0"));
    assert_eq!(code, Some(7));
    assert!(said.contains("--token-file"), "{said}");
    let agent = lab.agent(&[("TOKEN_FILE", token.to_str().unwrap())]);
    assert_eq!(agent.get("/metrics", "").0, 401);
    assert_eq!(agent.get("/metrics", "Authorization: Bearer 0123456789abcdeX\r\n").0, 401);
    let (status, text) = agent.get("/metrics", "Authorization: Bearer 0123456789abcdef\r\n");
    assert_eq!((status, value(&text, "hotpot_up", &[])), (200, Some(1.0)));
    assert_eq!(agent.get("/healthz", "").0, 200);
}

#[test]
fn requests_are_bounded() {
    let lab = Lab::new("bounded", "h100-80gb:1");
    let agent = lab.agent(&[]);
    let long = format!("X: {}\r\n", "x".repeat(64 << 10));
    assert_eq!(agent.get("/metrics", &long).0, 431);
    assert_eq!(agent.get("/nothing", "").0, 404);
    let posted =
        exchange(agent.address, "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
    assert!(exchange(agent.address, "\u{7f}\r\n\r\n").starts_with("HTTP/1.1 400"));
    let openmetrics = agent.get("/metrics", "Accept: application/openmetrics-text\r\n").1;
    assert!(openmetrics.ends_with("# EOF\n"));
}

#[test]
fn one_peer_gets_so_many_connections_and_sigterm_ends_them() {
    let lab = Lab::new("seats", "h100-80gb:1");
    let agent = lab.agent(&[]);
    let mut idle: Vec<TcpStream> =
        (0..16).map(|_| TcpStream::connect(agent.address).unwrap()).collect();
    let mut one_more = TcpStream::connect(agent.address).unwrap();
    one_more.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let turned_away = one_more.read(&mut [0]);
    assert!(matches!(turned_away, Ok(0)), "closed without a word: {turned_away:?}");
    let last = idle.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "who has a seat is served: {answer}");
    idle.clear();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !exchange(agent.address, "GET /healthz HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200") {
        assert!(Instant::now() < deadline, "seats that were left are not given again");
    }
    let _idle = TcpStream::connect(agent.address).unwrap();
    assert!(agent.end(Signal::SIGTERM).0.success());
}

#[test]
fn quick_scrapes_get_the_same_sample() {
    let lab = Lab::new("cache", "h100-80gb:1");
    let agent = lab.agent(&[("INTERVAL", "60000")]);
    let first = agent.metrics();
    lab.edit(|state| {
        state.gpu_mut(0)?.load.temperature_c = Some(99);
        Ok(())
    });
    assert_eq!(agent.metrics(), first);
}

#[test]
fn an_old_driver_tells_what_it_can() {
    let lab = Lab::new("old", "h100-80gb:1");
    let old = lab.folder.join("libnvidia-ml.so.1");
    let missing = ["nvmlGpmSampleAlloc", "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetMigMode"];
    fake_machine::without_symbols(&support::library(), &old, &missing).unwrap();
    let sleeper = Sleeper::new();
    lab.edit(|state| {
        state.gpu_mut(0)?.add(Process::compute(sleeper.pid(), 1024).busy(40));
        Ok(())
    });
    let agent = lab.agent(&[("HOTPOT_NVML", old.to_str().unwrap())]);
    agent.metrics();
    std::thread::sleep(Duration::from_millis(150));
    let text = agent.metrics();
    assert_eq!(value(&text, "hotpot_gpu_busy_ratio", &[]), Some(0.4));
    assert_eq!(value(&text, "hotpot_tenant_processes", &[]), Some(1.0));
    for absent in ["hotpot_tenant_sm_ratio", "hotpot_gpu_sm_active_ratio", "hotpot_gpu_mig_enabled"]
    {
        assert_eq!(value(&text, absent, &[]), None, "{absent}");
    }
}
