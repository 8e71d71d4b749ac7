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

/// The real `cuda.h`.
pub(crate) const NVIDIA_CUDA_RUNTIME: &str = "nvidia-cuda-runtime==13.5.37";
/// NVIDIA's own client of the CUDA driver.
pub(crate) const CUDA_BINDINGS: &str = "cuda-bindings==13.5.0";
/// Lets cargo link by Zig; the wheel has the program ready.
pub(crate) const CARGO_ZIGBUILD: &str = "cargo-zigbuild==0.24.1";
/// A C compiler that links against any version of the C library; 100 MB, so only where it is needed.
pub(crate) const ZIGLANG: &str = "ziglang==0.17.1";

const ALL: [&str; 5] = [NVIDIA_ML_PY, NVITOP, GPUSTAT, NVIDIA_NVML_DEV, PROMETHEUS_CLIENT];

/// The environment.
pub(crate) struct Python {
    folder: PathBuf,
}

impl Python {
    /// The environment with all pinned packages; made if it is not there or its pins have changed.
    pub(crate) fn ready() -> Result<Self, String> {
        Self::with("python", &ALL)
    }

    /// An environment of its own with these packages, for what is too large to be installed for all.
    ///
    /// * `name` — of its folder.
    pub(crate) fn with(name: &str, packages: &[&str]) -> Result<Self, String> {
        let python = Self { folder: shell::target().join(name) };
        let (marker, pins) = (python.folder.join("pins.txt"), packages.join("\n"));
        if fs::read_to_string(&marker).is_ok_and(|installed| installed == pins) {
            return Ok(python);
        }
        println!("installing {} into {}", packages.join(", "), python.folder.display());
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
        shell::output(install.args(["install", "--quiet", "--no-input"]).args(packages))?;
        fs::write(&marker, pins).map_err(|error| format!("{}: {error}", marker.display()))?;
        Ok(python)
    }

    /// A program of the environment, such as `python` or `nvitop`.
    pub(crate) fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join("bin").join(name))
    }

    /// The folder of its programs.
    pub(crate) fn programs(&self) -> PathBuf {
        self.folder.join("bin")
    }

    /// The folder in which `nvml.h` lies.
    pub(crate) fn nvml_headers(&self) -> Result<PathBuf, String> {
        self.headers("nvml.h")
    }

    /// The folder in which a header of NVIDIA's lies.
    pub(crate) fn headers(&self, name: &str) -> Result<PathBuf, String> {
        let code = format!(
            "import nvidia, pathlib\n\
             print(next(pathlib.Path(nvidia.__path__[0]).rglob('{name}')).parent)"
        );
        let text = shell::output(self.program("python").args(["-c", &code]))?;
        Ok(PathBuf::from(text.trim()))
    }
}
