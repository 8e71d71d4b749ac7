//! Finds out what the API server keeps of a slice, by sending some that are not to be stored (`dryRun`) and comparing.
//!
//! Before anything is published: devices whose counters were dropped could be given out although they overlap.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, Counter, CounterSet, Device, DeviceCapacity, DeviceCounterConsumption,
    DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams};

use super::publish::{PublishError, server};
use super::slices::{Counters, Features};
use crate::{names, quantity};

/// Asks the API server.
///
/// # Errors
/// It does not answer, or refuses a slice without anything special.
pub(super) async fn features(
    slices: &Api<ResourceSlice>,
    node: &str,
    node_uid: &str,
) -> Result<Features, PublishError> {
    let try_out = |spec: ResourceSliceSpec| tried(slices, slice(node, node_uid, spec));
    let kept = try_out(of_devices(vec![shared()])).await;
    let kept = kept.map_err(server(format!("a ResourceSlice of {node}"), "tried out"))?;
    let device = kept.spec.devices.unwrap_or_default().pop().unwrap_or_default();
    let shares = device.allow_multiple_allocations == Some(true);
    let taints = device.taints.is_some_and(|taints| !taints.is_empty());
    let sets = || Some(vec![counters()]);
    let keeps_sets = |kept: &ResourceSlice| kept.spec.shared_counters == sets();
    let keeps_use = |kept: &ResourceSlice| {
        kept.spec.devices.iter().flatten().any(|device| device.consumes_counters.is_some())
    };
    let alone =
        try_out(ResourceSliceSpec { shared_counters: sets(), ..ResourceSliceSpec::default() });
    let apart = alone.await.is_ok_and(|kept| keeps_sets(&kept))
        && try_out(of_devices(vec![counted()])).await.is_ok_and(|kept| keeps_use(&kept));
    if apart {
        return Ok(Features { shares, taints, counters: Some(Counters::Apart) });
    }
    let both = ResourceSliceSpec { shared_counters: sets(), ..of_devices(vec![counted()]) };
    let together = try_out(both).await.is_ok_and(|kept| keeps_sets(&kept) && keeps_use(&kept));
    Ok(Features { shares, taints, counters: together.then_some(Counters::Together) })
}

async fn tried(
    slices: &Api<ResourceSlice>,
    slice: ResourceSlice,
) -> Result<ResourceSlice, kube::Error> {
    slices.create(&PostParams { dry_run: true, ..PostParams::default() }, &slice).await
}

fn slice(node: &str, node_uid: &str, spec: ResourceSliceSpec) -> ResourceSlice {
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.into(),
        uid: node_uid.into(),
        ..OwnerReference::default()
    };
    ResourceSlice {
        metadata: ObjectMeta {
            generate_name: Some("hotpot-probe-".into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            driver: names::DRIVER.into(),
            node_name: Some(node.into()),
            pool: ResourcePool { name: node.into(), generation: 0, resource_slice_count: 1 },
            ..spec
        },
    }
}

fn of_devices(devices: Vec<Device>) -> ResourceSliceSpec {
    ResourceSliceSpec { devices: Some(devices), ..ResourceSliceSpec::default() }
}

fn shared() -> Device {
    let taint = DeviceTaint {
        key: format!("{}/probe", names::DRIVER),
        effect: "NoSchedule".into(),
        ..DeviceTaint::default()
    };
    let policy = CapacityRequestPolicy {
        default: Some(quantity::of_milli(0)),
        ..CapacityRequestPolicy::default()
    };
    let capacity = DeviceCapacity { value: quantity::of_milli(1000), request_policy: Some(policy) };
    Device {
        name: "probe".into(),
        allow_multiple_allocations: Some(true),
        capacity: Some(BTreeMap::from([(names::COMPUTE.to_owned(), capacity)])),
        taints: Some(vec![taint]),
        ..Device::default()
    }
}

fn counted() -> Device {
    let CounterSet { name: counter_set, counters } = counters();
    let consumption = DeviceCounterConsumption { counter_set, counters };
    Device { name: "probe".into(), consumes_counters: Some(vec![consumption]), ..Device::default() }
}

fn counters() -> CounterSet {
    let one = Counter { value: quantity::of_count(1) };
    CounterSet { name: "probe".into(), counters: BTreeMap::from([("slice".to_owned(), one)]) }
}
