//! `GpuShare`: what a claim says of a share beyond amounts, and what the controller says to the node of the share that it
//! has given.

use serde::{Deserialize, Serialize};

use crate::names;

/// What stands in a claim's `config[].opaque.parameters`.
///
/// A user writes it into a claim, or an administrator into a DeviceClass, as an ask. What was given stands in the same form in the claim's
/// `status.allocation`, with the source `FromClass`, as only our controller writes that: the node goes by that one alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GpuShare {
    /// `hotpot.dev/v1`.
    pub api_version: String,
    /// `GpuShare`.
    pub kind: String,
    /// `exclusive`, `time-slice`, `mps`, `mig` or `memory-capped`: how the card is to be shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<String>,
    /// Device memory, the CUDA context included, in MiB; the cap.
    #[serde(skip_serializing_if = "Option::is_none", rename = "memoryMiB")]
    pub memory_mib: Option<u64>,
    /// Thousandths of the card's compute; 0 for no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_milli: Option<u32>,
    /// The MIG profile, as `1g.10gb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The first memory slice of the instance; only of what was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u8>,
    /// `training`, `batch`, `service` or `interactive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Card models that are welcome, the first that finds a place wins; none for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Whose turn comes first where tenants take turns: the higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

impl GpuShare {
    /// The kind, for `kind`.
    pub const KIND: &str = "GpuShare";

    /// One that says nothing yet.
    pub fn new() -> Self {
        Self {
            api_version: format!("{}/{}", names::GROUP, names::VERSION),
            kind: Self::KIND.to_owned(),
            ..Self::default()
        }
    }
}
