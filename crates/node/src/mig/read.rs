//! MIG of one GPU as the driver reports it: profiles with their placements, and the instances there
//! are now.

use std::collections::BTreeMap;

use model::{MigGeometry, MigProfile, ProfileIndex};
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;

use super::raw::{DriverProfile, MigCalls};
use crate::driver::{Driver, DriverError, Fault};
use crate::inventory::{Instance, Mig, MigDevice};

/// Profiles of a GPU with the driver's numbers for them; they do not change while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profiles {
    /// Profiles and placements.
    pub geometry: MigGeometry,
    /// The driver's number for each profile.
    pub ids: Vec<u32>,
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
    for profile in calls.profiles()? {
        let placements = calls.placements(profile.id)?;
        if let Some(converted) = convert(&profile, &placements) {
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
fn convert(profile: &DriverProfile, placements: &[(u32, u32)]) -> Option<MigProfile> {
    let (_, size) = placements.first()?;
    let mut starts = Vec::with_capacity(placements.len());
    for (start, _) in placements {
        starts.push(u8::try_from(*start).ok().filter(|start| u32::from(*start) + size <= 16)?);
    }
    starts.sort_unstable();
    Some(MigProfile {
        name: profile.name.clone(),
        compute_slices: u8::try_from(profile.compute_slices).ok()?,
        memory_slices: u8::try_from(*size).ok()?,
        memory_mib: profile.memory_mib,
        instances_max: u8::try_from(profile.instances_max).ok()?,
        starts,
    })
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
    let mut pids = processes(&calls)?;
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
pub(crate) fn devices(
    calls: &MigCalls<'_>,
) -> Result<BTreeMap<u32, Vec<(MigDevice, u32)>>, DriverError> {
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
fn processes(calls: &MigCalls<'_>) -> Result<BTreeMap<u32, Vec<u32>>, DriverError> {
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in all_processes(calls.device()).map_err(|error| error.on(calls.uuid()))? {
        if let Some(instance) = process.gpu_instance_id {
            found.entry(instance).or_default().push(process.pid);
        }
    }
    Ok(found)
}

/// Every process on a device: compute, graphics, and clients of MPS where the driver lists them.
///
/// # Errors
/// The GPU is lost, or the driver refuses otherwise.
pub(crate) fn all_processes(device: &Device<'_>) -> Result<Vec<ProcessInfo>, DriverError> {
    let call = "nvmlDeviceGetComputeRunningProcesses_v3";
    let mut found = device.running_compute_processes().map_err(DriverError::of(call))?;
    let call = "nvmlDeviceGetGraphicsRunningProcesses_v3";
    let more = [
        device.running_graphics_processes().map_err(DriverError::of(call)),
        device
            .mps_running_compute_processes()
            .map_err(DriverError::of("nvmlDeviceGetMPSComputeRunningProcesses_v3")),
    ];
    for list in more {
        match list {
            Ok(processes) => found.extend(processes),
            Err(error) if error.is(&Fault::NotSupported) || error.is(&Fault::TooOld) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
