//! Which device is meant by a position in gres.conf.

use std::path::{Path, PathBuf};

use model::Share;
use node::inventory::{Device, Inventory};

use crate::gres::DeviceLine;

/// What stands at a position of gres.conf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// UUID of the GPU.
    pub(super) gpu: String,
    /// The instance's share, if it is one.
    pub(super) instance: Option<Share>,
    /// The device file by which cgroups tell it from others, where it is known.
    pub(super) file: Option<PathBuf>,
}

/// All positions in order, with what is wrong where nothing is found.
///
/// * `lines` — of gres.conf; empty where Slurm detects GPUs itself, by number of device file.
/// * `folder` — where device files lie.
pub(super) fn slots(
    lines: &[DeviceLine],
    inventory: &Inventory,
    folder: &Path,
) -> Vec<Result<Slot, String>> {
    if lines.is_empty() {
        let mut devices: Vec<&Device> = inventory.devices.iter().collect();
        devices.sort_by_key(|device| (device.minor, device.index));
        return devices.into_iter().flat_map(|device| detected(device, folder)).map(Ok).collect();
    }
    let position = |at: usize| {
        let (line, before) = (&lines[at], &lines[..at]);
        let minor = line.minor.ok_or("its file has no number")?;
        let device = with_minor(inventory, minor)
            .ok_or_else(|| format!("there is no GPU with the device file /dev/nvidia{minor}"))?;
        let named = |slot| Slot { file: Some(PathBuf::from(&line.file)), ..slot };
        if !line.is_instance {
            return whole(device).map(named);
        }
        let alike = |other: &&DeviceLine| other.minor == line.minor && other.kind == line.kind;
        let which = before.iter().filter(|other| other.is_instance).filter(alike).count();
        instance(device, line.kind.as_deref().unwrap_or_default(), which).map(named)
    };
    (0..lines.len()).map(position).collect()
}

fn with_minor(inventory: &Inventory, minor: u32) -> Option<&Device> {
    inventory.devices.iter().find(|device| device.minor.unwrap_or(device.index) == minor)
}

fn whole(device: &Device) -> Result<Slot, String> {
    if device.mig.as_ref().is_some_and(|mig| mig.enabled) {
        return Err(format!("GPU {} is in MIG mode, gres.conf names it as a whole", device.index));
    }
    Ok(Slot { gpu: device.uuid.clone(), instance: None, file: None })
}

/// * `which` — counted among the instances of the profile on the GPU, by first memory slice.
fn instance(device: &Device, profile: &str, which: usize) -> Result<Slot, String> {
    let all = instances(device);
    let alike = all.into_iter().filter(|(name, _)| name == profile).map(|(_, slot)| slot);
    alike.into_iter().nth(which).ok_or_else(|| {
        let number = which + 1;
        format!("GPU {} has no {profile} instance number {number}", device.index)
    })
}

fn detected(device: &Device, folder: &Path) -> Vec<Slot> {
    match whole(device) {
        Ok(slot) => {
            let minor = device.minor.unwrap_or(device.index);
            vec![Slot { file: Some(folder.join(format!("nvidia{minor}"))), ..slot }]
        }
        Err(_) => instances(device).into_iter().map(|(_, slot)| slot).collect(),
    }
}

/// Instances with the names of their profiles.
fn instances(device: &Device) -> Vec<(String, Slot)> {
    let Some(mig) = &device.mig else { return Vec::new() };
    let named = mig.instances.iter().filter_map(|instance| {
        let profile = mig.geometry.profile(instance.profile)?;
        let share = Share::Mig { profile: instance.profile, start: instance.start };
        let slot = Slot { gpu: device.uuid.clone(), instance: Some(share), file: None };
        Some((profile.name.clone(), slot))
    });
    named.collect()
}
