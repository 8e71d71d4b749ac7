//! How well the interference model predicts speeds that it has not been shown.

mod measured;
mod write;

use std::collections::BTreeSet;

use engine::interference::{Interference, Observation, Prediction, Tenant};
use model::SharingKind;

use crate::Verdict;
use crate::gpu::table::Table;
use measured::Measured;

/// Parts into which pairs are held out.
const FOLDS: u64 = 5;
/// Largest median error of held-out pairs on a V100.
const V100_MEDIAN_MAX: f64 = 0.05;

pub(crate) fn run(words: &[&str]) -> Verdict {
    match words {
        [] => judge(&Measured::read()?, false),
        ["--quick"] => judge(&Measured::read()?, true),
        ["--write"] => write::write(&Measured::read()?),
        other => Err(format!("unknown: {}; there are --quick and --write", other.join(" "))),
    }
}

/// What is judged within the suite: pairs on a V100. Left out where the traces are not.
pub(crate) fn slice() -> Verdict {
    match Measured::read() {
        Ok(measured) => judge(&measured, true),
        Err(why) => {
            println!("skipped: held-out speeds of shared GPUs: {why}");
            Ok(())
        }
    }
}

/// The speeds of pairs of training jobs in turns on a GPU model.
pub(crate) fn measured_pairs(gpu: &str) -> Result<Vec<Observation>, String> {
    let pairs = Measured::read()?.pairs;
    Ok(pairs.into_iter().filter(|seen| seen.gpu == gpu).collect())
}

fn judge(measured: &Measured, quick: bool) -> Verdict {
    let head =
        ["held out", "n", "ours p50", "p90", "1/N p50", "p90", "mean p50", "p90", "% in spread"];
    let mut table = Table::new("Absolute error of predicted speed, relative to alone", &head);
    let mut missed = Vec::new();
    let gpus: &[&str] = if quick { &["v100"] } else { &["k80", "p100", "v100"] };
    let mut set = |title: &str, seen: &[Observation], of: &dyn Fn(&Observation) -> String| {
        let errors = held_out(seen, of);
        missed.extend(errors.missed(title));
        table.row(errors.row(title));
    };
    for gpu in gpus {
        let seen: Vec<_> = measured.pairs.iter().filter(|seen| seen.gpu == *gpu).cloned().collect();
        set(&format!("{gpu} pairs"), &seen, &fold);
        if !quick {
            set(&format!("{gpu} types"), &seen, &|_| String::new());
        }
    }
    if !quick {
        set("mps pairs", &measured.processes, &fold);
        set("mps models", &measured.processes, &family);
        set("mps designs", &measured.processes, &design);
        set("mig pairs", &measured.instances, &fold);
        set("mig models", &measured.instances, &family);
    }
    println!("{}", table.text());
    println!("{} predictions for a pair a second", rate(measured));
    if missed.is_empty() { Ok(()) } else { Err(format!("aims missed: {}", missed.join("; "))) }
}

/// Absolute errors: ours, of 1/N, of the mean of what was shown; and how many of ours are within our spread.
#[derive(Default)]
struct Errors([Vec<f64>; 3], usize);

impl Errors {
    fn row(&self, title: &str) -> Vec<String> {
        let figures = self.0.iter().flat_map(|errors| [500, 900].map(|milli| rank(errors, milli)));
        let within = self.1 * 100 / self.0[0].len().max(1);
        let cells = figures.map(|figure| format!("{figure:.3}"));
        [title.to_string(), self.0[0].len().to_string()]
            .into_iter()
            .chain(cells)
            .chain([within.to_string()])
            .collect()
    }

    fn missed(&self, title: &str) -> Vec<String> {
        let mut missed = Vec::new();
        for (what, milli) in [("median", 500), ("p90", 900)] {
            let [ours, equal, mean] = [0, 1, 2].map(|at: usize| rank(&self.0[at], milli));
            if ours >= equal || ours >= mean {
                missed.push(format!(
                    "{title}: {what} {ours:.3} is not below 1/N {equal:.3} and mean {mean:.3}"
                ));
            }
        }
        let ours = rank(&self.0[0], 500);
        if title == "v100 pairs" && ours > V100_MEDIAN_MAX {
            missed.push(format!("{title}: median {ours:.3} is above {V100_MEDIAN_MAX}"));
        }
        missed
    }
}

fn rank(errors: &[f64], milli: usize) -> f64 {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get((sorted.len() * milli / 1000).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0.0)
}

/// Holds out each set that `of` names in turn; with an empty name, all pairs of each kind in turn.
fn held_out(seen: &[Observation], of: &dyn Fn(&Observation) -> String) -> Errors {
    let mut errors = Errors::default();
    let by_kind = seen.first().is_some_and(|first| of(first).is_empty());
    let name = |seen: &Observation| if by_kind { seen.kind.clone() } else { of(seen) };
    let sets: BTreeSet<String> = seen.iter().map(name).collect();
    for set in sets {
        let out = |seen: &&Observation| match by_kind {
            true => seen.kind == set || seen.others.contains(&set),
            false => of(seen) == set,
        };
        let (tested, shown): (Vec<_>, Vec<_>) = seen.iter().partition(out);
        let shown: Vec<Observation> = shown.into_iter().cloned().collect();
        let model = Interference::fit(&shown);
        let mean = shown.iter().map(|seen| seen.speed).sum::<f64>() / shown.len().max(1) as f64;
        for seen in tested {
            let ours = predict(&model, seen);
            errors.1 += usize::from((ours.speed - seen.speed).abs() <= ours.spread);
            let told = [ours.speed, equal(seen), mean];
            for (errors, told) in errors.0.iter_mut().zip(told) {
                errors.push((told - seen.speed).abs());
            }
        }
    }
    errors
}

fn predict(model: &Interference, seen: &Observation) -> Prediction {
    let tenant = |kind| Tenant { kind, ..Tenant::default() };
    let mut tenants = vec![Tenant { slice: seen.slice, ..tenant(&seen.kind) }];
    tenants.extend(seen.others.iter().map(|other| tenant(other)));
    model.predict(seen.mode, &seen.gpu, &tenants)[0]
}

/// How many pairs are predicted in a second.
fn rate(measured: &Measured) -> u64 {
    let model = Interference::fit(&measured.pairs);
    let start = std::time::Instant::now();
    measured.pairs.iter().for_each(|seen| {
        std::hint::black_box(predict(&model, seen));
    });
    (measured.pairs.len() as f64 / start.elapsed().as_secs_f64()) as u64
}

/// An equal part: of the tenants, or of the card's compute.
fn equal(seen: &Observation) -> f64 {
    match (seen.mode, seen.slice) {
        (SharingKind::Mig, Some(slice)) => f64::from(slice.compute_milli) / 1000.0,
        _ => 1.0 / (seen.others.len() + 1) as f64,
    }
}

/// The fold of a pair, the same for both directions and all numbers of processes: FNV-1a of its names.
pub(crate) fn fold(seen: &Observation) -> String {
    let slice = seen.slice.map(|slice| format!("{slice:?}")).unwrap_or_default();
    let other = seen.others.first().unwrap_or(&slice);
    let mut names = [&seen.kind, other];
    names.sort();
    let gpu = if seen.mode == SharingKind::Mps { seen.gpu.as_str() } else { "" };
    let text = format!("{}|{}|{gpu}", names[0], names[1]);
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    (text.bytes().fold(0xcbf2_9ce4_8422_2325, step) % FOLDS).to_string()
}

fn family(seen: &Observation) -> String {
    seen.kind.split(" (").next().unwrap_or_default().to_string()
}

/// What a model is one size of: `resnet` of `resnet50`.
fn design(seen: &Observation) -> String {
    family(seen).trim_end_matches(|last: char| last.is_ascii_digit()).to_string()
}
