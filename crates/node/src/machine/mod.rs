//! One machine for whoever runs tasks on it: what GPUs there are, in which mode they are, grants of
//! shares, and all of it put back at the end.
//!
//! Every change is written into the journal before it is made. A process that dies in the middle is
//! followed by one that brings the change to its end when it opens the machine.

mod capped;
mod change;
mod error;
mod grants;
mod layout;
mod lock;
mod modes;
mod mps;
mod restore;
mod seat;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::backend::Enforcement;
use crate::driver::{Driver, DriverError};
use crate::inventory::Inventory;
use crate::journal::{Hold, Journal};
use crate::limiter::{self, Books, Limiter};
use crate::memory_limit;
use crate::mig::Profiles;
use crate::mps::{Daemon, Interface};
use crate::state_dir;
pub use change::Resumed;
pub use error::MachineError;
use lock::Lock;
pub use mps::Mended;
pub use restore::Restored;

/// How to open a machine; everything may be left to the defaults.
#[derive(Clone, Debug, Default)]
pub struct MachineOptions {
    /// The driver's library, instead of what `HOTPOT_NVML` or the system names.
    pub library: Option<PathBuf>,
    /// The state folder, instead of the one that [`state_dir::state_dir`] finds.
    pub state: Option<PathBuf>,
    /// A cgroup v2 folder below which tenants with a memory cap get theirs.
    pub cgroup_parent: Option<PathBuf>,
    /// Which interface of MPS to speak.
    pub mps: Interface,
    /// The limiter library, instead of the one that [`Limiter::find`] finds.
    pub limiter: Option<PathBuf>,
}

/// One machine and its journal.
#[derive(Debug)]
pub struct Machine {
    driver: Driver,
    journal: Journal,
    lock: Lock,
    /// Whether the lock is held now.
    locked: bool,
    state: PathBuf,
    mps: Interface,
    daemons: BTreeMap<String, Daemon>,
    /// How often in a row a daemon that lives was not well.
    mps_failures: BTreeMap<String, u32>,
    cgroup_parent: Option<PathBuf>,
    memory_limits: BTreeMap<String, Enforcement>,
    /// The limiter library, or why there is none.
    limiter: Result<Limiter, String>,
    books: Books,
    profiles: BTreeMap<String, Profiles>,
    /// The driver's number of each profile, as the last inventory listed them: shares go by that.
    listed: BTreeMap<String, Vec<u32>>,
    resumed: Vec<Resumed>,
}

impl Machine {
    /// Loads the driver, opens the journal, and brings changes to their end that a killed process
    /// has left; see [`Machine::resumed`].
    ///
    /// # Errors
    /// No driver, no usable state folder or journal, or another process changes GPUs for too long.
    pub fn open(options: MachineOptions) -> Result<Self, MachineError> {
        let driver = match &options.library {
            Some(path) => Driver::open_library(path)?,
            None => Driver::open()?,
        };
        let state = match options.state {
            Some(path) => {
                state_dir::make(&path)?;
                path
            }
            None => state_dir::state_dir()?,
        };
        let mut machine = Self {
            driver,
            journal: Journal::open(&state)?,
            lock: Lock::open(&state)?,
            locked: false,
            limiter: Limiter::find(options.limiter.as_deref()),
            books: Books::new(&state),
            state,
            mps: options.mps,
            daemons: BTreeMap::new(),
            mps_failures: BTreeMap::new(),
            cgroup_parent: options.cgroup_parent,
            memory_limits: BTreeMap::new(),
            profiles: BTreeMap::new(),
            listed: BTreeMap::new(),
            resumed: Vec::new(),
        };
        machine.resume()?;
        limiter::sweep(&machine.state, || {
            let holds = machine.journal.holds()?;
            Ok::<_, MachineError>(holds.into_iter().map(|hold| hold.who).collect())
        })?;
        Ok(machine)
    }

    /// The driver, for reading.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The state folder.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// What became of the changes that a killed process had left.
    pub fn resumed(&self) -> &[Resumed] {
        &self.resumed
    }

    /// All GPUs, with what holds caps on them.
    ///
    /// # Errors
    /// The driver does not answer.
    pub fn inventory(&mut self) -> Result<Inventory, DriverError> {
        let mut inventory = self.look()?;
        for device in &mut inventory.devices {
            device.backends.memory_limit = self.memory_limit(&device.uuid);
        }
        Ok(inventory)
    }

    /// All GPUs, without trying on each whether the driver's memory limits hold, which takes its time.
    ///
    /// # Errors
    /// The driver does not answer.
    pub fn look(&mut self) -> Result<Inventory, DriverError> {
        let limiter = match &self.limiter {
            Ok(_) => Enforcement::Cooperative,
            Err(why) => Enforcement::Absent(why.clone()),
        };
        let inventory = self.driver.inventory_with(limiter)?;
        for device in &inventory.devices {
            if let Some(mig) = &device.mig {
                self.listed.insert(device.uuid.clone(), mig.profile_ids.clone());
            }
        }
        Ok(inventory)
    }

    /// Whether memory limits hold on a GPU. Probed by setting one, hence once only.
    fn memory_limit(&mut self, gpu: &str) -> Enforcement {
        if let Some(known) = self.memory_limits.get(gpu) {
            return known.clone();
        }
        let found = memory_limit::probe(&self.driver, gpu, self.cgroup_parent.as_deref());
        self.memory_limits.insert(gpu.to_owned(), found.clone());
        found
    }

    /// Who holds what, as far as the journal knows.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn holds(&self) -> Result<Vec<Hold>, MachineError> {
        Ok(self.journal.holds()?)
    }

    /// Forgets all holds of a holder that has ended without giving them back, and what the limiter was
    /// told of it. Instances on which its processes still run stay untouchable.
    ///
    /// # Errors
    /// The journal cannot be written, or a file cannot be removed.
    pub fn release_all(&self, who: &str) -> Result<usize, MachineError> {
        let released = self.journal.release_all(who)?;
        limiter::forget(&self.state, who)?;
        Ok(released)
    }
}
