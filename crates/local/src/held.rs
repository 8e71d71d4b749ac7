//! What a task held of GPUs, under which caps, and what it had booked there in the end: for the journal
//! and for whoever asks it later. What was refused is also told where the task's own errors go.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use node::account::Account;
use node::backend::Enforcement;
use node::grant::Grant;
use node::live::LiveShare;
use serde::{Deserialize, Serialize};

/// What one task held of one GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Position in the driver's order.
    pub gpu: u32,
    /// UUID of the physical GPU.
    pub uuid: String,
    /// UUID of the GPU or of the MIG device.
    pub device: String,
    /// Name of the way in which it was shared ([`model::SharingKind::as_str`]).
    pub sharing: String,
    /// Cap of memory; 0 for none, or an instance's own.
    pub memory_mib: u64,
    /// Cap of compute, in thousandths of the GPU; 0 for none, or an instance's own.
    pub compute_milli: u32,
    /// How hard the cap of memory held.
    pub memory: Enforcement,
    /// How hard the cap of compute held.
    pub compute: Enforcement,
    /// What the limiter had written down when the task was over, if it held a cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// Whether the driver has shown a process of the task there, and none had the limiter loaded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
}

impl Held {
    /// * `gpu` — position in the driver's order.
    pub(crate) fn of(gpu: u32, grant: &Grant) -> Self {
        let share = LiveShare::of(grant);
        Self {
            gpu,
            uuid: grant.gpu.clone(),
            device: grant.device.clone(),
            sharing: share.kind,
            memory_mib: share.memory_mib,
            compute_milli: share.compute_milli,
            memory: grant.memory.clone(),
            compute: grant.compute.clone(),
            account: None,
            unlimited: false,
        }
    }

    /// That the caps did not hold, if so.
    pub fn escaped(&self) -> Option<String> {
        self.unlimited.then(|| {
            let gpu = self.gpu;
            format!(
                "GPU {gpu}: the limiter was not loaded into its processes: its caps did not hold"
            )
        })
    }

    /// What was refused, in sentences; none if nothing was.
    pub fn refusals(&self) -> Vec<String> {
        self.account.as_ref().map(|account| account.refusals(self.gpu)).unwrap_or_default()
    }
}

/// Adds lines to a file that a task has written its errors to; a file that is gone is not made anew.
///
/// # Errors
/// The system's.
pub(crate) fn append(path: &Path, lines: &[String]) -> io::Result<()> {
    // A pipe that nobody reads must not hold us up.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut options = OpenOptions::new();
    let mut file = options.read(true).append(true).custom_flags(flags.bits()).open(path)?;
    let mut last = [b'\n'];
    if file.metadata()?.is_file() && file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_exact(&mut last)?;
    }
    let begin = if last == [b'\n'] { "" } else { "\n" };
    let lines: String = lines.iter().map(|line| format!("hotpot: {line}\n")).collect();
    file.write_all(format!("{begin}{lines}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_on_a_line_of_their_own() {
        let path = std::env::temp_dir().join(format!("held-{}", std::process::id()));
        let lines = ["one".to_owned(), "two".to_owned()];
        assert!(append(&path, &lines).is_err() && !path.exists());
        for (before, after) in [
            ("", "hotpot: one\nhotpot: two\n"),
            ("out\n", "out\nhotpot: one\nhotpot: two\n"),
            ("out", "out\nhotpot: one\nhotpot: two\n"),
        ] {
            std::fs::write(&path, before).unwrap();
            append(&path, &lines).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
        std::fs::remove_file(&path).unwrap();
        append(Path::new("/dev/null"), &lines).unwrap();
    }
}
