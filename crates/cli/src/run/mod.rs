//! `hotpot run`: jobs from files become processes on this machine.

mod order;
mod progress;
mod summary;

use std::time::Duration;

use local::{Choice, Devices, RunError, Runner, Settings, Work, prepare};
use node::machine::{Machine, MachineError, MachineOptions};

use crate::args::{Output, Run};
use crate::failure::{Answer, Failure};
use crate::simulated::{self, Simulated};
use crate::{inputs, screen};
use order::{Order, Remembered};
use progress::Progress;

/// Between TERM and KILL, as in Slurm (slurm.conf manual, `KillWait`).
const GRACE_MS: u64 = 30_000;
/// vCPUs and memory booked for each simulated GPU.
const CPU_MILLI_PER_GPU: u64 = 16_000;
const MEMORY_MIB_PER_GPU: u64 = 128 * 1024;
/// Time between two looks for GPUs, with `--wait`.
const WAIT_STEP: Duration = Duration::from_secs(1);

pub(crate) fn run(options: &Run) -> Result<Answer, Failure> {
    let order = Order::of(options)?;
    let simulated = simulated::machine(order.remembered.simulate_gpus.as_deref())?;
    order.tell();
    let Remembered { policy, policy_file, folder, .. } = &order.remembered;
    let policy = inputs::policy(policy_file.as_deref(), policy.as_deref(), None)?;
    // Numbers are given by the journal; all is looked at before, so that a file that makes no sense
    // leaves no trace.
    let draft = Work::new(order.jobs.clone(), 1).map_err(refused)?;
    prepare::look_at_folders(&draft, &prepare::surroundings(0), folder).map_err(refused)?;
    let devices = devices(options, &order, simulated.as_ref())?;
    let (journal, first) = order.begin(draft.tasks.len())?;
    let mut around = prepare::surroundings(journal.run());
    let mut work = order.work(first, options.retry_failed)?;
    let spool = prepare::folder(&order.state, journal.run());
    prepare::spool(&mut work, &mut around, &spool).map_err(refused)?;
    let settings = Settings {
        policy,
        folder: folder.clone(),
        state: order.state.clone(),
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
    order: &Order,
    simulated: Option<&Simulated>,
) -> Result<Devices, Failure> {
    let needed = order.jobs.iter().any(|job| job.pattern.demand.gpus.is_some());
    if !needed && order.remembered.devices.is_empty() {
        return Ok(Devices::none());
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

/// What the machine has for tasks beside GPUs, as far as the options leave it open.
fn booked(options: &Run, devices: &Devices, simulated: bool) -> Settings {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let gpus = devices.gpu_count() as u64;
    let (cpu_milli, memory_mib) = match simulated && gpus > 0 {
        true => (gpus * CPU_MILLI_PER_GPU, gpus * MEMORY_MIB_PER_GPU),
        false => (cpus * 1000, order::main_memory_mib()),
    };
    Settings {
        policy: model::Policy::new(model::Placement::Hotpot),
        grace_ms: options.grace.unwrap_or(GRACE_MS),
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
