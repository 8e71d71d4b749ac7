//! Fleets that take one MIG request after the other: by the engine, and by two plain rules that
//! the engine does not have, to compare with.

use std::sync::Arc;

use engine::{Planner, apply};
use model::{
    Demand, Fleet, Gpu, GpuAsk, GpuDemand, Isolation, MigGeometry, MigLayout, ModeSet, Node, Owner,
    Placement, Policy, ProfileIndex, SharingKind, Snapshot, Workload, WorkloadId,
};

use super::requests::{geometry, gpu_model};

/// GPUs on each node of the engine's fleet; the last node may have fewer.
const GPUS_PER_NODE: u64 = 4;

/// Who decides where a request goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The first GPU with a free placement, and on it the lowest start.
    FirstFit,
    /// The GPU with the fewest slices left, and on it the lowest start.
    BestFit,
    /// The engine under the policy `hotpot`.
    Hotpot,
}

impl Rule {
    pub(crate) const ALL: [Self; 3] = [Self::FirstFit, Self::BestFit, Self::Hotpot];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FirstFit => "first fit",
            Self::BestFit => "best fit",
            Self::Hotpot => "hotpot",
        }
    }

    /// An idle fleet under this rule.
    pub(crate) fn fleet(self, gpus: u64) -> Box<dyn Instances> {
        match self {
            Self::FirstFit => Box::new(Plain::idle(gpus, false)),
            Self::BestFit => Box::new(Plain::idle(gpus, true)),
            Self::Hotpot => Box::new(Planned::idle(gpus)),
        }
    }
}

/// A fleet of GPUs in MIG mode.
pub(crate) trait Instances {
    /// Makes an instance; false if there is no placement for it.
    fn start(&mut self, id: u64, profile: ProfileIndex) -> bool;
    /// Removes an instance.
    fn stop(&mut self, id: u64);
}

struct Plain {
    geometry: MigGeometry,
    /// Per GPU: request, profile, start.
    gpus: Vec<Vec<(u64, ProfileIndex, u8)>>,
    tightest: bool,
}

impl Plain {
    fn idle(gpus: u64, tightest: bool) -> Self {
        Self { geometry: geometry(), gpus: (0..gpus).map(|_| Vec::new()).collect(), tightest }
    }

    fn layout(held: &[(u64, ProfileIndex, u8)]) -> MigLayout {
        held.iter().fold(MigLayout::default(), |layout, (_, p, start)| layout.with(*p, *start))
    }

    fn slices(&self, held: &[(u64, ProfileIndex, u8)]) -> u32 {
        let profiles = held.iter().filter_map(|(_, index, _)| self.geometry.profile(*index));
        profiles.map(|p| u32::from(p.compute_slices) + u32::from(p.memory_slices)).sum()
    }
}

impl Instances for Plain {
    fn start(&mut self, id: u64, profile: ProfileIndex) -> bool {
        let open = self.gpus.iter().enumerate().filter_map(|(at, held)| {
            let free = self.geometry.free_starts(&Self::layout(held), profile);
            (free != 0).then(|| (at, free.trailing_zeros() as u8))
        });
        let chosen = if self.tightest {
            open.min_by_key(|(at, _)| u32::MAX - self.slices(&self.gpus[*at]))
        } else {
            open.min()
        };
        let Some((at, start)) = chosen else {
            return false;
        };
        self.gpus[at].push((id, profile, start));
        true
    }

    fn stop(&mut self, id: u64) {
        for held in &mut self.gpus {
            held.retain(|(other, ..)| *other != id);
        }
    }
}

struct Planned {
    snapshot: Snapshot,
    planner: Planner,
    geometry: MigGeometry,
}

impl Planned {
    fn idle(gpus: u64) -> Self {
        let model = gpu_model();
        let modes = ModeSet::of(&[SharingKind::Mig]);
        let node = |first: u64| {
            let here = GPUS_PER_NODE.min(gpus - first);
            let gpus = (0..here).map(|_| Gpu::idle(Arc::clone(&model), modes)).collect();
            Node::idle(format!("n{first}"), 0, 0, gpus)
        };
        let nodes = (0..gpus).step_by(GPUS_PER_NODE as usize).map(node).collect();
        Self {
            snapshot: Snapshot::new(Fleet::new(nodes), 0),
            planner: Planner::new(Policy::new(Placement::Hotpot)),
            geometry: geometry(),
        }
    }

    fn workload(&self, id: u64, profile: ProfileIndex) -> Workload {
        let profile = self.geometry.profile(profile).expect("a profile of the A100");
        let gpus = GpuDemand {
            count: 1,
            each: GpuAsk::Profile(profile.name.clone()),
            accepts: Vec::new(),
            isolation: Isolation::Hard,
            modes: ModeSet::ALL,
        };
        Workload {
            submitted_ms: id,
            ..Workload::new(
                WorkloadId(id),
                String::new(),
                Owner::new("o"),
                Demand { cpu_milli: 0, memory_mib: 0, gpus: Some(gpus), ..Demand::default() },
            )
        }
    }
}

impl Instances for Planned {
    fn start(&mut self, id: u64, profile: ProfileIndex) -> bool {
        self.snapshot.submit(Arc::new(self.workload(id, profile)));
        for step in self.planner.plan(&self.snapshot).steps {
            let done = apply(&mut self.snapshot, &step.action, self.planner.policy());
            done.expect("a plan fits the snapshot that it was made from");
        }
        self.snapshot.withdraw(WorkloadId(id)).is_none()
    }

    fn stop(&mut self, id: u64) {
        self.snapshot.finish(WorkloadId(id));
    }
}
