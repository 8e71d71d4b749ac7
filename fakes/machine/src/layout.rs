//! A machine's folder with the simulated driver beside its state, where programs find the driver's libraries and
//! tools under the names of the real ones.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::spec::GpuSpec;
use crate::store::Machine;

/// In the folder: the machine's state.
pub const STATE: &str = "machine";
/// In the folder: the driver's libraries, for `LD_LIBRARY_PATH`.
pub const LIB: &str = "lib";
/// In the folder: the driver's programs, for `PATH`.
pub const BIN: &str = "bin";
/// Libraries as they are built, and the names by which programs look for them: NVML, and CUDA.
pub const LIBRARIES: [(&str, &str); 2] =
    [("libhotpot_fake_nvml.so", "libnvidia-ml.so.1"), ("libhotpot_fake_cuda.so", "libcuda.so.1")];
/// Programs of the driver, and their simulated counterparts as they are built.
pub const TOOLS: [&str; 3] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi"];

/// Makes a machine with these GPUs in a folder: [`STATE`], [`LIB`], [`BIN`].
///
/// * `parts` — the folder of what was built. A part that is not there is left out: programs that only ask NVML need
///   no CUDA.
///
/// # Errors
/// The folder cannot be written to, or has libraries or programs already.
pub fn lay_out(folder: &Path, gpus: &[GpuSpec], parts: &Path) -> io::Result<Machine> {
    let machine = Machine::create(folder.join(STATE), gpus).map_err(io::Error::other)?;
    let (lib, bin) = (folder.join(LIB), folder.join(BIN));
    fs::create_dir(&lib)?;
    fs::create_dir(&bin)?;
    let libraries = LIBRARIES.map(|(part, name)| (part, lib.join(name)));
    let links = libraries.into_iter().chain(TOOLS.map(|tool| (tool, bin.join(tool))));
    for (part, link) in links.filter(|(part, _)| parts.join(part).exists()) {
        symlink(parts.join(part), link)?;
    }
    Ok(machine)
}

/// Puts files in the place of a folder's links to what was built, for whoever takes it for the root of a machine: there no
/// link leads out of it.
///
/// # Errors
/// A file cannot be read or written.
pub fn make_whole(folder: &Path) -> io::Result<()> {
    for part in [LIB, BIN] {
        for entry in fs::read_dir(folder.join(part))? {
            let path = entry?.path();
            let built = path.canonicalize()?;
            fs::remove_file(&path)?;
            fs::copy(built, path)?;
        }
    }
    Ok(())
}

/// NVML in a machine's folder.
pub fn nvml(folder: &Path) -> PathBuf {
    folder.join(LIB).join(LIBRARIES[0].1)
}

/// Parts of the simulated driver that are not built in a folder.
pub fn missing(parts: &Path) -> Vec<&'static str> {
    let wanted = LIBRARIES.map(|(part, _)| part).into_iter().chain(TOOLS);
    wanted.filter(|part| !parts.join(part).exists()).collect()
}
