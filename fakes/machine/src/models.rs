//! What is true of every GPU of a model, beyond MIG. Memory is read from the shipped table; the rest
//! are the makers' data sheets and what drivers print for the model.

const MEMORY: &str = include_str!("../../../data/gpu_models.csv");

/// Generations by NVML's numbers (`NVML_DEVICE_ARCH_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are NVIDIA's own")]
#[repr(u32)]
pub enum Architecture {
    Volta = 5,
    Turing = 6,
    Ampere = 7,
    Ada = 8,
    Hopper = 9,
    Blackwell = 10,
}

/// One model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelFacts {
    /// The catalogue's name, such as `a100-80gb`.
    pub name: &'static str,
    /// What the driver calls it.
    pub product: &'static str,
    /// Generation.
    pub architecture: Architecture,
    /// CUDA compute capability.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub sms: u32,
    /// FP32 cores of one multiprocessor.
    pub cores_per_sm: u32,
    /// Power limit in W.
    pub power_w: u32,
    /// Highest SM and memory clocks in MHz.
    pub clocks_mhz: (u32, u32),
    /// NVLinks, 0 for none.
    pub nvlinks: u32,
    /// PCI device and vendor, as NVML packs them.
    pub pci_device: u32,
    /// Instances that fill the GPU; 0 without MIG.
    pub mig_devices_max: u32,
    /// Width of the memory bus in bits.
    pub bus_bits: u32,
}

impl ModelFacts {
    /// Whether NVML's GPM counters exist: Hopper and newer.
    pub fn has_gpm(&self) -> bool {
        self.architecture >= Architecture::Hopper
    }

    /// All device memory, and what of it the driver keeps, in MiB.
    pub fn memory_mib(&self) -> (u64, u64) {
        let number = |at| self.column(at).parse().unwrap_or(0);
        (number(1), number(2))
    }

    /// What a context takes before its client has allocated anything, in MiB.
    pub fn context_mib(&self) -> u64 {
        self.column(3).parse().unwrap_or(0)
    }

    /// The name of its MIG profiles in the table; empty without MIG.
    pub(crate) fn mig_product(&self) -> &'static str {
        self.column(4)
    }

    fn column(&self, at: usize) -> &'static str {
        let mut rows = MEMORY.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let row = rows.find(|row| row.first() == Some(&self.name)).unwrap_or_default();
        row.get(at).copied().unwrap_or("")
    }
}

/// The model of that name.
pub fn facts(name: &str) -> Option<&'static ModelFacts> {
    MODELS.iter().find(|model| model.name == name)
}

/// Every known name.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|model| model.name)
}

use Architecture::{Ada, Ampere, Blackwell, Hopper, Turing, Volta};

/// Fields in the order of a row below.
type Row = (
    &'static str,
    &'static str,
    (Architecture, i32, i32),
    (u32, u32),
    u32,
    (u32, u32),
    (u32, u32),
    (u32, u32),
);

const fn model(row: Row) -> ModelFacts {
    let (name, product, (architecture, major, minor), (sms, cores_per_sm), power_w, ..) = row;
    let (.., clocks_mhz, (nvlinks, pci_device), (mig_devices_max, bus_bits)) = row;
    ModelFacts {
        name,
        product,
        architecture,
        capability: (major, minor),
        sms,
        cores_per_sm,
        power_w,
        clocks_mhz,
        nvlinks,
        pci_device,
        mig_devices_max,
        bus_bits,
    }
}

// name, product, capability, SMs and cores each, W, MHz, NVLinks and PCI id, MIG devices and bus.
#[rustfmt::skip]
const MODELS: &[ModelFacts] = &[
    model(("v100m16", "Tesla V100-SXM2-16GB", (Volta, 7, 0), (80, 64), 300, (1530, 877), (6, 0x1DB1_10DE), (0, 4096))),
    model(("v100m32", "Tesla V100-SXM2-32GB", (Volta, 7, 0), (80, 64), 300, (1530, 877), (6, 0x1DB5_10DE), (0, 4096))),
    model(("t4", "Tesla T4", (Turing, 7, 5), (40, 64), 70, (1590, 5001), (0, 0x1EB8_10DE), (0, 256))),
    model(("a10", "NVIDIA A10", (Ampere, 8, 6), (72, 128), 150, (1695, 6251), (0, 0x2236_10DE), (0, 384))),
    model(("a30", "NVIDIA A30", (Ampere, 8, 0), (56, 64), 165, (1440, 1215), (4, 0x20B7_10DE), (4, 3072))),
    model(("l40s", "NVIDIA L40S", (Ada, 8, 9), (142, 128), 350, (2520, 9001), (0, 0x26B9_10DE), (0, 384))),
    model(("a100-40gb", "NVIDIA A100-SXM4-40GB", (Ampere, 8, 0), (108, 64), 400, (1410, 1215), (12, 0x20B0_10DE), (7, 5120))),
    model(("a100-80gb", "NVIDIA A100-SXM4-80GB", (Ampere, 8, 0), (108, 64), 400, (1410, 1593), (12, 0x20B2_10DE), (7, 5120))),
    model(("h100-80gb", "NVIDIA H100 80GB HBM3", (Hopper, 9, 0), (132, 128), 700, (1980, 2619), (18, 0x2330_10DE), (7, 5120))),
    model(("h200", "NVIDIA H200", (Hopper, 9, 0), (132, 128), 700, (1980, 3201), (18, 0x2335_10DE), (7, 6144))),
    model(("b200", "NVIDIA B200", (Blackwell, 10, 0), (148, 128), 1000, (1965, 3996), (18, 0x2901_10DE), (7, 8192))),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_memory_and_the_catalogues_name() {
        let catalogue = model::Catalogue::shipped().unwrap();
        for facts in MODELS {
            let (total, reserved) = facts.memory_mib();
            let known = catalogue.get(facts.name).expect(facts.name);
            assert_eq!(known.memory_mib, total - reserved, "{}", facts.name);
            assert_eq!(known.mig.is_some(), facts.mig_devices_max > 0, "{}", facts.name);
        }
    }
}
