//! The published openb results, run by our engine and compared curve by curve.

use std::collections::BTreeMap;
use std::path::Path;

use formats::Source;
use model::{Placement, Policy};
use simulator::Observer;
use simulator::outcome::Sample;

use crate::openb::{self, Experiment, SEEDS, WORKLOADS};
use crate::{Verdict, parallel};

/// Policies with published curves: our name and theirs. All but `random` are deterministic.
const POLICIES: [(&str, &str); 6] = [
    ("fgd", "FGD"),
    ("best-fit", "BestFit"),
    ("dot-product", "DotProd"),
    ("gpu-packing", "GpuPacking"),
    ("gpu-clustering", "GpuClustering"),
    ("random", "Random"),
];

/// Largest accepted difference of any point of a deterministic curve, in points of allocation.
const ALLOCATION_MAX: f64 = 0.03;
/// The same for the fragmented amount.
const FRAGMENT_MAX: f64 = 0.1;
/// Largest accepted mean difference of a random policy's means over all seeds.
const RANDOM_MAX: f64 = 0.3;

/// A curve: arrived percent to (allocation, fragmented amount), both in percent of the GPUs.
type Curve = BTreeMap<u64, (f64, f64)>;
/// Published curves by workload, policy and seed.
type Published = BTreeMap<(String, String, u64), Curve>;

pub(crate) fn run(quick: bool) -> Verdict {
    let folder = openb::folder_or_why()?;
    golden(&folder)?;
    let published = published(&folder)?;
    let workloads = if quick { &WORKLOADS[..1] } else { &WORKLOADS[..] };
    println!(
        "difference to the published curves in percent points: the largest of any point and seed\n(random: the mean over the curve of the means over the seeds)"
    );
    println!(
        "{:<12} {:<15} {:>5} {:>10} {:>10}",
        "workload", "policy", "runs", "allocated", "fragment"
    );
    let mut failed = 0;
    for workload in workloads {
        let experiment = Experiment::read(&folder, workload)?;
        for (ours, theirs) in POLICIES {
            let curves =
                parallel::run(&SEEDS.collect::<Vec<_>>(), |seed| curve(&experiment, ours, *seed))?;
            let theirs: Vec<&Curve> = SEEDS
                .map(|seed| published.get(&(workload.to_string(), theirs.to_string(), seed)))
                .collect::<Option<_>>()
                .ok_or_else(|| format!("no published curve for {workload} {theirs}"))?;
            let (allocated, fragment) = differences(ours, &curves, &theirs);
            let bound = if ours == "random" {
                (RANDOM_MAX, f64::MAX)
            } else {
                (ALLOCATION_MAX, FRAGMENT_MAX)
            };
            let good = allocated <= bound.0 && fragment <= bound.1;
            failed += usize::from(!good);
            let mark = if good { "" } else { "  TOO FAR" };
            println!(
                "{workload:<12} {ours:<15} {:>5} {allocated:>10.3} {fragment:>10.3}{mark}",
                curves.len()
            );
        }
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(format!("{failed} curves are too far from the published ones"))
    }
}

/// The part that every test run repeats; says so where the traces are absent.
pub(crate) fn slice() -> Verdict {
    match openb::folder() {
        Some(folder) => golden(&folder),
        None => {
            println!(
                "skipped: published placements (the full openb traces are not here; set HOTPOT_TRACES to the folder that holds openb/)"
            );
            Ok(())
        }
    }
}

/// Every placement of the default workload, seed 42, line by line.
fn golden(folder: &Path) -> Verdict {
    let experiment = Experiment::read(folder, "default")?;
    for (ours, theirs) in &POLICIES[..5] {
        let name = format!("expected/placement_default_seed42_{theirs}.csv.gz");
        let source = Source::open(&folder.join(name)).map_err(|error| error.to_string())?;
        let mut log = PlacementLog::default();
        replay(&experiment, ours, 42, &mut log)?;
        let expected = source.text().lines().skip(1);
        let rows = experiment.rows(42).iter();
        let found = rows.zip(&log.lines).map(|(row, place)| format!("{row},{place}"));
        let mut compared = 0;
        for (at, (found, expected)) in found.zip(expected).enumerate() {
            if found != expected {
                return Err(format!(
                    "{ours}: task {at} went to `{found}`, published is `{expected}`"
                ));
            }
            compared += 1;
        }
        if compared != source.text().lines().count() - 1 {
            return Err(format!("{ours}: {compared} placements, published are more"));
        }
        println!("placements of openb default, seed 42, {ours:<15} {compared} of {compared} equal");
    }
    Ok(())
}

/// Where each task went, as the published lists write it: `node,gpu-gpu`.
#[derive(Default)]
struct PlacementLog {
    lines: Vec<String>,
}

impl Observer for PlacementLog {
    fn settled(&mut self, snapshot: &model::Snapshot) {
        let id = model::WorkloadId(self.lines.len() as u64);
        self.lines.push(
            match snapshot.running().get(&id).and_then(|running| running.seats.first()) {
                Some(seat) => {
                    let node = snapshot.fleet().node(seat.node).map_or("?", |node| node.name());
                    let gpus: Vec<_> = seat.shares.iter().map(|(gpu, _)| gpu.to_string()).collect();
                    format!("{node},{}", gpus.join("-"))
                }
                None => ",".to_string(),
            },
        );
    }
}

/// Runs one published experiment under one of our policies.
pub(crate) fn replay(
    experiment: &Experiment,
    policy: &str,
    seed: u64,
    watch: &mut dyn Observer,
) -> Result<simulator::outcome::Outcome, String> {
    let placement = match Placement::parse(policy) {
        Some(Placement::Random { .. }) => Placement::Random { seed },
        Some(other) => other,
        None => return Err(format!("no policy {policy}")),
    };
    experiment.run(Policy::new(placement), seed, watch)
}

fn curve(experiment: &Experiment, policy: &str, seed: u64) -> Result<Curve, String> {
    let outcome = replay(experiment, policy, seed, &mut ())?;
    let point = |sample: &Sample| {
        (sample.arrived_pct as u64, (sample.allocated_pct, sample.fragmented_pct))
    };
    Ok(outcome.samples.iter().map(point).collect())
}

/// Largest differences over all points of deterministic curves. Two random policies can be compared
/// in the mean only: of the means over the seeds, the mean difference over the curve.
fn differences(policy: &str, ours: &[Curve], theirs: &[&Curve]) -> (f64, f64) {
    if policy == "random" {
        return mean_differences(ours, theirs);
    }
    let mut largest = (0.0f64, 0.0f64);
    for (ours, theirs) in ours.iter().zip(theirs) {
        for (percent, point) in *theirs {
            let found = ours.get(percent).copied().unwrap_or((f64::INFINITY, 0.0));
            largest.0 = largest.0.max((found.0 - point.0).abs());
            largest.1 = largest.1.max((found.1 - point.1).abs());
        }
    }
    largest
}

fn mean_differences(ours: &[Curve], theirs: &[&Curve]) -> (f64, f64) {
    let (mut sum, mut points) = ((0.0, 0.0), 0.0);
    for percent in theirs[0].keys() {
        let ours = mean(ours.iter(), *percent);
        if let (Some(ours), Some(theirs)) = (ours, mean(theirs.iter().copied(), *percent)) {
            sum.0 += (ours.0 - theirs.0).abs();
            sum.1 += (ours.1 - theirs.1).abs();
            points += 1.0;
        }
    }
    (sum.0 / points, sum.1 / points)
}

/// Mean of a point over curves; `None` unless all have it.
fn mean<'a>(curves: impl Iterator<Item = &'a Curve>, percent: u64) -> Option<(f64, f64)> {
    let points: Vec<(f64, f64)> =
        curves.map(|curve| curve.get(&percent).copied()).collect::<Option<_>>()?;
    let count = points.len() as f64;
    let sum = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    Some((sum.0 / count, sum.1 / count))
}

/// Reads `workload,policy,seed,arrived_pct,alloc_pct,frag_ratio_pct,frag_amount_pct`.
fn published(folder: &Path) -> Result<Published, String> {
    let path = folder.join("expected/per_seed.csv.gz");
    let source = Source::open(&path).map_err(|error| error.to_string())?;
    let mut curves = Published::new();
    for line in source.text().lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let row = || {
            let [workload, policy, seed, arrived, allocated, _, fragment] = cells.as_slice() else {
                return None;
            };
            let key = (workload.to_string(), policy.to_string(), seed.parse().ok()?);
            Some((key, arrived.parse().ok()?, (allocated.parse().ok()?, fragment.parse().ok()?)))
        };
        let (key, arrived, point) = row().ok_or_else(|| format!("cannot read `{line}`"))?;
        curves.entry(key).or_default().insert(arrived, point);
    }
    Ok(curves)
}
