//! The world at one moment: the fleet, what runs on it and what waits.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::gpu::Gpu;
use crate::id::{GpuId, Owner, WorkloadId};
use crate::node::Fleet;
use crate::plan::Seat;
use crate::refusal::Refusal;
use crate::sharing::SharingMode;
use crate::workload::Workload;

/// A workload that has been started.
#[derive(Clone, Debug)]
pub struct Running {
    /// The workload.
    pub workload: Arc<Workload>,
    /// Where its members sit.
    pub seats: Vec<Seat>,
    /// When it started.
    pub since_ms: u64,
    /// What it counts for its owner; see [`Gpu::share_milli`].
    pub usage: Usage,
    /// When it has to be gone, if it was asked to leave.
    pub leaves_by_ms: Option<u64>,
}

/// An amount of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Thousandths of GPUs.
    pub gpu_milli: u64,
    /// Thousandths of vCPUs.
    pub cpu_milli: u64,
}

impl Usage {
    /// The sum, held at the largest number.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            gpu_milli: self.gpu_milli.saturating_add(other.gpu_milli),
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
        }
    }

    /// The difference, held at 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            gpu_milli: self.gpu_milli.saturating_sub(other.gpu_milli),
            cpu_milli: self.cpu_milli.saturating_sub(other.cpu_milli),
        }
    }
}

/// Waiting workloads that share the limits which may hold them up: the same priority (from high to
/// low), owner, array, and whether they ask for GPUs.
type LaneKey = (Reverse<i32>, Owner, Option<WorkloadId>, bool);

/// Waiting workloads with the same priority, owner, array and kind of demand.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    /// Their priority.
    pub priority: i32,
    /// Their owner.
    pub owner: &'a Owner,
    /// When each was submitted, in order of age.
    pub entries: &'a BTreeSet<(u64, WorkloadId)>,
}

/// The world at one moment. Its parts change only through its methods, which keep them consistent.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The moment, in ms of the caller's clock.
    pub now_ms: u64,
    fleet: Fleet,
    capacity: Usage,
    used: Usage,
    waiting: BTreeMap<WorkloadId, Arc<Workload>>,
    lanes: BTreeMap<LaneKey, BTreeSet<(u64, WorkloadId)>>,
    running: BTreeMap<WorkloadId, Running>,
    usage: BTreeMap<Owner, Usage>,
    arrays: BTreeMap<WorkloadId, u32>,
}

impl Snapshot {
    /// A fleet on which nothing waits and of which hotpot has started nothing.
    pub fn new(fleet: Fleet, now_ms: u64) -> Self {
        let capacity = Usage { gpu_milli: fleet.gpu_count() * 1000, cpu_milli: fleet.cpu_milli() };
        Self { now_ms, fleet, capacity, ..Self::default() }
    }

    /// The nodes and who sits on them.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// All GPUs and vCPUs of the fleet.
    pub fn capacity(&self) -> Usage {
        self.capacity
    }

    /// What running workloads hold of the fleet; of each GPU, what [`Gpu::free_milli`] lacks.
    pub fn used(&self) -> Usage {
        self.used
    }

    /// Workloads that wait, by id.
    pub fn waiting(&self) -> &BTreeMap<WorkloadId, Arc<Workload>> {
        &self.waiting
    }

    /// Waiting workloads by priority, from high to low.
    pub fn lanes(&self) -> impl Iterator<Item = Lane<'_>> {
        self.lanes.iter().map(|((priority, owner, ..), entries)| Lane {
            priority: priority.0,
            owner,
            entries,
        })
    }

    /// Workloads that run, by id.
    pub fn running(&self) -> &BTreeMap<WorkloadId, Running> {
        &self.running
    }

    /// What an owner's running workloads hold.
    pub fn usage(&self, owner: &Owner) -> Usage {
        self.usage.get(owner).copied().unwrap_or_default()
    }

    /// Running tasks of an array.
    pub fn array_running(&self, array: WorkloadId) -> u32 {
        self.arrays.get(&array).copied().unwrap_or(0)
    }

    /// Adds a workload to the queue. One with the same id that waits already is replaced; one that
    /// runs already stays as it is.
    pub fn submit(&mut self, workload: Arc<Workload>) {
        if self.running.contains_key(&workload.id) {
            return;
        }
        self.withdraw(workload.id);
        self.lanes
            .entry(lane_of(&workload))
            .or_default()
            .insert((workload.submitted_ms, workload.id));
        self.waiting.insert(workload.id, workload);
    }

    /// Takes a workload out of the queue; `None` if it does not wait.
    pub fn withdraw(&mut self, id: WorkloadId) -> Option<Arc<Workload>> {
        let workload = self.waiting.remove(&id)?;
        let lane = lane_of(&workload);
        if let Some(entries) = self.lanes.get_mut(&lane) {
            entries.remove(&(workload.submitted_ms, id));
            if entries.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        Some(workload)
    }

    /// Changes the mode of an idle GPU.
    ///
    /// # Errors
    /// As [`Gpu::set_mode`].
    pub fn set_mode(&mut self, gpu: GpuId, mode: SharingMode) -> Result<(), Refusal> {
        self.fleet.set_mode(gpu, mode)
    }

    /// Closes a GPU to newcomers, or opens it again; while it is closed, all of it counts as used.
    ///
    /// # Errors
    /// [`Refusal::NoSuchPlace`].
    pub fn set_aside(&mut self, gpu: GpuId, aside: bool) -> Result<(), Refusal> {
        let seat = [Seat { node: gpu.node, shares: Vec::new() }];
        let before = self.free_milli(&seat);
        self.fleet.set_aside(gpu, aside)?;
        let after = self.free_milli(&seat);
        self.used.gpu_milli = (self.used.gpu_milli + before).saturating_sub(after);
        Ok(())
    }

    /// Moves a waiting workload onto its seats, all or nothing.
    ///
    /// * `until_ms` — when it is expected to leave.
    ///
    /// # Errors
    /// The first thing that does not fit, or [`Refusal::NotWaiting`]; the snapshot is then unchanged.
    /// That it runs on these seats already is no error.
    pub fn place(&mut self, id: WorkloadId, seats: &[Seat], until_ms: u64) -> Result<(), Refusal> {
        let Some(workload) = self.waiting.get(&id).cloned() else {
            let here = self.running.get(&id).is_some_and(|running| running.seats == seats);
            return if here { Ok(()) } else { Err(Refusal::NotWaiting { workload: id }) };
        };
        let before = self.free_milli(seats);
        for (at, seat) in seats.iter().enumerate() {
            if let Err(refusal) = self.fleet.admit(&workload, seat, until_ms) {
                self.evict(id, &seats[..at]);
                return Err(refusal);
            }
        }
        self.withdraw(id);
        let cpu_milli = workload.demand.cpu_milli.saturating_mul(seats.len() as u64);
        let usage = Usage { gpu_milli: self.share_milli(seats), cpu_milli };
        let gpu_milli = before - self.free_milli(seats);
        self.used = self.used.plus(Usage { gpu_milli, cpu_milli });
        self.count(&workload, usage, true);
        let seats = seats.to_vec();
        let (since_ms, leaves_by_ms) = (self.now_ms, None);
        self.running.insert(id, Running { workload, seats, since_ms, usage, leaves_by_ms });
        Ok(())
    }

    /// Says since when a running workload runs, in ms of the caller's clock; one that does not run is left alone.
    pub fn runs_since(&mut self, id: WorkloadId, since_ms: u64) {
        if let Some(running) = self.running.get_mut(&id) {
            running.since_ms = since_ms;
        }
    }

    /// Notes that a running workload was asked to leave; of several times the earliest holds. It keeps
    /// its seats until it finishes, and is expected to leave by then.
    ///
    /// # Errors
    /// [`Refusal::NotRunning`].
    pub fn ask_to_leave(&mut self, id: WorkloadId, by_ms: u64) -> Result<(), Refusal> {
        let running = self.running.get_mut(&id).ok_or(Refusal::NotRunning { workload: id })?;
        let by_ms = running.leaves_by_ms.map_or(by_ms, |earlier_ms| earlier_ms.min(by_ms));
        running.leaves_by_ms = Some(by_ms);
        for seat in &running.seats {
            self.fleet.expect_gone(seat.node, id, by_ms);
        }
        Ok(())
    }

    /// Takes a running workload off the fleet; `None` if it does not run.
    pub fn finish(&mut self, id: WorkloadId) -> Option<Running> {
        let running = self.running.remove(&id)?;
        let before = self.free_milli(&running.seats);
        self.evict(id, &running.seats);
        let gpu_milli = self.free_milli(&running.seats) - before;
        self.used = self.used.minus(Usage { gpu_milli, ..running.usage });
        self.count(&running.workload, running.usage, false);
        Some(running)
    }

    fn evict(&mut self, id: WorkloadId, seats: &[Seat]) {
        for seat in seats {
            self.fleet.release(seat.node, id);
        }
    }

    fn count(&mut self, workload: &Workload, usage: Usage, add: bool) {
        let of_owner = self.usage.entry(workload.owner.clone()).or_default();
        *of_owner = if add { of_owner.plus(usage) } else { of_owner.minus(usage) };
        if *of_owner == Usage::default() {
            self.usage.remove(&workload.owner);
        }
        if let Some(member) = workload.array {
            let running = self.arrays.entry(member.array).or_default();
            *running = if add { *running + 1 } else { running.saturating_sub(1) };
            if *running == 0 {
                self.arrays.remove(&member.array);
            }
        }
    }

    /// What the shares of the seats count for their owner, in thousandths of GPUs.
    fn share_milli(&self, seats: &[Seat]) -> u64 {
        let of_share = |seat: &Seat, index: u8, share| {
            let gpu = self.fleet.node(seat.node)?.gpus().get(usize::from(index))?;
            Some(u64::from(gpu.share_milli(gpu.mode(), share)))
        };
        let of_seat = |seat: &Seat| -> u64 {
            let shares = seat.shares.iter();
            shares.filter_map(|(index, share)| of_share(seat, *index, *share)).sum()
        };
        seats.iter().map(of_seat).sum()
    }

    /// Thousandths of GPU left on the nodes of the seats, each node counted once.
    fn free_milli(&self, seats: &[Seat]) -> u64 {
        let nodes: BTreeSet<_> = seats.iter().map(|seat| seat.node).collect();
        let free = |node| {
            self.fleet
                .node(node)
                .map_or(0, |n| n.gpus().iter().map(Gpu::free_milli).map(u64::from).sum::<u64>())
        };
        nodes.into_iter().map(free).sum()
    }
}

fn lane_of(workload: &Workload) -> LaneKey {
    let array = workload.array.map(|member| member.array);
    let asks_for_gpus = workload.demand.gpus.is_some();
    (Reverse(workload.priority), workload.owner.clone(), array, asks_for_gpus)
}
