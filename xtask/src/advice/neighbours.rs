//! What it costs to place without regard to interference: a trace of training jobs (Philly's arrivals with Gavel's jobs) on a few
//! V100. Jobs of one worker may share a card by turns, two to a card, and run as fast as such pairs were measured; the policy goes
//! by a model that has seen two in five of those pairs.

use std::collections::BTreeMap;

use engine::Planner;
use engine::interference::{Interference, Observation};
use formats::{TraceOptions, read_trace};
use model::{
    Arrival, Fleet, Gpu, GpuAsk, HotpotTerms, ModeSet, Placement, Policy, Running, SharingKind,
    SharingMode, Trace, WorkloadId,
};
use simulator::{Observer, Predicted, Protocol, Speeds, replay};

use crate::gpu::table::Table;
use crate::interference::{fold, measured_pairs};
use crate::{Verdict, parallel};

/// Virtual clusters of the trace whose jobs arrive.
const CLUSTERS: [&str; 3] = ["103959", "0e4a51", "ee9e8c"];
const THROUGHPUTS: &str = "colocation/gavel_simulation_throughputs.json.gz";
/// The card as the measurements and the catalogue name it.
const MEASURED_ON: &str = "v100";
const CARD: &str = "v100m16";
const CARDS: u32 = 32;
/// Work that arrives, in percent of what all cards do if nobody shares.
const LOADS: [u64; 3] = [50, 80, 100];
const HOUR_MS: f64 = 3_600_000.0;
/// Jobs of the trace that a quick run takes.
const QUICK: usize = 300;

/// A way to place.
#[derive(Clone)]
struct Way {
    name: &'static str,
    placement: Placement,
    interference_milli: u32,
    shares: bool,
}

fn ways() -> Vec<Way> {
    let way = |name, placement, interference_milli, shares| Way {
        name,
        placement,
        interference_milli,
        shares,
    };
    vec![
        way("nobody shares", Placement::BestFit, 0, false),
        way("best-fit", Placement::BestFit, 0, true),
        way("spread", Placement::Spread, 0, true),
        way("hotpot, without the model", Placement::Hotpot, 0, true),
        way("hotpot", Placement::Hotpot, HotpotTerms::default().interference_milli, true),
    ]
}

/// A run of the trace.
struct Case {
    cluster: &'static str,
    load: u64,
    way: Way,
}

pub(crate) fn run(quick: bool) -> Verdict {
    let pairs = measured_pairs(MEASURED_ON)?;
    let shown: Vec<Observation> = pairs.iter().filter(|seen| is_shown(seen)).cloned().collect();
    println!(
        "{CARDS} {CARD}; {} speeds of pairs measured, {} of them shown to the policy's model. Pairs that did not run together \
         for want of memory are taken to run as the model says.\n",
        pairs.len(),
        shown.len()
    );
    let cases = cases(quick);
    let ends = parallel::run(&cases, |case| {
        let jobs = at_load(&jobs(case.cluster, quick)?, case.load);
        one(&jobs, &case.way, &Interference::fit(&shown), &Truth::new(&pairs))
    })?;
    println!("{}", means(&cases, &ends));
    println!("{}", cost(&cases, &ends));
    let [without, with] = [2, 1].map(|last| {
        let of_way = ends.chunks(ways().len()).filter_map(|ends| ends.iter().nth_back(last - 1));
        of_way.map(End::together).sum::<f64>()
    });
    match with < without {
        true => Ok(()),
        false => Err("jobs run no faster where the policy knows who slows down whom".to_string()),
    }
}

fn cases(quick: bool) -> Vec<Case> {
    let (clusters, loads) =
        if quick { (&CLUSTERS[..1], &LOADS[2..]) } else { (&CLUSTERS[..], &LOADS[..]) };
    let both = clusters.iter().flat_map(|cluster| loads.iter().map(move |load| (cluster, load)));
    both.flat_map(|(cluster, load)| {
        ways().into_iter().map(|way| Case { cluster, load: *load, way })
    })
    .collect()
}

fn means(cases: &[Case], ends: &[End]) -> String {
    let head = [
        "jobs of",
        "load",
        "policy",
        "from arrival to end",
        "wait",
        "runs for",
        "together",
        "all done",
    ];
    let mut table = Table::new("Means of all jobs, in hours", &head);
    cases.iter().zip(ends).for_each(|(case, end)| table.row(end.row(case)));
    table.text()
}

/// The policy without the model against the same with it: the last two ways of each load.
fn cost(cases: &[Case], ends: &[End]) -> String {
    let head = ["jobs of", "load", "from arrival to end", "runs for", "together"];
    let mut table = Table::new("What hotpot loses without the model", &head);
    let ways = ways().len();
    for (cases, ends) in cases.chunks(ways).zip(ends.chunks(ways)) {
        let [.., without, with] = ends else { continue };
        let more =
            |of: fn(&End) -> f64| format!("{:+.1} %", (of(without) / of(with) - 1.0) * 100.0);
        table.row(vec![
            cases[0].cluster.to_string(),
            format!("{} %", cases[0].load),
            more(End::stay_h),
            more(End::runs_h),
            more(End::together),
        ]);
    }
    table.text()
}

/// Two in five of the pairs, both directions of a pair alike.
fn is_shown(seen: &Observation) -> bool {
    ["0", "1"].contains(&fold(seen).as_str())
}

fn is_single(job: &Arrival) -> bool {
    let gpus = job.workload.demand.gpus.as_ref();
    job.workload.members == 1 && gpus.is_some_and(|gpus| gpus.count == 1)
}

fn jobs(cluster: &str, quick: bool) -> Result<Trace, String> {
    let options = TraceOptions {
        throughputs: Some(super::path(THROUGHPUTS)),
        throughputs_gpu: MEASURED_ON.to_string(),
        ..TraceOptions::default()
    };
    let arrivals = format!("philly/gavel_philly_vc_{cluster}_seed0.csv.gz");
    let read = read_trace(&super::path(&arrivals), &options);
    let mut trace = read.map_err(|error| super::why(&error, &arrivals))?.trace;
    if quick {
        trace.arrivals.truncate(QUICK);
    }
    Ok(trace)
}

/// The same jobs, so close together that they come to a load.
fn at_load(trace: &Trace, percent: u64) -> Trace {
    let work = |job: &Arrival| {
        u128::from(job.runs_ms.unwrap_or(0)) * u128::from(job.workload.demand.gpu_milli()) / 1000
            * u128::from(job.workload.members)
    };
    let work_ms: u128 = trace.arrivals.iter().map(work).sum();
    let span_ms = trace.arrivals.last().map_or(0, |last| last.at_ms);
    let wanted_ms = work_ms * 100 / u128::from(CARDS) / u128::from(percent);
    let mut trace = trace.clone();
    for job in &mut trace.arrivals {
        job.at_ms = (u128::from(job.at_ms) * wanted_ms / u128::from(span_ms.max(1))) as u64;
        job.workload.submitted_ms = job.at_ms;
    }
    trace
}

fn one(trace: &Trace, way: &Way, model: &Interference, truth: &Truth) -> Result<End, String> {
    let mut trace = trace.clone();
    trace.arrivals.iter_mut().filter(|job| way.shares && is_single(job)).for_each(halve);
    let hotpot =
        HotpotTerms { interference_milli: way.interference_milli, ..HotpotTerms::default() };
    let policy = Policy {
        hotpot,
        mix: engine::mix::of(trace.arrivals.iter().map(|job| &job.workload)),
        modes: vec![SharingMode::TimeSlice { tenants_max: 2 }, SharingMode::Exclusive],
        ..Policy::new(way.placement.clone())
    };
    let planner = Planner::new(policy).with_interference(model.clone());
    let mut end = End {
        alone_ms: trace
            .arrivals
            .iter()
            .map(|job| (job.workload.id, job.runs_ms.unwrap_or(0)))
            .collect(),
        ..End::default()
    };
    let fleet: Fleet = advice::fleet(&super::card(CARD)?, CARDS);
    let last = replay(fleet, &trace, planner, Protocol::Timed, truth, &mut end);
    let left = last.map_err(|error| error.to_string())?.waiting().len();
    if left > 0 {
        return Err(format!("{}: {left} jobs were never started", way.name));
    }
    Ok(end)
}

/// Half of a card by turns, where that can be had.
fn halve(job: &mut Arrival) {
    if let Some(gpus) = &mut job.workload.demand.gpus {
        gpus.each = GpuAsk::Fraction { compute_milli: 500, memory_mib: 0 };
        gpus.modes = ModeSet::of(&[SharingKind::TimeSlice]);
    }
}

/// Speeds as measured; of pairs that were not, as the model says that has seen all that were.
struct Truth {
    measured: BTreeMap<String, BTreeMap<String, u32>>,
    otherwise: Predicted,
}

impl Truth {
    fn new(pairs: &[Observation]) -> Self {
        let mut measured: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for seen in pairs {
            let speed_milli = (seen.speed * 1000.0).round() as u32;
            let of_kind = measured.entry(seen.kind.clone()).or_default();
            of_kind.insert(seen.others[0].clone(), speed_milli);
        }
        Self { measured, otherwise: Predicted::new(Interference::fit(pairs)) }
    }
}

impl Speeds for Truth {
    fn are_full(&self) -> bool {
        false
    }

    fn of(&self, gpu: &Gpu) -> Vec<u32> {
        let [one, other] = gpu.tenants() else { return self.otherwise.of(gpu) };
        let of = |own: &str, beside: &str| self.measured.get(own)?.get(beside).copied();
        let (one, other) = (&one.workload.kind, &other.workload.kind);
        let both = of(one, other).zip(of(other, one));
        both.map_or_else(|| self.otherwise.of(gpu), |(one, other)| vec![one, other])
    }
}

/// Sums over all jobs.
#[derive(Default)]
struct End {
    alone_ms: BTreeMap<WorkloadId, u64>,
    jobs: u64,
    stay_ms: u128,
    wait_ms: u128,
    /// How many times longer than alone, summed.
    longer: f64,
    last_ms: u64,
}

impl Observer for End {
    fn finished(&mut self, running: &Running, at_ms: u64) {
        let (submitted_ms, since_ms) = (running.workload.submitted_ms, running.since_ms);
        self.jobs += 1;
        self.stay_ms += u128::from(at_ms - submitted_ms);
        self.wait_ms += u128::from(since_ms - submitted_ms);
        let alone_ms = self.alone_ms.get(&running.workload.id).copied().unwrap_or(0);
        self.longer += (at_ms - since_ms) as f64 / alone_ms.max(1) as f64;
        self.last_ms = self.last_ms.max(at_ms);
    }
}

impl End {
    fn mean_h(&self, ms: u128) -> f64 {
        ms as f64 / HOUR_MS / self.jobs.max(1) as f64
    }

    fn stay_h(&self) -> f64 {
        self.mean_h(self.stay_ms)
    }

    fn runs_h(&self) -> f64 {
        self.mean_h(self.stay_ms - self.wait_ms)
    }

    fn together(&self) -> f64 {
        self.longer / self.jobs.max(1) as f64
    }

    fn row(&self, case: &Case) -> Vec<String> {
        vec![
            case.cluster.to_string(),
            format!("{} %", case.load),
            case.way.name.to_string(),
            format!("{:.1}", self.stay_h()),
            format!("{:.1}", self.mean_h(self.wait_ms)),
            format!("{:.1}", self.runs_h()),
            format!("{:.2} × alone", self.together()),
            format!("{:.0}", self.last_ms as f64 / HOUR_MS),
        ]
    }
}
