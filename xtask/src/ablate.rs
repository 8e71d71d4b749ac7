//! What each term of the policy `hotpot` is good for: the policy without it, against FGD.

use model::{HotpotTerms, Placement, Policy};
use simulator::outcome::Outcome;

use crate::compare::mean;
use crate::openb::{self, Experiment, SEEDS};
use crate::reproduce::replay;
use crate::{Verdict, parallel};

const WORKLOADS: [&str; 5] = ["default", "cpu250", "gpushare100", "gpuspec33", "multigpu50"];
const POINTS: [u64; 3] = [95, 100, 130];

pub(crate) fn run(quick: bool) -> Verdict {
    let folder = openb::folder_or_why()?;
    let seeds: Vec<u64> = SEEDS.take(if quick { 3 } else { usize::MAX }).collect();
    println!(
        "allocation less that of fgd at 95/100/130 % arrived, mean of {} seeds\n",
        seeds.len()
    );
    print!("{:<28}", "");
    WORKLOADS.iter().for_each(|workload| print!(" {workload:>20}"));
    println!();
    let mut columns = Vec::new();
    for workload in WORKLOADS {
        let experiment = Experiment::read(&folder, workload)?;
        columns.push(column(&experiment, &seeds)?);
    }
    for (row, (label, _)) in variants().iter().enumerate() {
        print!("{label:<28}");
        columns.iter().for_each(|column| print!(" {:>20}", column[row]));
        println!();
    }
    Ok(())
}

/// The policy, and the policy with one term taken out or changed.
fn variants() -> Vec<(&'static str, HotpotTerms)> {
    let all = HotpotTerms::default();
    vec![
        ("hotpot", all),
        ("without vCPUs", HotpotTerms { cpu_margin_max_milli: 0, ..all }),
        ("without margin on vCPUs", HotpotTerms { cpu_margin_max_milli: 1000, ..all }),
        ("without scarcity", HotpotTerms { scarcity_milli: 0, ..all }),
        ("without block", HotpotTerms { block_milli: 0, ..all }),
        ("without wide", HotpotTerms { wide_milli: 0, ..all }),
        ("hardly any doubt (0.001)", HotpotTerms { doubt_milli: 1, ..all }),
        ("much doubt (5)", HotpotTerms { doubt_milli: 5000, ..all }),
        ("fine steps (0.001 GPU)", HotpotTerms { step_milli: 1, ..all }),
        ("coarse steps (0.04 GPU)", HotpotTerms { step_milli: 40, ..all }),
    ]
}

fn column(experiment: &Experiment, seeds: &[u64]) -> Result<Vec<String>, String> {
    let fgd = parallel::run(seeds, |seed| replay(experiment, "fgd", *seed, &mut ()))?;
    let variants = variants();
    let jobs: Vec<(HotpotTerms, u64)> =
        variants.iter().flat_map(|(_, terms)| seeds.iter().map(|seed| (*terms, *seed))).collect();
    let runs = parallel::run(&jobs, |(terms, seed)| {
        let policy = Policy { hotpot: *terms, ..Policy::new(Placement::Hotpot) };
        experiment.run(policy, *seed, &mut ())
    })?;
    let cell = |runs: &[Outcome]| {
        let gains = POINTS.map(|at| format!("{:+.2}", mean(runs, at) - mean(&fgd, at)));
        gains.join("/")
    };
    Ok(runs.chunks(seeds.len()).map(cell).collect())
}
