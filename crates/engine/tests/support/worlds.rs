//! Random fleets, workloads and policies, small enough to be shrunk to something readable.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    ArrayMember, Catalogue, Class, Demand, Fleet, Gpu, GpuAsk, GpuDemand, Isolation, ModeSet,
    ModelSet, Node, NodeSet, Owner, Placement, Policy, Quota, SharingKind, SharingMode, Snapshot,
    Workload, WorkloadId,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

/// A fleet to be, a queue to be, and a policy: everything that a law needs.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) policy: Policy,
}

/// A node in few words, so that a failing case prints on a few lines.
#[derive(Clone, Debug)]
pub(crate) struct NodeSpec {
    pub(crate) cpu_milli: u64,
    pub(crate) memory_mib: u64,
    pub(crate) gpus: Vec<(&'static str, ModeSet)>,
}

/// What a generated world may contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) gpus: usize,
    pub(crate) workloads: usize,
    pub(crate) owners: usize,
    /// Largest gang.
    pub(crate) members: u32,
    /// Whether a member of a gang may ask for more than one GPU.
    pub(crate) wide_gangs: bool,
    pub(crate) arrays: bool,
    pub(crate) quotas: bool,
    /// Whether some worlds know how workloads run beside others, and how fast they have to.
    pub(crate) natures: bool,
}

impl Size {
    /// Everything that there is.
    pub(crate) const FULL: Self = Self {
        nodes: 4,
        gpus: 4,
        workloads: 40,
        owners: 3,
        members: 4,
        wide_gangs: true,
        arrays: true,
        quotas: true,
        natures: true,
    };

    /// One owner in a plain queue: the order is by priority and age alone.
    pub(crate) const PLAIN: Self = Self { owners: 1, arrays: false, quotas: false, ..Self::FULL };
}

const MODELS: [&str; 4] = ["t4", "a30", "a100-40gb", "a100-80gb"];

impl World {
    pub(crate) fn fleet(&self) -> Fleet {
        let mut catalogue = Catalogue::shipped().expect("the shipped tables");
        let mut gpu =
            |(name, offers): &(&str, ModeSet)| Gpu::idle(catalogue.get_or_enter(name), *offers);
        let node = |(at, spec): (usize, &NodeSpec)| {
            let gpus = spec.gpus.iter().map(&mut gpu).collect();
            Node::idle(format!("n{at}"), spec.cpu_milli, spec.memory_mib, gpus)
        };
        Fleet::new(self.nodes.iter().enumerate().map(node).collect())
    }

    /// The fleet, idle, with the whole queue.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(self.fleet(), 40);
        for workload in &self.workloads {
            snapshot.submit(Arc::new(workload.clone()));
        }
        snapshot
    }
}

/// A few kinds of demand, each asked for many times, as in real queues.
pub(crate) fn worlds(size: Size) -> impl Strategy<Value = World> {
    let nodes = vec(node(size), 1..=size.nodes);
    let queue = vec((workload(size), any::<Index>()), 0..=size.workloads);
    let demands = (vec(demand(size), 1..=8), natures(size));
    (nodes, demands, queue, policy(size)).prop_map(
        move |(nodes, (demands, natures), queue, policy)| {
            let number = |((workload, kind), id): ((Workload, Index), u64)| Workload {
                id: WorkloadId(id),
                name: format!("w{id}"),
                demand: kind.get(&demands).clone(),
                ..workload
            };
            let mut workloads: Vec<_> = queue.into_iter().zip(0u64..).map(number).collect();
            for gang in workloads.iter_mut().filter(|w| w.members > 1 && !size.wide_gangs) {
                gang.demand.gpus.iter_mut().for_each(|gpus| gpus.count = 1);
            }
            for (workload, nature) in workloads.iter_mut().zip(natures.iter().cycle()) {
                give(workload, nature);
            }
            World { nodes, workloads, policy }
        },
    )
}

/// A kind, parts of time, and how many times slower answers may come.
type Nature = (&'static str, Option<u32>, Option<u32>);

/// Empty for most worlds.
fn natures(size: Size) -> impl Strategy<Value = Vec<Nature>> {
    let kinds = select(vec!["", "A3C", "ResNet-18 (batch size 16)", "never seen"]);
    let nature = (kinds, option::of(0u32..=1000), option::of(1u32..=4));
    let most = if size.natures { 3 } else { 0 };
    prop_oneof![2 => Just(Vec::new()), 1 => vec(nature, 0..=most)]
}

fn give(workload: &mut Workload, (kind, busy_milli, factor): &Nature) {
    workload.kind = (*kind).to_owned();
    workload.profile.busy_milli = *busy_milli;
    workload.latency_alone_ms = factor.map(|_| 10);
    workload.latency_target_ms = factor.map(|factor| 10 * factor);
}

fn node(size: Size) -> impl Strategy<Value = NodeSpec> {
    let gpu = (select(&MODELS[..]), offers());
    (1u64..=32, 1u64..=64, vec(gpu, 0..=size.gpus)).prop_map(|(cpus, gib, gpus)| NodeSpec {
        cpu_milli: cpus * 1000,
        memory_mib: gib * 1024,
        gpus,
    })
}

fn offers() -> impl Strategy<Value = ModeSet> {
    prop_oneof![2 => Just(ModeSet::ALL), 1 => mode_set()]
}

fn mode_set() -> impl Strategy<Value = ModeSet> {
    subsequence(SharingKind::ALL.to_vec(), 1..=5).prop_map(|kinds| ModeSet::of(&kinds))
}

fn workload(size: Size) -> impl Strategy<Value = Workload> {
    let place = (select(&Class::ALL[..]), -1..=1i32, 0u64..40, option::of(1u64..=12));
    let shape = (1..=size.members.max(1), 0..size.owners);
    (place, shape, any::<bool>(), array(size)).prop_map(|(place, shape, apart, array)| {
        let (class, priority, submitted_ms, time_limit_ms) = place;
        let (members, owner) = shape;
        Workload {
            class,
            priority,
            submitted_ms,
            time_limit_ms,
            members,
            apart,
            array,
            ..Workload::new(
                WorkloadId(0),
                String::new(),
                Owner::new(["alice", "bob", "carol"][owner]),
                Demand::default(),
            )
        }
    })
}

/// Two arrays, told apart from each other by their number; each has one limit.
fn array(size: Size) -> BoxedStrategy<Option<ArrayMember>> {
    if !size.arrays {
        return Just(None).boxed();
    }
    let member = |(array, index)| ArrayMember {
        array: WorkloadId(1_000_000 + array),
        index,
        at_once_max: array as u32 + 1,
    };
    option::weighted(0.3, (0u64..2, 0u32..100).prop_map(member)).boxed()
}

fn demand(size: Size) -> impl Strategy<Value = Demand> {
    let gpus = prop_oneof![1 => Just(None), 6 => gpu_demand(size).prop_map(Some)];
    (0u64..=8, 0u64..=16, gpus, nodes(size)).prop_map(|(cpus, gib, gpus, nodes)| Demand {
        cpu_milli: cpus * 500,
        memory_mib: gib * 512,
        gpus,
        nodes,
    })
}

/// Mostly any node, else some of those that there may be.
fn nodes(size: Size) -> impl Strategy<Value = NodeSet> {
    let names: Vec<String> = (0..size.nodes).map(|at| format!("n{at}")).collect();
    let some = subsequence(names, 0..=size.nodes).prop_map(|names| names.into_iter().collect());
    prop_oneof![5 => Just(NodeSet::default()), 1 => some.prop_map(NodeSet::only)]
}

fn gpu_demand(size: Size) -> impl Strategy<Value = GpuDemand> {
    let sets = ["a100", "t4", "a30|t4", "a100-80gb", ""];
    let accepts = vec(select(sets.to_vec()).prop_map(ModelSet::parse), 0..=2);
    let isolation = select(vec![Isolation::None, Isolation::Memory, Isolation::Hard]);
    let modes = prop_oneof![3 => Just(ModeSet::ALL), 1 => mode_set()];
    (1..=size.gpus.max(1) as u32, ask(), accepts, isolation, modes).prop_map(
        |(count, each, accepts, isolation, modes)| GpuDemand {
            count,
            each,
            accepts,
            isolation,
            modes,
        },
    )
}

fn ask() -> impl Strategy<Value = GpuAsk> {
    let profiles = ["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", "1g.6gb", "1g.10gb+me", "4g.20gb"];
    let fraction = |(tenths, gib): (u32, u64)| GpuAsk::Fraction {
        compute_milli: tenths * 100,
        memory_mib: gib * 1024,
    };
    prop_oneof![
        2 => Just(GpuAsk::Whole),
        4 => (0u32..=10, 0u64..=20).prop_map(fraction),
        1 => select(profiles.to_vec()).prop_map(|name| GpuAsk::Profile(name.to_owned())),
    ]
}

fn policy(size: Size) -> impl Strategy<Value = Policy> {
    let modes = vec![
        SharingMode::MemoryCapped { tenants_max: 4 },
        SharingMode::Mps { tenants_max: 5 },
        SharingMode::Mig,
        SharingMode::TimeSlice { tenants_max: 3 },
        SharingMode::Exclusive,
    ];
    let modes = subsequence(modes, 1..=5).prop_shuffle();
    let quota = (0u64..=6000, 1u32..=3);
    let quotas = vec(quota, if size.quotas { 0..=size.owners } else { 0..=0 });
    (placements(), modes, quotas, any::<bool>()).prop_map(
        move |(placement, modes, quotas, backfill)| {
            let named = ["alice", "bob", "carol"].map(Owner::new).into_iter().zip(quotas);
            let quota = |(most, weight)| Quota {
                gpu_milli_max: Some(most),
                weight,
                speed_min_milli: if size.natures && weight == 3 { 700 } else { 0 },
            };
            let quotas: BTreeMap<_, _> =
                named.map(|(owner, given)| (owner, quota(given))).collect();
            Policy { modes, quotas, backfill, time_limit_default_ms: 9, ..Policy::new(placement) }
        },
    )
}

/// Any of the nine.
pub(crate) fn placements() -> impl Strategy<Value = Placement> {
    let named = |name| Placement::parse(name).expect("a policy's own name");
    let drawn = any::<u64>().prop_map(|seed| Placement::Random { seed });
    prop_oneof![8 => select(&Placement::NAMES[..]).prop_map(named), 1 => drawn]
}
