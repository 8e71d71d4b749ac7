//! Tests on a simulated machine: each runs in a process of its own, because which machine a driver
//! library shows is said by the environment.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fake_machine::{Code, GpuSpec, MACHINE_VARIABLE, Machine, Process, State};
use node::driver::{Driver, LIBRARY_VARIABLE};

/// The simulated driver library, which lies beside the test programs' folder.
pub(crate) fn library() -> PathBuf {
    let program = std::env::current_exe().expect("the test program has a path");
    let folder = program.parent().and_then(Path::parent).expect("it lies in target/debug/deps");
    let library = folder.join("libhotpot_fake_nvml.so");
    assert!(library.exists(), "{library:?} is missing; build it first: cargo build -p fake-nvml");
    library
}

/// A folder that no other test uses; removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        // In memory where there is such a folder: the journal waits for the disk at every change.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = folder.join(format!("hotpot-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a scratch folder can be made");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A machine with these GPUs, such as `a100-80gb:2`, in its own folder.
pub(crate) fn machine(folder: &Path, gpus: &str) -> Machine {
    let specs = GpuSpec::list(gpus).expect("a list of GPUs");
    Machine::create(folder, &specs).expect("a simulated machine can be made")
}

/// This test program again, for one test, on a machine.
pub(crate) fn again(test: &str, machine: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test program has a path"));
    command.args([test, "--exact", "--nocapture", "--include-ignored"]);
    command.env(MACHINE_VARIABLE, machine.join("machine"));
    command.env("HOTPOT_STATE_DIR", machine.join("state"));
    // GPUs of all simulated machines are called the same.
    command.env("HOTPOT_LOCK_DIR", machine);
    command.env(LIBRARY_VARIABLE, library());
    // Whether it has been built must make no difference.
    command.env("HOTPOT_LIMITER", "/nowhere");
    // The simulated tools lie beside the library; a test that needs them builds them first.
    command.env("HOTPOT_MPS_CONTROL", library().with_file_name("nvidia-cuda-mps-control"));
    command.env("HOTPOT_NVIDIA_SMI", library().with_file_name("nvidia-smi"));
    command
}

/// Runs `body` in a process of its own on a new machine with these GPUs.
///
/// * `test` — the path of the calling test, as the test program's filter takes it.
pub(crate) fn on_machine(test: &str, gpus: &str, body: impl FnOnce(&Machine, &Driver)) {
    if let Some(folder) = std::env::var_os(MACHINE_VARIABLE) {
        let machine = Machine::open(folder).expect("the machine was made by the parent");
        let driver = Driver::open().expect("the simulated driver loads");
        return body(&machine, &driver);
    }
    let scratch = Scratch::new(&test.replace("::", "-"));
    machine(&scratch.path().join("machine"), gpus);
    let output = again(test, scratch.path()).output().expect("the test program runs again");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("1 passed"), "no test of that name: {}", text(&output));
}

/// Both outputs of a process.
pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// Removes all instances and makes these, full compute instances included, without the driver:
/// profile name and start. The positions in `used` get a process each.
pub(crate) fn lay_out(machine: &Machine, gpu: u32, instances: &[(String, u8)], used: &[usize]) {
    edit(machine, |state| {
        let found = state.gpu_mut(gpu)?;
        found.processes.clear();
        found.instances.clear();
        found.mig.current = true;
        found.mig.pending = true;
        let model = found.model.clone();
        for (at, (name, start)) in instances.iter().enumerate() {
            let profiles = fake_machine::instance_profiles(&model);
            let profile = profiles.iter().find(|profile| profile.name == *name).expect("a profile");
            let id = state.create_instance(gpu, profile.id, Some(u32::from(*start)))?;
            let whole = fake_machine::compute_profiles(profile);
            let whole = whole.iter().max_by_key(|part| part.slices).expect("a compute profile");
            let compute = state.create_compute(gpu, id, whole.id, None)?;
            if used.contains(&at) {
                let pid = 4_000_000 + u32::try_from(at).expect("few instances");
                state.gpu_mut(gpu)?.add(Process::compute(pid, 100).on(id, compute).phantom());
            }
        }
        Ok(())
    });
}

/// Changes the machine behind the driver's back, and waits until the driver library, which looks at
/// most once a millisecond, has seen it.
pub(crate) fn edit(machine: &Machine, change: impl FnOnce(&mut State) -> Result<(), Code>) {
    machine.edit(change).expect("the change is legal");
    std::thread::sleep(std::time::Duration::from_millis(2));
}

/// What stands on a GPU, without asking the driver: profile name, start, UUIDs of its compute
/// instances, in order of start.
pub(crate) fn standing(machine: &Machine, gpu: u32) -> Vec<(String, u8, Vec<String>)> {
    // Opened anew: a copy that has just been looked at may be a millisecond old.
    let state = Machine::open(machine.folder()).expect("the machine").read();
    let found = state.gpu(gpu).expect("the GPU");
    let mut standing: Vec<(String, u8, Vec<String>)> = Vec::new();
    for instance in &found.instances {
        let name = found.profile(instance.profile_id).expect("a profile").name.to_string();
        let uuids = instance.compute.iter().map(|part| part.uuid.clone()).collect();
        standing.push((name, u8::try_from(instance.start).expect("a slice"), uuids));
    }
    standing.sort_by_key(|(_, start, _)| *start);
    standing
}

/// Numbers that look random and are the same in each run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // Xorshift, Marsaglia 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}
