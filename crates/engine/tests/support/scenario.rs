//! Scenario files: a fleet, its tenants, a policy and a queue in words, one line each.
//!
//! ```text
//! node n1 cpu 64 mem 256GiB: a100-80gb mig,mps | t4 x2 all
//! policy best-fit backfill off depth 9 modes mps:4,mig time-limit 500
//! quota alice gpus 2 weight 3
//! run w0 on n1 gpu0,1 mps 300/20GiB until 500 owner bob cpu 4 mem 8GiB class training
//! wait w1 owner bob prio 5 class service cpu 4 mem 16GiB gpu 2 of 300/18GiB isolation memory
//!   models a100|h100 then t4 modes mps limit 60 members 2 array 4 at-once 2 submitted 10
//! ```
//!
//! Workloads are numbered as they stand. `gpu 1` is a whole GPU; `of` takes amounts or a MIG
//! profile. An array makes one workload per task. `now 40` moves the clock, `compare` prints what
//! each other policy would do, `set n1/gpu0 mig` leaves an idle GPU in a mode, `again` applies the
//! plan and plans once more. `policy … grace 30` lets workloads be asked to leave, but those that
//! run with `stays`, for those that wait without `bides`; `leaves-by 90` runs and was asked already.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{
    ArrayMember, Catalogue, Fleet, Gpu, GpuAsk, GpuDemand, GpuId, ModeSet, Node, NodeId, Owner,
    Placement, Policy, Preemption, Seat, Share, SharingKind, Snapshot, Workload, WorkloadId,
};

use crate::attributes::{attribute, whole};
use crate::words::{Words, amounts, kind, kinds, mode};

/// A scenario, ready to be planned.
pub(crate) struct Scenario {
    pub(crate) snapshot: Snapshot,
    pub(crate) policy: Policy,
    /// By id; id 0 is the first.
    pub(crate) names: Vec<String>,
    pub(crate) compare: bool,
    pub(crate) again: bool,
}

struct Reader {
    scenario: Scenario,
    nodes: Vec<Node>,
    catalogue: Catalogue,
    by_name: BTreeMap<String, NodeId>,
}

/// Reads the part of a scenario above its `---`.
pub(crate) fn read(text: &str) -> Scenario {
    let mut reader = Reader {
        scenario: Scenario {
            snapshot: Snapshot::default(),
            policy: Policy::new(Placement::BestFit),
            names: Vec::new(),
            compare: false,
            again: false,
        },
        nodes: Vec::new(),
        catalogue: Catalogue::shipped().expect("the shipped tables"),
        by_name: BTreeMap::new(),
    };
    let joined = text.replace("\n  ", " ");
    let lines = joined.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    for line in lines.filter(|line| !line.is_empty()) {
        reader.line(line);
    }
    reader.scenario
}

impl Reader {
    fn line(&mut self, line: &str) {
        let mut words = Words::of(line);
        match words.next() {
            "node" => self.node(line),
            "policy" => self.policy(words),
            "quota" => self.quota(words),
            "run" => self.run(words),
            "wait" => self.wait(words),
            "set" => self.set(words),
            "now" => self.scenario.snapshot.now_ms = words.number(),
            "compare" => self.scenario.compare = true,
            "again" => self.scenario.again = true,
            other => words.fail(other),
        }
    }

    fn node(&mut self, line: &str) {
        let (head, gpus) = line.split_once(':').unwrap_or((line, ""));
        let mut words = Words::of(head);
        let (_, name) = (words.next(), words.next().to_owned());
        let (mut cpu_milli, mut memory_mib) = (64_000, 256 << 10);
        while let Some(word) = words.try_next() {
            match word {
                "cpu" => cpu_milli = words.milli(),
                "mem" => memory_mib = words.mib(),
                other => words.fail(other),
            }
        }
        let gpus = gpus.split('|').filter(|gpu| !gpu.trim().is_empty());
        let gpus = gpus.flat_map(|gpu| self.gpus(gpu)).collect();
        self.by_name.insert(name.clone(), NodeId(self.nodes.len() as u32));
        self.nodes.push(Node::idle(name, cpu_milli, memory_mib, gpus));
        // Nodes come before tenants, so that starting over loses nothing.
        self.scenario.snapshot = Snapshot::new(Fleet::new(self.nodes.clone()), 0);
    }

    fn gpus(&mut self, text: &str) -> Vec<Gpu> {
        let mut words = Words::of(text);
        let model = self.catalogue.get_or_enter(words.next());
        let (mut count, mut offers) = (1, ModeSet::ALL);
        while let Some(word) = words.try_next() {
            match word.strip_prefix('x').map(str::parse) {
                Some(Ok(number)) => count = number,
                _ => offers = ModeSet::of(&kinds(word)),
            }
        }
        (0..count).map(|_| Gpu::idle(Arc::clone(&model), offers)).collect()
    }

    fn policy(&mut self, mut words: Words<'_>) {
        let name = words.next();
        let policy = &mut self.scenario.policy;
        policy.placement = Placement::parse(name).unwrap_or_else(|| words.fail(name));
        while let Some(word) = words.try_next() {
            match word {
                "interference" => policy.hotpot.interference_milli = words.number(),
                "backfill" => policy.backfill = words.next() == "on",
                "depth" => policy.depth = words.number(),
                "patience" => policy.patience_ms = words.number(),
                "grace" => policy.preemption = Some(Preemption { grace_ms: words.number() }),
                "time-limit" => policy.time_limit_default_ms = words.number(),
                "modes" => policy.modes = words.next().split(',').map(mode).collect(),
                other => words.fail(other),
            }
        }
    }

    fn quota(&mut self, mut words: Words<'_>) {
        let quotas = &mut self.scenario.policy.quotas;
        let quota = quotas.entry(Owner::new(words.next())).or_default();
        while let Some(word) = words.try_next() {
            match word {
                "gpus" => quota.gpu_milli_max = Some(words.milli()),
                "weight" => quota.weight = words.number(),
                "speed-min" => quota.speed_min_milli = words.number(),
                other => words.fail(other),
            }
        }
    }

    fn set(&mut self, mut words: Words<'_>) {
        let (node, gpu) = words.next().split_once("/gpu").expect("set n1/gpu0 MODE");
        let gpu = GpuId { node: self.by_name[node], index: gpu.parse().expect("a GPU") };
        self.scenario.snapshot.set_mode(gpu, mode(words.next())).expect("a mode on offer");
    }

    /// Submits a workload that holds just what the line says, and places it.
    fn run(&mut self, mut words: Words<'_>) {
        let mut workload = self.blank(words.next());
        assert!(words.take("on"), "run NAME on NODE");
        let node = self.by_name[words.next()];
        let (mut shares, mut until_ms, mut mode) = (Vec::new(), u64::MAX, None);
        let mut leaves_by_ms = None;
        while let Some(word) = words.try_next() {
            if let Some(indices) = word.strip_prefix("gpu") {
                let held = words.next();
                let first = indices.split(',').next().and_then(|index| index.parse().ok());
                let share = self.share(node, first.expect("a GPU"), held, &mut words);
                shares = indices.split(',').map(|i| (i.parse().expect("a GPU"), share)).collect();
                workload.demand.gpus = Some(self.ask_of(node, &shares));
                mode = Some(self::mode(held));
            } else if word == "until" {
                until_ms = words.number();
            } else if word == "leaves-by" {
                leaves_by_ms = Some(words.number());
            } else {
                attribute(&mut workload, word, &mut words);
            }
        }
        let snapshot = &mut self.scenario.snapshot;
        for (index, _) in &shares {
            let gpu = &snapshot.fleet().nodes()[node.index()].gpus()[usize::from(*index)];
            if gpu.is_idle() {
                let id = GpuId { node, index: *index };
                snapshot.set_mode(id, mode.expect("a mode")).expect("a mode on offer");
            }
        }
        let id = workload.id;
        snapshot.submit(Arc::new(workload));
        snapshot.place(id, &[Seat { node, shares }], until_ms).expect("the tenant fits");
        if let Some(by_ms) = leaves_by_ms {
            snapshot.ask_to_leave(id, by_ms).expect("it runs");
        }
    }

    fn share(&self, node: NodeId, gpu: usize, held: &str, words: &mut Words<'_>) -> Share {
        let kind = kind(held.split(':').next().unwrap_or(held));
        if kind == SharingKind::Exclusive {
            return Share::Exclusive;
        }
        let word = words.next();
        if kind == SharingKind::Mig {
            let (name, start) = word.split_once('@').expect("PROFILE@START");
            let gpu = &self.nodes[node.index()].gpus()[gpu];
            let profile = gpu.model().mig.as_ref().and_then(|geometry| geometry.find(name));
            let start = start.parse().expect("a memory slice");
            return Share::Mig { profile: profile.expect("a profile of the model"), start };
        }
        let (compute_milli, memory_mib) = amounts(word);
        match kind {
            SharingKind::TimeSlice => Share::TimeSlice { memory_mib },
            SharingKind::Mps => Share::Mps { compute_milli, memory_mib },
            SharingKind::MemoryCapped => Share::MemoryCapped { compute_milli, memory_mib },
            SharingKind::Exclusive | SharingKind::Mig => words.fail(held),
        }
    }

    /// What a workload with these shares would have asked for.
    fn ask_of(&self, node: NodeId, shares: &[(u8, Share)]) -> GpuDemand {
        let (index, share) = shares[0];
        let each = match share {
            Share::Exclusive => GpuAsk::Whole,
            Share::TimeSlice { memory_mib } => GpuAsk::Fraction { compute_milli: 0, memory_mib },
            Share::Mps { compute_milli, memory_mib }
            | Share::MemoryCapped { compute_milli, memory_mib } => {
                GpuAsk::Fraction { compute_milli, memory_mib }
            }
            Share::Mig { profile, .. } => {
                let model = self.nodes[node.index()].gpus()[usize::from(index)].model();
                let found = model.mig.as_ref().and_then(|geometry| geometry.profile(profile));
                GpuAsk::Profile(found.expect("a profile").name.clone())
            }
        };
        GpuDemand { each, ..whole(shares.len() as u32) }
    }

    fn wait(&mut self, mut words: Words<'_>) {
        let mut workload = self.blank(words.next());
        let (mut tasks, mut at_once_max) = (0, 0);
        while let Some(word) = words.try_next() {
            match word {
                "array" => tasks = words.number(),
                "at-once" => at_once_max = words.number(),
                word => attribute(&mut workload, word, &mut words),
            }
        }
        if tasks == 0 {
            self.scenario.snapshot.submit(Arc::new(workload));
            return;
        }
        let (name, array) = (workload.name.clone(), workload.id);
        self.scenario.names.pop();
        for index in 0..tasks {
            let blank = self.blank(&format!("{name}[{index}]"));
            let array = Some(ArrayMember { array, index, at_once_max });
            let task = Workload { id: blank.id, name: blank.name, array, ..workload.clone() };
            self.scenario.snapshot.submit(Arc::new(task));
        }
    }

    fn blank(&mut self, name: &str) -> Workload {
        let id = WorkloadId(self.scenario.names.len() as u64);
        self.scenario.names.push(name.to_owned());
        Workload::new(
            id,
            name.to_owned(),
            Owner::new("alice"),
            model::Demand {
                cpu_milli: 1000,
                memory_mib: 1024,
                gpus: None,
                ..model::Demand::default()
            },
        )
    }
}
