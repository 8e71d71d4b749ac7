//! Slurm's own programs (`scontrol`, `sbatch`, `squeue`, `sacct`): every release has them, and they
//! authenticate as whoever calls.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use node::companion;
use node::tool::{Tool, ToolError};
use thiserror::Error;

/// How long a call may take: slurmctld is busy at times, and clients wait for `MessageTimeout` (10 s by
/// default) before they try again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of output that are read: 100,000 jobs at some 2 KiB each.
const OUTPUT_MAX: u64 = 256 << 20;

/// Variables by which a user's squeue leaves jobs out (squeue manual); states are asked for.
const SQUEUE_LEAVES_OUT: [&str; 6] = [
    "SQUEUE_ACCOUNT",
    "SQUEUE_LICENSES",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_QOS",
    "SQUEUE_USERS",
];

/// Why Slurm gave no answer.
#[derive(Debug, Error)]
pub enum SlurmError {
    /// A program of Slurm's is not there, fails, or does not answer.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// An answer that is not understood.
    #[error("`{call}` answered {answer:?}, which is not understood")]
    Answer {
        /// What was asked.
        call: String,
        /// Its answer, as far as it matters.
        answer: String,
    },
}

/// Starts this program again, for something of `hotpot slurm` that outlives the Prolog or Epilog that we are in: not
/// of their group, which Slurm may end with them.
///
/// # Errors
/// It cannot be started.
pub(crate) fn start_later(words: &[&str]) -> io::Result<()> {
    let mut command = Command::new(companion::OWN);
    command.arg("slurm").args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).spawn().map(drop)
}

/// Slurm as its programs in `PATH` reach it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slurm;

impl Slurm {
    /// Runs one of its programs and returns what it printed.
    ///
    /// # Errors
    /// The program is not there, fails, or does not end in time.
    pub fn call(self, program: &str, words: &[&str]) -> Result<String, SlurmError> {
        self.call_with(program, words, "")
    }

    /// As [`Slurm::call`], with something to read for the program.
    ///
    /// # Errors
    /// As [`Slurm::call`].
    pub fn call_with(
        self,
        program: &str,
        words: &[&str],
        input: &str,
    ) -> Result<String, SlurmError> {
        let tool = tool(program)?;
        let mut command = tool.command();
        command.args(words);
        Ok(tool.run(command, input)?)
    }

    /// As [`Slurm::call`], with times as seconds since 1970: other forms depend on the caller's time zone
    /// and environment (scontrol and sacct manuals, `SLURM_TIME_FORMAT`). Lists of an array's tasks are told to their end
    /// (`SLURM_BITSTR_LEN`).
    ///
    /// # Errors
    /// As [`Slurm::call`].
    pub fn call_in_seconds(self, program: &str, words: &[&str]) -> Result<String, SlurmError> {
        let tool = tool(program)?;
        let mut command = tool.command();
        command.args(words).env("SLURM_TIME_FORMAT", "%s").env("SLURM_BITSTR_LEN", "0");
        for name in SQUEUE_LEAVES_OUT {
            command.env_remove(name);
        }
        Ok(tool.run(command, "")?)
    }
}

fn tool(program: &str) -> Result<Tool, ToolError> {
    let variable = format!("HOTPOT_{}", program.to_uppercase());
    Ok(Tool::find(program, &variable)?.within(PATIENCE).keeping(OUTPUT_MAX))
}
