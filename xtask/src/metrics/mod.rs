//! The agent's metrics, held against programs of others, and what the agent costs: at rest, for a
//! scrape, and over a day of scrapes.

mod process;
mod readers;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fake_machine::{GpuSpec, MACHINE_VARIABLE, Machine, Process, instance_profiles};

use self::process::{Agent, Cost, Sleepers};
use crate::{Verdict, shell};

/// GPUs, and MIG devices of each.
const GPUS: usize = 8;
const DEVICES: usize = 7;

/// A day of scrapes at the 10 s that are usual.
const DAY: u32 = 8_640;
/// How long the agent is watched at rest, and between two scrapes.
const REST: (u32, Duration) = (3, Duration::from_secs(10));

/// Of one core, in percent, at rest.
const CPU_MAX: f64 = 0.5;
const RESIDENT_MAX_KIB: u64 = 25 * 1024;
const SCRAPE_MAX: Duration = Duration::from_millis(10);
/// Memory may settle by this much in a day; a leak of 100 bytes a scrape is more.
const GROWTH_MAX_KIB: u64 = 512;

/// Checks and measures; `quick` takes a tenth of the day.
pub(crate) fn run(quick: bool) -> Verdict {
    shell::cargo(&["build", "--quiet", "--release", "--package", "cli", "--package", "fake-nvml"])?;
    let built = shell::target().join("release");
    let sleepers = Sleepers::start(GPUS * DEVICES)?;
    let machine = machine(&sleepers.pids())?;
    let mut agent = readable(&built, &machine)?;
    let rest = rest(&mut agent)?;
    drop(agent);
    let mut agent = Agent::start(command(&built, &machine).args([
        "agent",
        "--listen",
        "127.0.0.1:0",
        "--interval",
        "0s",
    ]))?;
    let day = if quick { DAY / 10 } else { DAY };
    let day = day_of_scrapes(&mut agent, day);
    rest.and(day)
}

/// What the agent says is read by the programs of others; nothing is timed, and the program is the
/// one that tests use.
pub(crate) fn read_by_others() -> Verdict {
    let built = shell::target().join("debug");
    let sleepers = Sleepers::start(GPUS * DEVICES)?;
    readable(&built, &machine(&sleepers.pids())?).map(drop)
}

/// Starts the agent and has two scrapes read.
fn readable(built: &Path, machine: &Machine) -> Result<Agent, String> {
    let mut agent =
        Agent::start(command(built, machine).args(["agent", "--listen", "127.0.0.1:0"]))?;
    agent.scrape("")?;
    // Some figures are differences between two moments.
    std::thread::sleep(Duration::from_millis(1100));
    let text = agent.scrape("")?;
    let openmetrics = agent.scrape("application/openmetrics-text")?;
    println!("8 GPUs x 7 MIG devices: {} lines, {} bytes", text.lines().count(), text.len());
    readers::check(&text, &openmetrics)?;
    Ok(agent)
}

/// Eight GPUs of the kind with most counters, each with seven MIG devices and a process on each.
fn machine(pids: &[u32]) -> Result<Machine, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("simulated machine: {error}");
    let folder = shell::target().join("metrics/machine");
    let specs = GpuSpec::list("h100-80gb:8").map_err(|error| wrong(&error))?;
    let machine = Machine::create(folder, &specs).map_err(|error| wrong(&error))?;
    let profiles = instance_profiles("h100-80gb");
    let smallest = profiles.iter().find(|profile| profile.name == "1g.10gb");
    let smallest = smallest.ok_or("the fake has no profile 1g.10gb of h100-80gb")?.id;
    let divided = machine.edit(|state| {
        for (gpu, pids) in (0..).zip(pids.chunks(DEVICES)) {
            state.gpu_mut(gpu)?.set_mig(true)?;
            for (start, pid) in (0..).zip(pids) {
                let instance = state.create_instance(gpu, smallest, Some(start))?;
                let compute = state.create_compute(gpu, instance, 0, None)?;
                let process = Process::compute(*pid, 2048).busy(10);
                state.gpu_mut(gpu)?.add(process.on(instance, compute));
            }
        }
        Ok(())
    });
    divided.map_err(|error| wrong(&error))?;
    Ok(machine)
}

/// The program that lies in a folder, on the machine.
fn command(built: &Path, machine: &Machine) -> Command {
    let mut command = Command::new(built.join("hotpot"));
    command.env("HOTPOT_NVML", built.join("libhotpot_fake_nvml.so"));
    command.env(MACHINE_VARIABLE, machine.folder());
    command.env("HOTPOT_STATE_DIR", shell::target().join("metrics/state"));
    command
}

/// What the agent takes while it is scraped every 10 s.
fn rest(agent: &mut Agent) -> Result<Verdict, String> {
    let (scrapes, between) = REST;
    let (begun, before) = (Instant::now(), agent.cost()?);
    for _ in 0..scrapes {
        std::thread::sleep(between);
        agent.scrape("")?;
    }
    let after = agent.cost()?;
    let cpu = (after.cpu - before.cpu).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
    println!(
        "at rest, scraped every {} s: {cpu:.3} % of a core (at most {CPU_MAX}), {:.1} MiB resident \
         (at most {}), {} threads, {} descriptors",
        between.as_secs(),
        mib(after.resident_kib),
        RESIDENT_MAX_KIB / 1024,
        after.threads,
        after.descriptors,
    );
    Ok(held(cpu <= CPU_MAX, "the agent at rest takes too much of a core")
        .and(held(after.resident_kib <= RESIDENT_MAX_KIB, "the agent takes too much memory")))
}

/// A day's scrapes, one after the other.
fn day_of_scrapes(agent: &mut Agent, scrapes: u32) -> Verdict {
    let warm = scrapes / 10;
    let mut times = Vec::new();
    let mut before: Option<Cost> = None;
    for number in 0..warm + scrapes {
        if number == warm {
            before = Some(at_peace(agent)?);
        }
        let begun = Instant::now();
        agent.scrape("")?;
        times.push(begun.elapsed());
    }
    let (before, after) = (before.ok_or("no scrapes")?, at_peace(agent)?);
    let mut times = times.split_off(warm as usize);
    times.sort_unstable();
    let (median, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "{scrapes} scrapes: median {:.2} ms (at most {}), 99th percentile {:.2} ms, {:.2} ms CPU each",
        ms(median),
        SCRAPE_MAX.as_millis(),
        ms(late),
        ms(after.cpu - before.cpu) / f64::from(scrapes),
    );
    println!("          resident   threads  descriptors");
    for (when, cost) in [("before", &before), ("after", &after)] {
        let resident = mib(cost.resident_kib);
        println!("{when:<8} {resident:>6.2} MiB {:>9} {:>12}", cost.threads, cost.descriptors);
    }
    let grown = after.resident_kib.saturating_sub(before.resident_kib);
    held(median <= SCRAPE_MAX, "a scrape takes too long")?;
    held(grown <= GROWTH_MAX_KIB, "memory grows")?;
    held(after.threads <= before.threads, "threads grow")?;
    held(after.descriptors <= before.descriptors, "descriptors grow")
}

/// What it costs once the last connection is closed on its side too.
fn at_peace(agent: &Agent) -> Result<Cost, String> {
    std::thread::sleep(Duration::from_millis(200));
    agent.cost()
}

fn held(held: bool, otherwise: &str) -> Verdict {
    if held { Ok(()) } else { Err(format!("metrics: {otherwise}")) }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "a size in memory, to be printed")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}
