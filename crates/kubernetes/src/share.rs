//! `GpuShare`: what a claim says of a share beyond amounts, and what the controller says to the node of the share that it
//! has given.

use k8s_openapi::api::resource::v1::{DeviceClass, OpaqueDeviceConfiguration};
use serde::{Deserialize, Serialize};

use crate::names;

/// The source of configuration that users cannot write: a class, or our controller.
pub const FROM_CLASS: &str = "FromClass";
/// Devices of one request (API reference, ResourceClaim: 32 results a claim).
pub const COUNT_MAX: i64 = 32;

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
    /// Device memory in MiB, without the CUDA context, which comes on top; only of an ask, as what was given is booked.
    #[serde(skip_serializing_if = "Option::is_none", rename = "memoryMiB")]
    pub memory_mib: Option<u64>,
    /// Thousandths of the card's compute; 0 for no cap; only of an ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_milli: Option<u32>,
    /// The MIG profile, as `1g.10gb`; only of an ask, as instances are devices of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// `training`, `batch`, `service` or `interactive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Card models that are welcome, the first that finds a place wins; none for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Whose turn comes first where tenants take turns: the higher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The term of the controllers in which it was given; only of what was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
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

/// The configuration of our driver for a request: the last that covers it, as the controller's stands behind what a class
/// says.
///
/// * `request` — its name, `gpu`, or that of the alternative that was chosen, `gpu/large`.
/// * `configs` — which requests each covers, none for all of them, and what it says.
pub fn configured<'a>(
    request: &str,
    configs: impl DoubleEndedIterator<
        Item = (&'a Option<Vec<String>>, &'a Option<OpaqueDeviceConfiguration>),
    >,
) -> Option<&'a OpaqueDeviceConfiguration> {
    let covers = |requests: &Option<Vec<String>>| {
        let requests = requests.as_deref().unwrap_or_default();
        requests.is_empty() || requests.iter().any(|one| one == request || one == base(request))
    };
    let covering = configs.filter(|(requests, _)| covers(requests));
    covering
        .filter_map(|(_, opaque)| opaque.as_ref())
        .rfind(|opaque| opaque.driver == names::DRIVER)
}

/// What a class of devices says to our driver; `None` if it is not one of ours.
pub fn of_class(class: &DeviceClass) -> Option<&OpaqueDeviceConfiguration> {
    let mut configs =
        class.spec.config.iter().flatten().filter_map(|config| config.opaque.as_ref());
    configs.rfind(|opaque| opaque.driver == names::DRIVER)
}

/// A request without the alternative that was chosen: `gpu` of `gpu/large`.
pub fn base(request: &str) -> &str {
    request.split_once('/').map_or(request, |(base, _)| base)
}
