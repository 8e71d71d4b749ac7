//! What someone wants to run: its demand, what it insists on, and its place in the queue.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::Serialize;

use crate::gpu::GpuModel;
use crate::id::{Owner, WorkloadId};
use crate::profile::Profile;
use crate::sharing::{Isolation, ModeSet};

/// What kind of work it is; decides affinity and defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Long, heavy, throughput-bound.
    Training,
    /// Finite work without an audience.
    #[default]
    Batch,
    /// Serves requests, mostly idle, latency-bound.
    Service,
    /// A person waits at it.
    Interactive,
}

impl Class {
    /// All classes, in declaration order.
    pub const ALL: [Self; 4] = [Self::Training, Self::Batch, Self::Service, Self::Interactive];

    /// The name used in files and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Batch => "batch",
            Self::Service => "service",
            Self::Interactive => "interactive",
        }
    }

    /// Reads a name as used in files.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }
}

/// One workload: a job, a task of an array, a gang or a service replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its number, in order of submission.
    pub id: WorkloadId,
    /// What its owner calls it.
    pub name: String,
    /// Who answers for it.
    pub owner: Owner,
    /// What kind of work it is.
    pub class: Class,
    /// Higher goes first.
    pub priority: i32,
    /// When it was submitted.
    pub submitted_ms: u64,
    /// Longest that it may run; without one the policy's default counts.
    pub time_limit_ms: Option<u64>,
    /// What each member needs on one node.
    pub demand: Demand,
    /// Members that must start together, each on one node; 1 for an ordinary workload.
    pub members: u32,
    /// Whether no two members may sit on one node.
    pub apart: bool,
    /// Set for a task of an array.
    pub array: Option<ArrayMember>,
    /// What it computes, such as `ResNet-18 (batch size 16)`: who was measured under the same name is expected to run alike
    /// beside others. Empty: not known.
    pub kind: String,
    /// How it uses a GPU that it has for itself, as far as measured.
    pub profile: Profile,
    /// Latency that a service must keep, if it has a target.
    pub latency_target_ms: Option<u32>,
    /// Its latency at the same percentile while it has a GPU for itself; without it the target decides nothing.
    pub latency_alone_ms: Option<u32>,
    /// Whether it may be asked to leave for a workload of higher priority.
    pub preemptible: bool,
    /// Whether workloads of lower priority may be asked to leave for it.
    pub preempts: bool,
}

impl Workload {
    /// A batch workload with nothing but a demand: priority 0, submitted at 0, no time limit,
    /// preemptible and preempting.
    pub fn new(id: WorkloadId, name: String, owner: Owner, demand: Demand) -> Self {
        Self {
            id,
            name,
            owner,
            class: Class::default(),
            priority: 0,
            submitted_ms: 0,
            time_limit_ms: None,
            demand,
            members: 1,
            apart: false,
            array: None,
            kind: String::new(),
            profile: Profile::default(),
            latency_target_ms: None,
            latency_alone_ms: None,
            preemptible: true,
            preempts: true,
        }
    }
}

/// A task's place in its array. All tasks of one array carry the same limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayMember {
    /// The array, named by its first task.
    pub array: WorkloadId,
    /// The task's index as the user counts.
    pub index: u32,
    /// Most tasks of the array at once; 0 means no limit.
    pub at_once_max: u32,
}

/// What one member needs on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Demand {
    /// Thousandths of a vCPU.
    pub cpu_milli: u64,
    /// Main memory.
    pub memory_mib: u64,
    /// GPUs, if any.
    pub gpus: Option<GpuDemand>,
    /// Nodes that will do.
    pub nodes: NodeSet,
}

/// Nodes that will do, by name; by default all of them.
///
/// For what an outside system knows of its nodes and hotpot does not: labels, taints, partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeSet(Option<Arc<BTreeSet<String>>>);

impl NodeSet {
    /// Only these.
    pub fn only(names: BTreeSet<String>) -> Self {
        Self(Some(Arc::new(names)))
    }

    /// Whether a node of that name will do.
    pub fn accepts(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(name))
    }
}

/// GPUs that one member needs on one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuDemand {
    /// Different GPUs, at least 1.
    pub count: u32,
    /// What is needed of each.
    pub each: GpuAsk,
    /// Accepted models in order of preference: the first alternative that finds a place wins.
    /// Empty means any model.
    pub accepts: Vec<ModelSet>,
    /// Protection that the workload insists on.
    pub isolation: Isolation,
    /// Sharing modes that it accepts.
    pub modes: ModeSet,
}

/// What is needed of each GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuAsk {
    /// The whole GPU for itself.
    Whole,
    /// A part of it. An amount of 0 is "not said": memory then follows in proportion to compute;
    /// compute is left uncapped where the mode allows that.
    Fraction {
        /// Thousandths of the GPU's compute.
        compute_milli: u32,
        /// Device memory, without the CUDA context.
        memory_mib: u64,
    },
    /// A MIG instance of the named profile.
    Profile(String),
}

impl GpuAsk {
    /// What the ask comes to on a GPU of the model, in thousandths by the scarcer of compute and
    /// memory (rounded up, context included); `None` if such a GPU cannot grant it.
    pub fn milli_on(&self, model: &GpuModel) -> Option<u32> {
        let milli = match self {
            Self::Whole => 1000,
            Self::Fraction { compute_milli, memory_mib: 0 } => u64::from(*compute_milli),
            Self::Fraction { compute_milli, memory_mib } => {
                let booked_mib = memory_mib.saturating_add(model.context_mib);
                let by_memory = booked_mib.saturating_mul(1000).div_ceil(model.memory_mib.max(1));
                by_memory.max(u64::from(*compute_milli))
            }
            Self::Profile(name) => {
                let geometry = model.mig.as_ref()?;
                let profile = geometry.profile(geometry.find(name)?)?;
                let part = |slices: u8, all: u8| u64::from(slices) * 1000 / u64::from(all.max(1));
                part(profile.compute_slices, geometry.compute_slices)
                    .max(part(profile.memory_slices, geometry.memory_slices))
            }
        };
        u32::try_from(milli).ok().filter(|milli| *milli <= 1000)
    }
}

impl GpuDemand {
    /// Thousandths asked of each GPU, as far as the demand says: 0 for a memory-only fraction and
    /// for a profile, whose size depends on the GPU.
    pub fn each_milli(&self) -> u32 {
        match self.each {
            GpuAsk::Whole => 1000,
            GpuAsk::Fraction { compute_milli, .. } => compute_milli,
            GpuAsk::Profile(_) => 0,
        }
    }
}

impl Demand {
    /// GPUs asked on one node; 0 for CPU-only work.
    pub fn gpu_count(&self) -> usize {
        self.gpus.as_ref().map_or(0, |gpus| gpus.count as usize)
    }

    /// Thousandths of GPUs asked in all, as far as the demand says.
    pub fn gpu_milli(&self) -> u64 {
        self.gpus.as_ref().map_or(0, |g| u64::from(g.count) * u64::from(g.each_milli()))
    }
}

/// GPU models that are equally welcome, as their owner wrote them. Empty means any.
///
/// A name accepts that model and its members by size: `a100` accepts `a100-40gb` and `a100-80gb`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelSet(Vec<String>);

impl ModelSet {
    /// Reads names joined by `|`; letter case is ignored, order and doubles are kept.
    pub fn parse(text: &str) -> Self {
        let names = text.split('|').map(str::trim).filter(|name| !name.is_empty());
        Self(names.map(str::to_ascii_lowercase).collect())
    }

    /// Whether any model will do.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a GPU of the model named `model` (lower case) will do.
    pub fn accepts(&self, model: &str) -> bool {
        let matches = |name: &String| match model.strip_prefix(name.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('-'),
            None => false,
        };
        self.0.is_empty() || self.0.iter().any(matches)
    }
}

impl fmt::Display for ModelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "|" };
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}
