//! MIG of one GPU as the driver reports it: profiles with their placements, and the instances there
//! are now.

use std::collections::BTreeMap;

use model::{MigGeometry, MigProfile, ProfileIndex};
use nvml_wrapper::error::NvmlError;

use super::raw::{DriverProfile, MigCalls};
use crate::driver::{Driver, DriverError, Fault};
use crate::inventory::{Instance, Mig, MigDevice};
use crate::model_names;
use crate::processes;

/// Profiles of a GPU with the driver's numbers for them. The driver may list others once MIG mode is
/// on; [`Profiles::same`] finds one again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profiles {
    /// Profiles and placements.
    pub geometry: MigGeometry,
    /// The driver's number for each profile.
    pub ids: Vec<u32>,
}

impl Profiles {
    /// The profile at `index` of `earlier`, in this list: by the driver's number. `None` if it is in
    /// only one of the two.
    pub fn same(&self, earlier: &[u32], index: ProfileIndex) -> Option<ProfileIndex> {
        let id = earlier.get(usize::from(index.0))?;
        let at = self.ids.iter().position(|other| other == id)?;
        u8::try_from(at).ok().map(ProfileIndex)
    }
}

/// Whether MIG mode is on now, and after the next reset; `None` where the GPU or the driver has no
/// MIG.
///
/// # Errors
/// The GPU is lost, or the driver refuses otherwise.
pub fn mode(driver: &Driver, uuid: &str) -> Result<Option<(bool, bool)>, DriverError> {
    let mode = driver.device(uuid)?.mig_mode();
    match mode.map_err(|error| DriverError::of("nvmlDeviceGetMigMode")(error).on(uuid)) {
        Ok(mode) => Ok(Some((mode.current == 1, mode.pending == 1))),
        Err(error) if error.is(&Fault::NotSupported) || error.is(&Fault::TooOld) => Ok(None),
        Err(error) => Err(error),
    }
}

/// All that MIG is on a GPU; `None` where it has none.
///
/// # Errors
/// The GPU is lost, asking needs root, or the driver refuses otherwise.
pub fn read(driver: &Driver, uuid: &str) -> Result<Option<Mig>, DriverError> {
    let Some((enabled, pending)) = mode(driver, uuid)? else { return Ok(None) };
    let profiles = profiles(driver, uuid)?;
    let instances = if enabled { instances(driver, uuid, &profiles)? } else { Vec::new() };
    let Profiles { geometry, ids } = profiles;
    Ok(Some(Mig { enabled, pending, geometry, profile_ids: ids, instances }))
}

/// Profiles and placements, whether MIG mode is on or not; small profiles first, as in the
/// catalogue.
///
/// # Errors
/// As [`read`].
pub fn profiles(driver: &Driver, uuid: &str) -> Result<Profiles, DriverError> {
    let calls = MigCalls::new(driver, uuid)?;
    let mut found = Vec::new();
    let listed = calls.profiles()?;
    let nameless = listed.iter().any(|profile| profile.name.is_none());
    let known = if nameless { catalogued(&calls) } else { None };
    for profile in listed {
        let placements = calls.placements(profile.id)?;
        if let Some(converted) = convert(&profile, &placements, known) {
            found.push((converted, profile.id));
        }
    }
    found.sort_by(|(one, _), (other, _)| {
        let key = |profile: &MigProfile| (profile.compute_slices, profile.memory_slices);
        (key(one), one.name.len(), &one.name).cmp(&(key(other), other.name.len(), &other.name))
    });
    let (profiles, ids): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let largest = |slices: fn(&MigProfile) -> u8| profiles.iter().map(slices).max().unwrap_or(0);
    let geometry = MigGeometry {
        compute_slices: largest(|profile| profile.compute_slices),
        memory_slices: largest(|profile| profile.memory_slices),
        profiles,
    };
    Ok(Profiles { geometry, ids })
}

/// A profile in the model's terms; `None` for one that no instance can have or that is out of range.
///
/// * `known` — the GPU in the catalogue, for names that the driver does not give.
fn convert(
    profile: &DriverProfile,
    placements: &[(u32, u32)],
    known: Option<&MigGeometry>,
) -> Option<MigProfile> {
    let (_, size) = placements.first()?;
    let mut starts = Vec::with_capacity(placements.len());
    for (start, _) in placements {
        starts.push(u8::try_from(*start).ok().filter(|start| u32::from(*start) + size <= 16)?);
    }
    starts.sort_unstable();
    let slices = (u8::try_from(profile.compute_slices).ok()?, u8::try_from(*size).ok()?);
    let name = profile.name.clone().unwrap_or_else(|| name(profile, slices, known));
    Some(MigProfile {
        name,
        compute_slices: slices.0,
        memory_slices: slices.1,
        memory_mib: profile.memory_mib,
        instances_max: u8::try_from(profile.instances_max).ok()?,
        starts,
    })
}

/// The GPU's MIG in the catalogue, if it is there.
fn catalogued(calls: &MigCalls<'_>) -> Option<&'static MigGeometry> {
    let product = calls.device().name().ok()?;
    let memory_mib = calls.device().memory_info().ok()?.total >> 20;
    model_names::mig_of(&product, memory_mib)
}

/// The name that a profile has in the catalogue; else built from its size, as `nvidia-smi` does.
fn name(profile: &DriverProfile, slices: (u8, u8), known: Option<&MigGeometry>) -> String {
    let like = |other: &&MigProfile| {
        let ending = other.name.split_once("gb").map(|(_, ending)| ending);
        (other.compute_slices, other.memory_slices) == slices && ending == Some(profile.suffix)
    };
    let found = known.and_then(|known| known.profiles.iter().find(like));
    let built = || {
        let gigabytes = profile.memory_mib.div_ceil(1024);
        format!("{}g.{gigabytes}gb{}", profile.compute_slices, profile.suffix)
    };
    found.map_or_else(built, |found| found.name.clone())
}

/// The instances that there are now, by first memory slice.
///
/// # Errors
/// As [`read`].
pub fn instances(
    driver: &Driver,
    uuid: &str,
    profiles: &Profiles,
) -> Result<Vec<Instance>, DriverError> {
    let calls = MigCalls::new(driver, uuid)?;
    let mut found = Vec::new();
    for ((index, profile), id) in profiles.geometry.indexed().zip(&profiles.ids) {
        for instance in calls.instances(&(*id, profile.instances_max))? {
            let start = u8::try_from(instance.start).unwrap_or(u8::MAX);
            found.push(empty_instance(instance.id, index, start));
        }
    }
    found.sort_by_key(|instance| instance.start);
    let mut devices = devices(&calls)?;
    let mut pids = pids(&calls)?;
    for instance in &mut found {
        let slices = profiles.geometry.profile(instance.profile).map_or(0, |p| p.compute_slices);
        fill(instance, devices.remove(&instance.gpu_instance).unwrap_or_default(), slices);
        instance.pids = pids.remove(&instance.gpu_instance).unwrap_or_default();
        instance.pids.sort_unstable();
        instance.pids.dedup();
    }
    Ok(found)
}

fn empty_instance(gpu_instance: u32, profile: ProfileIndex, start: u8) -> Instance {
    Instance { gpu_instance, profile, start, device: None, divided: false, pids: Vec::new() }
}

fn fill(instance: &mut Instance, devices: Vec<(MigDevice, u32)>, slices: u8) {
    let mut devices = devices.into_iter();
    match (devices.next(), devices.next()) {
        (None, _) => {}
        (Some((device, filled)), None) if filled == u32::from(slices) => {
            instance.device = Some(device);
        }
        (Some(_), _) => instance.divided = true,
    }
}

/// MIG devices with their compute slices, by GPU instance.
fn devices(calls: &MigCalls<'_>) -> Result<BTreeMap<u32, Vec<(MigDevice, u32)>>, DriverError> {
    let mut found: BTreeMap<u32, Vec<(MigDevice, u32)>> = BTreeMap::new();
    let refused = |call| move |error| DriverError::of(call)(error).on(calls.uuid());
    let most = calls.device().mig_device_count();
    for index in 0..most.map_err(refused("nvmlDeviceGetMaxMigDeviceCount"))? {
        let device = match calls.device().mig_device_by_index(index) {
            Ok(device) => device,
            // Numbers have gaps where instances were removed.
            Err(NvmlError::NotFound) => continue,
            Err(error) => return Err(refused("nvmlDeviceGetMigDeviceHandleByIndex")(error)),
        };
        let (gpu_instance, compute_instance) = calls.numbers(&device)?;
        let shape = device.attributes().map_err(refused("nvmlDeviceGetAttributes_v2"))?;
        let uuid = device.uuid().map_err(refused("nvmlDeviceGetUUID"))?;
        let memory_mib = shape.memory_size_mb;
        found.entry(gpu_instance).or_default().push((
            MigDevice { uuid, compute_instance, memory_mib },
            shape.compute_instance_slice_count,
        ));
    }
    Ok(found)
}

/// Processes by GPU instance.
fn pids(calls: &MigCalls<'_>) -> Result<BTreeMap<u32, Vec<u32>>, DriverError> {
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in processes::all(calls.device()).map_err(|error| error.on(calls.uuid()))? {
        if let Some(instance) = process.gpu_instance_id {
            found.entry(instance).or_default().push(process.pid);
        }
    }
    Ok(found)
}
