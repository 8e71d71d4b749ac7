//! What the two interfaces of the MPS control daemon are told, and the variables of its clients.
//!
//! * v2 — lines on the tool's standard input. The default of every driver.
//! * v3 — a TOML file given at the start, and verbs as arguments; driver r615 or newer.
//!
//! All of it is read in NVIDIA's MPS guide ("Legacy MPS v2 Interface", "MPS v3 Interface",
//! "MPS v3 Configuration File", "Appendix: Environment Variables") and tried on the simulated daemon;
//! v3 has not been run on a real driver.

use std::fmt::Write;

use serde::Serialize;

/// Which interface of the control daemon to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interface {
    /// Commands on standard input.
    #[default]
    V2,
    /// Verbs and a file; the driver must be r615 or newer.
    V3,
}

/// Upper bounds for clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caps {
    /// Thousandths of the GPU's threads, 1 to 1000; 0 for no cap.
    pub compute_milli: u32,
    /// Device memory that one process may allocate; 0 for no cap.
    pub memory_mib: u64,
}

impl Caps {
    /// Threads in whole percent, rounded up so that nobody gets less than was booked; `None` for no cap.
    fn percent(self) -> Option<u32> {
        (self.compute_milli > 0).then(|| self.compute_milli.div_ceil(10).min(100))
    }

    /// Variables for one client process. The daemon sees one GPU, so its number is always 0.
    pub(super) fn variables(self) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        if let Some(percent) = self.percent() {
            variables.push(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE".into(), percent.to_string()));
        }
        if self.memory_mib > 0 {
            let limit = format!("0={}M", self.memory_mib);
            variables.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT".into(), limit));
        }
        variables
    }

    /// Commands (v2) that make these the bounds of all clients; they hold for servers that are
    /// started later.
    pub(super) fn commands(self) -> Vec<String> {
        let mut commands = Vec::new();
        if let Some(percent) = self.percent() {
            commands.push(format!("set_default_active_thread_percentage {percent}"));
        }
        if self.memory_mib > 0 {
            let limit = self.memory_mib;
            commands.push(format!("set_default_device_pinned_mem_limit 0 {limit}M"));
        }
        commands
    }

    /// The configuration file (v3): one server that may use this GPU, under these bounds.
    pub(super) fn file(self, gpu: &str) -> String {
        let mut text = format!(
            "schema_version = \"1.0\"\n\n[servers.hotpot]\nallowed_devices = \"{}\"\n",
            gpu.escape_default()
        );
        if let Some(percent) = self.percent() {
            let _ = writeln!(text, "active_thread_percentage = \"{percent}\"");
        }
        if self.memory_mib > 0 {
            let _ = writeln!(text, "pinned_memory_limit = \"{}M\"", self.memory_mib);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_are_written_for_all_three_readers() {
        let caps = Caps { compute_milli: 251, memory_mib: 2048 };
        let variable = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(
            caps.variables(),
            [
                variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "26"),
                variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=2048M"),
            ]
        );
        assert_eq!(caps.commands().len(), 2);
        assert!(
            caps.file("GPU-1").contains("allowed_devices = \"GPU-1\"\nactive_thread_percentage")
        );
    }

    #[test]
    fn no_cap_says_nothing() {
        assert!(Caps::default().variables().is_empty());
        assert!(Caps::default().commands().is_empty());
        assert!(!Caps::default().file("GPU-1").contains("limit"));
    }
}
