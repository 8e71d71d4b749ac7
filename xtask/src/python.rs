//! Python programs of others that the checks run: pinned, in an environment of their own under the
//! target folder, installed when first asked for.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::shell;

/// NVIDIA's own client of NVML.
pub(crate) const NVIDIA_ML_PY: &str = "nvidia-ml-py==13.615.71";
/// A monitor over NVML.
pub(crate) const NVITOP: &str = "nvitop==1.7.2";
/// Another.
pub(crate) const GPUSTAT: &str = "gpustat==1.1.1";
/// The real `nvml.h`.
pub(crate) const NVIDIA_NVML_DEV: &str = "nvidia-nvml-dev==13.5.37";
/// The reference parser of metrics.
pub(crate) const PROMETHEUS_CLIENT: &str = "prometheus_client==0.26.0";

const ALL: [&str; 5] = [NVIDIA_ML_PY, NVITOP, GPUSTAT, NVIDIA_NVML_DEV, PROMETHEUS_CLIENT];

/// The environment.
pub(crate) struct Python {
    folder: PathBuf,
}

impl Python {
    /// The environment with all pinned packages; made if it is not there or its pins have changed.
    pub(crate) fn ready() -> Result<Self, String> {
        let python = Self { folder: shell::target().join("python") };
        let (marker, pins) = (python.folder.join("pins.txt"), ALL.join("\n"));
        if fs::read_to_string(&marker).is_ok_and(|installed| installed == pins) {
            return Ok(python);
        }
        println!("installing {} into {}", ALL.join(", "), python.folder.display());
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&python.folder);
        // Debian has the module in a package of its own.
        if let Err(error) = shell::output(&mut make) {
            if !shell::install("python3-venv") {
                return Err(format!("{error}\nit needs Debian's package python3-venv"));
            }
            shell::output(&mut make)?;
        }
        let mut install = python.program("pip");
        shell::output(install.args(["install", "--quiet", "--no-input"]).args(ALL))?;
        fs::write(&marker, pins).map_err(|error| format!("{}: {error}", marker.display()))?;
        Ok(python)
    }

    /// A program of the environment, such as `python` or `nvitop`.
    pub(crate) fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join("bin").join(name))
    }

    /// The folder in which `nvml.h` lies.
    pub(crate) fn nvml_headers(&self) -> Result<PathBuf, String> {
        let code = "import nvidia, pathlib\n\
                    print(next(pathlib.Path(nvidia.__path__[0]).rglob('nvml.h')).parent)";
        let text = shell::output(self.program("python").args(["-c", code]))?;
        Ok(PathBuf::from(text.trim()))
    }
}
