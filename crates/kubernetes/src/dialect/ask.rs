//! What is asked of cards by resource names, and the claim that asks the same. Pure.

use std::fmt;

use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceClaimConfiguration, DeviceRequest, ExactDeviceRequest,
    OpaqueDeviceConfiguration, ResourceClaimSpec,
};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

use crate::names;
use crate::share::{COUNT_MAX, GpuShare};

/// Memory that is still read as an amount of one card: 16 TiB.
pub const MEMORY_MAX_MIB: u64 = 1 << 24;
/// A MIG profile's name at most: templates' names have 63 letters.
const PROFILE_LENGTH_MAX: usize = 24;

/// Cards of a class, and what of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    class: String,
    count: u64,
    each: Each,
}

/// What is asked of each card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Each {
    /// What the class says: the whole card, if that says nothing.
    Card,
    /// A part of it, by at least one amount.
    Part {
        /// Device memory in MiB, 1 to [`MEMORY_MAX_MIB`]; in proportion to the compute if nothing is said.
        memory_mib: Option<u64>,
        /// Thousandths of its compute, 1 to 1000; no cap if nothing is said.
        compute_milli: Option<u64>,
    },
    /// A MIG instance.
    Instance(Profile),
}

/// The name of a MIG profile, `1g.10gb`, with what it has (`+me`) or has not (`-me`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile(String);

impl Ask {
    /// An ask whose amounts are in range.
    ///
    /// # Errors
    /// The amount that is not, and what it may be.
    pub fn new(class: &str, count: u64, each: Each) -> Result<Self, String> {
        if !i64::try_from(count).is_ok_and(|count| (1..=COUNT_MAX).contains(&count)) {
            return Err(format!("{count} cards are asked: it must be 1 to {COUNT_MAX}"));
        }
        if let Each::Part { memory_mib, compute_milli } = &each {
            let memory = memory_mib.is_none_or(|mib| (1..=MEMORY_MAX_MIB).contains(&mib));
            let compute = compute_milli.is_none_or(|milli| (1..=1000).contains(&milli));
            if !memory {
                return Err(format!("memory of a card must be 1 to {MEMORY_MAX_MIB} MiB"));
            }
            if !compute || (memory_mib.is_none() && compute_milli.is_none()) {
                return Err("compute of a card must be 1 to 1000 thousandths".into());
            }
        }
        Ok(Self { class: class.to_owned(), count, each })
    }

    /// The class of the devices.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// How many cards, 1 to 32.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What of each.
    pub fn each(&self) -> &Each {
        &self.each
    }

    /// Whether the other one asks the same of each card.
    pub fn is_like(&self, other: &Self) -> bool {
        self.class == other.class && self.each == other.each
    }

    /// The claim that asks it. Amounts stand in our configuration and not in the request's capacity, which servers
    /// without consumable capacity (before Kubernetes 1.36) drop.
    pub fn claim(&self) -> ResourceClaimSpec {
        let mut share = GpuShare::new();
        match &self.each {
            Each::Card => {}
            Each::Part { memory_mib, compute_milli } => {
                share.memory_mib = *memory_mib;
                share.compute_milli = compute_milli.and_then(|milli| u32::try_from(milli).ok());
            }
            Each::Instance(profile) => share.profile = Some(profile.0.clone()),
        }
        let exactly = ExactDeviceRequest {
            device_class_name: self.class.clone(),
            allocation_mode: Some("ExactCount".into()),
            count: i64::try_from(self.count).ok(),
            ..ExactDeviceRequest::default()
        };
        let request = DeviceRequest {
            name: "gpu".into(),
            exactly: Some(exactly),
            ..DeviceRequest::default()
        };
        let parameters = RawExtension(json!(share));
        let opaque = OpaqueDeviceConfiguration { driver: names::DRIVER.into(), parameters };
        let config = DeviceClaimConfiguration { opaque: Some(opaque), requests: None };
        let devices = DeviceClaim {
            requests: Some(vec![request]),
            config: (self.each != Each::Card).then(|| vec![config]),
            ..DeviceClaim::default()
        };
        ResourceClaimSpec { devices: Some(devices) }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.count == 1 { "" } else { "s" };
        write!(f, "{} device{plural} of class {}", self.count, self.class)?;
        match &self.each {
            Each::Card => Ok(()),
            Each::Part { memory_mib, compute_milli } => {
                let memory = memory_mib.map(|mib| format!("{mib} MiB"));
                let compute = compute_milli.map(|milli| format!("{milli}/1000 of compute"));
                let amounts: Vec<String> = memory.into_iter().chain(compute).collect();
                write!(f, " with {}", amounts.join(" and "))
            }
            Each::Instance(profile) => write!(f, " as MIG {}", profile.0),
        }
    }
}

impl Profile {
    /// Reads a name as NVML gives it: `1g.10gb`, `1g.10gb+me.all`, `1g.24gb-me`.
    pub fn parse(text: &str) -> Option<Self> {
        let (size, more) = Self::parts(text)?;
        let (slices, memory) = size.split_once("g.")?;
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_word = |word: &str| {
            !word.is_empty() && word != "no" && word.bytes().all(|byte| byte.is_ascii_lowercase())
        };
        let is_more = match more.split_at_checked(1) {
            None => true,
            Some((sign, words)) => matches!(sign, "+" | "-") && words.split('.').all(is_word),
        };
        let fits = text.len() <= PROFILE_LENGTH_MAX;
        (fits && is_number(slices) && is_number(memory) && is_more).then(|| Self(text.to_owned()))
    }

    /// Reads it as it stands in a resource name of NVIDIA's device plugin, which writes `.` for `+`.
    pub fn of_resource(text: &str) -> Option<Self> {
        let (size, more) = Self::parts(text)?;
        let more =
            more.strip_prefix('.').map_or_else(|| more.to_owned(), |more| format!("+{more}"));
        Self::parse(&format!("{size}gb{more}"))
    }

    /// Before and behind its `gb`.
    fn parts(text: &str) -> Option<(&str, &str)> {
        text.split_once("gb")
    }

    /// The name as NVML gives it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name with letters, digits and dashes alone: `1g-10gb`, `1g-10gb-me-all`, `1g-24gb-no-me`.
    pub(super) fn label(&self) -> String {
        names::word(&self.0)
    }

    /// Reads what [`Self::label`] gives.
    pub(super) fn of_label(text: &str) -> Option<Self> {
        let (size, more) = Self::parts(text)?;
        let (slices, memory) = size.split_once("g-")?;
        let more = match (more.strip_prefix("-no-"), more.strip_prefix('-')) {
            (Some(words), _) => format!("-{}", words.replace('-', ".")),
            (None, Some(words)) => format!("+{}", words.replace('-', ".")),
            (None, None) => more.to_owned(),
        };
        Self::parse(&format!("{slices}g.{memory}gb{more}"))
    }
}
