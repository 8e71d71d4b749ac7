//! Grants: a share on paper becomes a device that a process can be started on.

use std::path::Path;

use model::{ProfileIndex, Share};

use super::Machine;
use super::error::MachineError;
use crate::backend::Enforcement;
use crate::grant::Grant;
use crate::inventory::Instance;
use crate::memory_limit::{Cgroup, MemoryLimits};
use crate::mig::{MigError, Target};
use crate::mps::Caps;

impl Machine {
    /// Makes a share real and notes who holds it. The GPU must be in the share's mode
    /// ([`Machine::set_mode`]).
    ///
    /// * `share` — an instance's profile is counted as in the last [`Machine::inventory`].
    /// * `who` — a name for the holder, unique on the machine; [`Machine::release_all`] takes it.
    ///
    /// # Errors
    /// Instances in the way, a backend that does not hold here, the driver's refusals. Nothing is
    /// held then; an instance that was made stays for the next one who wants it.
    pub fn grant(&mut self, gpu: &str, share: Share, who: &str) -> Result<Grant, MachineError> {
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
            Share::MemoryCapped { memory_mib, .. } => {
                self.grant_memory(gpu, share, memory_mib, who)
            }
        }
    }

    /// Gives a share back. A MIG instance stays for the next one who wants the same: making one takes
    /// about a second on hardware.
    ///
    /// # Errors
    /// The journal cannot be written, or a memory limit cannot be taken away; nobody holds the share
    /// then all the same.
    pub fn revoke(&mut self, grant: &Grant) -> Result<(), MachineError> {
        let cleared = match &grant.cgroup {
            Some(cgroup) => self.revoke_memory(&grant.gpu, cgroup),
            None => Ok(()),
        };
        self.journal.release(grant.hold)?;
        cleared
    }

    fn hold_whole(
        &self,
        gpu: &str,
        share: Share,
        who: &str,
        (memory, compute): (Enforcement, Enforcement),
    ) -> Result<Grant, MachineError> {
        let hold = self.journal.hold(gpu, None, gpu, who)?;
        let (gpu, device) = (gpu.to_owned(), gpu.to_owned());
        Ok(Grant { gpu, share, device, env: Vec::new(), cgroup: None, hold, memory, compute })
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
            let hold = machine.journal.hold(gpu, Some(start), &device.uuid, who)?;
            Ok(Grant {
                gpu: gpu.to_owned(),
                share: Share::Mig { profile, start },
                device: device.uuid,
                env: Vec::new(),
                cgroup: None,
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

    fn grant_memory(
        &mut self,
        gpu: &str,
        share: Share,
        memory_mib: u64,
        who: &str,
    ) -> Result<Grant, MachineError> {
        let memory = self.memory_limit(gpu);
        let parent = match (&memory, &self.cgroup_parent) {
            (Enforcement::Absent(why) | Enforcement::Unknown(why), _) => {
                return Err(MachineError::refused(gpu, format!("no memory caps: {why}")));
            }
            (_, None) => return Err(MachineError::refused(gpu, "no memory caps without a cgroup")),
            (Enforcement::Hard | Enforcement::Cooperative, Some(parent)) => parent.clone(),
        };
        let cgroup = cgroup_for(&parent, who)?;
        let compute = "the driver's memory limits do not cap compute";
        let compute = Enforcement::Absent(compute.to_owned());
        let limited = MemoryLimits::of(&self.driver)
            .map_err(MachineError::from)
            .and_then(|limits| Ok(limits.set(gpu, cgroup.path(), memory_mib)?));
        match limited.and_then(|()| self.hold_whole(gpu, share, who, (memory, compute))) {
            Ok(grant) => Ok(Grant { cgroup: Some(cgroup.path().to_owned()), ..grant }),
            Err(error) => {
                // The error tells more than one of clearing up would.
                let _best_effort = self.revoke_memory(gpu, cgroup.path());
                Err(error)
            }
        }
    }

    /// Takes the limit on one GPU away, and the cgroup once its last process is gone. Limits end
    /// with their cgroup.
    fn revoke_memory(&self, gpu: &str, cgroup: &Path) -> Result<(), MachineError> {
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

fn capped(asked: bool) -> Enforcement {
    if asked {
        Enforcement::Cooperative
    } else {
        Enforcement::Absent("no cap was asked for".into())
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

/// A part of a holder's name as a folder may be called.
fn word(part: &str) -> String {
    let fine = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let word: String = part.chars().map(|c| if fine(c) { c } else { '-' }).collect();
    if word.trim_matches('.').is_empty() { "-".repeat(word.len().max(1)) } else { word }
}
