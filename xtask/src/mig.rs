//! Acceptance of MIG requests: by first fit, by best fit, by the engine, and at best.
//!
//! The runs themselves are those of the engine's test `mig_acceptance`; here they are longer and
//! printed.

use std::fmt::Write;

use crate::Verdict;
use optimum::Goal;
use requests::{MIXES, Mix, Stream, geometry};
use rules::Rule;
use runs::{Load, Outcome};

#[path = "../../crates/engine/tests/mig/optimum.rs"]
mod optimum;
#[path = "../../crates/engine/tests/mig/requests.rs"]
pub(crate) mod requests;
#[path = "../../crates/engine/tests/mig/rules.rs"]
mod rules;
#[path = "../../crates/engine/tests/mig/runs.rs"]
mod runs;

const GPUS: u64 = 100;
const SEEDS: std::ops::RangeInclusive<u64> = 1..=20;
const LOADS: [(&str, Load); 4] = [
    ("fill, 100 % asked", Load::Fill(100)),
    ("fill, 110 % asked", Load::Fill(110)),
    ("steady state, 90 % asked", Load::Steady(90)),
    ("steady state, 110 % asked", Load::Steady(110)),
];
/// GPUs and requests of the small fleets.
const SMALL: [(u64, usize); 4] = [(2, 8), (3, 10), (4, 12), (4, 20)];

pub(crate) fn run() -> Verdict {
    println!("{}", table()?);
    Ok(())
}

/// Both comparisons as plain text.
pub(crate) fn table() -> Result<String, String> {
    let mut text = String::new();
    large(&mut text).map_err(|error| error.to_string())?;
    small(&mut text)?;
    Ok(text)
}

fn large(text: &mut String) -> std::fmt::Result {
    writeln!(
        text,
        "{GPUS} A100-80GB, seeds {} to {}: mean ± standard deviation",
        SEEDS.start(),
        SEEDS.end()
    )?;
    writeln!(text, "accepted: % of requests; held: % of the fleet's compute and memory slices")?;
    for (title, load) in LOADS {
        write!(text, "\n{title:<26}")?;
        for rule in Rule::ALL {
            write!(text, "  {:<25}", rule.name())?;
        }
        write!(text, "\n{:<26}", "")?;
        for _ in Rule::ALL {
            write!(text, "  {:<12} {:<12}", "accepted", "held")?;
        }
        for mix in &MIXES {
            write!(text, "\n  {:<24}", mix.name)?;
            for rule in Rule::ALL {
                let outcomes: Vec<_> =
                    SEEDS.map(|seed| runs::run(rule, mix, load, GPUS, seed)).collect();
                write!(text, "  {}", spread(&outcomes))?;
            }
        }
        writeln!(text)?;
    }
    Ok(())
}

fn spread(outcomes: &[Outcome]) -> String {
    let of = |value: fn(&Outcome) -> f64| {
        let count = outcomes.len() as f64;
        let mean = outcomes.iter().map(value).sum::<f64>() / count;
        let variance = outcomes.iter().map(|o| (value(o) - mean).powi(2)).sum::<f64>() / count;
        format!("{mean:5.2} ± {:<4.2}", variance.sqrt())
    };
    format!("{} {}", of(|o| o.accepted), of(|o| o.held))
}

fn small(text: &mut String) -> Result<(), String> {
    let words = |error: std::fmt::Error| error.to_string();
    writeln!(
        text,
        "\nsmall fleets, seeds {} to {}: accepted in % of the exact optimum",
        SEEDS.start(),
        SEEDS.end()
    )
    .map_err(words)?;
    writeln!(text, "(the optimum sees all requests at once and may leave any out)\n")
        .map_err(words)?;
    write!(text, "{:<16} {:>5} {:>9}", "mix", "GPUs", "requests").map_err(words)?;
    for goal in ["requests", "slices"] {
        for rule in [Rule::FirstFit, Rule::Hotpot] {
            write!(text, "  {:>18}", format!("{} {goal}", rule.name())).map_err(words)?;
        }
    }
    writeln!(text).map_err(words)?;
    for mix in &MIXES {
        for (gpus, count) in SMALL {
            let row = against_optimum(mix, gpus, count)?;
            writeln!(text, "{:<16} {gpus:>5} {count:>9}{row}", mix.name).map_err(words)?;
        }
    }
    Ok(())
}

fn against_optimum(mix: &Mix, gpus: u64, count: usize) -> Result<String, String> {
    let geometry = geometry();
    let mut sums = [[0; 3]; 2];
    for seed in SEEDS {
        let mut stream = Stream::new(&geometry, mix, seed);
        let requests: Vec<_> = (0..count).map(|_| stream.next()).collect();
        for (at, rule) in [Rule::FirstFit, Rule::Hotpot].into_iter().enumerate() {
            let (accepted, slices) = runs::take(rule, &requests, gpus);
            sums[0][at] += accepted;
            sums[1][at] += slices;
        }
        sums[0][2] += optimum::best(&geometry, &requests, gpus, Goal::Requests)?;
        sums[1][2] += optimum::best(&geometry, &requests, gpus, Goal::Slices)?;
    }
    let part = |part: u64, best: u64| format!("  {:>18.1}", part as f64 * 100.0 / best as f64);
    Ok(sums.map(|[first, ours, best]| part(first, best) + &part(ours, best)).concat())
}
