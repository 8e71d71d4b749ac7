//! What the admin decides: how to place, what to expect, who may use how much.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::id::Owner;
use crate::sharing::SharingMode;
use crate::workload::{Class, GpuAsk, ModelSet};

/// How the best of several possible seats is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Any node, by a hash of seed and workload.
    Random {
        /// The seed.
        seed: u64,
    },
    /// Smallest dot product of what is asked and what is left.
    DotProduct,
    /// Tasks of the same GPU count together.
    GpuClustering,
    /// GPUs in use first, then nodes in use, then idle nodes.
    GpuPacking,
    /// Least left over.
    BestFit,
    /// Least growth of fragmentation (Weng et al., USENIX ATC'23).
    Fgd,
    /// Most left over.
    Spread,
    /// Free GPU memory and affinity with the tenants already there, weighted.
    Weighted {
        /// Weight of the free memory ratio of the picked GPUs after placement, in thousandths.
        memory_weight_milli: i32,
        /// Weight of the mean affinity with the tenants on the chosen GPUs, in thousandths.
        affinity_weight_milli: i32,
        /// Affinity between classes.
        affinity: AffinityMatrix,
    },
    /// Our own: see `docs/policy.md`.
    Hotpot,
}

impl Placement {
    /// Names of all policies, as used on the command line.
    pub const NAMES: [&'static str; 9] = [
        "random",
        "dot-product",
        "gpu-clustering",
        "gpu-packing",
        "best-fit",
        "fgd",
        "spread",
        "weighted",
        "hotpot",
    ];

    /// The policy with that name and default parameters.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "random" => Self::Random { seed: 0 },
            "dot-product" => Self::DotProduct,
            "gpu-clustering" => Self::GpuClustering,
            "gpu-packing" => Self::GpuPacking,
            "best-fit" => Self::BestFit,
            "fgd" => Self::Fgd,
            "spread" => Self::Spread,
            "weighted" => Self::Weighted {
                memory_weight_milli: 1000,
                affinity_weight_milli: 1000,
                affinity: AffinityMatrix::default(),
            },
            "hotpot" => Self::Hotpot,
            _ => return None,
        })
    }

    /// The name used on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Random { .. } => "random",
            Self::DotProduct => "dot-product",
            Self::GpuClustering => "gpu-clustering",
            Self::GpuPacking => "gpu-packing",
            Self::BestFit => "best-fit",
            Self::Fgd => "fgd",
            Self::Spread => "spread",
            Self::Weighted { .. } => "weighted",
            Self::Hotpot => "hotpot",
        }
    }
}

/// Weights of the placement `hotpot`, in thousandths; `docs/policy.md` says what each is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotpotTerms {
    /// Weight of "nothing that fits will ever come", in workloads per workload of the mix.
    pub doubt_milli: u32,
    /// Part of a GPU's use that is charged or credited for how sought-after its model is.
    pub scarcity_milli: u32,
    /// Worth of room for workloads of several GPUs, beside that of their GPUs singly.
    pub wide_milli: u32,
    /// Worth of the last block of the fleet's largest size on a node, in GPUs, where such are rare.
    pub block_milli: u32,
    /// Largest margin over the mix's mean need of vCPUs that is kept on a node; 0 leaves vCPUs out
    /// of account.
    pub cpu_margin_max_milli: u32,
    /// GPUs by which two nodes must differ to be told apart, at least 1.
    pub step_milli: u32,
    /// Weight of what tenants are predicted to lose beside each other, in GPUs; 0 leaves all of that out of account, floors
    /// of speed included.
    pub interference_milli: u32,
}

impl Default for HotpotTerms {
    /// Chosen on the openb workloads, seeds 42 to 44; `cargo xtask ablate` shows what each gives.
    fn default() -> Self {
        Self {
            doubt_milli: 250,
            scarcity_milli: 500,
            wide_milli: 50,
            block_milli: 1000,
            cpu_margin_max_milli: 1200,
            step_milli: 10,
            interference_milli: 1000,
        }
    }
}

/// How well two classes share a GPU, in thousandths, −1000 to 1000; symmetric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityMatrix([[i32; 4]; 4]);

impl AffinityMatrix {
    /// Affinity of two classes.
    pub fn between(&self, one: Class, other: Class) -> i32 {
        self.0[one as usize][other as usize]
    }

    /// Sets the affinity of two classes, both ways.
    pub fn set(&mut self, one: Class, other: Class, affinity_milli: i32) {
        self.0[one as usize][other as usize] = affinity_milli;
        self.0[other as usize][one as usize] = affinity_milli;
    }
}

impl Default for AffinityMatrix {
    /// Unlike classes go well together, two heavy or two latency-bound ones do not: a mostly idle
    /// service leaves its GPU to batch work, two trainings take from each other. The sizes are a
    /// convention, to be replaced by measured interference.
    fn default() -> Self {
        let mut matrix = Self([[0; 4]; 4]);
        matrix.set(Class::Training, Class::Training, -1000);
        matrix.set(Class::Training, Class::Batch, -500);
        matrix.set(Class::Training, Class::Service, 250);
        matrix.set(Class::Batch, Class::Service, 500);
        matrix.set(Class::Service, Class::Service, -250);
        matrix.set(Class::Interactive, Class::Service, 250);
        matrix
    }
}

/// One kind of workload that is expected to come, for policies that look ahead.
#[derive(Clone, Debug, PartialEq)]
pub struct MixShape {
    /// Thousandths of a vCPU.
    pub cpu_milli: u64,
    /// GPUs; 0 for CPU-only work.
    pub gpu_count: u32,
    /// What is needed of each GPU.
    pub each: GpuAsk,
    /// Accepted GPU models.
    pub accepts: ModelSet,
    /// Share of all expected workloads, 0 to 1.
    pub weight: f64,
}

/// What an owner may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Most thousandths of GPUs at once; `None` means no limit.
    pub gpu_milli_max: Option<u64>,
    /// Weight in the fair share, at least 1.
    pub weight: u32,
    /// Least predicted speed of its workloads beside others, in thousandths of running alone; 0 is no floor. Kept by the
    /// placement `hotpot`.
    pub speed_min_milli: u32,
}

impl Default for Quota {
    fn default() -> Self {
        Self { gpu_milli_max: None, weight: 1, speed_min_milli: 0 }
    }
}

/// How workloads are asked to leave for the sake of more important ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// How long whoever is asked to leave is given at most.
    pub grace_ms: u64,
}

/// Everything that steers a plan and is not the state of the world.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// How seats are chosen.
    pub placement: Placement,
    /// Weights of the placement `hotpot`.
    pub hotpot: HotpotTerms,
    /// What is expected to come; empty means that it is read off the snapshot's own workloads.
    /// Scores change with the mix, so whoever plans cycle after cycle should give one that moves
    /// slowly: then a planner can use what it remembers.
    pub mix: Vec<MixShape>,
    /// Sharing modes in the order in which an idle GPU is put into one, with their limits. A whole
    /// GPU for a fraction comes last wherever it stands in the list. Nobody joins a GPU in a mode
    /// that is not listed.
    pub modes: Vec<SharingMode>,
    /// Quotas and weights by owner; an owner without an entry has the default. Within a quota nobody
    /// passes an earlier workload of the same owner that waits for it.
    pub quotas: BTreeMap<Owner, Quota>,
    /// Whether workloads behind the head of the queue may start without delaying it.
    pub backfill: bool,
    /// Workloads looked at in one cycle, at least 1.
    pub depth: u32,
    /// How long the head of the queue is content with a promise. After that, every node that could
    /// hold it is kept from those behind it, so that no stream of others can pass it for ever.
    pub patience_ms: u64,
    /// Assumed running time of a workload without a limit of its own; a service is assumed to stay.
    pub time_limit_default_ms: u64,
    /// Whether running workloads may be asked to leave for more important ones; `None` means never.
    pub preemption: Option<Preemption>,
}

impl Policy {
    /// The default policy with the given placement.
    ///
    /// Fractions get memory caps first, then MPS (48 clients: NVIDIA MPS guide, Volta and later),
    /// then MIG, and time-slicing last: from the cheapest to set up that still isolates memory, to
    /// the one that isolates nothing.
    pub fn new(placement: Placement) -> Self {
        Self {
            placement,
            hotpot: HotpotTerms::default(),
            mix: Vec::new(),
            modes: [
                SharingMode::MemoryCapped { tenants_max: 32 },
                SharingMode::Mps { tenants_max: 48 },
                SharingMode::Mig,
                SharingMode::TimeSlice { tenants_max: 4 },
                SharingMode::Exclusive,
            ]
            .to_vec(),
            quotas: BTreeMap::new(),
            backfill: true,
            depth: 256,
            patience_ms: 24 * 3600 * 1000,
            time_limit_default_ms: 24 * 3600 * 1000,
            preemption: None,
        }
    }

    /// Quota and weight of an owner.
    pub fn quota(&self, owner: &Owner) -> Quota {
        self.quotas.get(owner).copied().unwrap_or_default()
    }
}
