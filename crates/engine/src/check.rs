//! Is a plan legal? Recounted from the invariants and the raw amounts, not from how plans are made.
//!
//! Knows nothing of scoring or queues. A violation is a defect of the planner: whoever finds one
//! raises an alarm and carries nothing out.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use model::{
    Action, Gpu, GpuAsk, GpuDemand, GpuId, Node, NodeId, Owner, Plan, Policy, Reason, Refusal,
    Seat, Share, SharingMode, Snapshot, Workload, WorkloadId,
};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The plan was made at another time than the snapshot.
    Stale,
    /// The plan places something that does not wait, places it twice, or lets it wait as well.
    NotWaiting(WorkloadId),
    /// A seat names a node or GPU that is not there, or one GPU twice.
    NoSuchPlace(WorkloadId),
    /// Not one seat per member, or not as many GPUs as asked for.
    WrongCount(WorkloadId),
    /// A share is smaller than asked, of a wrong kind, or on a model or node that is not accepted.
    NotAsAsked(WorkloadId),
    /// A node gives more vCPU or memory than it has.
    HostOverbooked(NodeId),
    /// A GPU gives more compute or memory than it has, or has too many tenants.
    GpuOverbooked(GpuId),
    /// MIG instances overlap, start where none may, or are too many.
    MigConflict(GpuId),
    /// A share's kind is not that of its GPU's mode.
    MixedModes(GpuId),
    /// A mode is set on a GPU with tenants, or one that the GPU does not offer.
    BadModeChange(GpuId),
    /// An owner gets more than the quota.
    QuotaExceeded(Owner),
    /// An array gets more tasks at once than it wants.
    ArrayExceeded(WorkloadId),
    /// A workload is asked to leave that does not run, may stay, leaves already or is asked twice; or
    /// for one that is no more important, may not ask, or does not wait for it.
    BadPreemption(WorkloadId),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale => f.write_str("the plan was made at another time"),
            Self::NotWaiting(id) => write!(f, "{id} is placed but does not wait"),
            Self::NoSuchPlace(id) => write!(f, "{id} is given a place that does not exist"),
            Self::WrongCount(id) => write!(f, "{id} is given a wrong number of seats or GPUs"),
            Self::NotAsAsked(id) => write!(f, "{id} is given something else than it asked for"),
            Self::HostOverbooked(id) => write!(f, "node {} is overbooked", id.0),
            Self::GpuOverbooked(id) => {
                write!(f, "GPU {} of node {} is overbooked", id.index, id.node.0)
            }
            Self::MigConflict(id) => {
                write!(f, "MIG instances collide on GPU {} of node {}", id.index, id.node.0)
            }
            Self::MixedModes(id) => {
                write!(f, "GPU {} of node {} would be in two modes", id.index, id.node.0)
            }
            Self::BadModeChange(id) => {
                write!(f, "GPU {} of node {} cannot change its mode so", id.index, id.node.0)
            }
            Self::QuotaExceeded(owner) => write!(f, "the quota of {owner} is exceeded"),
            Self::ArrayExceeded(id) => write!(f, "array {id} has too many tasks at once"),
            Self::BadPreemption(id) => write!(f, "{id} is asked to leave and must not be"),
        }
    }
}

/// Every invariant that the plan would break on the snapshot; empty for a legal plan.
pub fn check(snapshot: &Snapshot, plan: &Plan, policy: &Policy) -> Vec<Violation> {
    let mut recount = Recount { snapshot, policy, found: Vec::new(), books: Books::default() };
    for step in &plan.steps {
        match &step.action {
            Action::SetMode { gpu, mode } => recount.set_mode(*gpu, *mode),
            Action::Place { workload, seats } => recount.place(*workload, seats),
            Action::Preempt { workload, by_ms } => {
                // Counts only if the newcomer waits for just that.
                let newcomer =
                    if let Reason::MakesRoomFor(id) = step.because { Some(id) } else { None };
                let newcomer = newcomer.filter(|id| makes_room(plan, *id));
                recount.preempt(*workload, newcomer, *by_ms);
            }
        }
    }
    if plan.at_ms != snapshot.now_ms {
        recount.found.push(Violation::Stale);
    }
    let both = |id: &&WorkloadId| plan.waiting.contains_key(id);
    let both: Vec<WorkloadId> = recount.books.placed.iter().filter(both).copied().collect();
    recount.found.extend(both.into_iter().map(Violation::NotWaiting));
    recount.limits();
    recount.hosts();
    recount.gpus();
    recount.found
}

/// What the plan adds, by place.
#[derive(Default)]
struct Books {
    placed: BTreeSet<WorkloadId>,
    asked: BTreeSet<WorkloadId>,
    modes: BTreeMap<GpuId, SharingMode>,
    shares: BTreeMap<GpuId, Vec<Share>>,
    hosts: BTreeMap<NodeId, (u64, u64)>,
    gpu_milli: BTreeMap<Owner, u64>,
    tasks: BTreeMap<WorkloadId, (u32, u32)>,
}

struct Recount<'a> {
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    found: Vec<Violation>,
    books: Books,
}

impl Recount<'_> {
    fn gpu(&self, id: GpuId) -> Option<&Gpu> {
        self.snapshot.fleet().node(id.node)?.gpus().get(usize::from(id.index))
    }

    fn set_mode(&mut self, id: GpuId, mode: SharingMode) {
        let taken = self.books.shares.contains_key(&id);
        let listed = mode == SharingMode::Exclusive || self.policy.modes.contains(&mode);
        let sound = self.gpu(id).is_some_and(|gpu| {
            gpu.tenants().is_empty() && !taken && gpu.offers().contains(mode.kind())
        });
        if !sound || !listed {
            self.found.push(Violation::BadModeChange(id));
        }
        self.books.modes.insert(id, mode);
    }

    fn place(&mut self, id: WorkloadId, seats: &[Seat]) {
        let waits = self.snapshot.waiting().get(&id);
        let Some(workload) = waits.filter(|_| self.books.placed.insert(id)) else {
            self.found.push(Violation::NotWaiting(id));
            return;
        };
        if seats.len() != workload.members.max(1) as usize {
            self.found.push(Violation::WrongCount(id));
        }
        let nodes: BTreeSet<NodeId> = seats.iter().map(|seat| seat.node).collect();
        if workload.apart && nodes.len() < seats.len() {
            self.found.push(Violation::NotAsAsked(id));
        }
        for seat in seats {
            self.seat(workload, seat);
        }
        if let Some(member) = workload.array {
            let tasks = self.books.tasks.entry(member.array).or_insert((0, member.at_once_max));
            tasks.0 += 1;
            let limits = [tasks.1, member.at_once_max];
            tasks.1 = limits.into_iter().filter(|limit| *limit > 0).min().unwrap_or(0);
        }
    }

    fn preempt(&mut self, id: WorkloadId, newcomer: Option<WorkloadId>, by_ms: u64) {
        let first = self.books.asked.insert(id);
        let running = self.snapshot.running().get(&id).filter(|_| first);
        let newcomer = newcomer.and_then(|id| self.snapshot.waiting().get(&id));
        let sound = running.zip(newcomer).is_some_and(|(running, newcomer)| {
            let victim = &running.workload;
            victim.preemptible
                && running.leaves_by_ms.is_none()
                && newcomer.preempts
                && victim.priority < newcomer.priority
                && self.may_ask(newcomer, by_ms)
        });
        if !sound {
            self.found.push(Violation::BadPreemption(id));
        }
    }

    /// Whether anybody may be asked to leave for the workload, and by that time.
    fn may_ask(&self, newcomer: &Workload, by_ms: u64) -> bool {
        let now_ms = self.snapshot.now_ms;
        let Some(preemption) = self.policy.preemption else { return false };
        let in_time = (now_ms..=now_ms.saturating_add(preemption.grace_ms)).contains(&by_ms);
        let least = newcomer.demand.gpu_milli().saturating_mul(newcomer.members.max(1).into());
        let used = self.snapshot.usage(&newcomer.owner).gpu_milli;
        let limit = self.policy.quota(&newcomer.owner).gpu_milli_max.unwrap_or(u64::MAX);
        let within_array = newcomer.array.is_none_or(|member| {
            member.at_once_max == 0
                || self.snapshot.array_running(member.array) < member.at_once_max
        });
        in_time && within_array && (least == 0 || used.saturating_add(least) <= limit)
    }

    fn seat(&mut self, workload: &Workload, seat: &Seat) {
        let Some(node) = self.snapshot.fleet().node(seat.node) else {
            self.found.push(Violation::NoSuchPlace(workload.id));
            return;
        };
        if !workload.demand.nodes.accepts(node.name()) {
            self.found.push(Violation::NotAsAsked(workload.id));
        }
        let host = self.books.hosts.entry(seat.node).or_default();
        host.0 = host.0.saturating_add(workload.demand.cpu_milli);
        host.1 = host.1.saturating_add(workload.demand.memory_mib);
        let wanted = workload.demand.gpus.as_ref().map_or(0, |gpus| gpus.count as usize);
        if seat.shares.len() != wanted {
            self.found.push(Violation::WrongCount(workload.id));
        }
        if !seat.shares.is_sorted_by(|one, other| one.0 < other.0) {
            self.found.push(Violation::NoSuchPlace(workload.id));
        }
        for (index, share) in &seat.shares {
            let Some(gpu) = node.gpus().get(usize::from(*index)) else {
                self.found.push(Violation::NoSuchPlace(workload.id));
                continue;
            };
            let id = GpuId { node: seat.node, index: *index };
            let mode = self.books.modes.get(&id).copied().unwrap_or(gpu.mode());
            let demand = workload.demand.gpus.as_ref();
            let as_asked =
                demand.is_some_and(|demand| as_asked(self.policy, gpu, (mode, *share), demand));
            if !as_asked || gpu.is_set_aside() {
                self.found.push(Violation::NotAsAsked(workload.id));
            }
            let counts = u64::from(gpu.share_milli(mode, *share));
            *self.books.gpu_milli.entry(workload.owner.clone()).or_default() += counts;
            self.books.shares.entry(id).or_default().push(*share);
        }
    }

    fn limits(&mut self) {
        for (owner, asked) in &self.books.gpu_milli {
            let limit = self.policy.quota(owner).gpu_milli_max.unwrap_or(u64::MAX);
            let used = self.snapshot.usage(owner).gpu_milli;
            if *asked > 0 && used.saturating_add(*asked) > limit {
                self.found.push(Violation::QuotaExceeded(owner.clone()));
            }
        }
        for (array, (started, at_once_max)) in &self.books.tasks {
            let running = self.snapshot.array_running(*array);
            if *at_once_max > 0 && running + started > *at_once_max {
                self.found.push(Violation::ArrayExceeded(*array));
            }
        }
    }

    fn hosts(&mut self) {
        for (id, (cpu_milli, memory_mib)) in &self.books.hosts {
            let Some(node) = self.snapshot.fleet().node(*id) else { continue };
            let (mut cpu, mut memory) = (*cpu_milli, *memory_mib);
            for resident in node.residents() {
                cpu = u64::saturating_add(cpu, resident.cpu_milli);
                memory = u64::saturating_add(memory, resident.memory_mib);
            }
            if cpu > node.cpu_milli() || memory > node.memory_mib() {
                self.found.push(Violation::HostOverbooked(*id));
            }
        }
    }

    fn gpus(&mut self) {
        for (id, added) in &self.books.shares {
            let node = self.snapshot.fleet().node(id.node);
            let Some(gpu) = node.and_then(|n: &Node| n.gpus().get(usize::from(id.index))) else {
                continue;
            };
            let mode = self.books.modes.get(id).copied().unwrap_or(gpu.mode());
            let present = gpu.tenants().iter().map(|tenant| tenant.share);
            let shares: Vec<Share> = present.chain(added.iter().copied()).collect();
            if shares.iter().any(|share| share.kind() != mode.kind()) {
                self.found.push(Violation::MixedModes(*id));
            } else if mode == SharingMode::Mig {
                if !mig_is_sound(gpu, &shares) {
                    self.found.push(Violation::MigConflict(*id));
                }
            } else if !amounts_are_sound(gpu, mode, &shares) {
                self.found.push(Violation::GpuOverbooked(*id));
            }
        }
    }
}

/// Whether the plan says of a workload that room is made for it.
fn makes_room(plan: &Plan, id: WorkloadId) -> bool {
    matches!(plan.waiting.get(&id), Some(Refusal::MakingRoom { .. }))
}

/// Whether the share gives at least what was asked, in a kind and on a model that is accepted.
fn as_asked(
    policy: &Policy,
    gpu: &Gpu,
    (mode, share): (SharingMode, Share),
    demand: &GpuDemand,
) -> bool {
    let model = gpu.model();
    let accepts = &demand.accepts;
    let named = accepts.is_empty() || accepts.iter().any(|set| set.accepts(&model.name));
    let kind = share.kind();
    let accepted = demand.modes.contains(kind) || demand.each == GpuAsk::Whole;
    if !named || !accepted || kind.isolation() < demand.isolation {
        return false;
    }
    let (compute_milli, memory_mib) = match &demand.each {
        GpuAsk::Whole => return share == Share::Exclusive,
        GpuAsk::Profile(name) => return profile_name(gpu, share) == Some(name.as_str()),
        // Memory that is not said follows compute; what is said comes without the context.
        GpuAsk::Fraction { compute_milli, memory_mib: 0 } => {
            (*compute_milli, model.memory_mib.saturating_mul(u64::from(*compute_milli)) / 1000)
        }
        GpuAsk::Fraction { compute_milli, memory_mib } => {
            (*compute_milli, memory_mib.saturating_add(model.context_mib))
        }
    };
    match share {
        Share::Exclusive => {
            policy.modes.contains(&mode) && compute_milli <= 1000 && memory_mib <= model.memory_mib
        }
        Share::TimeSlice { memory_mib: held } => {
            held >= memory_mib && u64::from(compute_milli) * u64::from(mode.tenants_max()) <= 1000
        }
        Share::Mps { compute_milli: cap, memory_mib: held }
        | Share::MemoryCapped { compute_milli: cap, memory_mib: held } => {
            held >= memory_mib && cap == compute_milli
        }
        Share::Mig { profile, .. } => model.mig.as_ref().is_some_and(|geometry| {
            geometry.profile(profile).is_some_and(|found| {
                let slices = u64::from(geometry.compute_slices);
                let said = matches!(demand.each, GpuAsk::Fraction { memory_mib: 1.., .. });
                (!said || model.instance_memory_mib(found) >= memory_mib)
                    && u64::from(found.compute_slices) * 1000 >= u64::from(compute_milli) * slices
            })
        }),
    }
}

fn profile_name(gpu: &Gpu, share: Share) -> Option<&str> {
    let Share::Mig { profile, .. } = share else { return None };
    Some(gpu.model().mig.as_ref()?.profile(profile)?.name.as_str())
}

fn mig_is_sound(gpu: &Gpu, shares: &[Share]) -> bool {
    let Some(geometry) = &gpu.model().mig else { return false };
    let (mut taken, mut compute) = (0u32, 0u32);
    let mut counts: BTreeMap<u8, u8> = BTreeMap::new();
    for share in shares {
        let Share::Mig { profile: index, start } = share else { return false };
        let Some(profile) = geometry.profile(*index) else { return false };
        let count = counts.entry(index.0).or_default();
        *count += 1;
        if !profile.starts.contains(start) || *count > profile.instances_max {
            return false;
        }
        for slice in *start..*start + profile.memory_slices {
            if taken & (1 << slice) != 0 || slice >= geometry.memory_slices {
                return false;
            }
            taken |= 1 << slice;
        }
        compute += u32::from(profile.compute_slices);
    }
    compute <= u32::from(geometry.compute_slices)
}

fn amounts_are_sound(gpu: &Gpu, mode: SharingMode, shares: &[Share]) -> bool {
    let tenants_max = usize::from(mode.tenants_max());
    let (mut compute, mut memory) = (0u64, 0u64);
    for share in shares {
        let (compute_milli, memory_mib) = match *share {
            Share::Exclusive => (1000, 0),
            Share::TimeSlice { memory_mib } => (0, memory_mib),
            Share::Mps { compute_milli, memory_mib }
            | Share::MemoryCapped { compute_milli, memory_mib } => (compute_milli, memory_mib),
            Share::Mig { .. } => return false,
        };
        compute += u64::from(compute_milli);
        memory = u64::saturating_add(memory, memory_mib);
    }
    shares.len() <= tenants_max && compute <= 1000 && memory <= gpu.model().memory_mib
}
