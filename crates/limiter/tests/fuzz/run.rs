//! One run of a seed: the machine, the clients, what is done to their files, and what must hold.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use caps::turns::Board;
use caps::{Account, Kind, Ledger, Mapped, ProcessId};
use fake_gpu::MemoryKind;

use crate::spoil;
use crate::support::{Stage, built};

/// No client is silent for longer, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(150);

/// Threads that end what other threads are about to use, as no program does, may take a little past the
/// books: bytes for each GPU.
const SLACK: u64 = 64 << 20;

/// What the clients run on.
#[derive(Clone, Copy)]
pub(crate) enum Machine {
    /// Two GPUs.
    Two,
    /// A part of a GPU in MIG mode.
    Mig,
}

/// What is done to the clients' files while they run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoiled {
    /// Nothing.
    Nothing,
    /// Nonsense is written into books, boards and caps, and the log is full.
    Files,
}

/// How a seed is run.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// The client's letters.
    pub(crate) how: &'static str,
    pub(crate) machine: Machine,
    /// Lines of the caps file for each GPU.
    pub(crate) caps: &'static str,
    /// Processes of the tenant.
    pub(crate) clients: u64,
    pub(crate) spoiled: Spoiled,
}

/// A client and what it says.
struct Fuzzer {
    child: Child,
    to: ChildStdin,
    lines: Receiver<String>,
    what: String,
}

impl Fuzzer {
    fn start(command: &mut Command, what: String) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            from.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, to, lines, what }
    }

    /// Its next line; `None` if it has ended.
    fn says(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.child.kill();
                panic!("{} hangs", self.what)
            }
        }
    }

    /// Sees that it has ended well and has said nothing else.
    fn ends(mut self) {
        assert_eq!(self.says(), None, "{}", self.what);
        let status = self.child.wait().unwrap();
        let mut complaints = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert!(status.success() && complaints.is_empty(), "{}: {status}\n{complaints}", self.what);
    }
}

/// The machine of a run.
fn stage(name: &str, machine: Machine) -> Stage {
    match machine {
        Machine::Two => Stage::without_caps(name, "a100-80gb:2"),
        Machine::Mig => {
            let stage = Stage::without_caps(name, "a100-80gb");
            let edited = stage.machine.edit(|state| {
                state.gpu_mut(0)?.set_mig(true)?;
                // 3g.40gb, and all of it for one device.
                let instance = state.create_instance(0, 9, None)?;
                state.create_compute(0, instance, 2, None).map(|_| ())
            });
            edited.unwrap();
            stage
        }
    }
}

/// Has NVML not tell what processes hold.
fn hide_processes(stage: &Stage) {
    let edited = stage.machine.edit(|state| {
        let versions = ["", "_v2", "_v3"].into_iter();
        let names =
            versions.map(|version| format!("nvmlDeviceGetComputeRunningProcesses{version}"));
        state.missing.extend(names);
        Ok(())
    });
    edited.unwrap();
}

/// The board of each GPU.
pub(crate) fn boards(stage: &Stage) -> Vec<PathBuf> {
    let state = stage.machine.read();
    let whole = state.gpus.iter().map(|gpu| gpu.uuid.clone());
    let parts = state.gpus.iter().flat_map(|gpu| gpu.mig_devices().into_iter());
    let names = whole.chain(parts.map(|(_, device)| device.uuid.clone()));
    names.map(|name| stage.folder.join(format!("board-{name}"))).collect()
}

/// The arguments of a client.
fn arguments(command: &mut Command, stage: &Stage, seed: u64, calls: u32, how: &str, name: &str) {
    let folder = stage.folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    command.args([seed.to_string(), calls.to_string(), how.to_owned()]).arg(folder);
    // Stale handles are given on purpose.
    command.env_remove("HOTPOT_FAKE_STRICT");
}

/// The client, compiled anew if what it calls has changed.
fn program() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    include_str!("../clients/fuzz_calls.h").hash(&mut hasher);
    let version = format!("-DCALLS={}", hasher.finish());
    built("fuzz", &["fuzz.c"], &["-ldl", "-lpthread", "-Wl,-z,dynamic-undefined-weak", &version])
}

/// Goes on with all clients from one quiet moment to the next, until they have ended.
fn drive(mut clients: Vec<Fuzzer>, mut at_rest: impl FnMut(&str)) {
    let mut running = true;
    while running {
        running = false;
        let mut quiet = 0;
        for client in &mut clients {
            match client.says().as_deref() {
                Some("quiet") => quiet += 1,
                Some("done") | None => {}
                Some(line) => panic!("{} says {line}", client.what),
            }
        }
        if quiet > 0 {
            at_rest(&clients[0].what);
            running = true;
            for client in &mut clients {
                // Who has ended does not hear it.
                let _ = client.to.write_all(b"\n");
            }
        }
    }
    clients.into_iter().for_each(Fuzzer::ends);
}

/// The functions that clients have called, by their own notes.
fn called(stage: &Stage, names: &[String]) -> BTreeSet<String> {
    let notes = names.iter().map(|name| stage.folder.join(name).join("calls"));
    let lines = notes.flat_map(|path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    lines.map(|line| line.split(' ').next().unwrap_or("").to_owned()).collect()
}

/// No more is held than is in the books; memory of pools may have been freed and still be waited for.
fn books_cover_what_is_held(stage: &Stage, slack: u64, what: &str) {
    let until = Instant::now() + Duration::from_secs(5);
    while let Err(why) = covered(stage, slack) {
        assert!(Instant::now() < until, "{what}: {why}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Modules are measured, and loaded later than it seems; graphs may run once more after they are gone. Both
/// are left out.
fn covered(stage: &Stage, slack: u64) -> Result<(), String> {
    const LEFT_OUT: [(usize, Kind); 2] =
        [(MemoryKind::Module as usize, Kind::Module), (MemoryKind::Graph as usize, Kind::Graph)];
    let held = fake_gpu::Gpus::open(&stage.machine).unwrap().held();
    for (at, gpu) in stage.machine.read().gpus.iter().enumerate() {
        let account = Account::read(&stage.ledger(&gpu.uuid)).unwrap();
        let here = held.iter().filter(|held| held.place.gpu as usize == at);
        let of = |held: &fake_gpu::Held| {
            held.bytes.iter().sum::<u64>()
                - LEFT_OUT.iter().map(|(kind, _)| held.bytes[*kind]).sum::<u64>()
        };
        let truly: u64 = here.map(of).sum();
        let left_out: u64 =
            LEFT_OUT.iter().map(|(_, kind)| account.by_kind()[*kind as usize]).sum();
        let booked = account.held_bytes() - left_out;
        if truly > booked + slack {
            return Err(format!(
                "{truly} bytes of GPU {at} are held, {booked} booked\n{held:?}\n{:?}",
                account.by_kind()
            ));
        }
    }
    Ok(())
}

/// Runs a seed without the limiter and then with it; the functions that were called.
pub(crate) fn run(plan: Plan, seed: u64, calls: u32) -> BTreeSet<String> {
    let what = format!("seed {seed}, {} with {:?}", plan.how, plan.caps);
    let stage = stage(&format!("fuzz-{seed}"), plan.machine);
    // Small pieces are packed otherwise by the driver, and what NVML says of a process that does several
    // things at once is a guess.
    let exact = plan.how.contains('w');
    if exact {
        hide_processes(&stage);
    }
    let program = program();
    let bare = plan.how.replace('q', "");
    let clients = |limited: bool| -> Vec<Fuzzer> {
        (0..plan.clients)
            .map(|one| {
                let (mut command, how, name) = if limited {
                    (stage.command(&program), plan.how, format!("limited-{one}"))
                } else {
                    (stage.free(&program), &*bare, format!("bare-{one}"))
                };
                if plan.spoiled == Spoiled::Files {
                    command.env("HOTPOT_LIMITER_LOG", "/dev/full");
                }
                arguments(&mut command, &stage, seed * 10 + one, calls, how, &name);
                let how = if limited { "" } else { ", without the limiter" };
                Fuzzer::start(&mut command, format!("{what}{how}"))
            })
            .collect()
    };
    drive(clients(false), |_| {});
    for board in boards(&stage) {
        Mapped::<Board>::make(&board, 0o600).unwrap();
    }
    let board = stage.folder.join("board-{gpu}");
    stage.give(&format!("{}board = {}\n", plan.caps, board.display()));
    if plan.spoiled == Spoiled::Files {
        let _spoiling = spoil::start(&stage, seed);
        drive(clients(true), |_| {});
    } else {
        let slack = if plan.how.contains('t') { SLACK } else { 0 };
        let at_rest = |what: &str| {
            if exact {
                books_cover_what_is_held(&stage, slack, what)
            }
        };
        drive(clients(true), at_rest);
        for gpu in &stage.machine.read().gpus {
            let ledger = Ledger::open(&stage.ledger(&gpu.uuid)).unwrap();
            assert_eq!(ledger.reap(ProcessId::own()), 0, "{what}: something is left in the books");
        }
    }
    let names: Vec<String> = (0..plan.clients).map(|one| format!("limited-{one}")).collect();
    called(&stage, &names)
}

/// Runs a seed on one thread without the limiter, and with it and no caps: every call is answered alike.
pub(crate) fn same_with_and_without(seed: u64, calls: u32) {
    let stage = stage(&format!("fuzz-same-{seed}"), Machine::Two);
    let program = program();
    for (name, limited) in [("bare", false), ("limited", true)] {
        let mut command = if limited { stage.command(&program) } else { stage.free(&program) };
        command.env_remove("HOTPOT_CAPS");
        arguments(&mut command, &stage, seed, calls, "gl", name);
        let _ = std::fs::remove_file(stage.folder.join("tokens"));
        drive(vec![Fuzzer::start(&mut command, format!("seed {seed}, {name}"))], |_| {});
    }
    let notes =
        |name: &str| std::fs::read_to_string(stage.folder.join(name).join("calls")).unwrap();
    let (bare, limited) = (notes("bare"), notes("limited"));
    // What the driver has not is the limiter's alone.
    let known: BTreeSet<&str> = bare.lines().filter_map(|line| line.split(' ').next()).collect();
    let has = |line: &&str| known.contains(line.split(' ').next().unwrap_or(""));
    for (at, (one, other)) in bare.lines().zip(limited.lines().filter(has)).enumerate() {
        assert_eq!(one, other, "seed {seed}: call {at} is answered otherwise by the limiter");
    }
}
