//! What a node offers, as ResourceSlices: packed within the API's limits, and compared with those that are stored. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CounterSet, Device, DeviceTaint, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::devices::{Card, Offers};
use crate::names;

/// Devices of one slice, where they have counters or taints (API reference, ResourceSliceSpec.devices).
const DEVICES_MAX: usize = 64;
/// Counter sets of one slice (ResourceSliceSpec.sharedCounters).
const SETS_MAX: usize = 8;
/// Letters of an object's name (RFC 1123 subdomain).
const NAME_MAX: usize = 253;

/// What the API server keeps of a slice; what it does not know, or has switched off, it drops without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Several claims can hold shares of one device (DRAConsumableCapacity).
    pub shares: bool,
    /// Devices can exclude each other (DRAPartitionableDevices), and where counters stand then.
    pub counters: Option<Counters>,
    /// Devices can be marked (DRADeviceTaints).
    pub taints: bool,
}

/// Where the counters of devices stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// In slices of their own, as from 1.35.
    Apart,
    /// In the slice of their devices, as in 1.34.
    Together,
}

impl Features {
    /// All of them, as in 1.36.
    pub const ALL: Self = Self { shares: true, counters: Some(Counters::Apart), taints: true };

    /// What is missing, each with what follows from it.
    pub fn missing(&self) -> Vec<&'static str> {
        let all = [
            (
                self.shares,
                "the API server drops shares of devices: cards are given whole only; switch on the \
                           feature gate DRAConsumableCapacity, or use Kubernetes 1.36",
            ),
            (
                self.counters.is_some(),
                "the API server drops counters of devices: no MIG instances are offered; switch \
                                       on the feature gate DRAPartitionableDevices, or use Kubernetes 1.36",
            ),
            (
                self.taints,
                "the API server drops taints of devices: faulty cards are not offered at all; switch on the \
                           feature gate DRADeviceTaints, or use Kubernetes 1.36",
            ),
        ];
        all.into_iter().filter(|(is_there, _)| !is_there).map(|(_, what)| what).collect()
    }
}

/// The pool of a node's devices.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The node's name, which is the pool's.
    pub node: String,
    /// The node's UID: slices go with it.
    pub node_uid: String,
    /// What becomes of those who are on a faulty card: `NoSchedule` or `NoExecute`.
    pub effect: &'static str,
    /// What the API server can keep.
    pub features: Features,
}

/// What is to be done to the slices that are stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// New ones.
    pub create: Vec<ResourceSlice>,
    /// Those that differ, with the version that they were compared with.
    pub replace: Vec<ResourceSlice>,
    /// Names of those that are no more.
    pub delete: Vec<String>,
}

impl Changes {
    /// Whether all is as it should be.
    pub fn is_empty(&self) -> bool {
        self.create.is_empty() && self.replace.is_empty() && self.delete.is_empty()
    }
}

/// What is in one slice, beside what it has in common with all of the pool.
#[derive(Clone, Debug, Default, PartialEq)]
struct Content {
    devices: Vec<Device>,
    counters: Vec<CounterSet>,
}

/// The slices of a node in an order that does not change, without generation.
pub fn wanted(offers: &Offers, pool: &Pool) -> Vec<ResourceSlice> {
    let packed = packed(offers, pool);
    let count = packed.len();
    let slice = |(part, content): (String, Content)| ResourceSlice {
        metadata: ObjectMeta {
            name: Some(name(&pool.node, &part)),
            owner_references: Some(vec![owner(pool)]),
            ..ObjectMeta::default()
        },
        spec: ResourceSliceSpec {
            driver: names::DRIVER.to_owned(),
            node_name: Some(pool.node.clone()),
            pool: ResourcePool {
                name: pool.node.clone(),
                generation: 0,
                resource_slice_count: i64::try_from(count).unwrap_or(i64::MAX),
            },
            devices: Some(content.devices).filter(|devices| !devices.is_empty()),
            shared_counters: Some(content.counters).filter(|sets| !sets.is_empty()),
            ..ResourceSliceSpec::default()
        },
    };
    packed.into_iter().map(slice).collect()
}

/// What makes the stored slices of a pool the wanted ones.
///
/// Readers pass over slices of an older generation, so that a change of several slices is seen at once; one that
/// changes a single slice is seen at once anyway, and leaves the others as they are.
pub fn changes(stored: &[ResourceSlice], wanted: Vec<ResourceSlice>) -> Changes {
    let by_name: BTreeMap<&str, &ResourceSlice> =
        stored.iter().filter_map(|slice| Some((slice.metadata.name.as_deref()?, slice))).collect();
    let at = |slice: &ResourceSlice| by_name.get(slice.metadata.name.as_deref()?).copied();
    let is_wanted =
        |name: &str| wanted.iter().any(|one| one.metadata.name.as_deref() == Some(name));
    let delete: Vec<String> =
        by_name.keys().filter(|name| !is_wanted(name)).map(|name| (*name).to_owned()).collect();
    let same = wanted.iter().filter(|slice| at(slice).is_some_and(|there| is_same(there, slice)));
    let (different, found) = (wanted.len() - same.count(), wanted.iter().filter_map(at).count());
    let generation = generation(stored);
    let is_one_pool = |slice: &ResourceSlice| {
        let pool = &slice.spec.pool;
        pool.generation == generation
            && usize::try_from(pool.resource_slice_count) == Ok(wanted.len())
    };
    let is_whole = delete.is_empty() && found == wanted.len() && stored.iter().all(is_one_pool);
    if is_whole && different == 0 {
        return Changes::default();
    }
    let alone = is_whole && different == 1;
    let mut out = Changes { delete, ..Changes::default() };
    for mut slice in wanted {
        slice.spec.pool.generation = if alone { generation } else { generation.saturating_add(1) };
        match by_name.get(slice.metadata.name.as_deref().unwrap_or_default()) {
            None => out.create.push(slice),
            Some(there) if alone && is_same(there, &slice) => {}
            Some(there) => {
                slice.metadata.resource_version.clone_from(&there.metadata.resource_version);
                keep_times(&mut slice, there);
                out.replace.push(slice);
            }
        }
    }
    out
}

/// Whether a stored slice holds what was sent, as far as it is ours to say.
pub fn is_same(stored: &ResourceSlice, sent: &ResourceSlice) -> bool {
    let of_node = |slice: &ResourceSlice| slice.metadata.owner_references.clone();
    let pool = sent.spec.pool.clone();
    let stored_spec = ResourceSliceSpec { pool, ..timeless(&stored.spec) };
    of_node(stored) == of_node(sent) && stored_spec == timeless(&sent.spec)
}

fn generation(stored: &[ResourceSlice]) -> i64 {
    stored.iter().map(|slice| slice.spec.pool.generation).max().unwrap_or(0)
}

/// Without the times of taints, which the API server sets.
fn timeless(spec: &ResourceSliceSpec) -> ResourceSliceSpec {
    let mut spec = spec.clone();
    for taint in
        spec.devices.iter_mut().flatten().flat_map(|device| device.taints.iter_mut().flatten())
    {
        taint.time_added = None;
    }
    spec
}

/// A taint that was there already keeps its time: tolerations count from it.
fn keep_times(slice: &mut ResourceSlice, there: &ResourceSlice) {
    let known: Vec<&Device> = there.spec.devices.iter().flatten().collect();
    for device in slice.spec.devices.iter_mut().flatten() {
        let before = known.iter().find(|other| other.name == device.name);
        let before = before.and_then(|before| before.taints.as_ref()).into_iter().flatten();
        let before: Vec<&DeviceTaint> = before.collect();
        for taint in device.taints.iter_mut().flatten() {
            let same =
                |other: &&&DeviceTaint| other.key == taint.key && other.effect == taint.effect;
            taint.time_added = before.iter().find(same).and_then(|other| other.time_added.clone());
        }
    }
}

/// Contents with a word for each that names its slice.
fn packed(offers: &Offers, pool: &Pool) -> Vec<(String, Content)> {
    let cards = offers.cards.iter().filter(|card| pool.features.taints || card.fault.is_none());
    let (divided, whole): (Vec<&Card>, Vec<&Card>) =
        cards.partition(|card| pool.features.counters.is_some() && card.counters.is_some());
    let sets: Vec<CounterSet> = divided.iter().filter_map(|card| card.counters.clone()).collect();
    let mut out = Vec::new();
    if pool.features.counters == Some(Counters::Apart) {
        let chunks = sets.chunks(SETS_MAX).zip(0..);
        out.extend(chunks.map(|(chunk, at): (_, usize)| {
            (format!("counters-{at}"), Content { counters: chunk.to_vec(), ..Content::default() })
        }));
    }
    for card in divided {
        let devices: Vec<Device> = card.devices().map(|one| published(one, card, pool)).collect();
        for (chunk, at) in devices.chunks(DEVICES_MAX).zip(0_usize..) {
            let together = pool.features.counters == Some(Counters::Together);
            let counters = card.counters.iter().filter(|_| together).cloned().collect();
            out.push((
                format!("{}-{at}", names::card(&card.uuid)),
                Content { devices: chunk.to_vec(), counters },
            ));
        }
    }
    let whole: Vec<Device> =
        whole.into_iter().map(|card| published(&card.device, card, pool)).collect();
    out.extend(whole.chunks(DEVICES_MAX).zip(0_usize..).map(|(chunk, at)| {
        (format!("cards-{at}"), Content { devices: chunk.to_vec(), ..Content::default() })
    }));
    out
}

/// A device with its card's taint, and without what the API server would drop.
fn published(device: &Device, card: &Card, pool: &Pool) -> Device {
    let mut device = device.clone();
    let taint = card.fault.as_ref().map(|fault| DeviceTaint {
        key: format!("{}/{}", names::DRIVER, fault.kind),
        effect: pool.effect.to_owned(),
        ..DeviceTaint::default()
    });
    device.taints = taint.map(|taint| vec![taint]);
    if pool.features.counters.is_none() {
        device.consumes_counters = None;
    }
    if !pool.features.shares {
        device.allow_multiple_allocations = None;
        for capacity in device.capacity.iter_mut().flat_map(BTreeMap::values_mut) {
            capacity.request_policy = None;
        }
    }
    device
}

fn owner(pool: &Pool) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: pool.node.clone(),
        uid: pool.node_uid.clone(),
        controller: Some(true),
        ..OwnerReference::default()
    }
}

/// A name that no other node's slice has, as nodes' names differ.
fn name(node: &str, part: &str) -> String {
    let name = format!("{node}-{}-{part}", names::DRIVER);
    if name.len() <= NAME_MAX {
        return name;
    }
    format!("{:016x}-{}-{part}", names::fingerprint(node.as_bytes()), names::DRIVER)
}

#[cfg(test)]
mod tests;
