//! What the simulated `nvidia-smi` prints of a simulated machine.

use std::path::PathBuf;
use std::process::{Command, Output};

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine, Process, State};

/// More than any process's number (2^22 is the kernel's limit).
const NOBODY: u32 = 5_000_000;

/// A machine in a folder of its own, which goes when this goes.
struct Shown {
    folder: PathBuf,
    machine: Machine,
}

impl Shown {
    fn new(name: &str, gpus: &str, change: impl FnOnce(&mut State)) -> Self {
        let folder = std::env::temp_dir().join(format!("smi-{}-{name}", std::process::id()));
        let gpus = GpuSpec::list(gpus).expect("models");
        let machine = Machine::create(&folder, &gpus).expect("a folder");
        let edited = machine.edit(|state| {
            change(state);
            Ok(())
        });
        edited.expect("the file");
        Self { folder, machine }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_nvidia-smi"));
        let library = program.with_file_name("libhotpot_fake_nvml.so");
        assert!(library.exists(), "build it first: cargo build -p fake-nvml");
        let mut command = Command::new(program);
        command.args(arguments).env(MACHINE_VARIABLE, &self.folder);
        command.output().expect("the program")
    }

    /// What it prints.
    fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let done = self.run(arguments);
        assert!(done.status.success(), "{done:?}");
        let text = String::from_utf8(done.stdout).expect("text");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}

/// The words of a line without the bars of the table.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().filter(|word| *word != "|").collect()
}

/// Divides a GPU: an instance of two memory slices and one of one.
fn divide(state: &mut State, gpu: u32) {
    state.gpu_mut(gpu).expect("a GPU").set_mig(true).expect("MIG");
    for profile in [14, 19] {
        let instance = state.create_instance(gpu, profile, None).expect("room");
        state.create_compute(gpu, instance, if profile == 14 { 1 } else { 0 }, None).expect("room");
    }
}

#[test]
fn the_list_has_gpus_and_below_them_mig_devices() {
    let shown = Shown::new("list", "t4,a100-80gb:2", |state| divide(state, 1));
    let state = shown.machine.read();
    let uuid = |gpu: usize| state.gpus[gpu].uuid.as_str();
    let parts = state.gpus[1].mig_devices();
    let expected = [
        format!("GPU 0: Tesla T4 (UUID: {})", uuid(0)),
        format!("GPU 1: NVIDIA A100-SXM4-80GB (UUID: {})", uuid(1)),
        format!("  MIG 2g.20gb     Device  0: (UUID: {})", parts[0].1.uuid),
        format!("  MIG 1g.10gb     Device  1: (UUID: {})", parts[1].1.uuid),
        format!("GPU 2: NVIDIA A100-SXM4-80GB (UUID: {})", uuid(2)),
    ];
    assert_eq!(shown.lines(&["-L"]), expected);
    assert!(parts[0].1.uuid.starts_with("MIG-"));
}

#[test]
fn the_overview_has_versions_gpus_and_processes() {
    let me = std::process::id();
    let shown = Shown::new("overview", "t4:2,a100-80gb", |state| {
        state.gpus[0].add(Process::compute(me, 300).busy(30));
        state.gpus[0].add(Process::compute(NOBODY, 45).phantom());
        divide(state, 2);
    });
    let lines = shown.lines(&[]);
    assert!(lines.iter().all(|line| line.chars().count() == 81), "{lines:#?}");
    assert!(lines[1].contains("SIMULATED"), "{}", lines[1]);
    let version = words(&lines[2]);
    assert_eq!(version[1..5], ["615.71.05", "Driver", "Version:", "615.71.05"]);
    assert_eq!(version[5..], ["CUDA", "Version:", "13.5"]);
    let row = |line: &str| lines.iter().any(|shown| words(shown).join(" ") == line);
    let all = |gpu: usize| shown.machine.read().gpus[gpu].facts().expect("a model").memory_mib().0;
    assert!(row(&format!("0 Tesla T4 345MiB / {}MiB 30%", all(0))), "{lines:#?}");
    assert!(row(&format!("1 Tesla T4 0MiB / {}MiB 0%", all(1))), "{lines:#?}");
    assert!(row(&format!("2 NVIDIA A100-SXM4-80GB 0MiB / {}MiB N/A", all(2))), "{lines:#?}");
    assert!(row("MIG 1g.10gb Device 1 0MiB / 9728MiB N/A"), "{lines:#?}");
    assert!(row(&format!("0 N/A N/A {NOBODY} C [Not Found] 45MiB")), "{lines:#?}");
    let program = std::env::current_exe().expect("a path");
    let name = program.file_name().expect("a name").to_string_lossy();
    let mine =
        lines.iter().map(|line| words(line)).find(|words| words.get(3) == Some(&&*me.to_string()));
    let mine = mine.expect("a row of this process");
    assert!(mine[5].ends_with(&*name) && mine[6] == "300MiB", "{mine:?}");
}

#[test]
fn an_idle_machine_says_so_and_a_lost_gpu_is_told() {
    let shown = Shown::new("lost", "t4:2", |state| state.gpus[1].lost = true);
    let overview = shown.lines(&[]).join("\n");
    assert!(overview.contains("No running processes found"), "{overview}");
    assert!(overview.contains("cannot be reached") && overview.contains("ERR!"), "{overview}");
    let list = shown.lines(&["-L"]);
    assert!(list[0].starts_with("GPU 0: Tesla T4"), "{list:?}");
    assert!(list[1].starts_with("Unable to determine the device handle for GPU 1"), "{list:?}");
}

#[test]
fn what_it_cannot_do_is_said() {
    let shown = Shown::new("unknown", "t4", |_| ());
    for arguments in [&["-q"][..], &["-L", "-q"], &["topo", "-m"]] {
        let done = shown.run(arguments);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && done.stdout.is_empty(), "{done:?}");
        assert_eq!(said, format!("the simulated nvidia-smi cannot do: {}\n", arguments.join(" ")));
    }
    let without =
        Command::new(env!("CARGO_BIN_EXE_nvidia-smi")).env_remove(MACHINE_VARIABLE).output();
    let without = without.expect("the program");
    let said = String::from_utf8_lossy(&without.stderr);
    assert!(!without.status.success() && said.contains("Failed to initialize NVML"), "{said}");
}
