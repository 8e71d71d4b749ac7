//! What the rules say: an advice or a finding, with amounts, as data and as a sentence.

use alloc::vec::Vec;
use core::fmt;

use model::WorkloadId;

/// What was found of one GPU. Means are over [`Thresholds::smooth_ms`](super::Thresholds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Advice: the GPU has been little used for long; more tenants could share it.
    ShareFiner {
        /// Mean busy in thousandths.
        busy_milli: u32,
        /// The threshold that it stayed below.
        below_milli: u32,
        /// For how long, in ms.
        for_ms: u64,
        /// Tenants that it has now.
        tenants: usize,
    },
    /// Advice: the GPU is full and a tenant suffers; it should be protected from its neighbours.
    Isolate {
        /// Mean busy in thousandths.
        busy_milli: u32,
        /// For how long it has been full and somebody slow, in ms.
        for_ms: u64,
        /// Who suffers most.
        tenant: WorkloadId,
        /// Its mean p99 in µs.
        latency_p99_us: u64,
        /// What that is above.
        limit: LatencyLimit,
        /// The others, those of lower priority first, then those that compute most.
        neighbours: Vec<WorkloadId>,
    },
    /// A tenant has work and gets next to nothing, while others compute.
    Starved {
        /// Who.
        tenant: WorkloadId,
        /// Its priority.
        priority: i32,
        /// Its mean busy in thousandths.
        busy_milli: u32,
        /// Part of the time that it was held back, mean in thousandths.
        throttled_milli: u32,
        /// For how long, in ms.
        for_ms: u64,
        /// What the others compute together, mean in thousandths.
        others_milli: u32,
        /// Who of them computes most.
        taker: WorkloadId,
        /// The taker's priority.
        taker_priority: i32,
        /// The taker's mean busy in thousandths.
        taker_busy_milli: u32,
    },
    /// A tenant's memory is near its cap and keeps rising.
    MemoryRunsOut {
        /// Who.
        tenant: WorkloadId,
        /// What it holds.
        memory_mib: u64,
        /// Most that it may hold.
        cap_mib: u64,
        /// How fast it rises, in MiB a minute.
        mib_per_min: u64,
        /// When it reaches the cap at that rate, in ms from the sample.
        in_ms: u64,
    },
}

/// What a latency is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyLimit {
    /// The tenant's target in µs.
    Target(u64),
    /// Its own usual latency in µs, a mean over [`Thresholds::usual_ms`](super::Thresholds).
    Usual(u64),
}

impl Finding {
    /// Whether it asks for a change of the GPU, and so begins a cool-down.
    pub fn is_advice(&self) -> bool {
        match self {
            Self::ShareFiner { .. } | Self::Isolate { .. } => true,
            Self::Starved { .. } | Self::MemoryRunsOut { .. } => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShareFiner { busy_milli, below_milli, for_ms, tenants } => {
                write!(f, "{} busy, below {} for ", Percent(*busy_milli), Percent(*below_milli))?;
                let noun = if *tenants == 1 { "tenant" } else { "tenants" };
                write!(f, "{}, with {tenants} {noun}: it could be shared finer", Span(*for_ms))
            }
            Self::Isolate { busy_milli, for_ms, tenant, latency_p99_us, limit, neighbours } => {
                let latency = Latency(*latency_p99_us);
                write!(f, "{} busy for {}, and {tenant} ", Percent(*busy_milli), Span(*for_ms))?;
                write!(f, "answers in {latency} (p99), {limit}: isolate it from ")?;
                list(f, neighbours)
            }
            Self::Starved {
                tenant,
                priority,
                busy_milli,
                throttled_milli,
                for_ms,
                others_milli,
                taker,
                taker_priority,
                taker_busy_milli,
            } => {
                let (busy, throttled) = (Percent(*busy_milli), Percent(*throttled_milli));
                write!(f, "{tenant} (priority {priority}) has work and computes {busy} of the ")?;
                write!(f, "time for {}, held back for {throttled}, while ", Span(*for_ms))?;
                let (taken, most) = (Percent(*others_milli), Percent(*taker_busy_milli));
                write!(f, "others compute {taken}, most of it {taker} ")?;
                write!(f, "(priority {taker_priority}) with {most}")
            }
            Self::MemoryRunsOut { tenant, memory_mib, cap_mib, mib_per_min, in_ms } => {
                write!(f, "{tenant} holds {memory_mib} of {cap_mib} MiB and ")?;
                write!(f, "rises by {mib_per_min} MiB a minute: at its cap in {}", Span(*in_ms))
            }
        }
    }
}

impl fmt::Display for LatencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(us) => write!(f, "above its target of {}", Latency(*us)),
            Self::Usual(us) => write!(f, "usual is {}", Latency(*us)),
        }
    }
}

/// Names at most three, and how many more.
fn list(f: &mut fmt::Formatter<'_>, workloads: &[WorkloadId]) -> fmt::Result {
    for (at, workload) in workloads.iter().take(3).enumerate() {
        write!(f, "{}{workload}", if at == 0 { "" } else { ", " })?;
    }
    match workloads.len().saturating_sub(3) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

/// Thousandths as a percentage, rounded.
struct Percent(u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0.saturating_add(5) / 10)
    }
}

/// Milliseconds in whole seconds or, from two minutes on, whole minutes, rounded down.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 / 1_000 {
            seconds @ 0..120 => write!(f, "{seconds} s"),
            seconds => write!(f, "{} min", seconds / 60),
        }
    }
}

/// Microseconds in ms with one decimal, rounded down.
struct Latency(u64);

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} ms", self.0 / 1_000, self.0 % 1_000 / 100)
    }
}
