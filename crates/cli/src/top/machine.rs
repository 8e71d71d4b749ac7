//! Pictures of this machine, from its driver.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use node::driver::{Driver, DriverError};
use node::inventory::Inventory;
use node::live::{self, LiveTask, Published};
use node::mps;
use node::procfs::Procfs;
use node::sample::Sample;
use node::sampler::{PROFILE_PERIOD, Sampler};
use node::tenant::{Tenant, Tenants};

use super::parts::Held;
use super::source::{Round, Source, Whom};
use super::{Picture, Shown, pot};

const DRIVER: Whom = Whom {
    name: "the driver",
    way_out: "look at the kernel's log (dmesg)",
    silence: Duration::from_secs(5),
};
/// The inventory changes rarely and is dear to read; instances and processes are in every sample.
const INVENTORY_EVERY: Duration = Duration::from_secs(10);

/// Pictures of this machine, every `interval`.
pub(super) fn source(interval: Duration) -> Source {
    // A driver that fails as a whole is opened anew.
    Source::start(interval, DRIVER, move |sender| {
        measure(interval, sender).map_err(|error| error.to_string())
    })
}

fn measure(interval: Duration, sender: &SyncSender<Round>) -> Result<(), DriverError> {
    let driver = Driver::open()?;
    // Without a state folder no task has a name; the GPUs can be seen all the same.
    let state = node::state_dir::state_dir().unwrap_or_else(|_| "/dev/null".into());
    let mut sampler = Sampler::new(&driver, Tenants::new(&state))?;
    let (mut inventory, mut served) = (driver.inventory()?, mps::served_gpus());
    let mut read = Instant::now();
    // Counters that need two moments come with the second round.
    sampler.sample()?;
    thread::sleep(PROFILE_PERIOD);
    loop {
        let round = sampler.sample();
        if read.elapsed() >= INVENTORY_EVERY {
            (inventory, served) = (driver.inventory()?, mps::served_gpus());
            read = Instant::now();
        }
        let round = round.map(|sample| picture(&inventory, &sample, &served, &held(&state)));
        if sender.send(round.map_err(|error| error.to_string())).is_err() {
            return Ok(());
        }
        thread::sleep(interval);
    }
}

/// What tasks hold that are really running.
fn held(state: &Path) -> Vec<Held> {
    let procfs = Procfs::default();
    let runs = |task: &LiveTask| {
        procfs.facts(task.pid).is_some_and(|facts| facts.start_ticks == task.start_ticks)
    };
    let mut held = Vec::new();
    for Published { run, .. } in live::published(&live::folder(state)) {
        for task in run.tasks.into_iter().filter(runs) {
            let tenant = Tenant::Task { run: run.run.clone(), task: task.task };
            let with = |share| Held { tenant: tenant.clone(), share };
            held.extend(task.shares.into_iter().map(with));
        }
    }
    held
}

fn picture(
    inventory: &Inventory,
    sample: &Sample,
    served: &BTreeSet<String>,
    held: &[Held],
) -> Picture {
    Picture {
        at_ms: sample.at_ms,
        simulated: std::env::var_os("HOTPOT_FAKE_MACHINE").is_some(),
        of: Shown::Machine(inventory.driver.clone()),
        pots: pot::pots(inventory, sample, served, held),
    }
}
