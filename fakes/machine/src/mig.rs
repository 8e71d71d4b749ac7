//! MIG as a driver does it: mode, GPU instances, compute instances, and every reason to refuse.

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::gpu::{Gpu, uuid_text};
use crate::profiles::{ComputeProfile, InstanceProfile, compute_profiles, instance_profiles};
use crate::state::State;

/// A GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInstance {
    /// The driver's number on its GPU; a later instance may get it again.
    pub id: u32,
    /// The driver's number of its profile.
    pub profile_id: u32,
    /// First memory slice.
    pub start: u32,
    /// Memory slices.
    pub size: u32,
    /// Number among all instances ever made on the machine.
    pub serial: u32,
    /// Compute instances in order of creation.
    pub compute: Vec<ComputeInstance>,
}

/// A compute instance: what programs see as a MIG device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputeInstance {
    /// The driver's number in its GPU instance.
    pub id: u32,
    /// The driver's number of its profile.
    pub profile_id: u32,
    /// First compute slice of the GPU instance.
    pub start: u32,
    /// Compute slices.
    pub size: u32,
    /// Number among all instances ever made on the machine.
    pub serial: u32,
    /// `MIG-…`. As with a driver it follows from GPU, GPU instance and compute instance, so that a
    /// later one with the same numbers has it again.
    pub uuid: String,
}

impl Gpu {
    /// The profile with the driver's number.
    ///
    /// # Errors
    /// [`Code::NotSupported`] if the model has no such profile.
    pub fn profile(&self, id: u32) -> Result<&'static InstanceProfile, Code> {
        let mut profiles = instance_profiles(&self.model).iter();
        profiles.find(|profile| profile.id == id).ok_or(Code::NotSupported)
    }

    /// Instances of a profile that could still be made.
    ///
    /// # Errors
    /// [`Code::NotSupported`] without MIG mode or such a profile.
    pub fn remaining(&self, profile_id: u32) -> Result<u32, Code> {
        self.needs_mig()?;
        Ok(self.room_for(self.profile(profile_id)?))
    }

    /// Memory slices at which an instance of a profile could start now.
    pub fn free_starts(&self, profile: &InstanceProfile) -> Vec<u32> {
        let of = |instance: &GpuInstance| self.profile(instance.profile_id).ok();
        let whole = instance_profiles(&self.model).iter().map(|p| p.slices).max().unwrap_or(0);
        let slices: u32 = self.instances.iter().filter_map(of).map(|p| p.slices).sum();
        let same = self.instances.iter().filter(|other| other.profile_id == profile.id).count();
        if slices + profile.slices > whole || same >= profile.instances_max as usize {
            return Vec::new();
        }
        let apart = |start: &u32| {
            self.instances.iter().all(|other| {
                other.start + other.size <= *start || start + profile.memory_slices <= other.start
            })
        };
        profile.starts.iter().copied().filter(apart).collect()
    }

    /// Sets MIG mode. Where it cannot be activated it waits for a reset, and the answer is what stands
    /// in the way: [`Code::InUse`] or [`Code::ResetRequired`], as `nvmlDeviceSetMigMode` documents its
    /// activation status.
    ///
    /// # Errors
    /// [`Code::NotSupported`] without MIG, [`Code::InUse`] if instances would be lost.
    pub fn set_mig(&mut self, on: bool) -> Result<Option<Code>, Code> {
        if self.facts()?.mig_devices_max == 0 {
            return Err(Code::NotSupported);
        }
        if !on && !self.instances.is_empty() {
            return Err(Code::InUse);
        }
        self.mig.pending = on;
        if self.mig.current == on {
            return Ok(None);
        }
        if self.needs_reset {
            return Ok(Some(Code::ResetRequired));
        }
        if self.blocked_by_client || self.shown().next().is_some() {
            return Ok(Some(Code::InUse));
        }
        // The driver "may unbind or reset the device", says the header: settings do not survive it.
        self.start_anew();
        Ok(None)
    }

    /// The GPU instance with the driver's number.
    ///
    /// # Errors
    /// [`Code::NotFound`] if there is none.
    pub fn instance(&self, id: u32) -> Result<&GpuInstance, Code> {
        self.instances.iter().find(|instance| instance.id == id).ok_or(Code::NotFound)
    }

    /// All compute instances with their GPU instances, in the driver's order of MIG devices.
    pub fn mig_devices(&self) -> Vec<(&GpuInstance, &ComputeInstance)> {
        let pairs = |instance| {
            let GpuInstance { compute, .. }: &GpuInstance = instance;
            compute.iter().map(move |part| (instance, part))
        };
        let mut devices: Vec<_> = self.instances.iter().flat_map(pairs).collect();
        devices.sort_by_key(|(instance, part)| (instance.id, part.id));
        devices
    }

    pub(crate) fn needs_mig(&self) -> Result<(), Code> {
        if self.mig.current { Ok(()) } else { Err(Code::NotSupported) }
    }

    fn room_for(&self, profile: &InstanceProfile) -> u32 {
        let used: u32 = self
            .instances
            .iter()
            .filter_map(|other| self.profile(other.profile_id).ok())
            .map(|other| other.slices)
            .sum();
        let whole = instance_profiles(&self.model).iter().map(|p| p.slices).max().unwrap_or(0);
        let same = self.instances.iter().filter(|other| other.profile_id == profile.id).count();
        // Starts of one profile lie at least its size apart, so that each free one can be taken.
        let starts = self.free_starts(profile).len() as u32;
        let by_slices = whole.saturating_sub(used) / profile.slices.max(1);
        starts.min(by_slices).min(profile.instances_max.saturating_sub(same as u32))
    }

    /// The start after which most can still be made: for each plain profile its memory slices times
    /// the instances left; of equal ones the first. No document says how a driver chooses, but this
    /// gives the order of a real A100: seven 1g get the numbers 9, 7, 8, 11, 12, 13, 14
    /// (github.com/rapidsai/dask-cuda, issue 583).
    fn default_start(&self, profile: &InstanceProfile) -> Option<u32> {
        let value = |start: &u32| {
            let mut trial = self.clone();
            trial.instances.push(instance(profile, *start, u32::MAX, 0));
            let plain = instance_profiles(&self.model).iter().filter(|p| !p.name.contains('+'));
            let left: u32 = plain.map(|p| trial.room_for(p) * p.memory_slices).sum();
            (left, u32::MAX - *start)
        };
        self.free_starts(profile).into_iter().max_by_key(value)
    }

    /// Numbers as nodes of a tree of halves, the upper half first: 0 is the whole, 1 the half that
    /// starts at slice 4, 2 the one at 0, and so on. Seen on A100: the issue above, and 3, 5, 6 for
    /// three 2g (github.com/XuehaiPan/nvitop, pull request 8).
    fn instance_id(&self, profile: &InstanceProfile, start: u32) -> u32 {
        let whole = instance_profiles(&self.model).iter().map(|p| p.memory_slices).max();
        let size = profile.memory_slices.max(1);
        let nodes = (whole.unwrap_or(size) / size).max(1);
        nodes - 1 + (start / size + nodes / 2) % nodes
    }
}

impl State {
    /// Makes a GPU instance at a start, or where the driver likes; returns its number.
    ///
    /// # Errors
    /// [`Code::NotSupported`] without MIG mode or such a profile, [`Code::InvalidArgument`] for a
    /// start that the profile never has, [`Code::InsufficientResources`] if it does not fit now.
    pub fn create_instance(
        &mut self,
        gpu: u32,
        profile_id: u32,
        start: Option<u32>,
    ) -> Result<u32, Code> {
        let on = self.gpu(gpu)?;
        on.needs_mig()?;
        let profile = on.profile(profile_id)?;
        if start.is_some_and(|start| !profile.starts.contains(&start)) {
            return Err(Code::InvalidArgument);
        }
        let free = on.free_starts(profile);
        let start = match start {
            Some(asked) => free.contains(&asked).then_some(asked),
            None => on.default_start(profile),
        };
        let start = start.ok_or(Code::InsufficientResources)?;
        let id = on.instance_id(profile, start);
        let serial = self.next_serial();
        self.gpu_mut(gpu)?.instances.push(instance(profile, start, id, serial));
        Ok(id)
    }

    /// Takes a GPU instance away.
    ///
    /// # Errors
    /// [`Code::NotFound`] if there is none, [`Code::InUse`] while it has compute instances or
    /// processes.
    pub fn destroy_instance(&mut self, gpu: u32, id: u32) -> Result<(), Code> {
        let on = self.gpu_mut(gpu)?;
        let found = on.instance(id)?;
        let busy = on.shown().any(|p| p.instance.is_some_and(|(instance, _)| instance == id));
        if busy || !found.compute.is_empty() {
            return Err(Code::InUse);
        }
        on.instances.retain(|instance| instance.id != id);
        Ok(())
    }

    /// Makes a compute instance in a GPU instance; returns its number.
    ///
    /// # Errors
    /// [`Code::NotFound`] without such a GPU instance, [`Code::NotSupported`] without such a profile,
    /// [`Code::InvalidArgument`] for a start that the profile never has,
    /// [`Code::InsufficientResources`] if it does not fit now.
    pub fn create_compute(
        &mut self,
        gpu: u32,
        instance: u32,
        profile_id: u32,
        start: Option<u32>,
    ) -> Result<u32, Code> {
        let within = self.gpu(gpu)?.instance(instance)?;
        let profile = compute_profile(self.gpu(gpu)?, within, profile_id)?;
        if start.is_some_and(|start| !profile.starts.contains(&start)) {
            return Err(Code::InvalidArgument);
        }
        let free = within.free_compute_starts(&profile);
        let start = match start {
            Some(asked) => free.into_iter().find(|start| *start == asked),
            None => free.into_iter().next(),
        };
        let start = start.ok_or(Code::InsufficientResources)?;
        let taken = |id: &u32| within.compute.iter().any(|other| other.id == *id);
        let id = (0..8).find(|id| !taken(id)).ok_or(Code::InsufficientResources)?;
        let serial = self.next_serial();
        let on = self.gpu_mut(gpu)?;
        // Drivers' are UUIDs of version 5, which are made from names.
        let name = format!("{}/{instance}/{id}", on.uuid);
        let uuid = format!("MIG-{}", uuid_text(&name, 5));
        let part = ComputeInstance { id, profile_id, start, size: profile.slices, serial, uuid };
        let found = on.instances.iter_mut().find(|other| other.id == instance);
        found.ok_or(Code::NotFound)?.compute.push(part);
        Ok(id)
    }

    /// Takes a compute instance away.
    ///
    /// # Errors
    /// [`Code::NotFound`] if there is none, [`Code::InUse`] while processes are on it.
    pub fn destroy_compute(&mut self, gpu: u32, instance: u32, id: u32) -> Result<(), Code> {
        let on = self.gpu_mut(gpu)?;
        if !on.instance(instance)?.compute.iter().any(|part| part.id == id) {
            return Err(Code::NotFound);
        }
        if on.shown().any(|process| process.instance == Some((instance, id))) {
            return Err(Code::InUse);
        }
        for found in on.instances.iter_mut().filter(|found| found.id == instance) {
            found.compute.retain(|part| part.id != id);
        }
        Ok(())
    }
}

impl GpuInstance {
    /// Compute slices at which a compute instance of a profile could start now.
    pub fn free_compute_starts(&self, profile: &ComputeProfile) -> Vec<u32> {
        let apart = |start: &u32| {
            self.compute.iter().all(|other| {
                other.start + other.size <= *start || start + profile.slices <= other.start
            })
        };
        profile.starts.iter().copied().filter(apart).collect()
    }
}

/// A compute profile by number, within an instance.
fn compute_profile(gpu: &Gpu, within: &GpuInstance, id: u32) -> Result<ComputeProfile, Code> {
    let profiles = compute_profiles(gpu.profile(within.profile_id)?);
    profiles.into_iter().find(|profile| profile.id == id).ok_or(Code::NotSupported)
}

fn instance(profile: &InstanceProfile, start: u32, id: u32, serial: u32) -> GpuInstance {
    let (profile_id, size) = (profile.id, profile.memory_slices);
    GpuInstance { id, profile_id, start, size, serial, compute: Vec::new() }
}
