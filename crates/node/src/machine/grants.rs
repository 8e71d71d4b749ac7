//! Grants: a share on paper becomes a device that a process can be started on.

use model::{ProfileIndex, Share};

use super::Machine;
use super::error::MachineError;
use crate::account::Account;
use crate::backend::Enforcement;
use crate::grant::{Grant, Holder};
use crate::inventory::Instance;
use crate::limiter::Entry;
use crate::mig::{MigError, Target};
use crate::mps::Caps;

impl Machine {
    /// Makes a share real and notes who holds it. The GPU must be in the share's mode
    /// ([`Machine::set_mode`]).
    ///
    /// * `share` — an instance's profile is counted as in the last [`Machine::inventory`].
    /// * `holder` — a [`Holder`], or its name; [`Machine::release_all`] takes that.
    ///
    /// # Errors
    /// Instances in the way, a backend that does not hold here, the driver's refusals. Nothing is
    /// held then; an instance that was made stays for the next one who wants it.
    pub fn grant<'a>(
        &mut self,
        gpu: &str,
        share: Share,
        holder: impl Into<Holder<'a>>,
    ) -> Result<Grant, MachineError> {
        let holder: Holder<'_> = holder.into();
        if let Share::MemoryCapped { memory_mib, compute_milli } = share {
            return self.grant_capped(gpu, (memory_mib, compute_milli), holder);
        }
        let grant = self.grant_uncapped(gpu, share, holder.who)?;
        // To the limiter, a GPU that it has not been told of is somebody else's.
        let alone = self.is_alone(&grant)?;
        let entered = self.books.enter(grant.hold, uncapped(&grant, holder), alone);
        self.or_release(grant, entered.map_err(MachineError::from))
    }

    /// Every share but one that is capped by cgroup or limiter.
    fn grant_uncapped(
        &mut self,
        gpu: &str,
        share: Share,
        who: &str,
    ) -> Result<Grant, MachineError> {
        match share {
            Share::Mig { profile, start } => self.grant_instance(gpu, profile, start, who),
            Share::Exclusive => {
                let hard = || Enforcement::Hard;
                self.hold_whole(gpu, share, who, (hard(), hard()))
            }
            Share::TimeSlice { .. } => {
                let memory = "processes that take turns share the GPU's memory";
                let memory = Enforcement::Absent(memory.to_owned());
                self.hold_whole(gpu, share, who, (memory, Enforcement::Cooperative))
            }
            Share::Mps { compute_milli, memory_mib } => {
                let variables = self.mps_variables(gpu, Caps { compute_milli, memory_mib })?;
                let caps = (capped(memory_mib > 0), capped(compute_milli > 0));
                let grant = self.hold_whole(gpu, share, who, caps)?;
                Ok(Grant { env: variables, ..grant })
            }
            Share::MemoryCapped { .. } => {
                Err(MachineError::refused(gpu, "a share with a memory cap is granted otherwise"))
            }
        }
    }

    /// The grant, or what came in between: then nothing is held.
    pub(super) fn or_release(
        &self,
        grant: Grant,
        then: Result<(), MachineError>,
    ) -> Result<Grant, MachineError> {
        if let Err(error) = then {
            // The error tells more than one of clearing up would.
            let _best_effort = self.journal.release(grant.hold);
            return Err(error);
        }
        Ok(grant)
    }

    /// Whether nobody else holds a share of the GPU, whichever process granted it.
    pub(super) fn is_alone(&self, grant: &Grant) -> Result<bool, MachineError> {
        let holds = self.journal.holds()?;
        Ok(!holds.iter().any(|hold| hold.gpu == grant.gpu && hold.id != grant.hold))
    }

    /// What a tenant has booked, if the limiter holds a cap of this grant.
    pub fn account(&self, grant: &Grant) -> Option<Account> {
        Account::read(grant.ledger.as_deref()?).ok()
    }

    /// Gives a share back. A MIG instance stays for the next one who wants the same: making one takes
    /// about a second on hardware.
    ///
    /// # Errors
    /// The journal cannot be written, or a memory limit or a file cannot be taken away; nobody holds
    /// the share then all the same.
    pub fn revoke(&mut self, grant: &Grant) -> Result<(), MachineError> {
        let cleared = match &grant.cgroup {
            Some(cgroup) => self.revoke_memory(&grant.gpu, cgroup),
            None => Ok(()),
        };
        let alone = self.is_alone(grant)?;
        let struck = self.books.strike(grant.hold, alone);
        self.journal.release(grant.hold)?;
        cleared?;
        Ok(struck?)
    }

    pub(super) fn hold_whole(
        &self,
        gpu: &str,
        share: Share,
        who: &str,
        (memory, compute): (Enforcement, Enforcement),
    ) -> Result<Grant, MachineError> {
        let hold = self.journal.hold(gpu, share, gpu, who)?;
        let (gpu, device) = (gpu.to_owned(), gpu.to_owned());
        let (env, cgroup, ledger) = (Vec::new(), None, None);
        Ok(Grant { gpu, share, device, env, cgroup, ledger, hold, memory, compute })
    }

    fn grant_instance(
        &mut self,
        gpu: &str,
        profile: ProfileIndex,
        start: u8,
        who: &str,
    ) -> Result<Grant, MachineError> {
        self.with_lock(|machine| {
            let now = machine.profile_now(gpu, profile)?;
            let instance = machine.instance_at(gpu, now, start)?;
            if !instance.pids.is_empty() {
                let pids: Vec<String> = instance.pids.iter().map(ToString::to_string).collect();
                let why = "runs on the instance, though nobody was granted it";
                let why = format!("process {} {why}; end it first", pids.join(" "));
                return Err(MachineError::refused(gpu, why));
            }
            let Some(device) = instance.device else {
                return Err(MigError::Unsteady { gpu: gpu.to_owned() }.into());
            };
            let share = Share::Mig { profile, start };
            let hold = machine.journal.hold(gpu, share, &device.uuid, who)?;
            Ok(Grant {
                gpu: gpu.to_owned(),
                share,
                device: device.uuid,
                env: Vec::new(),
                cgroup: None,
                ledger: None,
                hold,
                memory: Enforcement::Hard,
                compute: Enforcement::Hard,
            })
        })
    }

    /// The profile in the driver's list of now: by its number, as the list may have changed with MIG
    /// mode since the inventory.
    fn profile_now(
        &mut self,
        gpu: &str,
        profile: ProfileIndex,
    ) -> Result<ProfileIndex, MachineError> {
        let now = self.profiles(gpu)?;
        let Some(listed) = self.listed.get(gpu) else { return Ok(profile) };
        let unknown = || {
            let number = profile.0;
            let why = format!("the driver no longer lists profile {number} of the inventory");
            MachineError::refused(gpu, why)
        };
        now.same(listed, profile).ok_or_else(unknown)
    }

    /// The instance at a placement: the one that stands there, or a new one.
    fn instance_at(
        &mut self,
        gpu: &str,
        profile: ProfileIndex,
        start: u8,
    ) -> Result<Instance, MachineError> {
        let held = self.holders(gpu)?;
        if let Some(holder) = held.get(&start) {
            let why = format!("the instance at slice {start} is held by {holder}");
            return Err(MachineError::refused(gpu, why));
        }
        let instances = self.reach(gpu, &Target::Including(profile, start))?;
        let there = |one: &Instance| one.profile == profile && one.start == start;
        let found = instances.into_iter().find(there);
        found.ok_or_else(|| MigError::Unsteady { gpu: gpu.to_owned() }.into())
    }
}

/// What the limiter is told of a share that it does not hold.
fn uncapped(grant: &Grant, holder: Holder<'_>) -> Entry {
    Entry {
        who: holder.who.to_owned(),
        user: holder.user,
        gpu: grant.gpu.clone(),
        device: grant.device.clone(),
        memory_bytes: None,
        compute: None,
        context_bytes: None,
        limited: false,
    }
}

pub(super) fn capped(asked: bool) -> Enforcement {
    if asked {
        Enforcement::Cooperative
    } else {
        Enforcement::Absent("no cap was asked for".into())
    }
}
