//! The GPUs of a run: which it may use, and making real on them what the engine decides.

use std::time::{Duration, Instant};

use model::{Gpu, Share, SharingMode};
use node::account::Account;
use node::gpu_lock::{self, GpuLock, Taken};
use node::grant::{Grant, Holder};
use node::inventory::Device;
use node::live;
use node::machine::{Machine, MachineError, Mended};
use node::processes;
use node::procfs::Procfs;

use crate::error::RunError;

/// Time between two looks at MPS daemons: each asks the daemon through a program.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What can be done if all GPUs are in use.
const BUSY_WAY_OUT: &str = "wait for GPUs with --wait, or choose others with --devices";

/// The GPUs that a run uses, in the order in which the engine counts them.
#[derive(Default)]
pub struct Devices {
    machine: Option<Machine>,
    list: Vec<Managed>,
    looked: Option<Instant>,
}

/// What went wrong with a GPU while a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing runs on it any more.
    Lost(String),
    /// What divided it failed and has been set up again; tasks on it may have been hit.
    Repaired(String),
    /// Tasks are not concerned, as far as can be seen.
    Noted(String),
}

/// One GPU of the run.
struct Managed {
    uuid: String,
    /// Position in the driver's order.
    index: u32,
    gpu: Gpu,
    _lock: GpuLock,
}

/// What is to be used of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Positions in the driver's order; empty for all that nobody else uses.
    pub indices: Vec<u32>,
    /// How this run is called in answers to others.
    pub who: String,
}

impl Devices {
    /// No GPUs, for work that asks for none.
    pub fn none() -> Self {
        Self::default()
    }

    /// Takes the chosen GPUs of a machine; says which were left out and why.
    ///
    /// # Errors
    /// [`RunError::Busy`] if a GPU that was named, or each, is in use: later it may be free. Else
    /// [`RunError::Gpus`]: the driver fails, or there is no such GPU or none at all.
    pub fn of(mut machine: Machine, choice: &Choice) -> Result<(Self, Vec<String>), RunError> {
        let refuse = |error: &dyn std::error::Error| RunError::Gpus(error.to_string());
        forget_the_dead(&machine).map_err(|error| refuse(&error))?;
        let inventory = machine.inventory().map_err(|error| refuse(&error))?;
        let engine = inventory.to_engine().map_err(|error| refuse(&error))?;
        let found: Vec<(&Device, Gpu)> =
            engine.devices.iter().map(|at| &inventory.devices[*at]).zip(engine.gpus).collect();
        let mut left_out: Vec<String> =
            engine.left_out.iter().map(|(uuid, why)| format!("{uuid}: {why}")).collect();
        let lost = inventory.lost.iter();
        left_out.extend(lost.map(|lost| format!("GPU {}: {}", lost.index, lost.why)));
        for index in &choice.indices {
            if !found.iter().any(|(device, _)| device.index == *index) {
                let why = left_out.iter().map(|why| format!("; {why}")).collect::<String>();
                let text = format!("--devices {index}: there is no such GPU to be used here{why}");
                return Err(RunError::Gpus(text));
            }
        }
        let (mut devices, mut some_taken) = (Self::default(), false);
        for (device, gpu) in found {
            let named = choice.indices.contains(&device.index);
            if !choice.indices.is_empty() && !named {
                continue;
            }
            match take(&machine, device, named, &choice.who)? {
                Ok(lock) => devices.list.push(Managed {
                    uuid: device.uuid.clone(),
                    index: device.index,
                    gpu: as_it_is(device, gpu),
                    _lock: lock,
                }),
                Err(why) if named => return Err(nothing_to_use(&[why], true)),
                Err(why) => {
                    some_taken = true;
                    left_out.push(why);
                }
            }
        }
        if devices.list.is_empty() {
            return Err(nothing_to_use(&left_out, some_taken));
        }
        devices.machine = Some(machine);
        Ok((devices, left_out))
    }

    /// The GPUs as the engine sees them.
    pub fn gpus(&self) -> Vec<Gpu> {
        self.list.iter().map(|managed| managed.gpu.clone()).collect()
    }

    /// How many they are.
    pub fn gpu_count(&self) -> usize {
        self.list.len()
    }

    /// UUIDs, in the engine's order.
    pub fn uuids(&self) -> Vec<String> {
        self.list.iter().map(|managed| managed.uuid.clone()).collect()
    }

    /// A GPU's position in the driver's order.
    pub fn index(&self, at: u8) -> u32 {
        self.list.get(usize::from(at)).map_or(0, |managed| managed.index)
    }

    /// Puts a GPU into a mode.
    ///
    /// # Errors
    /// What the driver or a tool says.
    pub fn set_mode(&mut self, at: u8, mode: SharingMode) -> Result<(), String> {
        let (machine, managed) = self.both(at)?;
        machine.set_mode(&managed.uuid, mode).map_err(|error| error.to_string())
    }

    /// Makes a share of a GPU real for a tenant.
    ///
    /// # Errors
    /// What the driver or a tool says.
    pub fn grant(&mut self, at: u8, share: Share, holder: Holder<'_>) -> Result<Grant, String> {
        let (machine, managed) = self.both(at)?;
        machine.grant(&managed.uuid, share, holder).map_err(|error| error.to_string())
    }

    /// What a tenant has booked, if the limiter holds a cap of its grant.
    pub fn account(&self, grant: &Grant) -> Option<Account> {
        self.machine.as_ref()?.account(grant)
    }

    /// Takes a share back.
    ///
    /// # Errors
    /// What the driver or a tool says.
    pub fn revoke(&mut self, grant: &Grant) -> Result<(), String> {
        match &mut self.machine {
            Some(machine) => machine.revoke(grant).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Looks after what divides the GPUs and sets up again what has failed, by GPU in the engine's
    /// order.
    pub fn troubles(&mut self) -> Vec<(u8, Trouble)> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let Some(machine) = &mut self.machine else { return Vec::new() };
        let list = &self.list;
        let trouble = |mended: Mended| {
            let at = list.iter().position(|managed| managed.uuid == mended.gpu)?;
            let trouble = match mended.left {
                None => Trouble::Repaired(format!("MPS is up again ({})", mended.why)),
                Some(left) => Trouble::Lost(format!("MPS is down ({}): {left}", mended.why)),
            };
            Some((u8::try_from(at).ok()?, trouble))
        };
        machine.look_after().into_iter().filter_map(trouble).collect()
    }

    /// Puts the run's GPUs back as they were before it; says of which that could not be done, or was
    /// not, for somebody else has changed them since.
    pub fn restore(&mut self) -> Vec<String> {
        let uuids = self.uuids();
        let Some(machine) = &mut self.machine else { return Vec::new() };
        let restored = match machine.restore(&uuids) {
            Ok(restored) => restored,
            Err(error) => return vec![format!("GPUs are not put back as they were: {error}")],
        };
        let left = restored.left.iter();
        let left = left.map(|(gpu, _, why)| format!("{gpu} is not yet put back as it was: {why}"));
        let forgotten = restored.forgotten.iter();
        let forgotten = forgotten.map(|(gpu, _, why)| format!("{gpu} stays as it is: {why}"));
        left.chain(forgotten).collect()
    }

    fn both(&mut self, at: u8) -> Result<(&mut Machine, &Managed), String> {
        let managed = self.list.get(usize::from(at));
        let both = self.machine.as_mut().zip(managed);
        both.ok_or_else(|| format!("there is no GPU {at} in this run"))
    }
}

/// Tries to take one GPU. `Err` within `Ok` says why it is left out.
///
/// * `named` — whether the user named it: then others' processes on it are put up with.
fn take(
    machine: &Machine,
    device: &Device,
    named: bool,
    who: &str,
) -> Result<Result<GpuLock, String>, RunError> {
    let index = device.index;
    // Before the processes are looked at: the tasks of whoever has it must not be taken for strangers.
    let lock = match gpu_lock::take(&device.uuid, who) {
        Ok(Taken::Ours(lock)) => lock,
        Ok(Taken::By(holder)) => return Ok(Err(format!("GPU {index} is used by {holder}"))),
        Err(error) => return Err(RunError::Gpus(error.to_string())),
    };
    if named {
        return Ok(Ok(lock));
    }
    let way_out = format!("--devices {index} uses it all the same");
    Ok(match strangers(machine, &device.uuid) {
        Ok(found) if found.is_empty() => Ok(lock),
        Ok(found) => {
            Err(format!("GPU {index} is in use by process {}; {way_out}", found.join(", ")))
        }
        Err(why) => Err(format!("GPU {index}: who uses it cannot be told: {why}; {way_out}")),
    })
}

/// Takes back what runs hold that were killed: a holder is named after its run, and that after its
/// process.
fn forget_the_dead(machine: &Machine) -> Result<(), MachineError> {
    let published = live::published(&live::folder(machine.state()));
    for hold in machine.holds()? {
        let run = hold.who.split('/').next().unwrap_or_default();
        let Some(pid) = run.rsplit_once('.').and_then(|(_, pid)| pid.parse().ok()) else {
            continue;
        };
        let known = published.iter().find(|published| published.run.run == run);
        if !is_at_work(pid, known.map(|known| known.run.start_ticks)) {
            machine.release_all(&hold.who)?;
        }
    }
    Ok(())
}

/// Whether a process is the run that had its number, and not a later process that got it.
///
/// * `published` — when the run started, if it has said so.
fn is_at_work(pid: u32, published: Option<u64>) -> bool {
    let Some(facts) = Procfs::default().living(pid) else { return false };
    match published {
        Some(start_ticks) => facts.start_ticks == start_ticks,
        // One that has just begun, and has said nothing yet: a program that makes runs, as we are.
        None => program(&pid.to_string()) == program("self"),
    }
}

/// The name by which the kernel knows a program, whatever became of its file.
fn program(process: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{process}/comm")).ok()
}

/// A GPU that is in MIG mode starts out in it.
fn as_it_is(device: &Device, mut gpu: Gpu) -> Gpu {
    if device.mig.as_ref().is_some_and(|mig| mig.enabled) {
        let _ = gpu.set_mode(SharingMode::Mig);
    }
    gpu
}

/// * `taken` — whether a GPU is in use that could be used later.
fn nothing_to_use(why: &[String], taken: bool) -> RunError {
    let why = if why.is_empty() { "this machine has no GPU".into() } else { why.join("; ") };
    if taken { RunError::Busy(format!("{why}; {BUSY_WAY_OUT}")) } else { RunError::Gpus(why) }
}

/// Processes that compute on a GPU now: as numbers, for a message.
fn strangers(machine: &Machine, uuid: &str) -> Result<Vec<String>, String> {
    let device = machine.driver().device(uuid).map_err(|error| error.to_string())?;
    let found = processes::compute(&device).map_err(|error| error.to_string())?;
    Ok(found.iter().map(|process| process.pid.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_alone_does_not_make_a_run() {
        let own = std::process::id();
        let started = Procfs::default().living(own).unwrap().start_ticks;
        assert!(is_at_work(own, Some(started)) && is_at_work(own, None));
        assert!(!is_at_work(own, Some(started + 1)), "the number was given to a later process");
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // Until it has become the other program.
        let begun = Instant::now();
        while is_at_work(other.id(), None) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert!(!is_at_work(other.id(), None), "another program has its number");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!is_at_work(other.id(), None));
    }

    #[test]
    fn only_what_may_become_free_is_busy() {
        let why = ["GPU 0 is used by another".to_owned()];
        assert!(matches!(nothing_to_use(&why, true), RunError::Busy(_)));
        assert!(matches!(nothing_to_use(&why, false), RunError::Gpus(_)));
        assert!(nothing_to_use(&[], false).to_string().contains("has no GPU"));
    }
}
