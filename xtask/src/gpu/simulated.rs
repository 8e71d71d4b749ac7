//! A simulated machine as a bench: its state, and a folder in which clients find the simulated driver
//! under the real names.

use std::fs;
use std::path::Path;

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine, layout};

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
        let absent = layout::missing(beside);
        if !absent.is_empty() {
            let (absent, place) = (absent.join(", "), beside.display());
            return Err(format!("{absent} not in {place}; build the simulated driver"));
        }
        let [lib, bin, state] =
            [layout::LIB, layout::BIN, layout::STATE].map(|part| folder.join(part));
        for left_over in [&lib, &bin] {
            let _ = fs::remove_dir_all(left_over);
        }
        let specs = GpuSpec::list(gpus).map_err(|error| error.to_string())?;
        let machine = layout::lay_out(folder, &specs, beside);
        let machine = machine.map_err(|error| format!("{}: {error}", folder.display()))?;
        let paths = std::env::var("PATH").unwrap_or_default();
        let pair = |name: &str, value: String| (name.to_string(), value);
        let environment = vec![
            pair("LD_LIBRARY_PATH", lib.display().to_string()),
            pair(MACHINE_VARIABLE, state.display().to_string()),
            pair("HOTPOT_NVML", layout::nvml(folder).display().to_string()),
            pair("HOTPOT_LOCK_DIR", folder.display().to_string()),
            pair("PATH", format!("{}:{paths}", bin.display())),
        ];
        Ok(Self { machine, environment })
    }
}
