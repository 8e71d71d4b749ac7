//! Reduces the events of a replay to an [`Outcome`].

use std::collections::BTreeSet;

use engine::fragment::Mix;
use model::{GpuAsk, NodeId, Policy, Running, Snapshot, Workload, WorkloadId};

use crate::observer::Observer;
use crate::outcome::{Outcome, Sample, Size, Totals, Waits};
use crate::replay::Protocol;
use crate::yardstick::Yardstick;

/// Samples of a timed run; when twice as many are there, every second one is dropped.
const SAMPLES: usize = 1000;

/// Watches one replay.
pub(crate) struct Recorder {
    protocol: Protocol,
    policy: String,
    mix: Mix,
    yardstick: Yardstick,
    nodes: Vec<NodeShare>,
    dirty: BTreeSet<NodeId>,
    fragmented_milli: f64,
    busy_gpus: u64,
    gpus: u64,
    arrived_milli: u64,
    sizes: Vec<Size>,
    totals: Totals,
    waits_ms: Vec<u64>,
    samples: Vec<Sample>,
    bin: Bin,
    interval_ms: u64,
    first_ms: Option<u64>,
    last: (u64, u64),
    held_milli_ms: u128,
    in_use_ms: u128,
    /// Those that have left because of being asked to, at least once.
    preempted: BTreeSet<WorkloadId>,
    lost_milli_ms: u128,
}

#[derive(Clone, Copy, Default)]
struct NodeShare {
    fragmented_milli: f64,
    busy_gpus: u64,
}

/// Sums over the events that fall on one whole percent of arrived demand.
#[derive(Default)]
struct Bin {
    percent: u64,
    events: u64,
    sum: Sample,
}

impl Recorder {
    /// A recorder for a replay that starts from `snapshot`.
    ///
    /// The mix by which fragmentation is measured is that of the policy.
    pub(crate) fn new(snapshot: &Snapshot, policy: &Policy, protocol: Protocol) -> Self {
        let fleet = snapshot.fleet();
        let mut recorder = Self {
            protocol,
            policy: policy.placement.name().to_string(),
            mix: Mix::new(&policy.mix, fleet),
            yardstick: Yardstick::of(fleet),
            nodes: vec![NodeShare::default(); fleet.nodes().len()],
            dirty: fleet.indexed().map(|(id, _)| id).collect(),
            fragmented_milli: 0.0,
            busy_gpus: 0,
            gpus: fleet.gpu_count(),
            arrived_milli: 0,
            sizes: Vec::new(),
            totals: Totals::default(),
            waits_ms: Vec::new(),
            samples: Vec::new(),
            bin: Bin::default(),
            interval_ms: 1,
            first_ms: None,
            last: (0, 0),
            held_milli_ms: 0,
            in_use_ms: 0,
            preempted: BTreeSet::new(),
            lost_milli_ms: 0,
        };
        recorder.recount(snapshot);
        recorder
    }

    /// What the replay came to.
    pub(crate) fn finish(mut self, end: &Snapshot) -> Outcome {
        let last = self.sample(end);
        if self.protocol == Protocol::Fill {
            self.close_bin();
        } else {
            self.samples.pop_if(|sample| sample.at_ms == last.at_ms);
            self.samples.push(last);
        }
        for id in end.waiting().keys() {
            self.count_rejected(*id);
        }
        let span_ms = end.now_ms.saturating_sub(self.first_ms.unwrap_or(end.now_ms));
        let held = self.held_milli_ms as f64;
        self.totals.waiting = end.waiting().len() as u64;
        self.totals.allocated_pct = last.allocated_pct;
        self.totals.fragmented_pct = last.fragmented_pct;
        self.totals.makespan_ms = span_ms;
        self.totals.gpu_hours_held = held / 1000.0 / 3_600_000.0;
        self.totals.gpu_hours_in_use = self.in_use_ms as f64 / 3_600_000.0;
        self.totals.gpu_hours_lost = self.lost_milli_ms as f64 / 1000.0 / 3_600_000.0;
        self.totals.allocated_mean_pct = percent(held, self.gpus as f64 * 1000.0 * span_ms as f64);
        self.totals.waits = waits(self.waits_ms);
        Outcome { policy: self.policy, samples: self.samples, totals: self.totals }
    }

    fn recount(&mut self, snapshot: &Snapshot) {
        for id in std::mem::take(&mut self.dirty) {
            let Some(node) = snapshot.fleet().node(id) else { continue };
            let busy_gpus = node.gpus().iter().filter(|gpu| !gpu.is_idle()).count() as u64;
            let fresh = NodeShare { fragmented_milli: self.mix.fragmented_milli(node), busy_gpus };
            let stale = std::mem::replace(&mut self.nodes[id.index()], fresh);
            self.fragmented_milli += fresh.fragmented_milli - stale.fragmented_milli;
            self.busy_gpus = self.busy_gpus + fresh.busy_gpus - stale.busy_gpus;
        }
    }

    fn sample(&self, snapshot: &Snapshot) -> Sample {
        let capacity = self.gpus as f64 * 1000.0;
        Sample {
            at_ms: snapshot.now_ms,
            arrived_pct: percent(self.arrived_milli as f64, capacity),
            allocated_pct: percent(snapshot.used().gpu_milli as f64, capacity),
            fragmented_pct: percent(self.fragmented_milli, capacity),
            busy_pct: percent(self.busy_gpus as f64, self.gpus as f64),
            waiting: snapshot.waiting().len() as u64,
            running: snapshot.running().len() as u64,
            rejected: self.totals.rejected,
        }
    }

    /// One sample per whole percent of arrived demand: the mean over its events, as published
    /// curves are made (each allocation first rounded to two decimals).
    fn bin_sample(&mut self, sample: Sample) {
        let percent = sample.arrived_pct.round() as u64;
        if percent != self.bin.percent {
            self.close_bin();
            self.bin.percent = percent;
        }
        let sum = &mut self.bin.sum;
        sum.at_ms = sample.at_ms;
        sum.allocated_pct += (sample.allocated_pct * 100.0).round() / 100.0;
        sum.fragmented_pct += sample.fragmented_pct;
        sum.busy_pct += sample.busy_pct;
        (sum.waiting, sum.running, sum.rejected) =
            (sample.waiting, sample.running, sample.rejected);
        self.bin.events += 1;
    }

    fn close_bin(&mut self) {
        let bin = std::mem::take(&mut self.bin);
        if bin.events > 0 {
            let events = bin.events as f64;
            self.samples.push(Sample {
                arrived_pct: bin.percent as f64,
                allocated_pct: bin.sum.allocated_pct / events,
                fragmented_pct: bin.sum.fragmented_pct / events,
                busy_pct: bin.sum.busy_pct / events,
                ..bin.sum
            });
        }
    }

    /// Keeps the last sample of each moment, and at most one per interval.
    fn time_sample(&mut self, sample: Sample) {
        self.samples.pop_if(|last| last.at_ms == sample.at_ms);
        let due = self.samples.last().map_or(0, |last| last.at_ms + self.interval_ms);
        if sample.at_ms < due {
            return;
        }
        self.samples.push(sample);
        if self.samples.len() >= 2 * SAMPLES {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            let span_ms = sample.at_ms.saturating_sub(self.samples[0].at_ms);
            self.interval_ms = (span_ms / SAMPLES as u64).max(self.interval_ms * 2);
        }
    }

    fn count_rejected(&mut self, id: WorkloadId) {
        if let Some(size) = self.sizes.get(id.0 as usize) {
            self.totals.by_size[*size as usize].rejected += 1;
        }
    }
}

impl Observer for Recorder {
    fn arrived(&mut self, workload: &Workload) {
        self.arrived_milli += self.yardstick.gpu_milli(workload);
        let size = size(workload);
        self.sizes.push(size);
        self.totals.arrived += 1;
        self.totals.by_size[size as usize].arrived += 1;
        self.first_ms.get_or_insert(workload.submitted_ms);
    }

    fn started(&mut self, running: &Running) {
        if !self.preempted.contains(&running.workload.id) {
            self.totals.started += 1;
            self.waits_ms.push(running.since_ms.saturating_sub(running.workload.submitted_ms));
        }
        self.dirty.extend(running.seats.iter().map(|seat| seat.node));
    }

    fn rejected(&mut self, id: WorkloadId) {
        self.totals.rejected += 1;
        self.count_rejected(id);
    }

    fn finished(&mut self, running: &Running, _at_ms: u64) {
        self.dirty.extend(running.seats.iter().map(|seat| seat.node));
    }

    fn preempted(&mut self, running: &Running, at_ms: u64) {
        self.totals.preempted += 1;
        self.preempted.insert(running.workload.id);
        let ran_ms = at_ms.saturating_sub(running.since_ms);
        self.lost_milli_ms += u128::from(running.usage.gpu_milli) * u128::from(ran_ms);
        self.dirty.extend(running.seats.iter().map(|seat| seat.node));
    }

    fn settled(&mut self, snapshot: &Snapshot) {
        let in_use = self.busy_gpus;
        self.recount(snapshot);
        let (since_ms, held_milli) = self.last;
        let passed_ms = snapshot.now_ms.saturating_sub(since_ms);
        self.held_milli_ms += u128::from(held_milli) * u128::from(passed_ms);
        self.in_use_ms += u128::from(in_use) * u128::from(passed_ms);
        self.last = (snapshot.now_ms, snapshot.used().gpu_milli);
        let sample = self.sample(snapshot);
        match self.protocol {
            Protocol::Fill => self.bin_sample(sample),
            Protocol::Timed => self.time_sample(sample),
        }
    }
}

fn size(workload: &Workload) -> Size {
    let Some(gpus) = &workload.demand.gpus else { return Size::CpuOnly };
    match (&gpus.each, u64::from(gpus.count) * u64::from(workload.members.max(1))) {
        (GpuAsk::Fraction { .. } | GpuAsk::Profile(_), _) => Size::Shared,
        (GpuAsk::Whole, 0 | 1) => Size::OneGpu,
        (GpuAsk::Whole, 2..=3) => Size::TwoGpus,
        (GpuAsk::Whole, 4..=7) => Size::FourGpus,
        (GpuAsk::Whole, _) => Size::EightGpus,
    }
}

fn waits(mut all_ms: Vec<u64>) -> Waits {
    all_ms.sort_unstable();
    let Some(max_ms) = all_ms.last().copied() else { return Waits::default() };
    // Nearest rank: the smallest value that at least the given part does not exceed.
    let rank = |part: u64| all_ms[((all_ms.len() as u64 * part).div_ceil(100).max(1) - 1) as usize];
    let sum: u128 = all_ms.iter().map(|wait| u128::from(*wait)).sum();
    Waits {
        mean_ms: (sum / all_ms.len() as u128) as u64,
        p50_ms: rank(50),
        p95_ms: rank(95),
        p99_ms: rank(99),
        max_ms,
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}
