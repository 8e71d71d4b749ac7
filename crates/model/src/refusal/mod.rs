//! Why something does not fit, always with what was asked and what there was.

mod words;

use alloc::boxed::Box;
use alloc::string::String;

use serde::Serialize;

use crate::id::WorkloadId;
use crate::sharing::{Isolation, ModeSet, SharingKind};

/// Why a workload waits, or why a node or GPU cannot hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Refusal {
    /// Too few vCPUs left on the node.
    Cpu {
        /// Thousandths of a vCPU that the workload asks for.
        asked_milli: u64,
        /// Thousandths of a vCPU that are left.
        offered_milli: u64,
    },
    /// Too little main memory left on the node.
    NodeMemory {
        /// MiB that the workload asks for.
        asked_mib: u64,
        /// MiB that are left.
        offered_mib: u64,
    },
    /// There is no such node or GPU at all.
    NoSuchPlace {
        /// What there is not, such as `node 12`.
        place: String,
    },
    /// The node is none of those that will do for the workload.
    NotAccepted,
    /// The node has no GPU, or none of an accepted model.
    GpuModel {
        /// Accepted models, joined by `|`; empty means any.
        asked: String,
        /// The model on offer; empty means none.
        offered: String,
    },
    /// Too few GPUs of the node can each hold the asked share.
    GpuCount {
        /// GPUs that the workload asks for on one node.
        asked: u32,
        /// GPUs that could each take a share of it.
        offered: u32,
        /// What the best of the others lacks; `None` if the node has no others.
        because: Option<Box<Refusal>>,
    },
    /// The GPU is set aside: lost, faulty, or taken out by an operator.
    SetAside,
    /// The GPU has tenants and whole GPUs are given to one tenant only.
    Occupied {
        /// Tenants on the GPU.
        tenants: u32,
    },
    /// Too little compute left on the GPU.
    Compute {
        /// Thousandths of the GPU asked.
        asked_milli: u32,
        /// Thousandths left.
        offered_milli: u32,
    },
    /// Too little device memory left on the GPU.
    GpuMemory {
        /// MiB asked, context included.
        asked_mib: u64,
        /// MiB left.
        offered_mib: u64,
    },
    /// The share's memory, in proportion to its compute, is less than a CUDA context takes.
    BelowContext {
        /// MiB that the share comes to.
        share_mib: u64,
        /// MiB that a context takes.
        context_mib: u64,
    },
    /// The mode's limit of tenants on one GPU is reached.
    Tenants {
        /// The limit.
        tenants_max: u32,
    },
    /// The GPU is in another mode and has tenants that keep it there.
    Mode {
        /// Mode that the share needs.
        asked: SharingKind,
        /// Mode in force.
        in_force: SharingKind,
    },
    /// No sharing mode that the GPU offers is acceptable.
    NoMode {
        /// Modes that the workload accepts.
        accepted: ModeSet,
        /// Isolation that it insists on.
        isolation: Isolation,
        /// Modes that the GPU offers and the policy lists.
        offered: ModeSet,
    },
    /// No legal placement is free for the MIG profile.
    MigPlacement {
        /// The profile's name.
        profile: String,
    },
    /// The GPU model has no such MIG profile, or no MIG at all.
    MigProfile {
        /// The profile's name.
        profile: String,
        /// The GPU model.
        model: String,
    },
    /// Beside those on the GPU it would run slower than its latency target or its owner's floor allows.
    TooSlow {
        /// Predicted speed in thousandths of running alone.
        speed_milli: u32,
        /// The least that will do.
        least_milli: u32,
    },
    /// Somebody on the GPU would run slower beside it than its latency target or its owner's floor allows.
    SlowsOthers {
        /// Predicted speed of that tenant, in thousandths of running alone.
        speed_milli: u32,
        /// The least that will do.
        least_milli: u32,
    },
    /// The owner's quota is used up.
    Quota {
        /// The owner.
        owner: String,
        /// Thousandths of GPUs asked.
        asked_milli: u64,
        /// Thousandths in use by the owner.
        used_milli: u64,
        /// Thousandths the owner may use.
        limit_milli: u64,
    },
    /// The array's own limit of tasks at once is reached.
    ArrayLimit {
        /// The limit.
        at_once_max: u32,
    },
    /// Not all members of the gang find a place; all or none are placed.
    Gang {
        /// Members in the gang.
        asked: u32,
        /// Members that would find a place.
        offered: u32,
        /// Why the next one does not.
        because: Box<Refusal>,
    },
    /// The gang is larger than hotpot looks at.
    GangTooLarge {
        /// Members in the gang.
        asked: u32,
        /// The limit.
        members_max: u32,
    },
    /// Fits, but only on a node that is kept for the head of the queue.
    KeptForHead {
        /// The workload at the head.
        head: WorkloadId,
        /// When the head is expected to start there, in ms of the caller's clock.
        until_ms: u64,
    },
    /// Stands behind the head of the queue, and the policy lets nobody go ahead.
    BehindHead {
        /// The workload at the head.
        head: WorkloadId,
    },
    /// Has its place once workloads have left that are asked to, and waits for them.
    MakingRoom {
        /// Workloads that leave.
        leaving: u32,
        /// When the last of them has to be gone, in ms of the caller's clock.
        by_ms: u64,
    },
    /// Does not run: it waits, has finished or was never submitted.
    NotRunning {
        /// The workload.
        workload: WorkloadId,
    },
    /// Is not in the queue: it runs elsewhere, has finished or was never submitted.
    NotWaiting {
        /// The workload.
        workload: WorkloadId,
    },
    /// Stands too far back in the queue to be looked at in this cycle.
    BeyondDepth {
        /// Workloads looked at in one cycle.
        depth: u32,
    },
    /// Would not fit even if the whole fleet were idle.
    Never {
        /// What the best node lacks when idle.
        because: Box<Refusal>,
    },
}

impl Refusal {
    /// Whether waiting cannot help: the fleet as it is can never hold the workload.
    pub fn is_never(&self) -> bool {
        matches!(self, Self::Never { .. })
    }

    /// Whether a rule stands in the way and not the fleet: quota, array limit, or "never".
    pub fn is_of_limits(&self) -> bool {
        matches!(self, Self::Quota { .. } | Self::ArrayLimit { .. } | Self::Never { .. })
    }

    /// What kind of thing is lacking, in one or two words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cpu { .. } => "CPU",
            Self::NodeMemory { .. } => "memory",
            Self::NoSuchPlace { .. } => "no such place",
            Self::NotAccepted => "node",
            Self::GpuModel { .. } => "GPU model",
            Self::GpuCount { .. } => "GPU count",
            Self::SetAside => "GPU set aside",
            Self::Occupied { .. } => "GPU occupied",
            Self::Compute { .. } => "GPU compute",
            Self::GpuMemory { .. } | Self::BelowContext { .. } => "GPU memory",
            Self::Tenants { .. } => "tenants",
            Self::Mode { .. } | Self::NoMode { .. } => "sharing mode",
            Self::MigPlacement { .. } => "MIG placement",
            Self::MigProfile { .. } => "MIG profile",
            Self::TooSlow { .. } | Self::SlowsOthers { .. } => "interference",
            Self::Quota { .. } => "quota",
            Self::ArrayLimit { .. } => "array limit",
            Self::Gang { .. } | Self::GangTooLarge { .. } => "gang",
            Self::KeptForHead { .. } => "kept for head",
            Self::BehindHead { .. } => "behind head",
            Self::MakingRoom { .. } => "making room",
            Self::NotWaiting { .. } => "not waiting",
            Self::NotRunning { .. } => "not running",
            Self::BeyondDepth { .. } => "queue depth",
            Self::Never { .. } => "never",
        }
    }

    /// The nearer of two refusals; the first, if they are equally near.
    #[must_use]
    pub fn nearer(first: Option<Self>, second: Self) -> Self {
        match first {
            Some(first) if first.nearness() >= second.nearness() => first,
            _ => second,
        }
    }

    /// How near the refused place came to holding the workload: the greater, the nearer.
    ///
    /// The first part ranks the kinds from "wrong machine" to "a little more would do"; the second
    /// is the offered part of what was asked, in millionths where both are amounts.
    pub fn nearness(&self) -> (u8, u64) {
        match self {
            Self::NoSuchPlace { .. }
            | Self::NotAccepted
            | Self::GpuModel { .. }
            | Self::SetAside => (0, 0),
            Self::MigProfile { .. } | Self::NoMode { .. } | Self::BelowContext { .. } => (1, 0),
            Self::Mode { .. } => (2, 0),
            Self::Occupied { tenants } => (3, u64::from(u32::MAX - tenants)),
            Self::Tenants { .. } => (4, 0),
            Self::MigPlacement { .. } => (5, 0),
            Self::Compute { asked_milli, offered_milli } => {
                (6, part(u64::from(*asked_milli), u64::from(*offered_milli)))
            }
            Self::GpuMemory { asked_mib, offered_mib } => (6, part(*asked_mib, *offered_mib)),
            Self::TooSlow { speed_milli, least_milli }
            | Self::SlowsOthers { speed_milli, least_milli } => {
                (6, part(u64::from(*least_milli), u64::from(*speed_milli)))
            }
            Self::GpuCount { offered, .. } => (7, u64::from(*offered)),
            Self::Cpu { asked_milli, offered_milli } => (8, part(*asked_milli, *offered_milli)),
            Self::NodeMemory { asked_mib, offered_mib } => (8, part(*asked_mib, *offered_mib)),
            Self::Quota { .. }
            | Self::ArrayLimit { .. }
            | Self::Gang { .. }
            | Self::GangTooLarge { .. }
            | Self::KeptForHead { .. }
            | Self::BehindHead { .. }
            | Self::MakingRoom { .. }
            | Self::NotWaiting { .. }
            | Self::NotRunning { .. }
            | Self::BeyondDepth { .. }
            | Self::Never { .. } => (9, 0),
        }
    }
}

/// The offered part of what was asked, in millionths.
fn part(asked: u64, offered: u64) -> u64 {
    (u128::from(offered) * 1_000_000 / u128::from(asked.max(1))) as u64
}
