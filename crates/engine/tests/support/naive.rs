//! The rules of fitting once more, written plainly and from the documentation alone: slow, and
//! sharing no code with the engine or with `Gpu::fits`.

use model::{
    Demand, Gpu, GpuAsk, GpuDemand, MigGeometry, MigProfile, ModelSet, Node, Policy, Share,
    SharingKind, SharingMode,
};

/// What a GPU would have left, in thousandths: before, and after the first share that is legal.
pub(crate) type Left = (u64, u64);

/// Nodes on which the demand could be held with GPUs of the given models, each with its GPUs.
pub(crate) fn able(
    nodes: &[Node],
    demand: &Demand,
    accepts: Option<&ModelSet>,
    policy: &Policy,
) -> Vec<(usize, Vec<(u8, Left)>)> {
    let mut found = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let (mut cpu, mut memory) = (demand.cpu_milli, demand.memory_mib);
        for resident in node.residents() {
            cpu += resident.cpu_milli;
            memory += resident.memory_mib;
        }
        let will_do = demand.nodes.accepts(node.name());
        if !will_do || cpu > node.cpu_milli() || memory > node.memory_mib() {
            continue;
        }
        let Some(asked) = &demand.gpus else {
            found.push((at, Vec::new()));
            continue;
        };
        let gpus = (0u8..).zip(node.gpus());
        let legal =
            gpus.filter(|(_, gpu)| accepts.is_none_or(|set| set.accepts(&gpu.model().name)));
        let legal: Vec<_> =
            legal.filter_map(|(i, gpu)| Some((i, grant(gpu, asked, policy)?))).collect();
        if legal.len() >= asked.count as usize {
            found.push((at, legal));
        }
    }
    found
}

/// What is left before and after the share that the GPU would grant; `None` if it can grant none.
fn grant(gpu: &Gpu, asked: &GpuDemand, policy: &Policy) -> Option<Left> {
    let idle = gpu.tenants().is_empty();
    let before = left(gpu, compute_free(gpu), memory_free(gpu));
    if asked.each == GpuAsk::Whole {
        return idle.then_some((before, 0));
    }
    let mut modes = if idle { policy.modes.clone() } else { vec![gpu.mode()] };
    // A fraction gets a whole GPU only where nothing smaller will do.
    modes.sort_by_key(|mode| *mode == SharingMode::Exclusive);
    let open = modes.into_iter().filter(|mode| {
        let kind = mode.kind();
        let listed = policy.modes.iter().any(|listed| listed.kind() == kind);
        let offered = if idle { gpu.offers().contains(kind) } else { listed };
        offered && asked.modes.contains(kind) && kind.isolation() >= asked.isolation
    });
    let mut prices = open.filter_map(|mode| price(gpu, mode, &asked.each));
    let (compute, memory) = prices.next()?;
    Some((before, left(gpu, compute_free(gpu) - compute, memory_free(gpu) - memory)))
}

/// Compute and memory that the ask takes in the mode, if there is room for it.
fn price(gpu: &Gpu, mode: SharingMode, ask: &GpuAsk) -> Option<(u64, u64)> {
    if gpu.tenants().len() >= usize::from(mode.tenants_max()) {
        return None;
    }
    let all_mib = gpu.model().memory_mib;
    let (compute, memory) = match ask {
        GpuAsk::Whole => return None,
        GpuAsk::Profile(name) if mode == SharingMode::Mig => {
            return instance(gpu, |profile| profile.name == *name);
        }
        GpuAsk::Profile(_) => return None,
        GpuAsk::Fraction { compute_milli, memory_mib: 0 } => {
            (u64::from(*compute_milli), all_mib * u64::from(*compute_milli) / 1000)
        }
        GpuAsk::Fraction { compute_milli, memory_mib } => {
            (u64::from(*compute_milli), memory_mib + gpu.model().context_mib)
        }
    };
    let context_mib = gpu.model().context_mib;
    let below = all_mib > 0 && compute > 0 && memory < context_mib;
    if below && matches!(ask, GpuAsk::Fraction { memory_mib: 0, .. }) {
        return None;
    }
    let said_mib = if matches!(ask, GpuAsk::Fraction { memory_mib: 0, .. }) { 0 } else { memory };
    let fits = |compute, memory| {
        (compute <= compute_free(gpu) && memory <= memory_free(gpu)).then_some((compute, memory))
    };
    match mode {
        SharingMode::Exclusive => (memory <= all_mib && compute <= 1000).then_some((1000, all_mib)),
        SharingMode::Mps { .. } | SharingMode::MemoryCapped { .. } => fits(compute, memory),
        SharingMode::TimeSlice { tenants_max } => {
            let turn = 1000 / u64::from(tenants_max);
            if compute > turn { None } else { fits(turn, memory) }
        }
        SharingMode::Mig => instance(gpu, |profile| {
            let slices = u64::from(geometry(gpu).map_or(0, |all| all.compute_slices));
            !profile.name.contains('+')
                && u64::from(profile.compute_slices) * 1000 >= compute * slices
                && memory_of(gpu, profile).min(profile.memory_mib) * 95 / 100 >= said_mib
        }),
    }
}

/// The price of the smallest suitable profile of which one more instance can be made.
fn instance(gpu: &Gpu, suits: impl Fn(&MigProfile) -> bool) -> Option<(u64, u64)> {
    let all = geometry(gpu)?;
    let fitting =
        all.profiles.iter().filter(|profile| suits(profile) && has_place(gpu, all, profile));
    let smallest = fitting.min_by_key(|profile| (profile.memory_slices, profile.compute_slices))?;
    let compute = u64::from(smallest.compute_slices) * 1000 / u64::from(all.compute_slices);
    Some((compute, memory_of(gpu, smallest)))
}

fn has_place(gpu: &Gpu, all: &MigGeometry, asked: &MigProfile) -> bool {
    let present: Vec<(&MigProfile, u8)> = gpu.tenants().iter().filter_map(held(all)).collect();
    let compute: u8 = present.iter().map(|(profile, _)| profile.compute_slices).sum();
    let alike = present.iter().filter(|(profile, _)| profile.name == asked.name).count();
    if compute + asked.compute_slices > all.compute_slices
        || alike >= usize::from(asked.instances_max)
    {
        return false;
    }
    asked.starts.iter().any(|start| {
        let apart = |(other, at): &(&MigProfile, u8)| {
            start + asked.memory_slices <= *at || at + other.memory_slices <= *start
        };
        present.iter().all(apart)
    })
}

fn held<'a>(all: &'a MigGeometry) -> impl Fn(&model::Tenant) -> Option<(&'a MigProfile, u8)> {
    |tenant| {
        let Share::Mig { profile, start } = tenant.share else { return None };
        Some((&all.profiles[usize::from(profile.0)], start))
    }
}

fn geometry(gpu: &Gpu) -> Option<&MigGeometry> {
    gpu.model().mig.as_ref()
}

fn memory_of(gpu: &Gpu, profile: &MigProfile) -> u64 {
    let slices = geometry(gpu).map_or(1, |all| all.memory_slices);
    gpu.model().memory_mib * u64::from(profile.memory_slices) / u64::from(slices)
}

/// Compute and memory that the tenants hold.
fn taken(gpu: &Gpu) -> (u64, u64) {
    let one = |share: Share| match share {
        Share::Exclusive => (1000, gpu.model().memory_mib),
        Share::TimeSlice { memory_mib } => (1000 / u64::from(gpu.mode().tenants_max()), memory_mib),
        Share::Mps { compute_milli, memory_mib }
        | Share::MemoryCapped { compute_milli, memory_mib } => {
            (u64::from(compute_milli), memory_mib)
        }
        Share::Mig { profile, .. } => {
            let all = geometry(gpu).expect("a model with MIG");
            let profile = &all.profiles[usize::from(profile.0)];
            let compute = u64::from(profile.compute_slices) * 1000 / u64::from(all.compute_slices);
            (compute, memory_of(gpu, profile))
        }
    };
    let shares = gpu.tenants().iter().map(|tenant| one(tenant.share));
    shares.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

fn compute_free(gpu: &Gpu) -> u64 {
    1000 - taken(gpu).0
}

fn memory_free(gpu: &Gpu) -> u64 {
    gpu.model().memory_mib - taken(gpu).1
}

/// Thousandths of the GPU, by the scarcer of compute and memory.
fn left(gpu: &Gpu, compute: u64, memory: u64) -> u64 {
    match gpu.model().memory_mib {
        0 => compute,
        all => compute.min(memory * 1000 / all),
    }
}

/// Best fit by its definition: 100 for a node left without vCPU and GPU, 0 for the largest one.
pub(crate) fn best_fit(node: &Node, demand: &Demand, legal: &[(u8, Left)]) -> i64 {
    let mut chosen = legal.to_vec();
    if demand.gpus.as_ref().is_some_and(|asked| asked.each != GpuAsk::Whole) {
        chosen.sort_by_key(|(_, (before, _))| *before);
    }
    chosen.truncate(demand.gpus.as_ref().map_or(0, |asked| asked.count as usize));
    let after = |(index, gpu): (u8, &Gpu)| match chosen.iter().find(|(at, _)| *at == index) {
        Some((_, (_, after))) => *after,
        None => left(gpu, compute_free(gpu), memory_free(gpu)),
    };
    let gpus: u64 = (0u8..).zip(node.gpus()).map(after).sum();
    let cpu = node.cpu_milli()
        - node.residents().iter().map(|r| r.cpu_milli).sum::<u64>()
        - demand.cpu_milli;
    (100.0 * (1.0 - 0.5 * (cpu as f64 / 128_000.0) - 0.5 * (gpus as f64 / 8_000.0))) as i64
}

/// Modes that a tenant can be put into on a GPU, for setting up a fleet at random.
pub(crate) fn mode_of(kind: SharingKind) -> SharingMode {
    match kind {
        SharingKind::Exclusive => SharingMode::Exclusive,
        SharingKind::TimeSlice => SharingMode::TimeSlice { tenants_max: 3 },
        SharingKind::Mps => SharingMode::Mps { tenants_max: 5 },
        SharingKind::Mig => SharingMode::Mig,
        SharingKind::MemoryCapped => SharingMode::MemoryCapped { tenants_max: 4 },
    }
}
