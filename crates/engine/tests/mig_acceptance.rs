//! MIG placement by the engine: never worse than first fit over many requests, never better than
//! possible, and near the best that is possible.
//!
//! `cargo xtask mig` prints the same comparison at full length.

use engine::best_start;
use model::{MigGeometry, MigLayout};

#[path = "mig/optimum.rs"]
mod optimum;
#[path = "mig/requests.rs"]
mod requests;
#[path = "mig/rules.rs"]
mod rules;
#[path = "mig/runs.rs"]
mod runs;

use optimum::Goal;
use requests::{MIXES, Mix, Request, Stream, geometry};
use rules::Rule;
use runs::{Load, Outcome};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;

/// Share of the optimum's slices and requests that the engine has to reach on every mix. The
/// optimum for requests leaves the large ones out, which nobody can who takes them as they come.
const SLICES_OF_OPTIMUM: f64 = 0.88;
const REQUESTS_OF_OPTIMUM: f64 = 0.70;

/// Requests for the named profiles, in this order.
fn asked(geometry: &MigGeometry, names: &[&str]) -> Vec<Request> {
    let request = |name: &&str| {
        let profile = geometry.find(name).expect("a profile of the A100");
        Request { profile, slices: 1, stays: u64::MAX }
    };
    names.iter().map(request).collect()
}

/// Mean percent of requests accepted and of slices held.
fn means(rule: Rule, mix: &Mix, load: Load) -> (f64, f64) {
    let outcomes: Vec<_> = SEEDS.map(|seed| runs::run(rule, mix, load, 40, seed)).collect();
    let mean = |value: fn(&Outcome) -> f64| {
        outcomes.iter().map(value).sum::<f64>() / outcomes.len() as f64
    };
    (mean(|outcome| outcome.accepted), mean(|outcome| outcome.held))
}

#[test]
fn accepts_no_less_than_first_fit() {
    for mix in &MIXES {
        for (name, load) in [("fill", Load::Fill(100)), ("steady", Load::Steady(100))] {
            let (first, first_held) = means(Rule::FirstFit, mix, load);
            let (ours, held) = means(Rule::Hotpot, mix, load);
            assert!(ours >= first, "{}, {name}: {ours:.2} %, first fit {first:.2} %", mix.name);
            assert!(held >= first_held, "{}, {name}: {held:.2}, {first_held:.2}", mix.name);
        }
    }
}

/// Requests and slices that the engine took, each as a share of the most that was possible;
/// nobody takes more than is possible.
fn of_optimum(mix: &Mix) -> (f64, f64) {
    let geometry = geometry();
    let (mut ours, mut best) = ((0, 0), (0, 0));
    for (seed, (gpus, count)) in SEEDS.flat_map(|seed| [(seed, (2, 8)), (seed, (3, 10))]) {
        let mut stream = Stream::new(&geometry, mix, seed);
        let requests: Vec<_> = (0..count).map(|_| stream.next()).collect();
        let most = |goal| optimum::best(&geometry, &requests, gpus, goal).expect("solved");
        let most = (most(Goal::Requests), most(Goal::Slices));
        for rule in Rule::ALL {
            let taken = runs::take(rule, &requests, gpus);
            let possible = taken.0 <= most.0 && taken.1 <= most.1;
            assert!(possible, "{} on {}, seed {seed}", rule.name(), mix.name);
        }
        let taken = runs::take(Rule::Hotpot, &requests, gpus);
        ours = (ours.0 + taken.0, ours.1 + taken.1);
        best = (best.0 + most.0, best.1 + most.1);
    }
    (ours.0 as f64 / best.0 as f64, ours.1 as f64 / best.1 as f64)
}

#[test]
fn stays_within_its_bound_of_the_optimum() {
    for mix in &MIXES {
        let (requests, slices) = of_optimum(mix);
        println!("{:<16} {requests:.3} of the requests, {slices:.3} of the slices", mix.name);
        assert!(requests >= REQUESTS_OF_OPTIMUM, "{}: {requests:.3}", mix.name);
        assert!(slices >= SLICES_OF_OPTIMUM, "{}: {slices:.3}", mix.name);
    }
}

#[test]
fn finds_a_start_where_there_is_one() {
    let geometry = geometry();
    for layout in geometry.layouts() {
        for (index, _) in geometry.indexed() {
            let free = geometry.free_starts(&layout, index);
            match best_start(&geometry, &layout, index) {
                Some(start) => assert!(free & (1 << start) != 0, "{layout:?} {index:?} {start}"),
                None => assert_eq!(free, 0, "{layout:?} {index:?}"),
            }
        }
    }
}

#[test]
fn leaves_the_start_of_the_large_profiles_free() {
    let geometry = geometry();
    for (name, expected) in [("1g.10gb", 6), ("1g.20gb", 6), ("2g.20gb", 4), ("3g.40gb", 4)] {
        let index = geometry.find(name).expect("a profile of the A100");
        let start = best_start(&geometry, &MigLayout::default(), index);
        assert_eq!(start, Some(expected), "{name}");
    }
}

#[test]
fn small_instances_gather_and_3g_waits_for_4g() {
    let geometry = geometry();
    let stories: [(&[&str], u64); 3] = [
        (&["1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"], 2),
        (&["3g.40gb", "4g.40gb", "7g.80gb"], 2),
        (&["3g.40gb", "3g.40gb", "4g.40gb", "4g.40gb"], 2),
    ];
    for (names, gpus) in stories {
        let (accepted, _) = runs::take(Rule::Hotpot, &asked(&geometry, names), gpus);
        assert_eq!(accepted, names.len() as u64, "{names:?}");
    }
}
