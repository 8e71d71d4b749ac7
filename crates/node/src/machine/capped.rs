//! Grants of shares with a cap of memory and, if wished, of compute: the driver holds memory on a cgroup
//! where it can, the limiter holds the rest.

use std::path::Path;

use caps::ComputeCap;
use model::Share;

use super::Machine;
use super::error::MachineError;
use super::grants::capped;
use crate::backend::Enforcement;
use crate::driver::{DriverError, Fault};
use crate::grant::{Grant, Holder};
use crate::limiter::{Entry, Limiter, word};
use crate::memory_limit::{Cgroup, MemoryLimits};
use crate::model_names;

const MIB: u64 = 1 << 20;

/// Who holds the caps of a share.
struct Backing {
    /// The driver, on a cgroup below this one: memory.
    cgroup: Option<Cgroup>,
    /// The limiter: compute, and memory if the driver does not. Also for a tenant that needs neither: it
    /// must not take the time of neighbours that have a cap.
    limiter: Option<Limiter>,
    memory: Enforcement,
    compute: Enforcement,
}

impl Machine {
    /// * `memory_mib`, `compute_milli` — the caps; 0 for no cap of compute.
    pub(super) fn grant_capped(
        &mut self,
        gpu: &str,
        (memory_mib, compute_milli): (u64, u32),
        holder: Holder<'_>,
    ) -> Result<Grant, MachineError> {
        self.needs_known_memory(gpu)?;
        let backing = self.backing(gpu, compute_milli, holder.who)?;
        let Backing { cgroup, limiter, memory, compute } = backing;
        let share = Share::MemoryCapped { memory_mib, compute_milli };
        let limited = match &cgroup {
            Some(cgroup) => self.limit_memory(gpu, cgroup.path(), memory_mib),
            None => Ok(()),
        };
        let held =
            limited.and_then(|()| self.hold_whole(gpu, share, holder.who, (memory, compute)));
        let granted = held.and_then(|grant| {
            let cgroup = cgroup.as_ref().map(|cgroup| cgroup.path().to_owned());
            self.with_limiter(Grant { cgroup, ..grant }, limiter.as_ref(), holder)
        });
        if let (Err(_), Some(cgroup)) = (&granted, &cgroup) {
            // The error tells more than one of clearing up would.
            let _best_effort = self.revoke_memory(gpu, cgroup.path());
        }
        granted
    }

    /// A part can be given only of what is known: GPUs that share the machine's memory may not tell it.
    fn needs_known_memory(&self, gpu: &str) -> Result<(), MachineError> {
        let info = self.driver.device(gpu)?.memory_info();
        match info.map_err(DriverError::of("nvmlDeviceGetMemoryInfo_v2")) {
            Err(error) if error.is(&Fault::NotSupported) => {
                let why = "no memory caps: the driver does not tell how much memory it has, as with \
                           GPUs that share the machine's; ask for the whole GPU";
                Err(MachineError::refused(gpu, why))
            }
            other => Ok(other.map(|_| ())?),
        }
    }

    /// Finds out who is to hold the caps.
    ///
    /// # Errors
    /// Nobody can hold the memory, or the compute that is asked for.
    fn backing(
        &mut self,
        gpu: &str,
        compute_milli: u32,
        who: &str,
    ) -> Result<Backing, MachineError> {
        let by_driver = self.memory_limit(gpu);
        let parent = self.cgroup_parent.clone().filter(|_| by_driver.holds());
        let limiter = match (&self.limiter, &by_driver, &parent) {
            (Ok(limiter), ..) => Some(limiter.clone()),
            (Err(_), _, Some(_)) => None,
            (Err(why), Enforcement::Absent(first) | Enforcement::Unknown(first), None) => {
                return Err(MachineError::refused(gpu, format!("no memory caps: {first}; {why}")));
            }
            (Err(why), Enforcement::Hard | Enforcement::Cooperative, None) => {
                return Err(MachineError::refused(
                    gpu,
                    format!("no memory caps: no cgroup; {why}"),
                ));
            }
        };
        if let (None, Err(why), true) = (&limiter, &self.limiter, compute_milli > 0) {
            let why =
                format!("no compute caps: the driver's memory limits do not cap compute; {why}");
            return Err(MachineError::refused(gpu, why));
        }
        let compute = capped(compute_milli > 0);
        let memory = if parent.is_some() { by_driver } else { Enforcement::Cooperative };
        let cgroup = parent.map(|parent| cgroup_for(&parent, who)).transpose()?;
        Ok(Backing { cgroup, limiter, memory, compute })
    }

    fn limit_memory(&self, gpu: &str, cgroup: &Path, memory_mib: u64) -> Result<(), MachineError> {
        let limits = MemoryLimits::of(&self.driver)?;
        Ok(limits.set(gpu, cgroup, memory_mib)?)
    }

    /// Tells the limiter of a share, if it is to hold it, and the tenant's process of the limiter.
    fn with_limiter(
        &mut self,
        grant: Grant,
        limiter: Option<&Limiter>,
        holder: Holder<'_>,
    ) -> Result<Grant, MachineError> {
        let Share::MemoryCapped { memory_mib, compute_milli } = grant.share else {
            return Ok(grant);
        };
        let compute = ComputeCap { priority: holder.priority, ..ComputeCap::of(compute_milli) };
        let is_held = limiter.is_some();
        let entry = Entry {
            who: holder.who.to_owned(),
            user: holder.user,
            gpu: grant.gpu.clone(),
            device: grant.device.clone(),
            // Under the driver's limit too: so programs are told how much there is for them.
            memory_bytes: memory_mib.checked_mul(MIB).filter(|bytes| *bytes > 0 && is_held),
            compute: (compute_milli > 0 && is_held).then_some(compute),
            limited: is_held,
            context_bytes: self.context_bytes(&grant.gpu),
        };
        let alone = self.is_alone(&grant)?;
        let entered = self.books.enter(grant.hold, entry, alone);
        let grant = self.or_release(grant, entered.map_err(MachineError::from))?;
        let Some(limiter) = limiter else { return Ok(grant) };
        let env = limiter.variables(&self.books.caps_file(holder.who));
        let ledger = Some(self.books.ledger(holder.who, &grant.device));
        Ok(Grant { env, ledger, ..grant })
    }

    /// What a context takes on a GPU by the catalogue, in bytes; `None` if the driver does not say which
    /// GPU it is.
    fn context_bytes(&self, gpu: &str) -> Option<u64> {
        let device = self.driver.device(gpu).ok()?;
        let (product, memory) = (device.name().ok()?, device.memory_info().ok()?);
        model_names::context_mib(&product, memory.total / MIB).checked_mul(MIB)
    }

    /// Takes the limit on one GPU away, and the cgroup once its last process is gone. Limits end
    /// with their cgroup.
    pub(super) fn revoke_memory(&self, gpu: &str, cgroup: &Path) -> Result<(), MachineError> {
        if !cgroup.exists() {
            return Ok(());
        }
        let cleared = MemoryLimits::of(&self.driver)
            .map_err(MachineError::from)
            .and_then(|limits| Ok(limits.clear(gpu, cgroup)?));
        if let (Some(parent), Some(name)) = (cgroup.parent(), cgroup.file_name()) {
            // One of several GPUs may be given back while the holder goes on: then it stays.
            let _in_use = Cgroup::create(parent, &name.to_string_lossy())?.remove();
        }
        cleared
    }
}

/// The cgroup of a holder, below one for those that share the first part of its name: `RUN/TASK`.
fn cgroup_for(parent: &Path, who: &str) -> Result<Cgroup, MachineError> {
    let (group, name) = who.rsplit_once('/').unwrap_or(("", who));
    match group {
        "" => Ok(Cgroup::create(parent, &word(name))?),
        group => {
            let group = Cgroup::create(parent, &word(group))?;
            Ok(Cgroup::create(group.path(), &word(name))?)
        }
    }
}
