//! Real processes share a simulated GPU's time. The figures are the GPU's own; the bounds are wide, as the
//! processes' threads may have to wait for a CPU.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

mod support;

use std::process::{Child, Command, Stdio};

use caps::turns::Board;
use caps::{Account, Mapped};
use support::{Stage, built, target};

/// A tenant's program.
struct Tenant {
    child: Child,
}

/// Gives a tenant a part of the GPU's time and starts its program.
fn start(stage: &Stage, name: &str, compute: &str, busy: &[&str]) -> Tenant {
    let uuid = stage.machine.read().gpus[0].uuid.clone();
    let ledger = stage.folder.join(format!("{name}.ledger"));
    let board = stage.folder.join("board");
    caps::Ledger::make(&ledger, 0o600).unwrap();
    Mapped::<Board>::make(&board, 0o600).unwrap();
    let (ledger, board) = (ledger.display(), board.display());
    let caps = stage.folder.join(format!("{name}.caps"));
    let text =
        format!("tenant = {name}\n[{uuid}]\n{compute}\nledger = {ledger}\nboard = {board}\n");
    std::fs::write(&caps, text).unwrap();
    let mut command = busy_program(stage, busy);
    command.env("LD_PRELOAD", target("libhotpot_limiter.so")).env("HOTPOT_CAPS", caps);
    command.env("HOTPOT_LIMITER_LOG", stage.folder.join("log"));
    Tenant { child: command.stdout(Stdio::piped()).spawn().unwrap() }
}

fn busy_program(stage: &Stage, busy: &[&str]) -> Command {
    let mut command = stage.free(&built("busy", &["busy.c"], &["-ldl", "-lpthread"]));
    command.args(busy);
    command
}

/// Waits for programs and gives the GPU time that each has had, in ms.
fn ended(stage: &Stage, tenants: Vec<Tenant>) -> Vec<f64> {
    let pids: Vec<u32> = tenants.iter().map(|tenant| tenant.child.id()).collect();
    for tenant in tenants {
        let output = tenant.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let busy = fake_gpu::Gpus::open(&stage.machine).unwrap().busy_ns();
    let of =
        |pid: &u32| busy.iter().filter(|(known, ..)| known == pid).map(|(.., ns)| ns).sum::<u64>();
    pids.iter().map(|pid| of(pid) as f64 / 1e6).collect()
}

/// The part of the first of two, in percent of what both had.
fn part(had: &[f64]) -> f64 {
    had[0] / (had[0] + had[1]) * 100.0
}

#[test]
fn two_tenants_have_their_shares() {
    for (how, ns) in
        [("flood", "200000"), ("wait", "1000000"), ("copy", "1000000"), ("graph", "100000")]
    {
        let stage = Stage::without_caps(&format!("shares-{how}"), "a100-80gb");
        let busy = ["4000", ns, how];
        let tenants = vec![
            start(&stage, "small", "compute = 300", &busy),
            start(&stage, "large", "compute = 700", &busy),
        ];
        let had = ended(&stage, tenants);
        println!("30/70, {how}, {ns} ns: {had:.0?} ms, {:.1} %", part(&had));
        assert!((part(&had) - 30.0).abs() < 6.0, "{had:?}");
        assert!(had[0] + had[1] > 3000.0, "the GPU stood still: {had:?}");
        let account = Account::read(&stage.folder.join("small.ledger")).unwrap();
        let booked = account.gpu_us as f64 / 1000.0;
        println!("  books: {booked:.0} ms, {} launches", account.launches);
        assert!((booked / had[0] - 1.0).abs() < 0.2, "{booked} ms are in the books");
        assert!(account.launches > 300 && account.throttled_us > 1_000_000);
    }
}

#[test]
fn a_strict_tenant_keeps_to_its_share_and_another_one_has_all_when_alone() {
    let stage = Stage::without_caps("strict", "a100-80gb");
    let busy = ["3000", "200000", "flood"];
    let strict = start(&stage, "strict", "compute = 300\nconserving = no", &busy);
    let had = ended(&stage, vec![strict])[0];
    println!("strict 30 %: {had:.0} ms of 3000");
    assert!((had / 30.0 - 30.0).abs() < 6.0, "{had}");
    let free = start(&stage, "free", "compute = 300", &busy);
    let had = ended(&stage, vec![free])[0];
    println!("30 %, alone: {had:.0} ms of 3000");
    assert!(had > 2700.0, "{had}");
}

#[test]
fn tenants_without_a_cap_of_time_take_no_turns_among_themselves() {
    let stage = Stage::without_caps("free", "a100-80gb");
    let busy = ["1500", "200000", "flood"];
    let tenants = vec![start(&stage, "one", "", &busy), start(&stage, "two", "", &busy)];
    let had = ended(&stage, tenants);
    assert!((part(&had) - 50.0).abs() < 10.0, "the driver's own turns are equal: {had:?}");
    let account = Account::read(&stage.folder.join("one.ledger")).unwrap();
    assert!(account.launches > 300, "{account:?}");
    assert_eq!((account.gpu_us, account.throttled), (0, 0));
}

#[test]
fn recordings_are_not_spoilt() {
    let stage = Stage::without_caps("record", "a100-80gb");
    let tenants = vec![
        start(&stage, "recording", "compute = 500", &["3000", "100000", "record"]),
        start(&stage, "other", "compute = 500", &["3000", "100000", "flood"]),
    ];
    let had = ended(&stage, tenants);
    println!("50/50, one records graphs beside: {had:.0?} ms");
    // While it records, it cannot be seen how far its work has come.
    assert!(part(&had) > 25.0 && part(&had) < 75.0, "{had:?}");
}

#[test]
fn processes_of_one_tenant_share_its_share() {
    let stage = Stage::without_caps("several", "a100-80gb");
    let busy = ["4000", "200000", "flood"];
    let tenants = vec![
        start(&stage, "two", "compute = 400", &busy),
        start(&stage, "two", "compute = 400", &busy),
        start(&stage, "one", "compute = 600", &busy),
    ];
    let had = ended(&stage, tenants);
    println!("40 % by two processes, 60 % by one: {had:.0?} ms");
    let two = part(&[had[0] + had[1], had[2]]);
    assert!((two - 40.0).abs() < 7.0, "{two}");
}

#[test]
fn a_killed_or_stopped_holder_does_not_keep_the_turn() {
    let stage = Stage::without_caps("killed", "a100-80gb");
    for signal in ["-KILL", "-STOP"] {
        let mut dying = start(&stage, "dying", "compute = 900", &["60000", "200000", "flood"]);
        let other = start(&stage, "other", "compute = 100", &["3000", "200000", "flood"]);
        std::thread::sleep(std::time::Duration::from_millis(1000));
        let pid = dying.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let had = ended(&stage, vec![other])[0];
        dying.child.kill().unwrap();
        dying.child.wait().unwrap();
        println!("after {signal} of the other one: {had:.0} ms of some 2000");
        assert!(had > 1200.0, "{had}");
    }
}

#[test]
#[ignore = "a measurement: what a launch costs with and without the limiter"]
fn cost_of_a_launch() {
    let stage = Stage::without_caps("cost", "a100-80gb");
    for (name, ns) in [("short", "1000"), ("10 us", "10000")] {
        let bare = busy_program(&stage, &["0", ns, "bare"]).output().unwrap();
        let capped = start(&stage, "one", "compute = 300", &["0", ns, "bare"]);
        let capped = capped.child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let (bare, capped) = (text(&bare.stdout), text(&capped.stdout));
        println!("{name}: p50 p99 ns without {bare}, with {capped}");
    }
}
