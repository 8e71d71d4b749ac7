//! A plan: what to do, in order, with a reason for each step, and why the rest waits.
//!
//! A plan is complete: whoever carries it out has nothing left to choose. It says what shall be
//! ("this workload with this share on this GPU"), not what to add, so that carrying it out twice
//! does no harm.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::Serialize;

use crate::id::{GpuId, NodeId, WorkloadId};
use crate::refusal::Refusal;
use crate::sharing::{Share, SharingMode};

/// Where one member of a workload sits: a node and its shares of that node's GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seat {
    /// The node.
    pub node: NodeId,
    /// GPU index and share, ascending and without doubles; empty for CPU-only work.
    pub shares: Vec<(u8, Share)>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// Put an idle GPU into a mode.
    SetMode {
        /// The GPU.
        gpu: GpuId,
        /// The mode.
        mode: SharingMode,
    },
    /// Start a workload.
    Place {
        /// The workload.
        workload: WorkloadId,
        /// One seat per member.
        seats: Vec<Seat>,
    },
    /// Ask a running workload to leave.
    Preempt {
        /// The workload.
        workload: WorkloadId,
        /// When it has to be gone at the latest, in ms of the caller's clock.
        by_ms: u64,
    },
}

/// Who a workload sits beside, and what is predicted of them: of several GPUs the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// Tenants there before it.
    pub tenants: u32,
    /// Its own speed, in thousandths of running alone.
    pub speed_milli: u32,
    /// The lowest speed of those there, in thousandths of running alone.
    pub slowest_milli: u32,
}

/// Why a step is in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The next step needs the GPU in this mode and nobody sits on it.
    NeededBy(WorkloadId),
    /// The policy's best node.
    Best {
        /// The policy's score of the seat; higher is better, comparable within one decision only.
        score: i64,
        /// Who it sits beside, where that was weighed.
        #[serde(skip_serializing_if = "Option::is_none")]
        beside: Option<Beside>,
    },
    /// Started ahead of the head of the queue without delaying it.
    Backfill {
        /// The head.
        head: WorkloadId,
        /// When the head is expected to start.
        head_starts_ms: u64,
        /// The policy's score of the seat.
        score: i64,
        /// Who it sits beside, where that was weighed.
        #[serde(skip_serializing_if = "Option::is_none")]
        beside: Option<Beside>,
    },
    /// All members of the gang found a place.
    Gang {
        /// Members placed together.
        members: u32,
    },
    /// A waiting workload of higher priority finds room once it has left.
    MakesRoomFor(WorkloadId),
}

/// An action and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// Why.
    pub because: Reason,
}

/// What to do now, and why the rest waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Time of the snapshot that it was made from.
    pub at_ms: u64,
    /// Steps in the order in which they must be carried out.
    pub steps: Vec<Step>,
    /// Every workload that was looked at and does not start, with the reason.
    pub waiting: BTreeMap<WorkloadId, Refusal>,
}
