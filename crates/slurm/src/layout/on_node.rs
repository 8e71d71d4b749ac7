//! What a node does of a change of layout, by order of the machine that carries it out: it tells what it is,
//! divides its cards, and writes its own copies of Slurm's files. Each may be done again.

use std::time::Duration;

use model::SharingMode;
use node::gpu_lock::Taken;
use node::inventory::{Device, Inventory};
use node::machine::{Machine, MachineError, MachineOptions};
use node::mig::Target;
use node::tool::Tool;

use super::card::{Becomes, Card, CardLayout, Files, NodeLayout, Request};
use super::files;
use super::{LayoutError, edit};
use crate::conf;
use crate::on_node::{Node, locked};
use crate::site::{Site, conf_folder};

/// slurmd waits for device files that are not there.
const SLURMD_LIMIT: Duration = Duration::from_secs(20);
const SLURMD_OUTPUT_MAX: u64 = 1 << 20;

/// A node and what it does for a change of layout.
#[derive(Debug)]
pub struct OnNode {
    name: String,
    site: Site,
    machine: Machine,
}

impl OnNode {
    /// Opens this machine as the node of that name. What jobs hold that are gone is taken back first.
    ///
    /// # Errors
    /// No driver, or no usable state folder.
    pub fn open(name: &str, site: Site) -> Result<Self, LayoutError> {
        let machine = Machine::open(MachineOptions::default())?;
        Ok(Self { name: name.to_owned(), site, machine })
    }

    /// What the node is.
    ///
    /// # Errors
    /// The driver does not tell, or cards cannot be named in gres.conf.
    pub fn look(&mut self) -> Result<NodeLayout, LayoutError> {
        let inventory = self.machine.inventory()?;
        let (told, devices) =
            (self.site.capabilities_of(&self.name), self.site.devices_of(&self.name));
        let files = |gpu, instance, inside| {
            conf::capability_files(&told, &devices, (gpu, instance, inside))
        };
        let conf = conf::render(&self.name, &inventory, &self.site, files);
        let conf = conf.map_err(|why| LayoutError::node(&self.name, why))?;
        let own = self.site.ways.own_gres_conf;
        let text = std::fs::read_to_string(conf_folder().join(files::GRES_CONF)).ok();
        let present = text.map(|text| edit::devices(&text, &self.name, own)).transpose();
        Ok(NodeLayout {
            cards: self.cards(&inventory),
            gres_conf: conf.gres,
            node_gres: conf.node_gres,
            present: present.map_err(|why| LayoutError::file(files::GRES_CONF, why))?,
            gres: files::own_gres(&conf_folder())?,
            notes: conf.notes,
        })
    }

    /// Does what it is asked to, and says what it is then.
    ///
    /// # Errors
    /// Somebody holds or uses a card that would have to change, the driver refuses, or a file cannot be
    /// changed.
    pub fn obey(&mut self, request: &Request) -> Result<NodeLayout, LayoutError> {
        match request {
            Request::Divide(cards) => {
                self.tidy()?;
                cards.iter().try_for_each(|card| self.divide(card))?;
            }
            Request::Files(wanted) => {
                files::write_on_node(&conf_folder(), &self.name, &self.site, wanted)?;
                self.check(wanted)?;
            }
        }
        self.look()
    }

    /// Asks slurmd what it makes of the files. One that registers itself finds its `Gres=` elsewhere, and
    /// its files cannot be tried so (measured, 22.05).
    fn check(&self, wanted: &Files) -> Result<(), LayoutError> {
        if wanted.dynamic {
            return Ok(());
        }
        let tool = Tool::at("/bin/sh").within(SLURMD_LIMIT).keeping(SLURMD_OUTPUT_MAX);
        let mut command = tool.command();
        command.args(["-c", "exec slurmd -G -N \"$0\" 2>&1", &self.name]);
        let said = tool.run(command, "")?;
        let (found, asked) = (edit::told(&said), edit::counts(&wanted.gres));
        let differs = asked.iter().find(|(kind, count)| found.get(*kind) != Some(count));
        let Some((kind, count)) = differs else { return Ok(()) };
        let found = found.get(kind).copied().unwrap_or(0);
        let why = format!("slurmd -G finds {found} of {kind}, Gres= says {count}");
        Err(LayoutError::node(&self.name, why))
    }

    /// Jobs whose Epilog never ran hold nothing.
    fn tidy(&mut self) -> Result<(), LayoutError> {
        if self.machine.holds()?.is_empty() {
            return Ok(());
        }
        Node::open(&self.name, self.site.clone())?.tidy()?;
        Ok(())
    }

    fn divide(&mut self, card: &Becomes) -> Result<(), LayoutError> {
        let gpu = card.gpu.as_str();
        let _lock = match locked(gpu)? {
            Taken::Ours(lock) => lock,
            Taken::By(other) => return Err(refused(gpu, format!("it is used by {other}"))),
        };
        let holders = self.machine.holds()?.into_iter().filter(|hold| hold.gpu == gpu);
        let holders: Vec<String> = holders.map(|hold| hold.who).collect();
        if !holders.is_empty() {
            return Err(refused(gpu, format!("it is held by {}", holders.join(", "))));
        }
        match &card.layout {
            CardLayout::Whole => self.machine.set_mode(gpu, SharingMode::Exclusive)?,
            CardLayout::Mig(instances) => {
                self.machine.set_mode(gpu, SharingMode::Mig)?;
                let target = self.target(gpu, instances)?;
                self.machine.relayout(gpu, &target)?;
            }
        }
        // From now on this is how the card is, and not what hotpot has made of it for a while.
        Ok(self.machine.settle(gpu)?)
    }

    /// Profiles by the names of now: the driver may list others in MIG mode.
    fn target(&mut self, gpu: &str, instances: &[(String, u8)]) -> Result<Target, LayoutError> {
        let inventory = self.machine.inventory()?;
        let mig = inventory.device(gpu).and_then(|device| device.mig.as_ref());
        let mig = mig.ok_or_else(|| refused(gpu, "it has no MIG".to_owned()))?;
        let place = |(name, start): &(String, u8)| {
            let found = mig.geometry.find(name).map(|profile| (profile, *start));
            found.ok_or_else(|| refused(gpu, format!("it has no MIG profile `{name}`")))
        };
        Ok(Target::Exact(instances.iter().map(place).collect::<Result<_, _>>()?))
    }

    fn cards(&self, inventory: &Inventory) -> Vec<Card> {
        let mut cards: Vec<Card> =
            inventory.devices.iter().map(|device| card(device, &self.site)).collect();
        cards.sort_by_key(|card| card.minor);
        cards
    }
}

fn card(device: &Device, site: &Site) -> Card {
    let layout = match &device.mig {
        Some(mig) if mig.enabled => {
            let named = mig.instances.iter().map(|instance| {
                let profile = mig.geometry.profile(instance.profile);
                let name = profile.map_or_else(String::new, |profile| profile.name.clone());
                (name, instance.start)
            });
            CardLayout::Mig(named.collect())
        }
        Some(_) | None => CardLayout::Whole,
    };
    Card {
        gpu: device.uuid.clone(),
        minor: device.minor.unwrap_or(device.index),
        model: device.model.clone(),
        kind: site.card_type(device.model.as_deref().unwrap_or_default()),
        layout,
    }
}

fn refused(gpu: &str, why: String) -> LayoutError {
    MachineError::Refused { gpu: gpu.to_owned(), why }.into()
}
