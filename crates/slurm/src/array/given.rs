//! What a call of sbatch asks, as sbatch weighs it: its words over variables, and these over the lines of its script.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use formats::calling::{self, Call};
use formats::{Complaint, Source};

use super::{ArrayError, of_file};

/// Variables that stand for options, over the script and under the call (sbatch manual, "input
/// environment variables").
const VARIABLES: [(&str, &str); 15] = [
    ("array", "SBATCH_ARRAY_INX"),
    ("error", "SBATCH_ERROR"),
    ("gpus", "SBATCH_GPUS"),
    ("gpus-per-node", "SBATCH_GPUS_PER_NODE"),
    ("gpus-per-task", "SBATCH_GPUS_PER_TASK"),
    ("gres", "SBATCH_GRES"),
    ("input", "SBATCH_INPUT"),
    ("job-name", "SBATCH_JOB_NAME"),
    ("no-requeue", "SBATCH_NO_REQUEUE"),
    ("open-mode", "SBATCH_OPEN_MODE"),
    ("output", "SBATCH_OUTPUT"),
    ("partition", "SBATCH_PARTITION"),
    ("signal", "SBATCH_SIGNAL"),
    ("time", "SBATCH_TIMELIMIT"),
    ("wait", "SBATCH_WAIT"),
];

/// A call of sbatch with its script.
#[derive(Debug)]
pub struct Given {
    pub(super) call: Call,
    variables: BTreeMap<&'static str, String>,
    script: BTreeMap<&'static str, String>,
    pub(super) source: Source,
}

impl Given {
    /// Reads a call; `None` if sbatch alone is to read it: a test, or a script that comes in, can be read only
    /// once, and asks for no array as far as its words tell.
    ///
    /// # Errors
    /// Words or a script that cannot be read.
    pub fn read(words: &[String]) -> Result<Option<Self>, ArrayError> {
        let usage = |complaint: Complaint| ArrayError::Usage(complaint.to_string());
        let call = Call::of(words).map_err(usage)?;
        let variable = |(option, name)| Some((option, std::env::var(name).ok()?));
        let variables: BTreeMap<_, _> = VARIABLES.into_iter().filter_map(variable).collect();
        let by_words = call.value("array").is_some() || variables.contains_key("array");
        let from_input = call.script.is_none() && call.value("wrap").is_none();
        if call.value("test-only").is_some() || (from_input && !by_words) {
            return Ok(None);
        }
        let source = source(&call)?;
        Self::with(call, variables, source).map(Some)
    }

    fn with(
        call: Call,
        variables: BTreeMap<&'static str, String>,
        source: Source,
    ) -> Result<Self, ArrayError> {
        let script = calling::in_script(&source)?;
        Ok(Self { call, variables, script, source })
    }

    /// What was given for an array that was submitted before.
    ///
    /// * `words` — its options.
    pub(super) fn again(words: &[String], script: &Path) -> Result<Self, ArrayError> {
        let call = Call::of(words).unwrap_or_default();
        Self::with(call, BTreeMap::new(), Source::open(script)?)
    }

    /// What words and a script give where no variable is set.
    #[cfg(test)]
    pub(crate) fn of(words: &[String], name: &str, script: &str) -> Result<Self, ArrayError> {
        let call = Call::of(words).unwrap_or_default();
        Self::with(call, BTreeMap::new(), Source::from_bytes(name, script.as_bytes().to_vec())?)
    }

    /// The value of an option; empty if it has none.
    ///
    /// * `option` — its long name.
    pub fn get(&self, option: &str) -> Option<&str> {
        let variable = || self.variables.get(option).map(String::as_str);
        let script = || self.script.get(option).map(String::as_str);
        self.call.value(option).or_else(variable).or_else(script)
    }

    /// As [`Given::get`], on the command line alone.
    pub fn on_command_line(&self, option: &str) -> Option<&str> {
        self.call.value(option)
    }

    /// What Slurm will call the job.
    pub fn name(&self) -> &str {
        self.get("job-name").unwrap_or(self.source.file_name())
    }

    /// Adds an option to the command line; it is the last, so that it counts.
    ///
    /// * `word` — such as `--gpu-mem=2G`.
    ///
    /// # Errors
    /// It is no option.
    pub fn add(&mut self, word: &str) -> Result<(), ArrayError> {
        self.call.add(word).map_err(|complaint| ArrayError::Usage(complaint.to_string()))
    }
}

/// The script: a file, the command of `--wrap`, or what comes in.
fn source(call: &Call) -> Result<Source, ArrayError> {
    if let Some(command) = call.value("wrap") {
        let text = format!("#!/bin/sh\n{command}\n");
        return Ok(Source::from_bytes("wrap", text.into_bytes())?);
    }
    match &call.script {
        Some(path) => Ok(Source::open(Path::new(path))?),
        None => {
            let mut bytes = Vec::new();
            let input = Path::new("/dev/stdin");
            std::io::stdin().read_to_end(&mut bytes).map_err(of_file(input, "read the script"))?;
            Ok(Source::from_bytes("sbatch", bytes)?)
        }
    }
}
