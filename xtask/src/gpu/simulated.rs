//! A simulated machine as a bench: its state, and a folder in which clients find the simulated driver
//! under the real names.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine};

/// Libraries as they are built, and as programs look for them.
const LIBRARIES: [(&str, &str); 2] =
    [("libhotpot_fake_cuda.so", "libcuda.so.1"), ("libhotpot_fake_nvml.so", "libnvidia-ml.so.1")];
/// Programs of the driver.
const TOOLS: [&str; 3] = ["nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi"];

/// A simulated machine.
pub(crate) struct Simulated {
    /// Its state.
    pub(crate) machine: Machine,
    /// What lets programs find its driver.
    pub(crate) environment: Vec<(String, String)>,
}

impl Simulated {
    /// * `beside` — where the simulated driver is built; `folder` — for the machine; `gpus` — such as
    ///   `a100-80gb:1`.
    pub(crate) fn make(beside: &Path, folder: &Path, gpus: &str) -> Result<Self, String> {
        let (lib, bin, state) = (folder.join("lib"), folder.join("bin"), folder.join("machine"));
        for folder in [&lib, &bin] {
            let _left_over = fs::remove_dir_all(folder);
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let link = |built: &str, to: &Path| {
            let from = beside.join(built);
            if !from.exists() {
                return Err(format!("{} is not there; build the simulated driver", from.display()));
            }
            symlink(&from, to).map_err(|error| format!("{}: {error}", to.display()))
        };
        for (built, name) in LIBRARIES {
            link(built, &lib.join(name))?;
        }
        for tool in TOOLS {
            link(tool, &bin.join(tool))?;
        }
        let specs = GpuSpec::list(gpus).map_err(|error| error.to_string())?;
        let machine = Machine::create(&state, &specs).map_err(|error| error.to_string())?;
        let paths = std::env::var("PATH").unwrap_or_default();
        let pair = |name: &str, value: String| (name.to_string(), value);
        let environment = vec![
            pair("LD_LIBRARY_PATH", lib.display().to_string()),
            pair(MACHINE_VARIABLE, state.display().to_string()),
            pair("HOTPOT_NVML", lib.join(LIBRARIES[1].1).display().to_string()),
            pair("HOTPOT_LOCK_DIR", folder.display().to_string()),
            pair("PATH", format!("{}:{paths}", bin.display())),
        ];
        Ok(Self { machine, environment })
    }
}
