//! Serving pods that hold much memory and hardly compute (the shipped diffusion-model pods): how many cards go free, and how much
//! slower answers come, by a replay of what each pod computed minute by minute.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::interference::{Interference, Tenant};
use engine::sharing::latency_factor;
use engine::{apply, plan};
use formats::Source;
use model::{
    Class, Demand, GpuAsk, GpuDemand, Isolation, ModeSet, Owner, Placement, Policy, Profile,
    SharingKind, SharingMode, Snapshot, Workload, WorkloadId,
};

use crate::Verdict;
use crate::gpu::table::Table;

pub(super) const DUTY: &str = "genai2026/pod_gpu_duty_cycle_anon.csv.gz";
const MEMORY: &str = "genai2026/pod_gpu_memory_used_bytes_anon.csv.gz";
/// Any latency will do: only the ratio of target and alone counts.
const ALONE_MS: u32 = 1000;
/// Answers may take so many thousandths of their time alone, on average over the day.
const TARGETS_MILLI: [Option<u32>; 6] =
    [None, Some(1250), Some(1200), Some(1150), Some(1100), Some(1050)];

/// The p99 of answers up to which cards that go free count, times alone.
const P99_MAX: f64 = 2.0;

/// A pod as it was measured.
struct Pod {
    /// The most memory that it held.
    memory_mib: u64,
    /// Part of each sample's time that it computed, in thousandths, by the time of the sample in s.
    busy_milli: BTreeMap<u64, u32>,
}

impl Pod {
    fn mean_milli(&self) -> u32 {
        let sum: u64 = self.busy_milli.values().map(|milli| u64::from(*milli)).sum();
        (sum / self.busy_milli.len().max(1) as u64) as u32
    }
}

pub(crate) fn run() -> Verdict {
    let pods = pods()?;
    let model = super::card("a100-80gb")?;
    let held: u64 = pods.iter().map(|pod| pod.memory_mib).sum();
    let busy: u64 = pods.iter().map(|pod| u64::from(pod.mean_milli())).sum();
    let count = pods.len() as u64;
    println!(
        "{count} pods, {:.1} GiB at most each (mean), {:.1} % busy (mean), each on a card of its own ({}) or as hotpot places them under MPS.\n",
        held as f64 / count as f64 / 1024.0,
        busy as f64 / count as f64 / 10.0,
        model.name
    );
    let head = [
        "answers may take on average",
        "cards",
        "freed",
        "busy a card",
        "p50 slow-down",
        "p99",
        "p99.9",
        "cannot keep up",
    ];
    let mut table = Table::new("Cards against answers that take longer", &head);
    let alone = vec![(0..pods.len()).map(|at| vec![at]).collect()];
    let rows = TARGETS_MILLI.iter().map(|target| placed(&pods, &model, *target));
    let rows = alone.into_iter().map(Ok).chain(rows).collect::<Result<Vec<_>, String>>()?;
    let names = ["a card each".to_string()].into_iter().chain(TARGETS_MILLI.map(|target| {
        target.map_or_else(
            || "any time".to_string(),
            |milli| format!("{:.2} ×", f64::from(milli) / 1000.0),
        )
    }));
    let ends: Vec<End> = rows.iter().map(|cards| End::of(&pods, cards)).collect();
    names.zip(&ends).for_each(|(name, end)| table.row(end.row(name, busy)));
    println!("{}", table.text());
    let freed = ends.iter().filter(|end| end.factor(0.99) <= P99_MAX).map(|end| end.freed).max();
    match freed {
        Some(freed) if freed * 3 > pods.len() => Ok(()),
        freed => Err(format!(
            "{} cards go free with a p99 of at most {P99_MAX} ×, not a third",
            freed.unwrap_or(0)
        )),
    }
}

/// Who sits together, by hotpot's own plan on as many cards as there are pods.
fn placed(
    pods: &[Pod],
    model: &Arc<model::GpuModel>,
    target_milli: Option<u32>,
) -> Result<Vec<Vec<usize>>, String> {
    let mut snapshot = Snapshot::new(advice::fleet(model, pods.len() as u32), u64::from(u32::MAX));
    for (at, pod) in pods.iter().enumerate() {
        snapshot.submit(Arc::new(workload(at, pod, target_milli)));
    }
    let policy = Policy {
        modes: vec![
            SharingMode::Mps { tenants_max: SharingMode::TENANTS_MAX },
            SharingMode::Exclusive,
        ],
        depth: u32::MAX,
        ..Policy::new(Placement::Hotpot)
    };
    let plan = plan(&snapshot, &policy);
    for step in &plan.steps {
        apply(&mut snapshot, &step.action, &policy).map_err(|refusal| refusal.to_string())?;
    }
    if let Some((id, refusal)) = plan.waiting.first_key_value() {
        return Err(format!("{id} finds no place: {refusal}"));
    }
    let gpus = snapshot.fleet().nodes().iter().flat_map(|node| node.gpus());
    let tenants = gpus.map(|gpu| gpu.tenants().iter().map(|one| one.workload.id.0 as usize));
    Ok(tenants.map(Iterator::collect).filter(|card: &Vec<usize>| !card.is_empty()).collect())
}

fn workload(at: usize, pod: &Pod, target_milli: Option<u32>) -> Workload {
    let gpus = GpuDemand {
        count: 1,
        each: GpuAsk::Fraction { compute_milli: 0, memory_mib: pod.memory_mib },
        accepts: Vec::new(),
        isolation: Isolation::None,
        modes: ModeSet::of(&[SharingKind::Mps]),
    };
    let demand = Demand { gpus: Some(gpus), ..Demand::default() };
    let id = WorkloadId(at as u64);
    let workload = Workload::new(id, format!("pod-{at}"), Owner::new("serving"), demand);
    Workload {
        class: Class::Service,
        profile: Profile { busy_milli: Some(pod.mean_milli()), ..Profile::default() },
        latency_alone_ms: target_milli.map(|_| ALONE_MS),
        latency_target_ms: target_milli.map(|milli| ALONE_MS * milli / 1000),
        ..workload
    }
}

/// What a placement comes to.
struct End {
    cards: usize,
    freed: usize,
    /// How many times longer answers take, with the weight of each, from the least on.
    factors: Vec<(f64, f64)>,
    /// The weight of all.
    all: f64,
}

impl End {
    fn of(pods: &[Pod], cards: &[Vec<usize>]) -> Self {
        let mut factors = Vec::new();
        for card in cards {
            replay(&card.iter().map(|at| &pods[*at]).collect::<Vec<_>>(), &mut factors);
        }
        factors.sort_by(|one, other| one.0.total_cmp(&other.0));
        let all = factors.iter().map(|(_, weight)| weight).sum();
        Self { cards: cards.len(), freed: pods.len() - cards.len(), factors, all }
    }

    /// The factor below which that part of the weight lies.
    fn factor(&self, part: f64) -> f64 {
        let mut sum = 0.0;
        let found = self.factors.iter().find(|(_, weight)| {
            sum += weight;
            sum >= part * self.all
        });
        found.map_or(1.0, |(factor, _)| *factor)
    }

    fn row(&self, name: String, busy_milli: u64) -> Vec<String> {
        let late = self.factors.iter().filter(|(factor, _)| factor.is_infinite());
        let late = late.fold(0.0, |sum, (_, weight)| sum + weight);
        vec![
            name,
            self.cards.to_string(),
            format!(
                "{} ({:.0} %)",
                self.freed,
                self.freed as f64 * 100.0 / (self.cards + self.freed) as f64
            ),
            format!("{:.1} %", busy_milli as f64 / 10.0 / self.cards as f64),
            times(self.factor(0.5)),
            times(self.factor(0.99)),
            times(self.factor(0.999)),
            format!("{:.2} %", late * 100.0 / self.all),
        ]
    }
}

fn times(factor: f64) -> String {
    if factor.is_finite() { format!("{factor:.2} ×") } else { "queues grow".to_string() }
}

/// How many times longer answers take at each sample of each pod on a card, weighed by what the pod computed: that is where its
/// requests are.
fn replay(card: &[&Pod], factors: &mut Vec<(f64, f64)>) {
    let model = Interference::default();
    for time_s in card.iter().flat_map(|pod| pod.busy_milli.keys()).collect::<BTreeSet<_>>() {
        let busy = card.iter().map(|pod| pod.busy_milli.get(time_s).copied().unwrap_or(0));
        let tenants = busy.map(|busy| Tenant {
            profile: Profile { busy_milli: Some(busy), ..Profile::default() },
            is_waited_for: true,
            ..Tenant::default()
        });
        let tenants: Vec<Tenant<'_>> = tenants.collect();
        let told = model.predict(SharingKind::Mps, "a100-80gb", &tenants);
        for (tenant, told) in tenants.iter().zip(told) {
            let busy = f64::from(tenant.profile.busy_milli.unwrap_or(0)) / 1000.0;
            if busy > 0.0 {
                factors.push((latency_factor(told.speed, busy), busy));
            }
        }
    }
}

/// The pods that are in both tables.
fn pods() -> Result<Vec<Pod>, String> {
    let mut memory: BTreeMap<String, u64> = BTreeMap::new();
    for (pod, _, bytes) in samples(MEMORY)? {
        let most = memory.entry(pod).or_default();
        *most = (*most).max((bytes / f64::from(1 << 20)).ceil() as u64);
    }
    let mut busy: BTreeMap<String, BTreeMap<u64, u32>> = BTreeMap::new();
    for (pod, time_s, percent) in samples(DUTY)? {
        let milli = (percent * 10.0).round().clamp(0.0, 1000.0) as u32;
        busy.entry(pod).or_default().insert(time_s, milli);
    }
    let both = busy
        .into_iter()
        .filter_map(|(pod, busy_milli)| Some(Pod { memory_mib: *memory.get(&pod)?, busy_milli }));
    Ok(both.collect())
}

/// Container, time in s rounded to whole minutes, value; columns are found by name.
fn samples(name: &str) -> Result<Vec<(String, u64, f64)>, String> {
    let source = Source::open(&super::path(name)).map_err(|error| super::why(&error, name))?;
    let mut lines = source.text().lines();
    let head: Vec<&str> = lines.next().unwrap_or("").split(',').collect();
    let column = |wanted: &str| {
        head.iter().position(|column| *column == wanted).ok_or(format!("{name}: no {wanted}"))
    };
    let (value, time, pod) = (column("value")?, column("timestamp_anon")?, column("container_ip")?);
    let sample = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let time_s = cells.get(time)?.parse::<f64>().ok()? as u64;
        Some((cells.get(pod)?.to_string(), time_s / 60 * 60, cells.get(value)?.parse().ok()?))
    };
    let read = |(at, line)| sample(line).ok_or(format!("{name}:{}: cannot be read", at + 2));
    lines.enumerate().map(read).collect()
}
