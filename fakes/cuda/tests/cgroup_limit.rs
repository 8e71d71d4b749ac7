//! A memory limit that NVML has set on a cgroup holds programs that use CUDA.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

#[path = "../../gpu/tests/actor/process.rs"]
mod actor;
mod loaded;

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use actor::Actor;
use fake_machine::{MACHINE_VARIABLE, Machine, MemoryLimit};
use loaded::{Loaded, alone};

const OUT_OF_MEMORY: u64 = 2;
/// What each context takes here.
const CONTEXT_MIB: u64 = 100;

/// A program: `start` makes a context, `take` MiB of memory; the answers are CUDA's codes.
#[test]
#[ignore = "a part of the other tests"]
fn acting_process() {
    let Some(folder) = std::env::var_os(MACHINE_VARIABLE) else { return };
    let cuda = Loaded::open(Machine::open(folder).unwrap(), "cuda");
    actor::obey(|verb, numbers| match verb {
        "start" => start(&cuda),
        "take" => take(&cuda, numbers[0]),
        verb => panic!("no command {verb}"),
    });
}

fn start(cuda: &Loaded) -> u64 {
    let mut context = 0_usize;
    assert_eq!(cuda.call("cuInit", &[0]), 0);
    let to = (&raw mut context).expose_provenance();
    match cuda.call("cuDevicePrimaryCtxRetain", &[to, 0]) {
        0 => cuda.call("cuCtxSetCurrent", &[context]).into(),
        code => code.into(),
    }
}

fn take(cuda: &Loaded, mib: u64) -> u64 {
    let mut address = 0_usize;
    let to = (&raw mut address).expose_provenance();
    cuda.call("cuMemAlloc_v2", &[to, (mib << 20) as usize]).into()
}

/// A cgroup (v2) below the test's own; goes when this goes.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None` where none can be made.
    fn make() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let mut mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new).into_iter();
        let mount = mounts.find(|mount| mount.join("cgroup.controllers").exists())?;
        let folder = mount.join(own).join(format!("cgroup-limit-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        Some(Self(folder))
    }

    fn add(&self, actor: &Actor) {
        fs::write(self.0.join("cgroup.procs"), actor.pid().to_string()).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Limits a cgroup on the first GPU, in bytes.
fn limit(nvml: &Loaded, cgroup: &Cgroup, hard: u64) {
    let name = CString::new(cgroup.0.to_str().unwrap()).unwrap();
    // `nvmlSetMemoryLimits_v1_t`: name, soft limit, hard limit.
    let limits = [name.as_ptr().expose_provenance() as u64, 0, hard];
    let mut gpu = 0_usize;
    let to = (&raw mut gpu).expose_provenance();
    assert_eq!(nvml.call("nvmlDeviceGetHandleByIndex_v2", &[0, to]), 0);
    let limits = limits.as_ptr().expose_provenance();
    assert_eq!(nvml.call("nvmlDeviceSetMemoryLimits_v1", &[gpu, limits]), 0);
}

#[test]
fn a_limit_holds_the_programs_of_a_cgroup_together_until_it_is_lifted() {
    let test = "a_limit_holds_the_programs_of_a_cgroup_together_until_it_is_lifted";
    let context = CONTEXT_MIB.to_string();
    let variables = [("HOTPOT_FAKE_CONTEXT_MIB", context.as_str())];
    let Some(on) = alone(test, "a100-80gb", &variables, |_| ()) else { return };
    // Outlives the programs, as it goes only when empty.
    let Some(cgroup) = Cgroup::make() else { return eprintln!("not tried: no cgroup v2 for us") };
    let folder = on.machine.folder().to_owned();
    let nvml = Loaded::open(on.machine, "nvml");
    assert_eq!(nvml.call("nvmlInit_v2", &[]), 0);
    let [mut one, mut two, mut late, mut neighbour] = [(); 4].map(|()| Actor::start(&folder));
    for inside in [&one, &two, &late] {
        cgroup.add(inside);
    }
    limit(&nvml, &cgroup, 1000 << 20);
    assert_eq!((one.ask("start"), two.ask("start"), neighbour.ask("start")), (0, 0, 0));
    assert_eq!(one.ask("take 500"), 0);
    assert_eq!(two.ask("take 302"), OUT_OF_MEMORY);
    assert_eq!(two.ask("take 300"), 0, "with two contexts that is all");
    assert_eq!(one.ask("take 2"), OUT_OF_MEMORY);
    assert_eq!(late.ask("start"), OUT_OF_MEMORY, "a context takes memory too");
    assert_eq!(neighbour.ask("take 20000"), 0, "it is not in the cgroup");
    for _ in 0..20 {
        limit(&nvml, &cgroup, MemoryLimit::NONE);
        assert_eq!(two.ask("take 2"), 0, "lifted");
        limit(&nvml, &cgroup, 1000 << 20);
        assert_eq!(two.ask("take 2"), OUT_OF_MEMORY, "at once");
    }
}
