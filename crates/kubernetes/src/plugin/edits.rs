//! What a claim's containers are told: which device files, variables and mounts its shares need.

use std::fs;
use std::path::{Path, PathBuf};

use node::grant::Grant;
use node::inventory::{self, Inventory};
use node::limiter::InContainer;
use serde::Deserialize;
use thiserror::Error;

use super::cdi::{self, DeviceNode, Edits, Mount};
use super::checkpoint::{Hold, Prepared};
use super::devices::{Named, Offers};
use super::driver_files::DriverRoot;
use super::library;
use super::prepare::PrepareError;

/// Where a client of MPS finds its daemon.
const MPS_PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Where a daemon of MPS writes its log, which is nothing for clients.
const MPS_LOG: &str = "CUDA_MPS_LOG_DIRECTORY";
/// What clients and server of MPS share, beside the pipes.
const SHARED_MEMORY: &str = "/dev/shm";

/// The administrator's file cannot be used.
#[derive(Debug, Error)]
#[error("{}: {why}; it must hold `{{\"containerEdits\": {{…}}}}` as in a CDI file", path.display())]
pub struct ExtraError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub why: String,
}

/// Knows what containers need.
#[derive(Clone, Debug)]
pub struct Telling {
    /// Where the driver is.
    pub driver: DriverRoot,
    /// What the administrator adds for every claim.
    pub extra: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Extra {
    container_edits: Edits,
}

/// Reads what an administrator adds for every claim.
///
/// # Errors
/// The file cannot be read.
pub fn extra(path: &Path) -> Result<Edits, ExtraError> {
    let wrong = |why: String| ExtraError { path: path.to_owned(), why };
    let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let read: Result<Extra, _> = serde_json::from_str(&text);
    read.map(|extra| extra.container_edits).map_err(|error| wrong(error.to_string()))
}

impl Telling {
    /// Edits of the claim, and of each of its devices.
    pub(super) fn edits(
        &self,
        claim: &Prepared,
        inventory: &Inventory,
        offers: &Offers,
    ) -> Result<(Edits, Vec<Edits>), PrepareError> {
        let devices: Vec<Edits> = (0..claim.given.len())
            .map(|at| Edits {
                device_nodes: self.nodes(claim, at, inventory, offers),
                ..Edits::default()
            })
            .collect();
        let grants: Vec<&Grant> = claim.grants().collect();
        let mut all = Edits {
            env: vec!["NVIDIA_VISIBLE_DEVICES=void".into()],
            device_nodes: self.driver.common_nodes(),
            mounts: self.driver.mounts(),
            ..Edits::default()
        };
        let are_kept_apart =
            devices.len() > 1 && devices.iter().all(|one| !one.device_nodes.is_empty());
        if !are_kept_apart {
            let names = claim.holds.iter().filter_map(|Hold { of, grant }| match grant {
                Some(grant) => Some(grant.device.clone()),
                None => uuid(claim, of, offers),
            });
            all.env.push(format!("CUDA_VISIBLE_DEVICES={}", names.collect::<Vec<_>>().join(",")));
        }
        for grant in &grants {
            all.extend(of_grant(grant));
        }
        if let Some(limiter) = grants.iter().find_map(|grant| InContainer::of(grant).transpose()) {
            all.mounts.extend(of_limiter(&limiter?));
        }
        all.extend(self.extra.clone());
        Ok((all, devices))
    }

    /// Device files of one device of a claim.
    fn nodes(
        &self,
        claim: &Prepared,
        at: usize,
        inventory: &Inventory,
        offers: &Offers,
    ) -> Vec<DeviceNode> {
        let Some(device) = uuid(claim, &[at], offers).and_then(|uuid| inventory.device(&uuid))
        else {
            return Vec::new();
        };
        let mut nodes = self.driver.card_nodes(device);
        let hold = claim.holds.iter().find(|hold| hold.of.contains(&at));
        let grant = hold.and_then(|hold| hold.grant.as_ref());
        let instance = grant.and_then(|grant| instance(device, &grant.device));
        nodes.extend(instance.into_iter().flat_map(|it| self.driver.instance_nodes(device, it)));
        nodes
    }
}

/// UUID of the card of the first of these devices.
fn uuid(claim: &Prepared, of: &[usize], offers: &Offers) -> Option<String> {
    let given = of.first().and_then(|at| claim.given.get(*at))?;
    match offers.named(&given.device)? {
        Named::Card(card) | Named::Instance(card, _) => Some(card.uuid.clone()),
    }
}

fn instance<'a>(
    device: &'a inventory::Device,
    uuid: &str,
) -> Option<(u32, &'a inventory::MigDevice)> {
    let mig = device.mig.as_ref()?;
    mig.instances.iter().find_map(|instance| {
        let found = instance.device.as_ref().filter(|device| device.uuid == uuid)?;
        Some((instance.gpu_instance, found))
    })
}

/// Variables, and what they name.
fn of_grant(grant: &Grant) -> Edits {
    let is_told = |name: &str| !InContainer::replaces(name) && name != MPS_LOG;
    let told = grant.env.iter().filter(|(name, _)| is_told(name));
    let pipes = grant.env.iter().find(|(name, _)| name == MPS_PIPES).map(|(_, path)| path);
    let mounts = pipes.into_iter().flat_map(|path| {
        [Mount::write(path.clone(), path.clone()), Mount::write(SHARED_MEMORY, SHARED_MEMORY)]
    });
    Edits {
        env: told.map(|(name, value)| format!("{name}={value}")).collect(),
        mounts: mounts.collect(),
        ..Edits::default()
    }
}

/// Each file by itself, and not their folder: who may write to that could put other caps in their place.
fn of_limiter(limiter: &InContainer) -> Vec<Mount> {
    let same = |path: &Path| path.display().to_string();
    let mut mounts = vec![
        Mount::read(same(&limiter.library), library::INSIDE),
        Mount::read(same(&library::preload(&limiter.library)), cdi::PRELOAD),
        Mount::read(same(&limiter.caps), InContainer::CAPS),
    ];
    mounts.extend(limiter.books.iter().map(|path| Mount::write(same(path), same(path))));
    mounts
}
