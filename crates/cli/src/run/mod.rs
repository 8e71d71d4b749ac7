//! `hotpot run`: jobs from files become processes on this machine.

mod options;
mod progress;
mod summary;

use std::path::Path;
use std::time::Duration;

use local::journal::{self, Journal, NewRun};
use local::{Choice, Devices, RunError, Runner, Settings, Work, prepare};
use node::machine::{Machine, MachineError, MachineOptions};
use node::state_dir;

use crate::args::{Output, Run};
use crate::failure::{Answer, Failure};
use crate::simulated::{self, Simulated};
use crate::{inputs, screen};
use options::Remembered;
use progress::Progress;

/// vCPUs and memory booked for each simulated GPU.
const CPU_MILLI_PER_GPU: u64 = 16_000;
const MEMORY_MIB_PER_GPU: u64 = 128 * 1024;
/// Time between two looks for GPUs, with `--wait`.
const WAIT_STEP: Duration = Duration::from_secs(1);

/// Files by name, and the jobs in them.
struct Read {
    texts: Vec<(String, String)>,
    jobs: Vec<formats::Job>,
}

pub(crate) fn run(options: &Run) -> Result<Answer, Failure> {
    let state = state_dir::state_dir().map_err(|error| Failure::Machine(error.to_string()))?;
    let book = state.join("state.db");
    let earlier = match &options.resume {
        Some(run) => Some(options::earlier(&book, *run, options.retry_failed)?),
        None => None,
    };
    let remembered = match &earlier {
        Some(earlier) => earlier.remembered.clone(),
        None => Remembered::of(options)?,
    };
    let read = match &earlier {
        Some(earlier) => options::jobs_of(&earlier.files)?,
        None => options::jobs_in(&options.files)?,
    };
    let simulated = simulated::machine(remembered.simulate_gpus.as_deref())?;
    let policy =
        inputs::policy(remembered.policy_file.as_deref(), remembered.policy.as_deref(), None)?;
    let base = remembered.folder.clone();
    let asks_for_gpus = read.jobs.iter().any(|job| job.pattern.demand.gpus.is_some());
    // Numbers are given by the journal; the work is tied together first, so that a file that makes
    // no sense leaves no trace.
    let mut work = Work::new(read.jobs.clone(), 1).map_err(refused)?;
    let devices = devices(options, &remembered, simulated.as_ref(), (&state, asks_for_gpus))?;
    let (journal, first) = begin(&book, &read, &remembered, earlier.as_ref(), work.tasks.len())?;
    if first != 1 {
        work = Work::new(read.jobs, first).map_err(refused)?;
    }
    if let Some(earlier) = &earlier {
        options::take_up(&mut work, earlier, options.retry_failed);
    }
    let mut around = prepare::surroundings(journal.run());
    prepare::look_at_folders(&work, &around, &base).map_err(refused)?;
    prepare::spool(&mut work, &mut around, &prepare::folder(&state, journal.run()))
        .map_err(refused)?;
    let settings = Settings {
        policy,
        grace_ms: options.grace.unwrap_or(30_000),
        folder: base,
        state,
        simulated: simulated.is_some(),
        ..booked(options, &devices, simulated.is_some())
    };
    let mut progress = Progress::new(options.output.output == Output::Json || options.quiet);
    let runner = Runner::new(work, (journal, around, devices), settings, &mut progress);
    let summary = runner.and_then(Runner::run).map_err(refused)?;
    progress.finish();
    let text = match options.output.output {
        Output::Table => summary::table(&summary),
        Output::Json => crate::words::to_json(&summary),
    };
    screen::print(&text)?;
    Ok(if summary.done == summary.tasks { Answer::Yes } else { Answer::No })
}

/// The GPUs that the run may use.
fn devices(
    options: &Run,
    remembered: &Remembered,
    simulated: Option<&Simulated>,
    (state, needed): (&Path, bool),
) -> Result<Devices, Failure> {
    if !needed && options.devices.is_empty() {
        return Ok(Devices::none());
    }
    let choice = Choice {
        indices: remembered.devices.clone(),
        who: format!("hotpot run (process {})", std::process::id()),
    };
    let mut told = false;
    loop {
        let state = simulated.map_or(state, Simulated::folder).to_path_buf();
        let machine = Machine::open(MachineOptions {
            state: Some(state),
            cgroup_parent: local::containment::for_caps(),
            ..Default::default()
        });
        let found = machine
            .map_err(no_machine)
            .and_then(|machine| Devices::of(machine, &choice).map_err(refused));
        match found {
            Ok((devices, left_out)) => {
                left_out.iter().for_each(|why| screen::note(&format!("left out: {why}")));
                return Ok(devices);
            }
            Err(Failure::Machine(why))
                if options.wait && why.ends_with(local::devices::BUSY_WAY_OUT) =>
            {
                if !std::mem::replace(&mut told, true) {
                    screen::note(&format!("waiting: {why}"));
                }
                std::thread::sleep(WAIT_STEP);
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn no_machine(error: MachineError) -> Failure {
    Failure::Machine(error.to_string())
}

/// Enters the run in the journal, or takes over the one that is continued.
fn begin(
    book: &Path,
    read: &Read,
    remembered: &Remembered,
    earlier: Option<&options::Earlier>,
    tasks: usize,
) -> Result<(Journal, u64), Failure> {
    let pid = std::process::id();
    let start_ticks = local::containment::start_ticks_of(pid).unwrap_or(0);
    if let Some(earlier) = earlier {
        let journal = Journal::take_over(book, earlier.row.run, pid, start_ticks);
        return Ok((journal.map_err(refused)?, earlier.row.first_number));
    }
    let new = NewRun {
        folder: &remembered.folder,
        options: &serde_json::to_string(remembered).unwrap_or_default(),
        files: &read.texts,
        tasks: tasks as u64,
        pid,
        start_ticks,
        at_ms: local::clock::Clock::calendar_ms(),
    };
    journal::Journal::begin(book, &new).map_err(refused)
}

/// What the machine has for tasks beside GPUs, as far as the options leave it open.
fn booked(options: &Run, devices: &Devices, simulated: bool) -> Settings {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let gpus = devices.gpu_count() as u64;
    let (cpu_milli, memory_mib) = match simulated && gpus > 0 {
        true => (gpus * CPU_MILLI_PER_GPU, gpus * MEMORY_MIB_PER_GPU),
        false => (cpus * 1000, options::main_memory_mib()),
    };
    Settings {
        policy: model::Policy::new(model::Placement::Hotpot),
        grace_ms: 0,
        cpu_milli: options.cpus.map_or(cpu_milli, |cpus| u64::from(cpus) * 1000),
        memory_mib: options.memory.unwrap_or(memory_mib),
        folder: Default::default(),
        state: Default::default(),
        simulated,
    }
}

fn refused(error: RunError) -> Failure {
    match error {
        RunError::NoSuchJob { .. } | RunError::Circle { .. } | RunError::Gang { .. } => {
            Failure::Usage(error.to_string())
        }
        RunError::File { .. }
        | RunError::Journal { .. }
        | RunError::Gpus(_)
        | RunError::Busy(_)
        | RunError::Resume(_)
        | RunError::System { .. } => Failure::Machine(error.to_string()),
    }
}
