//! Jobs: what a file wants to have run, beside what it asks of the fleet.
//!
//! sbatch scripts, Kubernetes manifests and workload files all come to this: a pattern of a workload,
//! perhaps an array of it, and how a task of it is started.

use std::path::PathBuf;

use model::{Workload, WorkloadId};

use crate::array::ArraySpec;
use crate::dependency::Dependency;

/// One job.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// What one task asks for, and its name, owner, class and time limit.
    pub pattern: Workload,
    /// Set if the job is an array.
    pub array: Option<ArraySpec>,
    /// How a task is started.
    pub launch: Launch,
    /// What must have happened before.
    pub after: Vec<Dependency>,
    /// Options that are read but change nothing here, such as `--partition=gpu (line 4)`.
    pub ignored: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// How a task of a job is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// What is run.
    pub program: Program,
    /// Working folder; that of `hotpot` if not said.
    pub directory: Option<PathBuf>,
    /// Where standard output goes, with Slurm's patterns such as `%A` and `%a`.
    pub output: Option<String>,
    /// Where standard error goes; with standard output if not said.
    pub error: Option<String>,
    /// Where standard input comes from; nothing if not said.
    pub input: Option<String>,
    /// Whether output is added to files that are there, instead of replacing them.
    pub append: bool,
    /// Which variables of the caller the task gets.
    pub export: Export,
    /// Variables set for the task, over what it inherits.
    pub env: Vec<(String, String)>,
    /// Variable that gets the task's place in the array, counted from the first index as 0, beside
    /// Slurm's (Kubernetes: `JOB_COMPLETION_INDEX`).
    pub index_variable: Option<String>,
    /// Signal ahead of the time limit.
    pub warning: Option<Warning>,
    /// Processes that `srun` starts inside of it; 0 counts as 1.
    pub processes: u32,
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A script with its interpreter in the first line; the text is kept as it was read.
    Script(String),
    /// A program and its arguments.
    Command(Vec<String>),
}

impl Default for Program {
    fn default() -> Self {
        Self::Command(Vec::new())
    }
}

/// Which variables of the caller a task gets (sbatch manual, `--export`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Export {
    /// All.
    #[default]
    All,
    /// None but those that a program cannot do without (`PATH`, `HOME`, `USER`).
    Nothing,
    /// Those named.
    Named(Vec<String>),
}

/// A signal some time before the limit (sbatch manual, `--signal`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Name without `SIG`, such as `USR1`.
    pub signal: String,
    /// How long before the limit.
    pub before_ms: u64,
    /// Whether the script itself gets it, and not only what it has started.
    pub to_script: bool,
}

impl Job {
    /// Tasks that it stands for.
    pub fn task_count(&self) -> usize {
        self.array.as_ref().map_or(1, |array| array.indices.len())
    }

    /// One workload per task, numbered from `first`.
    pub fn tasks(&self, first: WorkloadId) -> Vec<Workload> {
        match &self.array {
            Some(array) => array.tasks(first, &self.pattern),
            None => vec![Workload { id: first, ..self.pattern.clone() }],
        }
    }
}
