//! A node's simulated GPU machine, for processes of all users.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fake_machine::{GpuSpec, layout};

use crate::error::{LabError, at};

/// Files by which processes take turns at a simulated machine.
const LOCKS: [&str; 2] = ["lock", "gpus.lock"];

/// The GPUs of `count` cards of a model.
///
/// # Errors
/// There is no such model.
pub fn specs(model: &str, count: u32) -> Result<Vec<GpuSpec>, LabError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let listed = GpuSpec::list(&format!("{model}:{count}"));
    listed.map_err(|error| LabError::Options(error.to_string()))
}

/// Makes a machine in a folder, with the driver's libraries and programs beside it.
///
/// # Errors
/// The simulated driver is not built, or a file cannot be made.
pub fn make(folder: &Path, gpus: &[GpuSpec]) -> Result<(), LabError> {
    layout::lay_out(folder, gpus, &parts()?).map_err(at(folder))?;
    let machine = folder.join(layout::STATE);
    let open = |path: &Path, mode: u32| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(at(path))
    };
    // Processes of all users use the GPUs, and the simulated driver is in their processes.
    open(&machine, 0o777)?;
    for name in LOCKS {
        let path = machine.join(name);
        fs::File::create(&path).map_err(at(&path))?;
        open(&path, 0o666)?;
    }
    Ok(())
}

/// Where the simulated driver was built: beside this program or, for tests, a folder above.
fn parts() -> Result<PathBuf, LabError> {
    // Only its folder counts: cargo may have put another file in its place since.
    let program = std::env::current_exe().map_err(at(Path::new("/proc/self/exe")))?;
    let has_all = |folder: &&Path| layout::missing(folder).is_empty();
    let found = program.ancestors().skip(1).take(2).find(has_all);
    found.map(Path::to_path_buf).ok_or_else(|| {
        let text = "the simulated driver is not built: cargo build -p fake-nvml -p fake-cuda \
                    -p fake-tools, in the same profile";
        LabError::Options(text.into())
    })
}
