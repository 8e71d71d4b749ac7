//! What can hold a cap on this machine, and how hard it holds.

use serde::{Deserialize, Serialize};

/// How hard a cap holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "enforcement", content = "because")]
pub enum Enforcement {
    /// Hardware or driver refuse what goes over it, whatever the tenant does.
    Hard,
    /// It holds as long as the tenant does not work around it.
    Cooperative,
    /// Nothing holds it, and why.
    Absent(String),
    /// Not tried by whoever tells this, and why; others may know.
    Unknown(String),
}

impl Enforcement {
    /// Whether something holds the cap.
    pub fn holds(&self) -> bool {
        matches!(self, Self::Hard | Self::Cooperative)
    }

    /// `hard`, `cooperative`, `absent` or `unknown`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Hard => "hard",
            Self::Cooperative => "cooperative",
            Self::Absent(_) => "absent",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// Every backend of one GPU, as probed: found by asking the machine, not by its model's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backends {
    /// Hardware instances.
    pub mig: Enforcement,
    /// Memory limits that the driver holds on a cgroup.
    pub memory_limit: Enforcement,
    /// MPS: memory limit and thread percentage per client.
    pub mps: Enforcement,
    /// Turns of a chosen length.
    pub time_slice: Enforcement,
    /// The limiter library inside the tenant's process.
    pub limiter: Enforcement,
}
