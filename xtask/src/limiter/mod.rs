//! `cargo xtask limiter`: what the limiter costs and what it holds, on a simulated GPU with real processes.

mod floor;
mod library;
mod shares;

use std::fs;
use std::path::Path;
use std::time::Duration;

use caps::ComputeCap;

use crate::gpu::bench::Bench;
use crate::gpu::price::{self, Price, starts};
use crate::gpu::simulated::Simulated;
use crate::gpu::table::Table;
use crate::{Verdict, shell};

/// What a call may cost more at most, p50 in ns.
const CALLS_MAX: [(&str, f64); 2] = [("alloc", 300.0), ("launch", 100.0)];
/// What starting a program may cost more at most, in ms of CPU.
const START_MAX_MS: f64 = 1.0;
/// From this load on others' work shows in prices.
const BUSY: f64 = 0.7;
/// Shares with `--quick` are measured so long, in ms.
const QUICK_MS: u64 = 3_000;

/// * `quick` — fewer rounds, two splits of shares, no build for old C libraries.
pub(crate) fn run(quick: bool) -> Verdict {
    let before = load();
    shell::cargo(&[
        "build",
        "--release",
        "--quiet",
        "-p",
        "limiter",
        "-p",
        "fake-cuda",
        "-p",
        "fake-nvml",
        "-p",
        "fake-tools",
    ])?;
    let (built, folder) = (shell::target().join("release"), shell::target().join("limiter"));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let simulated = Simulated::make(&built, &folder, "a100-80gb:1")?;
    let mut bench = Bench::make(&built, folder.clone(), simulated.environment.clone())?;
    if quick {
        bench.measure_ms = QUICK_MS;
    }
    let mut missed = Vec::new();
    overhead(&bench, quick, &mut missed)?;
    preload(&bench, quick, &mut missed)?;
    library::check(&bench.limiter, &mut missed)?;
    if !quick {
        library::old_systems(&floor::build()?, &mut missed)?;
    }
    shares::run(&bench, &simulated.machine, quick, &mut missed)?;
    tidy_away(&folder);
    if missed.is_empty() {
        return Ok(());
    }
    Err(format!("missed: {}{}", missed.join("; "), busy(before)))
}

/// Processes that ran or wanted to run in the last minute (proc(5), `loadavg`).
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// What others' work may have to do with a price that is missed.
fn busy(load: f64) -> String {
    if load < BUSY {
        return String::new();
    }
    format!(
        "; the load was {load} before this began: prices are those of a quiet machine, try again"
    )
}

fn tidy_away(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
}

/// Calls with and without the limiter.
fn overhead(bench: &Bench, quick: bool, missed: &mut Vec<String>) -> Verdict {
    bench.begin(Duration::from_secs(300));
    let mut table = Table::new("Calls on the simulated driver", &Price::HEAD);
    let rounds = if quick { 60 } else { 200 };
    for (name, compute) in [("memory", None), ("memory and compute", Some(ComputeCap::of(1000)))] {
        for price in price::calls(bench, compute, 500, rounds)? {
            table.row(price.row(name));
            let most = CALLS_MAX.iter().find(|(call, _)| *call == price.call);
            if most.is_some_and(|(_, most)| price.quiet > *most) {
                missed.push(format!("{} costs {:.0} ns more ({name})", price.call, price.quiet));
            }
        }
    }
    println!(
        "{}wanted at most, in quiet rounds: 300 ns more for an allocation, 100 ns for a launch (p50)\n",
        table.text()
    );
    Ok(())
}

/// What a program pays that never uses a GPU.
fn preload(bench: &Bench, quick: bool, missed: &mut Vec<String>) -> Verdict {
    let (without, with) = starts(bench, if quick { 100 } else { 500 })?;
    let more = with - without;
    println!(
        "starting /bin/true: {without:.3} ms of CPU, {with:.3} ms with the limiter preloaded: \
         {more:+.3} ms; wanted at most {START_MAX_MS} ms\n"
    );
    if more > START_MAX_MS {
        missed.push(format!("preloading costs {more:.3} ms of CPU"));
    }
    Ok(())
}
