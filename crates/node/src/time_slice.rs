//! Time-slicing: how long each process's turn on a GPU is. NVML has no call for it; the driver's tool
//! `nvidia-smi compute-policy` sets it.
//!
//! The tool's arguments are as read in NVIDIA's driver for dynamic resource allocation in Kubernetes.
//! How it lists the length in force was not found documented, so it is not read back: whoever sets it
//! keeps it in the journal.

use model::SharingKind;
use serde::Serialize;

use crate::backend::Enforcement;
use crate::tool::{Tool, ToolError};

/// Name of the tool, and the variable that may name another.
const TOOL: (&str, &str) = ("nvidia-smi", "HOTPOT_NVIDIA_SMI");

/// How long a process's turn is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// What the driver chooses.
    #[default]
    Default,
    /// Short: quick answers, more switching.
    Short,
    /// Medium.
    Medium,
    /// Long: more throughput, slower answers.
    Long,
}

impl Turn {
    /// All lengths, by the tool's number.
    pub const ALL: [Self; 4] = [Self::Default, Self::Short, Self::Medium, Self::Long];

    /// The tool's number, 0 to 3.
    pub fn number(self) -> u8 {
        match self {
            Self::Default => 0,
            Self::Short => 1,
            Self::Medium => 2,
            Self::Long => 3,
        }
    }

    /// `default`, `short`, `medium` or `long`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
        }
    }

    /// Reads a name; `None` if it is not one of the four.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|turn| turn.as_str() == name)
    }
}

/// Sets the length of turns on GPUs.
#[derive(Clone, Debug)]
pub struct TimeSlice {
    tool: Tool,
}

impl TimeSlice {
    /// Finds the tool.
    ///
    /// # Errors
    /// [`ToolError::Missing`].
    pub fn find() -> Result<Self, ToolError> {
        Tool::find(TOOL.0, TOOL.1).map(Self::with)
    }

    /// Uses this tool.
    pub fn with(tool: Tool) -> Self {
        Self { tool }
    }

    /// What holds turns here. Turns themselves come with every driver; a chosen length needs the tool.
    /// Cooperative, because turns are per process: a tenant with more processes gets more of them.
    pub fn probe() -> Enforcement {
        match Self::find() {
            Ok(_) => Enforcement::Cooperative,
            Err(error) => Enforcement::Absent(format!("{}: {error}", SharingKind::TimeSlice)),
        }
    }

    /// Sets the length of turns on one GPU; needs root.
    ///
    /// * `gpu` — its UUID.
    ///
    /// # Errors
    /// That the tool is silent or refuses, with what it says.
    pub fn set(&self, gpu: &str, turn: Turn) -> Result<(), ToolError> {
        let mut command = self.tool.command();
        command.args(["compute-policy", "-i", gpu, "--set-timeslice"]);
        command.arg(turn.number().to_string());
        self.tool.run(command, "").map(|_| ())
    }
}
