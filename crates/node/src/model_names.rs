//! Which model of the catalogue a GPU is, and what it is to the engine.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use model::{Catalogue, CatalogueError, Gpu, GpuModel, MigGeometry, ModeSet, ModelId, SharingKind};

use crate::inventory::{ComputeMode, Device, Inventory};

/// Words of NVIDIA's product names with the models they may mean; memory decides among them.
const FAMILIES: &[(&str, &[&str])] = &[
    ("P100", &["p100"]),
    ("V100", &["v100m16", "v100m32"]),
    ("V100S", &["v100m32"]),
    ("T4", &["t4"]),
    ("A10", &["a10"]),
    ("A30", &["a30"]),
    ("L40S", &["l40s"]),
    ("A100", &["a100-40gb", "a100-80gb"]),
    ("H100", &["h100-80gb", "h100-94gb", "h100-96gb"]),
    ("H200", &["h200"]),
    ("GH200", &["h100-96gb", "gh200-144gb"]),
    ("B200", &["b200"]),
    ("GB200", &["gb200"]),
    ("B300", &["b300"]),
    ("GB300", &["gb300"]),
    ("6000", &["rtx-pro-6000-96gb"]),
];
/// Difference between the table's and the driver's memory, in thousandths, up to which they may be
/// the same model: drivers differ by what they count.
const MEMORY_DIFFERENCE_MILLI: u64 = 80;
/// Memory that a CUDA context takes where the catalogue does not know the model.
const CONTEXT_MIB: u64 = 500;

/// The catalogue's name of a product with so much device memory; `None` if the catalogue lacks it.
pub fn catalogue_name(product: &str, memory_mib: u64) -> Option<String> {
    let catalogue = shipped()?;
    let words: Vec<&str> = product.split(|letter: char| !letter.is_alphanumeric()).collect();
    let families = FAMILIES.iter().filter(|(word, _)| words.contains(word));
    let names = families.flat_map(|(_, names)| names.iter().copied());
    let differences = names.filter_map(|name| {
        let known = catalogue.get(name)?.memory_mib;
        let milli = known.abs_diff(memory_mib) * 1000 / memory_mib.max(1);
        (milli <= MEMORY_DIFFERENCE_MILLI).then_some((milli, name))
    });
    differences.min().map(|(_, name)| name.to_owned())
}

/// MIG of a product as the catalogue has it.
pub(crate) fn mig_of(product: &str, memory_mib: u64) -> Option<&'static MigGeometry> {
    shipped()?.get(&catalogue_name(product, memory_mib)?)?.mig.as_ref()
}

/// What a CUDA context takes on a product, in MiB.
pub(crate) fn context_mib(product: &str, memory_mib: u64) -> u64 {
    let name = catalogue_name(product, memory_mib);
    let known = name.and_then(|name| shipped()?.get(&name));
    known.map_or(CONTEXT_MIB, |known| known.context_mib)
}

/// The shipped catalogue, read once.
fn shipped() -> Option<&'static Catalogue> {
    static CATALOGUE: OnceLock<Option<Catalogue>> = OnceLock::new();
    CATALOGUE.get_or_init(|| Catalogue::shipped().ok()).as_ref()
}

/// The machine's GPUs as the engine takes them, with the catalogue that knows their models.
#[derive(Clone, Debug)]
pub struct EngineGpus {
    /// The shipped catalogue, with what the driver knows better.
    pub catalogue: Catalogue,
    /// One for each device of the inventory that can be used, in its order.
    pub gpus: Vec<Gpu>,
    /// The device of each of them, as a position in [`Inventory::devices`].
    pub devices: Vec<usize>,
    /// Devices left out, by UUID, and why.
    pub left_out: Vec<(String, String)>,
}

impl Inventory {
    /// The machine's GPUs as the engine takes them: memory, MIG geometry and modes on offer are
    /// the driver's.
    ///
    /// # Errors
    /// None in a build whose tests have passed: the catalogue is compiled in.
    pub fn to_engine(&self) -> Result<EngineGpus, CatalogueError> {
        let catalogue = Catalogue::shipped()?;
        let (gpus, devices, left_out) = (Vec::new(), Vec::new(), Vec::new());
        let mut out = EngineGpus { catalogue, gpus, devices, left_out };
        let mut entered = BTreeSet::new();
        for (at, device) in self.devices.iter().enumerate() {
            if let Some(why) = device.unusable() {
                out.left_out.push((device.uuid.clone(), why));
                continue;
            }
            let model = enter(&mut out.catalogue, &mut entered, device.to_model());
            out.gpus.push(Gpu::idle(model, device.offers()));
            out.devices.push(at);
        }
        Ok(out)
    }
}

/// Enters a model under a name that no different one of this machine has.
fn enter(
    catalogue: &mut Catalogue,
    entered: &mut BTreeSet<String>,
    model: GpuModel,
) -> Arc<GpuModel> {
    let base = model.name.clone();
    let mut number = 1;
    loop {
        let name = if number == 1 { base.clone() } else { format!("{base}-{number}") };
        let Some(known) = catalogue.get(&name) else {
            entered.insert(name.clone());
            return catalogue.insert(GpuModel { name, ..model });
        };
        let same = GpuModel { id: known.id, name: name.clone(), ..model.clone() };
        if **known == same {
            return Arc::clone(known);
        }
        if entered.insert(name) {
            return catalogue.insert(same);
        }
        number += 1;
    }
}

impl Device {
    /// Why nobody can be put on the GPU as it is; `None` if somebody can.
    pub fn unusable(&self) -> Option<String> {
        if self.mig.as_ref().is_some_and(|mig| mig.enabled && mig.geometry.profiles.is_empty()) {
            return Some(
                "it is in MIG mode, and its instances can only be read by root".to_owned(),
            );
        }
        if self.compute_mode == ComputeMode::Prohibited {
            let why = "its compute mode is prohibited: somebody keeps everybody off it";
            return Some(format!("{why}; `nvidia-smi -i {} -c DEFAULT` allows it", self.index));
        }
        None
    }

    /// Modes that this machine can hold on the GPU.
    pub fn offers(&self) -> ModeSet {
        let backends = &self.backends;
        // Of memory that nobody knows no part can be given.
        let known = self.memory_mib > 0;
        let capped = known && (backends.memory_limit.holds() || backends.limiter.holds());
        let backed = [
            (SharingKind::Mps, known && backends.mps.holds()),
            (SharingKind::Mig, backends.mig.holds()),
            (SharingKind::MemoryCapped, capped),
        ];
        // Processes take turns on any GPU; the tool only sets how long a turn is.
        let always = ModeSet::of(&[SharingKind::Exclusive, SharingKind::TimeSlice]);
        backed.iter().filter(|(_, holds)| *holds).fold(always, |set, (kind, _)| set.with(*kind))
    }

    /// The model as the driver describes it; what a driver cannot say comes from the catalogue.
    pub fn to_model(&self) -> GpuModel {
        let known = self.model.as_ref().and_then(|name| shipped()?.get(name));
        let mig = self.mig.as_ref().map(|mig| &mig.geometry);
        let mig = mig.filter(|geometry| !geometry.profiles.is_empty()).map(nominal);
        let always = ModeSet::of(&[
            SharingKind::Exclusive,
            SharingKind::TimeSlice,
            SharingKind::MemoryCapped,
        ]);
        let optional = [
            (SharingKind::Mps, self.compute_capability >= (7, 0)),
            (SharingKind::Mig, mig.is_some()),
        ];
        let modes = optional.iter().filter(|(_, can)| *can);
        GpuModel {
            id: ModelId(0),
            name: self.model.clone().unwrap_or_else(|| plain_name(&self.product)),
            memory_mib: self.memory_mib.saturating_sub(self.reserved_mib),
            context_mib: known.map_or(CONTEXT_MIB, |known| known.context_mib),
            modes: modes.fold(always, |set, (kind, _)| set.with(*kind)),
            mig,
        }
    }
}

/// The geometry with nominal instance memory: `GpuModel::instance_memory_mib` takes 95 % of it, and
/// the driver's figure is what comes out of that.
fn nominal(geometry: &MigGeometry) -> MigGeometry {
    let mut geometry = geometry.clone();
    for profile in &mut geometry.profiles {
        profile.memory_mib = (profile.memory_mib * 100).div_ceil(95);
    }
    geometry
}

/// `NVIDIA GeForce RTX 4090` as `geforce-rtx-4090`.
fn plain_name(product: &str) -> String {
    let lower = product.to_ascii_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty() && *word != "nvidia").collect();
    words.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_find_their_model_by_word_and_memory() {
        let cases = [
            ("NVIDIA A100-SXM4-80GB", 81920, Some("a100-80gb")),
            ("NVIDIA A100-PCIE-40GB", 40960, Some("a100-40gb")),
            ("NVIDIA A100 80GB PCIe", 81920, Some("a100-80gb")),
            ("NVIDIA H100 80GB HBM3", 81559, Some("h100-80gb")),
            ("NVIDIA H100 PCIe", 81559, Some("h100-80gb")),
            ("NVIDIA H100 NVL", 95830, Some("h100-94gb")),
            ("NVIDIA GH200 480GB", 97871, Some("h100-96gb")),
            ("NVIDIA H200", 143771, Some("h200")),
            ("NVIDIA A30", 24576, Some("a30")),
            ("Tesla T4", 15360, Some("t4")),
            ("NVIDIA L40S", 46068, Some("l40s")),
            ("NVIDIA B200", 183359, Some("b200")),
            ("Tesla V100-SXM2-32GB", 32768, Some("v100m32")),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, Some("rtx-pro-6000-96gb")),
            ("NVIDIA GeForce RTX 4090", 24564, None),
            ("Quadro RTX 6000", 24576, None),
        ];
        for (product, memory_mib, expected) in cases {
            assert_eq!(catalogue_name(product, memory_mib).as_deref(), expected, "{product}");
        }
    }

    #[test]
    fn unknown_products_get_a_plain_name() {
        assert_eq!(plain_name("NVIDIA GeForce RTX 4090"), "geforce-rtx-4090");
    }
}
