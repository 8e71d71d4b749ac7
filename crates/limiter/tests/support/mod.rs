//! A simulated machine with a tenant on it, and clients that the limiter is preloaded into.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a part of tests")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a part of tests")]
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use caps::{Account, Ledger};
use fake_machine::{Effect, Fault, GpuSpec, MACHINE_VARIABLE, Machine};

/// Bytes of a MiB.
pub(crate) const MIB: u64 = 1 << 20;
/// What a context takes on these machines, in MiB.
pub(crate) const CONTEXT_MIB: u64 = 64;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i64 = 2;

/// A folder with a machine, a driver, and the caps and books of one tenant.
pub(crate) struct Stage {
    pub(crate) folder: PathBuf,
    pub(crate) machine: Machine,
}

impl Stage {
    /// A machine of one GPU with 80 GiB, of which the tenant has been given so much.
    pub(crate) fn new(name: &str, cap_mib: u64) -> Self {
        let stage = Self::without_caps(name, "a100-80gb");
        let caps = format!("memory = {}\ncontext = {}\n", cap_mib * MIB, CONTEXT_MIB * MIB);
        stage.give(&caps);
        stage
    }

    /// A machine whose tenant has been given nothing yet.
    pub(crate) fn without_caps(name: &str, gpus: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("limiter-{}-{name}", std::process::id()));
        let machine = Machine::create(&folder, &GpuSpec::list(gpus).unwrap()).unwrap();
        std::fs::create_dir_all(folder.join("lib")).unwrap();
        for (built, known_as) in [
            ("libhotpot_fake_cuda.so", "libcuda.so.1"),
            ("libhotpot_fake_nvml.so", "libnvidia-ml.so.1"),
        ] {
            std::os::unix::fs::symlink(target(built), folder.join("lib").join(known_as)).unwrap();
        }
        Self { folder, machine }
    }

    /// Writes the caps file with these lines for each GPU, and makes the books.
    pub(crate) fn give(&self, lines: &str) {
        let mut text = "tenant = test\n".to_owned();
        for gpu in &self.machine.read().gpus {
            let ledger = self.ledger(&gpu.uuid);
            Ledger::make(&ledger, 0o600).unwrap();
            text += &format!("[{}]\n{lines}ledger = {}\n", gpu.uuid, ledger.display());
        }
        std::fs::write(self.folder.join("caps"), text).unwrap();
    }

    /// Has a function of the driver run into a fault at each call.
    pub(crate) fn fault(&self, call: &str, effect: Effect) {
        self.faults(vec![Fault { call: call.into(), nth: 0, effect }]);
    }

    /// Ends all faults.
    pub(crate) fn no_faults(&self) {
        self.faults(Vec::new());
    }

    fn faults(&self, faults: Vec<Fault>) {
        let edited = self.machine.edit(|state| {
            state.faults = faults;
            Ok(())
        });
        edited.unwrap();
        // The driver sees it within a millisecond.
        std::thread::sleep(Duration::from_millis(5));
    }

    /// Where the books of a GPU lie.
    pub(crate) fn ledger(&self, uuid: &str) -> PathBuf {
        self.folder.join(format!("{uuid}.ledger"))
    }

    /// The tenant's books on the first GPU.
    pub(crate) fn account(&self) -> Account {
        Account::read(&self.ledger(&self.machine.read().gpus[0].uuid)).unwrap()
    }

    /// What the books say that the tenant holds on the first GPU, in MiB.
    pub(crate) fn booked_mib(&self) -> u64 {
        self.account().held_bytes() / MIB
    }

    /// What the GPUs themselves say that all processes hold, in MiB.
    pub(crate) fn true_mib(&self) -> u64 {
        let gpus = fake_gpu::Gpus::open(&self.machine).unwrap();
        gpus.held().iter().flat_map(|held| held.bytes).sum::<u64>() / MIB
    }

    /// What the limiter has written into its log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// A program on this machine, without the limiter.
    pub(crate) fn free(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.folder.join("lib"));
        command.env(MACHINE_VARIABLE, self.folder.as_os_str());
        command.env("HOTPOT_FAKE_CONTEXT_MIB", CONTEXT_MIB.to_string());
        // Handles that are no more end the process, as they may with a real driver.
        command.env("HOTPOT_FAKE_STRICT", "1");
        command
    }

    /// A program of the tenant.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = self.free(program);
        command.env("LD_PRELOAD", limiter());
        command.env("HOTPOT_CAPS", self.folder.join("caps"));
        command.env("HOTPOT_LIMITER_LOG", self.folder.join("log"));
        command
    }

    /// A client of the tenant that does what it is told.
    pub(crate) fn client(&self) -> Client {
        Client::start(&mut self.command(&built("told", &["told.c"], &["-ldl", "-lpthread"])))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A process that does one thing per line and answers with the driver's code and a number.
pub(crate) struct Client {
    pub(crate) child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Client {
    /// Starts it; nothing is done yet.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { child, to, from }
    }

    /// Has something done: the code, and the number that it gave.
    pub(crate) fn ask(&mut self, what: &str) -> (i64, u64) {
        writeln!(self.to, "{what}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let (code, number) =
            line.trim().split_once(' ').unwrap_or_else(|| panic!("`{what}` gave `{line}`"));
        (code.parse().unwrap(), number.parse().unwrap())
    }

    /// Has something done; the line that comes, whoever wrote it. Empty if there is none.
    pub(crate) fn says(&mut self, what: &str) -> String {
        writeln!(self.to, "{what}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Tells it to do something after which it says nothing more.
    pub(crate) fn tells(&mut self, what: &str) {
        writeln!(self.to, "{what}").unwrap();
    }

    /// Has something done that may end the process: the code.
    pub(crate) fn tries(&mut self, what: &str) -> Option<i64> {
        self.says(what).split(' ').next().and_then(|code| code.parse().ok())
    }

    /// Begins, and reads over what a limiter may say when it is first needed.
    pub(crate) fn quiet_begin(&mut self) {
        self.quiet_begin_on(0);
    }

    /// The same on the GPU of a number.
    pub(crate) fn quiet_begin_on(&mut self, ordinal: u32) {
        self.does(&format!("begin {ordinal}"));
        let first = self.says(&format!("alloc 255 {MIB}"));
        if first.starts_with('[') {
            let mut answer = String::new();
            self.from.read_line(&mut answer).unwrap();
        }
        self.does("free 255");
    }

    /// Has something done that works.
    #[track_caller]
    pub(crate) fn does(&mut self, what: &str) -> u64 {
        let (code, number) = self.ask(what);
        assert_eq!(code, 0, "{what}");
        number
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The limiter.
pub(crate) fn limiter() -> PathBuf {
    target("libhotpot_limiter.so")
}

/// A library that lies in the target folder.
pub(crate) fn target(file: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join(file);
    let hint = "build it first: cargo build -p limiter -p fake-cuda -p fake-nvml";
    assert!(path.exists(), "{}: {hint}", path.display());
    path
}

/// A C program or library made of files in `clients`; compiled anew only if they have changed.
pub(crate) fn built(name: &str, sources: &[&str], more: &[&str]) -> PathBuf {
    use std::hash::{DefaultHasher, Hash, Hasher};
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let clients = Path::new(std::env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let mut hasher = DefaultHasher::new();
    more.hash(&mut hasher);
    for source in sources.iter().chain(&["cuda.h", "client.h"]) {
        std::fs::read(clients.join(source)).unwrap().hash(&mut hasher);
    }
    let folder = PathBuf::from(std::env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("{:016x}-{name}", hasher.finish()));
    if !program.exists() {
        // Other test programs may want it at the same time: it appears whole.
        let fresh = folder.join(format!("{}-{name}", std::process::id()));
        let mut command = Command::new("cc");
        command.args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-o"]).arg(&fresh);
        command.args(sources.iter().map(|source| clients.join(source))).args(more);
        let done = command.output().expect("a C compiler, cc, is needed");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::rename(fresh, &program).unwrap();
    }
    program
}
