//! Where pictures come from: a thread of its own that asks the driver, so that a driver which stops
//! answering does not take the screen with it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
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
use super::{Picture, pot};

/// How long the driver has for its first answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The inventory changes rarely and is dear to read; instances and processes are in every sample.
const INVENTORY_EVERY: Duration = Duration::from_secs(10);

type Round = Result<Picture, String>;

/// Pictures as they come.
pub(super) struct Source {
    rounds: Receiver<Round>,
    since: Instant,
}

impl Source {
    /// Starts measuring every `interval`.
    pub(super) fn start(interval: Duration) -> Self {
        let (sender, rounds) = sync_channel(1);
        // It ends with the process: a driver that hangs cannot be waited for. One that fails as a
        // whole is opened anew.
        thread::spawn(move || {
            while let Err(error) = measure(interval, &sender) {
                if sender.send(Err(error.to_string())).is_err() {
                    return;
                }
                thread::sleep(interval);
            }
        });
        Self { rounds, since: Instant::now() }
    }

    /// Waits for the next picture.
    ///
    /// # Errors
    /// What the driver says, or that it says nothing.
    pub(super) fn wait(&mut self) -> Round {
        match self.rounds.recv_timeout(PATIENCE) {
            Ok(round) => self.seen(round),
            Err(RecvTimeoutError::Timeout) => Err(self.silence()),
            Err(RecvTimeoutError::Disconnected) => Err("measuring has ended".into()),
        }
    }

    /// The next picture if it has come; what is wrong if none came for long.
    pub(super) fn look(&mut self, interval: Duration) -> Option<Round> {
        match self.rounds.try_recv() {
            Ok(round) => Some(self.seen(round)),
            Err(TryRecvError::Empty | TryRecvError::Disconnected)
                if self.since.elapsed() > interval + Duration::from_secs(5) =>
            {
                Some(Err(self.silence()))
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    fn seen(&mut self, round: Round) -> Round {
        self.since = Instant::now();
        round
    }

    fn silence(&self) -> String {
        let seconds = self.since.elapsed().as_secs();
        format!("the driver has not answered for {seconds} s; look at the kernel's log (dmesg)")
    }
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
        driver: inventory.driver.clone(),
        pots: pot::pots(inventory, sample, served, held),
    }
}
