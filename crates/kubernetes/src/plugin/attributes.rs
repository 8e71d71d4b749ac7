//! What a card says of itself, as attributes that a claim's expressions can ask for.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::DeviceAttribute;
use model::GpuModel;
use node::backend::Backends;
use node::inventory::{Device, DriverFacts};

/// Attributes of one device, by name.
pub(super) type Attributes = BTreeMap<String, DeviceAttribute>;

/// Kubernetes' own name for a PCI address, by which devices of several drivers can be matched.
const PCI_BUS_ID: &str = "resource.kubernetes.io/pciBusID";
/// Longest text that an attribute may be.
const TEXT_MAX: usize = 64;
/// Generations by the first compute capability that they have (CUDA C++ Programming Guide, "Compute Capabilities").
const ARCHITECTURES: [((u32, u32), &str); 9] = [
    ((12, 0), "Blackwell"),
    ((10, 0), "Blackwell"),
    ((9, 0), "Hopper"),
    ((8, 9), "Ada"),
    ((8, 0), "Ampere"),
    ((7, 5), "Turing"),
    ((7, 0), "Volta"),
    ((6, 0), "Pascal"),
    ((5, 0), "Maxwell"),
];

/// What is true of a card and of every instance on it.
pub(super) fn of(device: &Device, model: &GpuModel, driver: &DriverFacts) -> Attributes {
    let (major, minor) = device.compute_capability;
    let (cuda_major, cuda_minor) = driver.cuda;
    let mut all = vec![
        ("model", text(&model.name)),
        ("productName", text(&device.product)),
        ("computeCapability", version(&format!("{major}.{minor}"))),
        ("driverVersion", version(&driver.driver)),
        ("cudaDriverVersion", version(&format!("{cuda_major}.{cuda_minor}"))),
        (PCI_BUS_ID, text(&pci_bus_id(&device.pci_bus_id))),
        ("index", number(device.index)),
    ];
    let architecture = ARCHITECTURES.iter().find(|(first, _)| device.compute_capability >= *first);
    all.extend(architecture.map(|(_, name)| ("architecture", text(name))));
    all.extend(device.numa_node.map(|node| ("numaNode", number(node))));
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What is true of a card alone: what holds caps of its shares, and how hard.
pub(super) fn of_card(device: &Device) -> Attributes {
    let Backends { mig, memory_limit, mps, limiter, .. } = &device.backends;
    let memory = if memory_limit.holds() { memory_limit } else { limiter };
    let all = [
        ("type", text("card")),
        ("uuid", text(&device.uuid)),
        ("memoryCap", text(memory.as_str())),
        ("computeCap", text(limiter.as_str())),
        ("mps", flag(mps.holds())),
        ("mig", flag(mig.holds())),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

/// What is true of an instance alone.
pub(super) fn of_instance(device: &Device, profile: &str, start: u8) -> Attributes {
    let all = [
        ("type", text("instance")),
        ("parentUUID", text(&device.uuid)),
        ("profile", text(profile)),
        ("start", number(u32::from(start))),
        ("memoryCap", text("hard")),
        ("computeCap", text("hard")),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

fn text(value: &str) -> DeviceAttribute {
    let mut end = value.len().min(TEXT_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    DeviceAttribute { string: Some(value[..end].to_owned()), ..DeviceAttribute::default() }
}

fn number(value: u32) -> DeviceAttribute {
    DeviceAttribute { int: Some(i64::from(value)), ..DeviceAttribute::default() }
}

fn flag(value: bool) -> DeviceAttribute {
    DeviceAttribute { bool: Some(value), ..DeviceAttribute::default() }
}

/// Versions must have three numbers without zeros in front (semver.org), and drivers' have two or three with them;
/// what is no such version is left as a text.
fn version(value: &str) -> DeviceAttribute {
    let numbers: Option<Vec<u64>> = value.split('.').map(|part| part.parse().ok()).collect();
    let Some(mut numbers) = numbers.filter(|numbers| numbers.len() <= 3) else {
        return text(value);
    };
    numbers.resize(3, 0);
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    DeviceAttribute { version: Some(words.join(".")), ..DeviceAttribute::default() }
}

/// NVML's `00000000:3B:00.0` as Linux writes it, `0000:3b:00.0`, which Kubernetes' attribute wants.
fn pci_bus_id(nvml: &str) -> String {
    let lower = nvml.to_ascii_lowercase();
    match lower.split_once(':') {
        Some((domain, rest))
            if domain.len() > 4 && domain[..domain.len() - 4].chars().all(|c| c == '0') =>
        {
            format!("{}:{rest}", &domain[domain.len() - 4..])
        }
        _ => lower,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_addresses_take_the_form_that_kubernetes_wants() {
        let of = |text| version(text).version.unwrap();
        assert_eq!(of("580.95.05"), "580.95.5");
        assert_eq!(of("13.0"), "13.0.0");
        assert_eq!(version("r615-beta").string.as_deref(), Some("r615-beta"));
        assert_eq!(pci_bus_id("00000000:3B:00.0"), "0000:3b:00.0");
        assert_eq!(pci_bus_id("0001:3B:00.0"), "0001:3b:00.0");
        assert_eq!(pci_bus_id("00010000:3B:00.0"), "00010000:3b:00.0");
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let long = "ä".repeat(40);
        assert_eq!(text(&long).string.unwrap().len(), 64);
        assert_eq!(text(&long[..62]).string.unwrap().len(), 62);
    }
}
