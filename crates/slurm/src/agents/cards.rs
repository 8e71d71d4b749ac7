//! Which of an agent's figures belong to which device that Slurm counts. Slurm tells no UUIDs, so they are matched
//! by position; where the two do not have the same devices, nothing is known of any of a type.

use model::Catalogue;

use super::figures::{Figures, GpuFigures, InstanceFigures, TenantFigures};
use crate::queue_view::Device;
use crate::site::Site;

/// What was measured of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CardFigures {
    /// UUID of the card or instance.
    pub uuid: String,
    /// Name of its model in the catalogue.
    pub model: Option<String>,
    /// The driver no longer reaches it.
    pub lost: bool,
    /// Part of the last period in which it was busy, 0 to 1.
    pub busy_ratio: Option<f64>,
    /// All of its memory.
    pub memory_total_bytes: Option<u64>,
    /// Memory in use.
    pub memory_used_bytes: Option<u64>,
    /// Temperature of the chip.
    pub temperature_celsius: Option<f64>,
    /// Power drawn by the board.
    pub power_watts: Option<f64>,
    /// Code of the last Xid event; 0 for none.
    pub xid: Option<u64>,
    at: (u32, Option<u32>),
}

impl Figures {
    /// Figures of a node's devices, in their order.
    ///
    /// Slurm counts devices by type, and within a type as in gres.conf, which `hotpot slurm conf` writes in the order of
    /// the driver. Instances lie in the order of card and memory slice.
    pub fn of_devices(&self, devices: &[Device], site: &Site) -> Vec<Option<CardFigures>> {
        let mut found = vec![None; devices.len()];
        let mut kinds: Vec<&str> = devices.iter().map(|device| device.kind.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let mut cards = devices.iter().filter(|device| device.instance_mib.is_none());
        let first = cards.next().map(|device| &device.kind);
        let is_alone = cards.all(|device| Some(&device.kind) == first);
        for kind in kinds {
            let alike = || (0..).zip(devices).filter(|(_, device)| device.kind == kind);
            let is_instance = alike().any(|(_, device)| device.instance_mib.is_some());
            let figures = match is_instance {
                true => self.instances_of(kind),
                false => self.cards_of(kind, is_alone, site),
            };
            let figures = figures.filter(|figures| figures.len() == alike().count());
            for ((at, _), figures) in alike().zip(figures.into_iter().flatten()) {
                found[at] = Some(figures);
            }
        }
        found
    }

    /// What a job has on a device.
    pub fn tenant(&self, card: &CardFigures, job: u32) -> Option<TenantFigures> {
        self.tenants.get(&(card.at.0, card.at.1, job)).copied()
    }

    /// * `is_alone` — all whole cards of the node are of one type.
    fn cards_of(&self, kind: &str, is_alone: bool, site: &Site) -> Option<Vec<CardFigures>> {
        let is_kind = |gpu: &GpuFigures| {
            is_alone || gpu.model.as_deref().is_some_and(|model| site.card_type(model) == kind)
        };
        let whole = self.gpus.iter().filter(|(_, gpu)| !gpu.in_mig && is_kind(gpu));
        Some(whole.map(|(index, gpu)| card(*index, gpu)).collect())
    }

    /// `None` where the agent may not know in which order they lie.
    fn instances_of(&self, profile: &str) -> Option<Vec<CardFigures>> {
        let alike = self.instances.iter().filter(|(_, one)| one.profile == profile);
        let placed = alike.map(|(key, one)| Some(((key.0, one.start?), (key, one))));
        let mut placed: Vec<_> = placed.collect::<Option<_>>()?;
        placed.sort_by_key(|(place, _)| *place);
        let of_card = |gpu: u32| self.gpus.get(&gpu);
        Some(
            placed.into_iter().map(|(_, (key, one))| instance(*key, one, of_card(key.0))).collect(),
        )
    }
}

fn card(index: u32, gpu: &GpuFigures) -> CardFigures {
    CardFigures {
        uuid: gpu.uuid.clone(),
        model: gpu.model.clone(),
        lost: gpu.lost,
        busy_ratio: gpu.busy_ratio.or(gpu.engine_ratio),
        memory_total_bytes: gpu.memory_total_bytes,
        memory_used_bytes: gpu.memory_used_bytes,
        temperature_celsius: gpu.temperature_celsius,
        power_watts: gpu.power_watts,
        xid: gpu.xid,
        at: (index, None),
    }
}

/// * `gpu` — the card that it is of: their temperature, power and errors are one.
fn instance(
    (index, number): (u32, u32),
    one: &InstanceFigures,
    gpu: Option<&GpuFigures>,
) -> CardFigures {
    let of_card = gpu.map(|gpu| card(index, gpu)).unwrap_or_default();
    CardFigures {
        uuid: one.uuid.clone(),
        busy_ratio: one.engine_ratio,
        memory_total_bytes: one.memory_total_bytes,
        memory_used_bytes: one.memory_used_bytes,
        at: (index, Some(number)),
        ..of_card
    }
}

/// Memory that tenants can get of a whole card of a type, by the catalogue.
pub fn catalogue_mib(kind: &str, site: &Site) -> Option<u64> {
    let catalogue = Catalogue::shipped().ok()?;
    let found =
        catalogue.iter().find(|model| !kind.is_empty() && site.card_type(&model.name) == kind);
    found.map(|model| model.memory_mib).filter(|mib| *mib > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_view::{QueueView, Told};

    fn devices(gres: &str) -> Vec<Device> {
        let text = format!("NodeName=n1 Gres={gres}");
        QueueView::of(&Told { nodes: &text, ..Told::default() }, 0, 256).nodes.remove(0).devices
    }

    fn figures(lines: &[&str]) -> Figures {
        Figures::parse(&format!("hotpot_up 1\n{}\n", lines.join("\n"))).unwrap()
    }

    fn uuids(figures: &Figures, gres: &str) -> Vec<String> {
        let found = figures.of_devices(&devices(gres), &Site::default());
        found.into_iter().map(|card| card.map_or("-".into(), |card| card.uuid)).collect()
    }

    #[test]
    fn cards_and_instances_are_matched_by_position() {
        let told = figures(&[
            r#"hotpot_gpu_mig_enabled{gpu="0",uuid="A"} 1"#,
            r#"hotpot_gpu_mig_enabled{gpu="1",uuid="B"} 0"#,
            r#"hotpot_gpu_lost{gpu="2",uuid="C"} 1"#,
            r#"hotpot_gpu_power_watts{gpu="0",uuid="A"} 200"#,
            r#"hotpot_mig_info{gpu="0",uuid="M1",gpu_instance="7",profile="1g.10gb",start="3"} 1"#,
            r#"hotpot_mig_info{gpu="0",uuid="M2",gpu_instance="9",profile="1g.10gb",start="0"} 1"#,
            r#"hotpot_tenant_processes{gpu="0",gpu_instance="9",tenant_kind="slurm-job",tenant="5"} 2"#,
        ]);
        assert_eq!(uuids(&told, "gpu:a100:2,gpu:1g.10gb:2"), ["B", "C", "M2", "M1"]);
        let found = told.of_devices(&devices("gpu:a100:2,gpu:1g.10gb:2"), &Site::default());
        let first = found[2].as_ref().unwrap();
        assert_eq!((first.power_watts, told.tenant(first, 5).unwrap().processes), (Some(200.0), 2));
        assert!(found[1].as_ref().unwrap().lost);
        assert_eq!(told.tenant(found[3].as_ref().unwrap(), 5), None);
    }

    #[test]
    fn what_does_not_fit_is_not_guessed() {
        let told = figures(&[
            r#"hotpot_gpu_info{gpu="0",uuid="A",model="a100-80gb"} 1"#,
            r#"hotpot_gpu_info{gpu="1",uuid="B",model="h100-80gb"} 1"#,
            r#"hotpot_mig_info{gpu="1",uuid="M",gpu_instance="7",profile="1g.10gb"} 1"#,
        ]);
        assert_eq!(uuids(&told, "gpu:a100_80gb:3"), ["-", "-", "-"]);
        assert_eq!(uuids(&told, "gpu:h100_80gb:1,gpu:a100_80gb:1"), ["B", "A"]);
        assert_eq!(uuids(&told, "gpu:h100_80gb:1,gpu:a100_80gb:2"), ["B", "-", "-"]);
        // Nobody has told where the instance begins.
        assert_eq!(uuids(&told, "gpu:1g.10gb:1"), ["-"]);
    }

    #[test]
    fn the_catalogue_knows_cards_by_the_sites_words() {
        assert_eq!(catalogue_mib("a100_80gb", &Site::default()), Some(81_920 - 640));
        assert_eq!(catalogue_mib("a100", &Site::default()), None);
        assert_eq!(catalogue_mib("", &Site::default()), None);
    }
}
