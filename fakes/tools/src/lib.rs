//! The driver's command-line tools, as far as hotpot uses them, for machines without a GPU.
//!
//! | program | stands for |
//! |---|---|
//! | `nvidia-cuda-mps-control` | the MPS control daemon and its client, both interfaces |
//! | `nvidia-cuda-mps-server` | the process that the daemon starts for a user |
//! | `nvidia-smi` | the overview, `-L`, `compute-policy --set-timeslice`, and nothing else |
//!
//! Faults of the MPS daemon are asked for in `HOTPOT_FAKE_MPS`, a list with commas: `fail` (it does
//! not come up), `die` (it dies at the first command), `deaf` (it refuses `quit`), `stubborn` (it
//! ignores SIGTERM as well), `polite` (the control program tells refusals on standard output and
//! succeeds), `listed` (the simulated machine shows the servers among the GPU's compute processes). A
//! daemon that hangs is had by stopping it with SIGSTOP.

pub mod daemon;
pub mod mps;
pub mod overview;
pub mod settings;
pub mod smi;

/// Whether the environment asks for a fault of the MPS daemon.
pub fn fault(name: &str) -> bool {
    let asked = std::env::var("HOTPOT_FAKE_MPS").unwrap_or_default();
    asked.split(',').any(|fault| fault.trim() == name)
}
