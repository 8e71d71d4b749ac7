//! What a claim holds of cards, by its status. Pure.

use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use model::{Class, GpuId, Share, SharingKind};
use serde::Deserialize;

use super::fleet::{Machines, Named};
use crate::quantity::MIB;
use crate::share::{self, FROM_CLASS, GpuShare};
use crate::{names, quantity};

/// A share of one card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The card.
    pub(super) gpu: GpuId,
    /// What of it.
    pub(super) share: Share,
    /// What kind of work it is for.
    pub(super) class: Option<Class>,
}

/// What a claim holds of our devices; empty if nothing. And what is wrong: a device of it is not published.
pub(super) fn of(claim: &ResourceClaim, machines: &Machines) -> (Vec<Held>, Option<String>) {
    let allocation =
        claim.status.as_ref().and_then(|status| status.allocation.as_ref()?.devices.as_ref());
    let Some(devices) = allocation else { return (Vec::new(), None) };
    let config = |request: &str| {
        let of_class = devices.config.iter().flatten().filter(|config| config.source == FROM_CLASS);
        let found = share::configured(request, of_class.map(|one| (&one.requests, &one.opaque)));
        found
            .and_then(|opaque| GpuShare::deserialize(&opaque.parameters.0).ok())
            .unwrap_or_default()
    };
    let all = counted(claim).map(|result| one(result, &config(&result.request), machines));
    let (held, missing): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
    let why = missing.into_iter().find_map(Result::err);
    (held.into_iter().flatten().collect(), why)
}

fn one(
    result: &DeviceRequestAllocationResult,
    config: &GpuShare,
    machines: &Machines,
) -> Result<Held, String> {
    let DeviceRequestAllocationResult { pool, device, .. } = result;
    let named = machines.named(pool, device);
    let named =
        named.ok_or_else(|| format!("it holds {device} of {pool}, which is not there any more"))?;
    let class = config.class.as_deref().and_then(Class::parse);
    match named {
        Named::Instance(gpu, profile, start) => {
            Ok(Held { gpu, share: Share::Mig { profile, start }, class })
        }
        Named::Card(gpu) => Ok(Held { gpu, share: of_card(result, config), class }),
    }
}

/// The way of sharing is what the controller has written; amounts are what is booked.
fn of_card(result: &DeviceRequestAllocationResult, config: &GpuShare) -> Share {
    let amount = |name: &str| result.consumed_capacity.as_ref().and_then(|all| all.get(name));
    let Some(bytes) = amount(names::MEMORY).and_then(quantity::whole) else {
        return Share::Exclusive;
    };
    let memory_mib = bytes.div_ceil(MIB);
    let compute_milli = amount(names::COMPUTE)
        .and_then(quantity::milli)
        .and_then(|milli| u32::try_from(milli).ok())
        .unwrap_or_default();
    match config.sharing.as_deref().and_then(SharingKind::parse) {
        Some(SharingKind::Exclusive | SharingKind::Mig) => Share::Exclusive,
        Some(SharingKind::TimeSlice) => Share::TimeSlice { memory_mib },
        Some(SharingKind::Mps) => Share::Mps { compute_milli, memory_mib },
        Some(SharingKind::MemoryCapped) | None => Share::MemoryCapped { memory_mib, compute_milli },
    }
}

/// How many devices of ours a claim holds.
pub(super) fn count(claim: &ResourceClaim) -> usize {
    counted(claim).count()
}

fn counted(claim: &ResourceClaim) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let allocation =
        claim.status.as_ref().and_then(|status| status.allocation.as_ref()?.devices.as_ref());
    let results = allocation.into_iter().flat_map(|devices| devices.results.iter().flatten());
    results.filter(|result| result.driver == names::DRIVER && result.admin_access != Some(true))
}
