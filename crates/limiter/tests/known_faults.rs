//! Faults that limiters of this kind are known for: each happens with a library that is built the faulty
//! way (`faulty/faulty.c`), and does not happen with ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use caps::{ComputeCap, Kind, Ledger, ProcessId};
use fake_machine::{Code, Effect};
use support::{Client, MIB, Stage, built, target};

/// The tenant's cap in all of these, in MiB.
const CAP_MIB: u64 = 1024;

/// How a limiter is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Design {
    Ours,
    Faulty,
}

impl Design {
    /// A program of a tenant that this limiter is to hold to [`CAP_MIB`].
    fn command(self, stage: &Stage, program: &Path) -> Command {
        match self {
            Self::Ours => stage.command(program),
            Self::Faulty => {
                let mut command = stage.free(program);
                command.env("LD_PRELOAD", faulty());
                command.env("CUDA_DEVICE_MEMORY_LIMIT", format!("{CAP_MIB}m"));
                command.env("FAULTY_REGION", region(stage));
                command.stderr(Stdio::null());
                command
            }
        }
    }

    /// A client that does what it is told.
    fn client(self, stage: &Stage) -> Client {
        Client::start(&mut self.command(stage, &told()))
    }
}

fn told() -> PathBuf {
    built("told", &["told.c"], &["-ldl", "-lpthread"])
}

fn faulty() -> PathBuf {
    built("faulty.so", &["../faulty/faulty.c"], &["-shared", "-fPIC", "-ldl"])
}

fn region(stage: &Stage) -> PathBuf {
    stage.folder.join("region")
}

/// Checks that a fault shows with the one design and not with the other.
///
/// * `gpus` — the machine.
/// * `shows` — whether it shows.
fn known(name: &str, gpus: &str, shows: impl Fn(Design, &Stage) -> bool) {
    for design in [Design::Faulty, Design::Ours] {
        let stage = Stage::without_caps(&format!("{name}-{design:?}"), gpus);
        stage.give(&format!("memory = {}\ncontext = 67108864\n", CAP_MIB * MIB));
        assert_eq!(shows(design, &stage), design == Design::Faulty, "{name}: {design:?}");
    }
}

/// Whether a client that has begun comes to hold more than its cap by doing something again and again.
fn goes_over(design: Design, stage: &Stage, what: impl Fn(u64) -> String) -> bool {
    let mut client = design.client(stage);
    client.quiet_begin();
    let _codes: Vec<i64> = (0..20).map(|at| client.ask(&what(at)).0).collect();
    stage.true_mib() > CAP_MIB + 64
}

#[test]
fn two_processes_pass_the_check_together() {
    known("race", "a100-80gb", |design, stage| {
        stage.fault("cuMemAlloc_v2", Effect::SleepMs(400));
        let codes: Vec<i64> = std::thread::scope(|threads| {
            let ask = |_| {
                threads.spawn(|| {
                    let mut client = design.client(stage);
                    client.quiet_begin();
                    let code = client.ask(&format!("alloc 1 {}", 640 * MIB)).0;
                    std::thread::sleep(Duration::from_millis(700));
                    code
                })
            };
            let both: Vec<_> = (0..2).map(ask).collect();
            both.into_iter().map(|one| one.join().unwrap()).collect()
        });
        codes == [0, 0]
    });
}

#[test]
fn a_place_on_the_host_is_taken_for_a_gpu() {
    known("place", "a100-80gb", |design, stage| {
        let mut client = design.client(stage);
        client.quiet_begin();
        client.tries(&format!("create 1 {} 2 4000000000", 2048 * MIB)) != Some(0)
    });
}

#[test]
fn what_a_pool_gave_cannot_be_given_back() {
    known("pool", "a100-80gb", |design, stage| {
        let mut client = design.client(stage);
        client.quiet_begin();
        client.does(&format!("alloc-async 1 {}", 64 * MIB));
        client.ask("free-async 1").0 != 0
    });
}

#[test]
fn what_the_driver_refused_stays_booked() {
    known("leak", "a100-80gb", |design, stage| {
        let mut client = design.client(stage);
        client.quiet_begin();
        stage.fault("cuMemAllocAsync", Effect::Fail(Code::Unknown));
        assert_ne!(client.ask(&format!("alloc-async 1 {}", 512 * MIB)).0, 0);
        stage.no_faults();
        client.ask(&format!("alloc 2 {}", 768 * MIB)).0 != 0
    });
}

#[test]
fn some_ways_to_get_memory_are_not_counted() {
    type Way = (&'static str, fn(u64) -> String);
    let ways: [Way; 5] = [
        ("arrays", |at| format!("array {at} 8192 8192")),
        ("mipmaps", |at| format!("mipmapped {at} 4096 4096 3")),
        ("managed", |at| format!("alloc-managed {at} {}", 256 * MIB)),
        ("pitched", |at| format!("alloc-pitch {at} 65536 4096")),
        // One that can be launched holds all that its nodes ask for.
        ("graphs", |at| match at % 2 {
            0 => format!("graph {at} {}", 2048 * MIB),
            _ => format!("launch {}", at - 1),
        }),
    ];
    for (name, what) in ways {
        known(name, "a100-80gb", |design, stage| goes_over(design, stage, what));
    }
    known("pools", "a100-80gb", |design, stage| {
        let mut client = design.client(stage);
        client.quiet_begin();
        client.does("pool 0");
        for at in 1..20 {
            client.ask(&format!("alloc-pool {at} 0 {}", 128 * MIB));
        }
        stage.true_mib() > CAP_MIB + 64
    });
}

#[test]
fn memory_of_another_tenant_is_not_counted() {
    known("opened", "a100-80gb", |design, stage| {
        let mut stranger = Client::start(&mut stage.free(&told()));
        stranger.does("begin");
        stranger.does(&format!("alloc 1 {}", 2048 * MIB));
        let file = stage.folder.join("handle");
        stranger.does(&format!("export 1 {}", file.display()));
        let mut client = design.client(stage);
        client.quiet_begin();
        client.ask(&format!("open 1 {}", file.display())).0 == 0
    });
}

#[test]
fn clients_that_look_names_up_otherwise_escape() {
    let driver = target("libhotpot_fake_cuda.so");
    let more = ["-shared", "-fPIC", driver.to_str().unwrap()];
    let library = built("liblinked.so", &["linked.c"], &more);
    let ways = built("ways", &["ways.c"], &["-ldl"]);
    for way in ["proc-address", "proc-address-v2", "library-deepbind"] {
        known(way, "a100-80gb", |design, stage| {
            let mut command = design.command(stage, &ways);
            let done = command.arg(way).env("LINKED_LIBRARY", &library).output().unwrap();
            let said = String::from_utf8(done.stdout).unwrap();
            let numbers = said.lines().last().and_then(|line| line.split(' ').next());
            numbers.and_then(|pieces| pieces.parse::<u64>().ok()).unwrap() > CAP_MIB / 64
        });
    }
}

/// Where nobody may have a file system of his own this cannot be tried: it says so and passes.
#[test]
fn caps_go_when_the_environment_goes_if_it_can_be_tried() {
    // As in a container within a container: variables are gone, the file that an agent put there is not.
    let script = "mkdir -p /run/hotpot && mount -t tmpfs none /run/hotpot && cp \"$1\" /run/hotpot/caps && \
                  exec env -u HOTPOT_CAPS -u CUDA_DEVICE_MEMORY_LIMIT \"$2\"";
    let may = Command::new("unshare").args(["-m", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        println!(
            "not tried: caps_go_when_the_environment_goes (no right to a file system of its own)"
        );
        return;
    }
    known("container", "a100-80gb", |design, stage| {
        let mut command = design.command(stage, Path::new("unshare"));
        command.args(["-m", "sh", "-c", script, "sh"]).arg(stage.folder.join("caps")).arg(told());
        let mut client = Client::start(&mut command);
        client.quiet_begin();
        client.ask(&format!("alloc 1 {}", 2048 * MIB)).0 == 0
    });
}

#[test]
fn the_limiter_speaks_where_the_program_is_read() {
    known("silence", "a100-80gb", |design, stage| {
        let mut client = design.client(stage);
        client.does("begin");
        // Whoever reads the program's answers meets other lines among them.
        client.says(&format!("alloc 1 {}", 64 * MIB)) != "0 0"
    });
}

#[test]
fn a_recording_is_spoilt() {
    known("recording", "a100-80gb", |design, stage| {
        let board = stage.folder.join("board");
        caps::Mapped::<caps::turns::Board>::make(&board, 0o600).unwrap();
        let share = ComputeCap::of(500).share_milli;
        stage.give(&format!(
            "memory = {}\ncompute = {share}\nboard = {}\n",
            CAP_MIB * MIB,
            board.display()
        ));
        let mut client = design.client(stage);
        client.quiet_begin();
        client.ask("record").0 != 0
    });
}

#[test]
fn gpus_beyond_a_bound_are_not_counted() {
    known("bound", "a100-80gb:12", |design, stage| {
        let mut client = design.client(stage);
        client.quiet_begin_on(11);
        let codes: Vec<_> =
            (0..20).map(|at| client.ask(&format!("alloc {at} {}", 256 * MIB)).0).collect();
        codes.iter().filter(|code| **code == 0).count() as u64 * 256 > CAP_MIB
    });
}

#[test]
fn a_number_that_was_given_again_keeps_what_the_dead_held() {
    known("reuse", "a100-80gb", |design, stage| {
        // A process that has ended held nearly all; its number is process 1's now.
        match design {
            Design::Faulty => {
                let mut bytes = 1_u64.to_ne_bytes().to_vec();
                bytes.extend((1000 * MIB).to_ne_bytes());
                std::fs::write(region(stage), bytes).unwrap();
            }
            Design::Ours => {
                let ledger =
                    Ledger::open(&stage.ledger(&stage.machine.read().gpus[0].uuid)).unwrap();
                let first = ProcessId::living(1).unwrap();
                let ended = ProcessId::from_word(first.word() ^ 1 << 40).unwrap();
                let slot = ledger.join(ended).unwrap();
                ledger.add(slot, Kind::Plain, 1000 * MIB);
            }
        }
        let mut client = design.client(stage);
        client.quiet_begin();
        client.ask(&format!("alloc 1 {}", 512 * MIB)).0 != 0
    });
}

#[test]
fn graphs_are_not_held_back() {
    let busy = built("busy", &["busy.c"], &["-ldl", "-lpthread"]);
    // The part of the GPU that kernels of 1 ms get under a share of 30 %.
    let part = |design: Design, stage: &Stage, how: &str| {
        let mut command = design.command(stage, &busy);
        command.args(["2000", "1000000", how]).env("FAULTY_PAUSE_US", "3000");
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        assert!(child.wait().unwrap().success());
        let had = fake_gpu::Gpus::open(&stage.machine).unwrap().busy_ns();
        had.iter().filter(|(known, ..)| *known == pid).map(|(.., ns)| *ns as f64).sum::<f64>() / 2e9
    };
    known("graphs-held", "a100-80gb", |design, stage| {
        stage.give("memory = 8589934592\ncompute = 300\nconserving = no\n");
        let plain = part(design, stage, "wait");
        assert!(plain < 0.6, "{design:?} does not hold back at all: {plain}");
        part(design, stage, "graph") > 0.6
    });
}
