//! Do others believe the simulated libcuda? Its functions, structs and codes are held against NVIDIA's
//! headers by a C compiler, and NVIDIA's own client runs on it, without the limiter and under a cap.

mod layouts;
mod signatures;
mod types;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::gpu::bench::Bench;
use crate::gpu::simulated::Simulated;
use crate::gpu::tenant::Tenant;
use crate::python::{CUDA_BINDINGS, NVIDIA_CUDA_RUNTIME, Python};
use crate::{Verdict, shell};

/// A cap that is to be felt, in bytes.
const CAP: u64 = 2 << 30;
/// A cap with room for all that the client's script takes, in bytes.
const ROOMY_CAP: u64 = 60 << 30;

/// A capped client of three calls: what the cap leaves is shown, what goes over it is refused.
const OVER_CAP: &str = "
import sys
from cuda.bindings import driver
def good(answer):
    code, *rest = answer
    assert code == driver.CUresult.CUDA_SUCCESS, code
    return rest[0] if rest else None
cap = int(sys.argv[1])
good(driver.cuInit(0))
device = good(driver.cuDeviceGet(0))
context = good(driver.cuDevicePrimaryCtxRetain(device))
good(driver.cuCtxSetCurrent(context))
code, free, total = driver.cuMemGetInfo()
assert total == cap and free < cap, (free, total)
code, _ = driver.cuMemAlloc(cap + 1)
assert code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, code
address = good(driver.cuMemAlloc(cap // 2))
code, _ = driver.cuMemAlloc(cap // 2)
assert code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, code
good(driver.cuMemFree(address))
address = good(driver.cuMemAlloc(cap // 2))
";

pub(crate) fn run() -> Verdict {
    shell::cargo(&[
        "build",
        "--quiet",
        "-p",
        "fake-cuda",
        "-p",
        "fake-nvml",
        "-p",
        "fake-tools",
        "-p",
        "limiter",
    ])?;
    let python = Python::with("python-cuda", &[NVIDIA_CUDA_RUNTIME, CUDA_BINDINGS])?;
    let folder = shell::target().join("cuda");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    compiled(&python, &folder, "signatures", &signatures::c_file)?;
    compiled(&python, &folder, "layouts", &layouts::c_file)?;
    clients(&python, &folder)
}

/// A file of assertions, and how many there are.
type CFile = dyn Fn(&Path) -> Result<(String, usize), String>;

/// Lets a C compiler judge assertions about the headers.
fn compiled(python: &Python, folder: &Path, what: &str, file: &CFile) -> Verdict {
    let headers = python.headers("cuda.h")?;
    let (text, count) = file(&headers)?;
    let source = folder.join(format!("{what}.c"));
    fs::write(&source, text).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut compile = Command::new("gcc");
    compile.args(["-std=gnu11", "-fsyntax-only", "-I"]).arg(headers).arg(&source);
    shell::output(&mut compile)?;
    println!("{what}: {count} as in NVIDIA's headers");
    Ok(())
}

/// NVIDIA's client on the simulated driver.
fn clients(python: &Python, folder: &Path) -> Verdict {
    let built = shell::target().join(if cfg!(debug_assertions) { "debug" } else { "release" });
    let simulated = Simulated::make(&built, folder, "a100-80gb:2")?;
    let state = simulated.machine.read();
    let uuids: Vec<String> = state.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
    let bench = Bench::make(&built, folder.to_path_buf(), simulated.environment)?;
    bench.begin(Duration::from_secs(120));
    let script = shell::root().join("fakes/cuda/tests/bindings.py");
    let program = || python.program("python");
    let free = Tenant::free(&bench, "bindings-free")?;
    let said = shell::output(free.on(&bench, program().arg(&script)))?;
    println!("cuda-bindings: {} topics as on a real driver", said.lines().count());
    let capped = Tenant::capped(&bench, "bindings-over", Some(CAP), None)?;
    let mut over = program();
    shell::output(capped.on(&bench, over.args(["-c", OVER_CAP]).arg(CAP.to_string())))?;
    println!("cuda-bindings under the limiter: sees the cap, is refused what goes over it");
    let capped = Tenant::capped_on(&bench, "bindings", &uuids, Some(ROOMY_CAP), None)?;
    let said = shell::output(capped.on(&bench, program().arg(&script)))?;
    println!("cuda-bindings under the limiter: {} topics too", said.lines().count());
    Ok(())
}
