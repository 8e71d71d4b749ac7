//! Anything in any order: a client calls every function that the limiter stands before with arguments that
//! are right, stale, of a wrong kind, null or far too large, while its files are filled with nonsense.
//!
//! A seed is first run without the limiter: what crashes then is the simulated driver's fault.
//! `HOTPOT_FUZZ_SECONDS=600 HOTPOT_FUZZ_SEED=1 cargo test -p limiter --test fuzz -- --ignored` runs longer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]
#![allow(clippy::print_stdout, reason = "a test")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test")]

#[path = "fuzz/run.rs"]
mod run;
#[path = "fuzz/spoil.rs"]
mod spoil;
mod support;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use run::{Machine, Plan, Spoiled};

/// Seeds of the runs that everybody makes.
const SEEDS: std::ops::Range<u64> = 1..7;

/// The ways to run a seed.
fn plans() -> [Plan; 6] {
    let plan =
        Plan { how: "", machine: Machine::Two, caps: "", clients: 1, spoiled: Spoiled::Nothing };
    let memory = "memory = 3221225472\ncontext = 67108864\n";
    let both = "memory = 3221225472\ncontext = 67108864\ncompute = 500\n";
    [
        Plan { how: "fqw", caps: memory, ..plan },
        Plan { how: "tfqwx", caps: both, ..plan },
        Plan { how: "tfqw", caps: both, clients: 2, ..plan },
        Plan { how: "tfqw", caps: both, machine: Machine::Mig, ..plan },
        Plan { how: "tfq", caps: "memory = 536870912\ncompute = 300\n", ..plan },
        Plan { how: "tfq", caps: both, clients: 2, spoiled: Spoiled::Files, ..plan },
    ]
}

/// The functions that the library stands before.
fn hooks() -> BTreeSet<String> {
    let library = support::limiter();
    let said = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let names = said.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned());
    names.filter(|name| !name.starts_with("dl")).collect()
}

#[test]
fn nothing_breaks_it_and_every_hook_is_reached() {
    let mut reached = BTreeSet::new();
    for seed in SEEDS {
        for (at, plan) in plans().into_iter().enumerate() {
            reached.extend(run::run(plan, seed * 100 + at as u64, 1500));
        }
    }
    let missed: Vec<_> = hooks().into_iter().filter(|name| !reached.contains(name)).collect();
    assert!(missed.is_empty(), "never called: {missed:?}");
}

#[test]
fn without_caps_the_driver_answers_as_without_the_limiter() {
    for seed in SEEDS {
        run::same_with_and_without(seed, 2000);
    }
}

#[test]
#[ignore = "for as long as HOTPOT_FUZZ_SECONDS says"]
fn for_a_long_time() {
    let number = |name: &str, usual| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let first = number("HOTPOT_FUZZ_SEED", 1000);
    let until = Instant::now() + Duration::from_secs(number("HOTPOT_FUZZ_SECONDS", 60));
    for seed in first.. {
        if Instant::now() >= until {
            println!("seeds {first} to {}", seed - 1);
            break;
        }
        for (at, plan) in plans().into_iter().enumerate() {
            run::run(plan, seed * 100 + at as u64, 4000);
        }
        run::same_with_and_without(seed, 4000);
    }
}
