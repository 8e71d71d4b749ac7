//! What is written into a claim's status: the devices of a seat, as the API wants them. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult,
    DeviceRequestAllocationResult, OpaqueDeviceConfiguration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use model::{GpuId, Seat, Share};

use super::ask::Asked;
use super::fleet::Machines;
use super::stage::Member;
use crate::quantity::MIB;
use crate::share::{FROM_CLASS, GpuShare};
use crate::{names, quantity};

/// What an allocation says of its making.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// When.
    pub at: Time,
    /// In which term of the controllers.
    pub epoch: i64,
}

/// What each claim of a waiting pod is given by a seat, in the order of the claims.
///
/// * `share_id` — gives a new UUID for each share of a card.
///
/// # Errors
/// The seat names what is not published.
pub(super) fn of(
    member: &Member,
    seat: &Seat,
    machines: &Machines,
    stamp: &Stamp,
    mut share_id: impl FnMut() -> String,
) -> Result<Vec<AllocationResult>, String> {
    let node = machines.fleet.node(seat.node).ok_or("the seat's node is not there")?.name();
    let mut shares = seat.shares.iter();
    let mut all = Vec::new();
    for (_, asked) in &member.claims {
        let (mut results, mut config) = (Vec::new(), Vec::new());
        for asked in asked {
            let mut given = None;
            for (index, share) in shares.by_ref().take(asked.each.count as usize) {
                let gpu = GpuId { node: seat.node, index: *index };
                results.push(result(asked, node, (gpu, *share), machines, &mut share_id)?);
                given = Some(*share);
            }
            config.extend(given.map(|share| configuration(asked, share, stamp.epoch)).transpose()?);
        }
        all.push(AllocationResult {
            allocation_timestamp: Some(stamp.at.clone()),
            devices: Some(DeviceAllocationResult { results: Some(results), config: Some(config) }),
            node_selector: Some(only(node)),
        });
    }
    Ok(all)
}

fn result(
    asked: &Asked,
    node: &str,
    (gpu, share): (GpuId, Share),
    machines: &Machines,
    share_id: &mut impl FnMut() -> String,
) -> Result<DeviceRequestAllocationResult, String> {
    let missing = || format!("GPU {} of {node} is not published", gpu.index);
    let (device, consumed) = match share {
        Share::Mig { profile, start } => {
            (machines.instance(gpu, profile, start).ok_or_else(missing)?, None)
        }
        Share::Exclusive
        | Share::TimeSlice { .. }
        | Share::Mps { .. }
        | Share::MemoryCapped { .. } => {
            (machines.card(gpu).ok_or_else(missing)?, Some(consumed(share, gpu, machines)))
        }
    };
    Ok(DeviceRequestAllocationResult {
        request: asked.request.clone(),
        driver: names::DRIVER.to_owned(),
        pool: node.to_owned(),
        device: device.to_owned(),
        share_id: consumed.is_some().then(share_id),
        consumed_capacity: consumed,
        ..DeviceRequestAllocationResult::default()
    })
}

/// What a share takes of a card's capacity.
fn consumed(share: Share, gpu: GpuId, machines: &Machines) -> BTreeMap<String, Quantity> {
    let found =
        machines.fleet.node(gpu.node).and_then(|node| node.gpus().get(usize::from(gpu.index)));
    let all_mib = found.map_or(0, |gpu| gpu.model().memory_mib);
    let (memory_mib, compute_milli) = match share {
        Share::Exclusive | Share::Mig { .. } => (all_mib, 1000),
        Share::TimeSlice { memory_mib } => (memory_mib, 0),
        Share::Mps { compute_milli, memory_mib }
        | Share::MemoryCapped { compute_milli, memory_mib } => (memory_mib, compute_milli),
    };
    BTreeMap::from([
        (names::MEMORY.to_owned(), quantity::of_bytes(memory_mib * MIB)),
        (names::COMPUTE.to_owned(), quantity::of_milli(u64::from(compute_milli))),
    ])
}

/// What the node is to make of the request: as from a class, which no user can write.
fn configuration(
    asked: &Asked,
    share: Share,
    epoch: i64,
) -> Result<DeviceAllocationConfiguration, String> {
    let given = GpuShare {
        sharing: Some(share.kind().as_str().to_owned()),
        class: asked.class.map(|class| class.as_str().to_owned()),
        priority: asked.priority,
        epoch: Some(epoch),
        ..GpuShare::new()
    };
    let parameters = serde_json::to_value(given).map_err(|error| error.to_string())?;
    Ok(DeviceAllocationConfiguration {
        source: FROM_CLASS.into(),
        requests: Some(vec![asked.request.clone()]),
        opaque: Some(OpaqueDeviceConfiguration {
            driver: names::DRIVER.into(),
            parameters: RawExtension(parameters),
        }),
    })
}

/// The claim can be used on that node alone.
fn only(node: &str) -> NodeSelector {
    let name = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![name]),
            match_expressions: None,
        }],
    }
}
