//! Brings a GPU's instances to a target: reads, plans, acts, and reads again. Each act is one call
//! of the driver; wherever it is interrupted, running it again goes on from what it finds.

use std::collections::BTreeMap;

use super::plan::{Relayout, RelayoutRefusal, Standing, Target, plan_relayout};
use super::raw::MigCalls;
use super::read::{self, Profiles};
use crate::driver::{Driver, DriverError, Fault, check};
use crate::inventory::Instance;
use crate::processes;

/// Rounds of reading and acting. One suffices unless somebody else changes the GPU meanwhile.
const ROUNDS_MAX: u32 = 4;

/// Who holds which instance, by first memory slice.
pub type Holders = BTreeMap<u8, String>;

/// The target cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MigError {
    /// Nothing was changed: it cannot be done.
    #[error("{gpu}: {refusal}")]
    Refused {
        /// UUID of the GPU.
        gpu: String,
        /// Why.
        refusal: RelayoutRefusal,
    },
    /// The GPU has no MIG, or MIG mode is off.
    #[error("{gpu}: {why}")]
    NoMig {
        /// UUID of the GPU.
        gpu: String,
        /// Which of the two.
        why: &'static str,
    },
    /// Processes forbid changing MIG mode.
    #[error(
        "{gpu}: MIG mode can only be changed while nothing runs on the GPU; processes {} do",
        words(pids)
    )]
    Busy {
        /// UUID of the GPU.
        gpu: String,
        /// The processes.
        pids: Vec<u32>,
    },
    /// MIG mode was not switched, because a program has the GPU open without computing on it.
    #[error(
        "{gpu}: MIG mode can only be changed while no program has the GPU open; stop its monitoring \
         (DCGM, `nvidia-smi -l`, hotpot's agent), or the persistence daemon, and try again"
    )]
    Open {
        /// UUID of the GPU.
        gpu: String,
    },
    /// MIG mode is set but does not hold yet.
    #[error(
        "{gpu}: MIG mode will be {} only after a reset of the GPU: `nvidia-smi --gpu-reset -i {gpu}`",
        if *on { "on" } else { "off" }
    )]
    NeedsReset {
        /// UUID of the GPU.
        gpu: String,
        /// The mode asked for.
        on: bool,
    },
    /// Others kept changing the instances meanwhile.
    #[error(
        "{gpu}: its instances changed under our hands {ROUNDS_MAX} times; does another tool manage them?"
    )]
    Unsteady {
        /// UUID of the GPU.
        gpu: String,
    },
    /// The driver refuses.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

fn words(pids: &[u32]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Brings a GPU in MIG mode to `target` and gives the instances that stand then.
///
/// * `held` — instances that must not be touched, though no process is on them yet.
///
/// # Errors
/// [`MigError::Refused`] with the instances in the way, and then nothing was changed; the driver's
/// refusals, after which running it again goes on.
pub fn carry_out(
    driver: &Driver,
    uuid: &str,
    profiles: &Profiles,
    target: &Target,
    held: &Holders,
) -> Result<Vec<Instance>, MigError> {
    for _ in 0..ROUNDS_MAX {
        let instances = read::instances(driver, uuid, profiles)?;
        let plan = plan_for(uuid, profiles, &instances, target, held)?;
        if plan.is_done() {
            return Ok(instances);
        }
        match act(driver, uuid, profiles, &instances, &plan) {
            Ok(()) => {}
            // Somebody was faster: what stands now decides.
            Err(error) if error.is(&Fault::InUse) || error.is(&Fault::NoRoom) => {
                refuse_if_unchanged(driver, uuid, profiles, &instances, error)?;
            }
            Err(error) if error.is(&Fault::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(MigError::Unsteady { gpu: uuid.to_owned() })
}

/// What [`carry_out`] would do.
///
/// # Errors
/// [`MigError::Refused`].
pub fn plan_for(
    uuid: &str,
    profiles: &Profiles,
    instances: &[Instance],
    target: &Target,
    held: &Holders,
) -> Result<Relayout, MigError> {
    let standing: Vec<Standing<'_>> = instances
        .iter()
        .map(|instance| Standing {
            instance,
            holder: held.get(&instance.start).map(String::as_str),
        })
        .collect();
    plan_relayout(&profiles.geometry, &standing, target)
        .map_err(|refusal| MigError::Refused { gpu: uuid.to_owned(), refusal })
}

/// A refusal of the driver counts if nothing explains it: the instances are as we saw them.
fn refuse_if_unchanged(
    driver: &Driver,
    uuid: &str,
    profiles: &Profiles,
    seen: &[Instance],
    error: DriverError,
) -> Result<(), MigError> {
    let now = read::instances(driver, uuid, profiles)?;
    if now == seen { Err(error.into()) } else { Ok(()) }
}

fn act(
    driver: &Driver,
    uuid: &str,
    profiles: &Profiles,
    instances: &[Instance],
    plan: &Relayout,
) -> Result<(), DriverError> {
    let calls = MigCalls::new(driver, uuid)?;
    for instance in instances.iter().filter(|one| plan.destroy.contains(&one.gpu_instance)) {
        if let Some(device) = &instance.device {
            calls.destroy_compute(instance.gpu_instance, device.compute_instance)?;
        }
        calls.destroy(instance.gpu_instance)?;
    }
    let slices = |profile| profiles.geometry.profile(profile).map_or(0, |p| p.compute_slices);
    for instance in instances.iter().filter(|one| plan.complete.contains(&one.gpu_instance)) {
        calls.create_compute(instance.gpu_instance, slices(instance.profile))?;
    }
    for (profile, start) in &plan.create {
        let found = profiles.geometry.profile(*profile).map(|found| found.memory_slices);
        let (Some(size), Some(id)) = (found, profiles.ids.get(usize::from(profile.0))) else {
            return Err(DriverError::call(
                "nvmlDeviceCreateGpuInstanceWithPlacement",
                Fault::NotFound,
            ));
        };
        let made = calls.create(*id, (u32::from(*start), u32::from(size)))?;
        calls.create_compute(made, slices(*profile))?;
    }
    Ok(())
}

/// Switches MIG mode; does nothing if it is so already. Idle instances are removed before MIG mode
/// goes off. A switch that waits for a reset is taken back if `on` is the mode in force.
///
/// # Errors
/// [`MigError::Busy`] with the processes, [`MigError::Refused`] with the instances in use,
/// [`MigError::Open`], [`MigError::NeedsReset`], [`MigError::NoMig`], and the driver's refusals.
pub fn set_mode(driver: &Driver, uuid: &str, on: bool, held: &Holders) -> Result<(), MigError> {
    let Some((enabled, pending)) = read::mode(driver, uuid)? else {
        let why = "this GPU or its driver has no MIG";
        return if on { Err(MigError::NoMig { gpu: uuid.to_owned(), why }) } else { Ok(()) };
    };
    if (enabled, pending) == (on, on) {
        return Ok(());
    }
    if enabled && !on {
        let profiles = read::profiles(driver, uuid)?;
        carry_out(driver, uuid, &profiles, &Target::Exact(Vec::new()), held)?;
    }
    if enabled != on {
        refuse_processes(driver, uuid)?;
    }
    let call = "nvmlDeviceSetMigMode";
    let set = driver.device(uuid)?.set_mig_mode(on);
    let activated = set.map_err(|error| DriverError::of(call)(error).on(uuid))?;
    let (now, pending) = read::mode(driver, uuid)?.unwrap_or_default();
    if now == on {
        return Ok(());
    }
    // The call succeeds, and what became of it is said beside (NVML header, nvmlDeviceSetMigMode).
    match check(call, activated).map_err(|error| error.on(uuid)) {
        Err(error) if error.is(&Fault::InUse) => {
            if pending == on {
                // Else it would be switched by whoever resets the GPU next.
                let back = driver.device(uuid)?.set_mig_mode(now);
                back.map_err(|error| DriverError::of(call)(error).on(uuid))?;
            }
            Err(MigError::Open { gpu: uuid.to_owned() })
        }
        Err(error) if !error.is(&Fault::ResetRequired) => Err(error.into()),
        Ok(()) | Err(_) => Err(MigError::NeedsReset { gpu: uuid.to_owned(), on }),
    }
}

fn refuse_processes(driver: &Driver, uuid: &str) -> Result<(), MigError> {
    let processes = processes::all(&driver.device(uuid)?).map_err(|error| error.on(uuid))?;
    let mut pids: Vec<u32> = processes.iter().map(|one| one.pid).collect();
    if pids.is_empty() {
        return Ok(());
    }
    pids.sort_unstable();
    pids.dedup();
    Err(MigError::Busy { gpu: uuid.to_owned(), pids })
}
