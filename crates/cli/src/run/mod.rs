//! `hotpot run`: jobs from files become processes on this machine.

pub(crate) mod order;
mod progress;
mod summary;

use local::clock::Clock;
use local::containment::{self, Containment};
use local::signals::Signals;
use local::{Choice, Devices, RunError, Runner, Settings, Work, prepare};
use node::machine::{Machine, MachineOptions};

use crate::args::{Output, Run};
use crate::failure::{Answer, Failure};
use crate::screen;
use crate::simulated::{self, Simulated};
use order::{Order, Remembered};
use progress::Progress;
pub(crate) use summary::seconds;

/// Between TERM and KILL, as in Slurm (slurm.conf manual, `KillWait`).
const GRACE_MS: u64 = 30_000;
/// vCPUs and memory booked for each simulated GPU.
const CPU_MILLI_PER_GPU: u64 = 16_000;
const MEMORY_MIB_PER_GPU: u64 = 128 * 1024;
/// Time between two looks for GPUs, with `--wait`.
const WAIT_STEP_MS: u64 = 1000;

pub(crate) fn run(options: &Run) -> Result<Answer, Failure> {
    let simulated = match options.resume {
        // Before files are read: a pipe can be read only once.
        None if !options.files.is_empty() => simulated::machine(options.simulate_gpus.as_deref())?,
        _ => None,
    };
    let order = Order::of(options)?;
    let simulated = match simulated {
        None => simulated::machine(order.remembered.simulate_gpus.as_deref())?,
        there => there,
    };
    order.tell();
    tell_how_to_watch(simulated.as_ref(), options);
    let folder = order.remembered.folder.clone();
    let policy = order.remembered.policy()?;
    // Numbers are given by the journal; all is looked at before, so that a file that makes no sense
    // leaves no trace.
    let mut work = Work::new(order.jobs.clone()).map_err(refused)?;
    let mut around = prepare::surroundings();
    prepare::look_at_folders(&work, &around, &folder).map_err(refused)?;
    // Before the driver's threads are there: they must not hear signals in our place.
    let signals = Signals::take().map_err(refused)?;
    let Some(devices) = devices(options, &order, simulated.as_ref(), &signals)? else {
        return Ok(Answer::No);
    };
    let (mut journal, first) = order.begin(work.tasks.len())?;
    around.run = containment::name(journal.run(), std::process::id());
    work.number_from(first);
    order.take_up(&mut work, options.retry_failed);
    let spool = prepare::folder(&order.state, journal.run());
    let ready = prepare::spool(&mut work, &mut around, &spool);
    let containment = Containment::new(around.run.clone());
    let ready = ready.and_then(|()| journal.held_in(containment.folder()));
    if let Err(error) = ready {
        let _ = journal.finish(Clock::calendar_ms());
        return Err(refused(error));
    }
    let settings =
        Settings { policy, folder, state: order.state.clone(), ..booked(&order, &devices) };
    let settings = Settings { simulated: simulated.is_some(), ..settings };
    let mut progress = Progress::new(options.output.output == Output::Json || options.quiet);
    let books = (journal, around, devices);
    let runner = Runner::new(work, books, (settings, containment), (signals, &mut progress));
    let summary = runner.run();
    progress.finish();
    if summary.left == 0 {
        let _ = std::fs::remove_dir_all(&spool);
    }
    let text = match options.output.output {
        Output::Table => summary::table(&summary),
        Output::Json => crate::words::to_json(&summary),
    };
    screen::print(&text)?;
    Ok(if summary.done == summary.tasks && summary.recorded { Answer::Yes } else { Answer::No })
}

/// A second command sees the run's simulated GPUs only if it is told where they are.
fn tell_how_to_watch(simulated: Option<&Simulated>, options: &Run) {
    if let Some(simulated) = simulated.filter(|_| !options.quiet) {
        let folder = simulated.folder().display();
        screen::note(&format!("watch it with: hotpot top --simulate-gpus {folder}"));
    }
}

/// The GPUs that the run may use; `None` if someone stopped the wait for them.
fn devices(
    options: &Run,
    order: &Order,
    simulated: Option<&Simulated>,
    signals: &Signals,
) -> Result<Option<Devices>, Failure> {
    let needed = order.jobs.iter().any(|job| job.pattern.demand.gpus.is_some());
    if !needed && order.remembered.devices.is_empty() {
        return Ok(Some(Devices::none()));
    }
    let choice = Choice {
        indices: order.remembered.devices.clone(),
        who: format!("hotpot run (process {})", std::process::id()),
    };
    let mut told = false;
    loop {
        let state = simulated.map_or(order.state.as_path(), Simulated::folder).to_path_buf();
        let machine = Machine::open(MachineOptions {
            state: Some(state),
            cgroup_parent: containment::folder_of_runs(),
            ..Default::default()
        });
        let machine = machine.map_err(|error| Failure::Machine(error.to_string()))?;
        match Devices::of(machine, &choice) {
            Ok((devices, left_out)) => {
                left_out.iter().for_each(|why| screen::note(&format!("left out: {why}")));
                return Ok(Some(devices));
            }
            Err(RunError::Busy(why)) if options.wait => {
                if !std::mem::replace(&mut told, true) {
                    screen::note(&format!("waiting: {why}"));
                }
                signals.wait(WAIT_STEP_MS);
                if !signals.stops().is_empty() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(refused(error)),
        }
    }
}

/// What the machine has for tasks beside GPUs, as far as the options leave it open.
fn booked(order: &Order, devices: &Devices) -> Settings {
    let Remembered { cpus: told_cpus, memory_mib: told_mib, grace_ms, .. } = order.remembered;
    let simulated = order.remembered.simulate_gpus.is_some();
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let gpus = devices.gpu_count() as u64;
    let (cpu_milli, memory_mib) = match simulated && gpus > 0 {
        true => (gpus * CPU_MILLI_PER_GPU, gpus * MEMORY_MIB_PER_GPU),
        false => (cpus * 1000, order::main_memory_mib()),
    };
    Settings {
        policy: model::Policy::new(model::Placement::Hotpot),
        grace_ms: grace_ms.unwrap_or(GRACE_MS),
        cpu_milli: told_cpus.map_or(cpu_milli, |cpus| u64::from(cpus) * 1000),
        memory_mib: told_mib.unwrap_or(memory_mib),
        folder: Default::default(),
        state: Default::default(),
        simulated,
    }
}

pub(crate) fn refused(error: RunError) -> Failure {
    match error {
        RunError::NoSuchJob { .. } | RunError::Circle { .. } | RunError::Gang { .. } => {
            Failure::Usage(error.to_string())
        }
        RunError::File { .. }
        | RunError::Journal(_)
        | RunError::Gpus(_)
        | RunError::Busy(_)
        | RunError::Resume(_)
        | RunError::System { .. } => Failure::Machine(error.to_string()),
    }
}
