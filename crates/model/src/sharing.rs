//! How a GPU is divided: the five modes, what a tenant holds under each, and what each mode isolates.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::mig::ProfileIndex;

/// How one physical GPU is divided among its tenants; in force for the whole GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingMode {
    /// One tenant, the whole GPU.
    Exclusive,
    /// Equal turns; neither memory nor faults are isolated.
    TimeSlice {
        /// Most tenants at once; each may count on `1000 / tenants_max` thousandths of the GPU.
        tenants_max: u8,
    },
    /// At once, each under compute and memory caps.
    Mps {
        /// Most tenants at once (48 clients since Volta: NVIDIA MPS guide, client limits).
        tenants_max: u8,
    },
    /// Hardware instances; made at a placement when the tenant comes.
    Mig,
    /// Turns, each tenant under a memory cap and, if wished, a compute cap.
    MemoryCapped {
        /// Most tenants at once.
        tenants_max: u8,
    },
}

impl SharingMode {
    /// Most tenants of a card that several share where nobody sets a number: as under MPS (NVIDIA MPS guide, client limits).
    pub const TENANTS_MAX: u8 = 48;

    /// The mode without its parameters.
    pub fn kind(self) -> SharingKind {
        match self {
            Self::Exclusive => SharingKind::Exclusive,
            Self::TimeSlice { .. } => SharingKind::TimeSlice,
            Self::Mps { .. } => SharingKind::Mps,
            Self::Mig => SharingKind::Mig,
            Self::MemoryCapped { .. } => SharingKind::MemoryCapped,
        }
    }

    /// Most tenants that the mode allows on one GPU; MIG is bounded by its geometry instead.
    pub fn tenants_max(self) -> u8 {
        match self {
            Self::Exclusive => 1,
            Self::Mig => u8::MAX,
            Self::TimeSlice { tenants_max }
            | Self::Mps { tenants_max }
            | Self::MemoryCapped { tenants_max } => tenants_max,
        }
    }
}

/// The name of a sharing mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingKind {
    /// See [`SharingMode::Exclusive`].
    Exclusive,
    /// See [`SharingMode::TimeSlice`].
    TimeSlice,
    /// See [`SharingMode::Mps`].
    Mps,
    /// See [`SharingMode::Mig`].
    Mig,
    /// See [`SharingMode::MemoryCapped`].
    MemoryCapped,
}

impl SharingKind {
    /// All modes, in the order of the design's table.
    pub const ALL: [Self; 5] =
        [Self::Exclusive, Self::TimeSlice, Self::Mps, Self::Mig, Self::MemoryCapped];

    /// The name used in files and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::TimeSlice => "time-slice",
            Self::Mps => "mps",
            Self::Mig => "mig",
            Self::MemoryCapped => "memory-capped",
        }
    }

    /// Reads a name as used in files; `None` if it is not one of the five.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The strongest isolation that the mode's backend can hold (design, section 5).
    pub fn isolation(self) -> Isolation {
        match self {
            Self::Exclusive | Self::Mig => Isolation::Hard,
            Self::Mps | Self::MemoryCapped => Isolation::Memory,
            Self::TimeSlice => Isolation::None,
        }
    }
}

impl fmt::Display for SharingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a workload insists on being protected from; ordered from weak to strong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Nothing: neighbours may take memory and time.
    #[default]
    None,
    /// A neighbour cannot take its memory.
    Memory,
    /// Memory, compute and faults are separated by hardware.
    Hard,
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Memory => "memory",
            Self::Hard => "hard",
        })
    }
}

/// A set of sharing modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModeSet(u8);

impl ModeSet {
    /// Every mode.
    pub const ALL: Self = Self(0b1_1111);
    /// No mode.
    pub const EMPTY: Self = Self(0);

    /// The set of the given modes.
    pub fn of(kinds: &[SharingKind]) -> Self {
        kinds.iter().fold(Self::EMPTY, |set, kind| set.with(*kind))
    }

    /// This set and one mode more.
    #[must_use]
    pub fn with(self, kind: SharingKind) -> Self {
        Self(self.0 | (1 << kind as u8))
    }

    /// Whether the mode is in the set.
    pub fn contains(self, kind: SharingKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Modes in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether no mode is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The modes, in the order of [`SharingKind::ALL`].
    pub fn iter(self) -> impl Iterator<Item = SharingKind> {
        SharingKind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }
}

impl fmt::Display for ModeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, kind) in self.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{kind}")?;
        }
        Ok(())
    }
}

impl Serialize for ModeSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl Default for ModeSet {
    fn default() -> Self {
        Self::ALL
    }
}

/// What one workload holds on one GPU; always of the same kind as the GPU's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// The whole GPU.
    Exclusive,
    /// A turn among equals. The memory is booked, not enforced.
    TimeSlice {
        /// Memory the tenant said it needs, context included.
        memory_mib: u64,
    },
    /// A cap on threads and on memory.
    Mps {
        /// Active-thread share of the GPU in thousandths; 0 means uncapped, nothing is booked.
        compute_milli: u32,
        /// Device memory limit, context included.
        memory_mib: u64,
    },
    /// A hardware instance at a placement.
    Mig {
        /// The profile, as a position in the GPU model's geometry.
        profile: ProfileIndex,
        /// First memory slice that it occupies.
        start: u8,
    },
    /// A cap on memory and, if not 0, on compute.
    MemoryCapped {
        /// Memory cap, context included.
        memory_mib: u64,
        /// Compute cap in thousandths of the GPU; 0 means uncapped, nothing is booked.
        compute_milli: u32,
    },
}

impl Share {
    /// The mode that a GPU must be in to grant this share.
    pub fn kind(self) -> SharingKind {
        match self {
            Self::Exclusive => SharingKind::Exclusive,
            Self::TimeSlice { .. } => SharingKind::TimeSlice,
            Self::Mps { .. } => SharingKind::Mps,
            Self::Mig { .. } => SharingKind::Mig,
            Self::MemoryCapped { .. } => SharingKind::MemoryCapped,
        }
    }

    /// The mode that a GPU must be in to grant this share, for so many tenants at most where the mode sets a number.
    pub fn mode(self, tenants_max: u8) -> SharingMode {
        match self.kind() {
            SharingKind::Exclusive => SharingMode::Exclusive,
            SharingKind::TimeSlice => SharingMode::TimeSlice { tenants_max },
            SharingKind::Mps => SharingMode::Mps { tenants_max },
            SharingKind::Mig => SharingMode::Mig,
            SharingKind::MemoryCapped => SharingMode::MemoryCapped { tenants_max },
        }
    }
}
