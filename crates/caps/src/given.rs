//! What a tenant has been given: memory and compute on each GPU, and where its books lie.

use std::path::PathBuf;

/// The part of a GPU that a tenant of low priority gets at least, in thousandths, if not told
/// otherwise and if its share is not smaller.
pub const DEFAULT_FLOOR_MILLI: u32 = 50;

/// All that one tenant has been given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Who it is, for logs.
    pub tenant: String,
    /// By GPU.
    pub gpus: Vec<GpuCaps>,
    /// Whether GPUs that are not named are not its own: so it is for what an agent has written. What a
    /// tenant tells by variables leaves other GPUs free.
    pub closed: bool,
}

/// Which GPU a cap is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// `GPU-…` or `MIG-…`.
    Uuid(String),
    /// CUDA's number in the process.
    Ordinal(u32),
    /// Each that is not named otherwise.
    Any,
}

/// What a tenant has been given of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuCaps {
    /// The GPU.
    pub gpu: Which,
    /// Most memory, for all its processes together; `None` for no cap.
    pub memory_bytes: Option<u64>,
    /// What a context takes by itself, as the agent expects, in bytes: used where it cannot be measured.
    pub context_bytes: Option<u64>,
    /// Its part of the GPU's time; `None` for no cap.
    pub compute: Option<ComputeCap>,
    /// File of the memory's books ([`crate::Ledger`]); `{gpu}` stands for the GPU's UUID. One that an agent
    /// names is made by the agent.
    pub ledger: PathBuf,
    /// File in which the GPU's tenants arrange turns ([`crate::turns`]); without one the tenant knows of
    /// no neighbours and keeps to its share at all times. `{gpu}` stands for the GPU's UUID.
    pub board: Option<PathBuf>,
}

/// A part of a GPU's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeCap {
    /// Thousandths of the GPU's time, 1 to 1000.
    pub share_milli: u32,
    /// How time that others leave is divided; from 1.
    pub weight: u32,
    /// Who goes first: the higher.
    pub priority: i32,
    /// What a higher priority must leave, in thousandths.
    pub floor_milli: u32,
    /// Whether it may have more than its share while others leave the GPU idle.
    pub conserving: bool,
}

impl ComputeCap {
    /// A share with everything else as is usual: weighed by the share, priority 0, conserving.
    pub fn of(share_milli: u32) -> Self {
        let share_milli = share_milli.clamp(1, 1000);
        let floor_milli = DEFAULT_FLOOR_MILLI.min(share_milli);
        Self { share_milli, weight: share_milli, priority: 0, floor_milli, conserving: true }
    }
}

/// How a tenant stands to a GPU that it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<'caps> {
    /// It has been given a part.
    Given(&'caps GpuCaps),
    /// Nobody has said anything of it: no caps.
    Free,
    /// It is not the tenant's.
    Foreign,
}

impl Caps {
    /// How the tenant stands to a GPU.
    ///
    /// * `uuids` — names of the device: its own, and that of the GPU that it is a part of.
    /// * `ordinal` — CUDA's number in the process.
    pub fn standing(&self, uuids: &[&str], ordinal: u32) -> Standing<'_> {
        let named = |given: &&GpuCaps| match &given.gpu {
            Which::Uuid(uuid) => uuids.iter().any(|name| name.eq_ignore_ascii_case(uuid)),
            Which::Ordinal(number) => *number == ordinal,
            Which::Any => false,
        };
        let any = |given: &&GpuCaps| given.gpu == Which::Any;
        let found = self.gpus.iter().find(named).or_else(|| self.gpus.iter().find(any));
        match found {
            Some(given) => Standing::Given(given),
            None if self.closed => Standing::Foreign,
            None => Standing::Free,
        }
    }

    /// Lowers caps to what another source asks for; nothing rises. A GPU that only `other` names stays
    /// as it is.
    pub fn lower_to(&mut self, other: &Self) {
        for (at, given) in self.gpus.iter_mut().enumerate() {
            let same = |asked: &&GpuCaps| match (&given.gpu, &asked.gpu) {
                (Which::Uuid(one), Which::Uuid(two)) => one.eq_ignore_ascii_case(two),
                // The agent names GPUs in the order in which CUDA counts them.
                (Which::Uuid(_), Which::Ordinal(number)) => usize::try_from(*number) == Ok(at),
                (one, two) => one == two,
            };
            let any = |asked: &&GpuCaps| asked.gpu == Which::Any;
            let found = other.gpus.iter().find(same).or_else(|| other.gpus.iter().find(any));
            if let Some(asked) = found {
                given.lower_to(asked);
            }
        }
    }
}

impl GpuCaps {
    fn lower_to(&mut self, asked: &Self) {
        if let Some(bytes) = asked.memory_bytes {
            self.memory_bytes = Some(self.memory_bytes.map_or(bytes, |own| own.min(bytes)));
        }
        let Some(compute) = asked.compute else { return };
        let share_milli = compute.share_milli.clamp(1, 1000);
        match &mut self.compute {
            None => self.compute = Some(ComputeCap::of(share_milli)),
            Some(own) => {
                own.share_milli = own.share_milli.min(share_milli);
                own.weight = own.weight.min(own.share_milli);
                own.floor_milli = own.floor_milli.min(own.share_milli);
                own.conserving &= compute.conserving;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(gpu: Which, memory_bytes: u64) -> GpuCaps {
        GpuCaps {
            gpu,
            memory_bytes: Some(memory_bytes),
            context_bytes: None,
            compute: None,
            ledger: "ledger".into(),
            board: None,
        }
    }

    #[test]
    fn a_gpu_that_the_agent_has_not_named_is_foreign() {
        let named = given(Which::Uuid("GPU-1".into()), 10);
        let mut caps = Caps { tenant: "t".into(), gpus: vec![named.clone()], closed: true };
        assert_eq!(caps.standing(&["GPU-1"], 3), Standing::Given(&named));
        assert_eq!(caps.standing(&["MIG-7", "gpu-1"], 3), Standing::Given(&named));
        assert_eq!(caps.standing(&["GPU-2"], 0), Standing::Foreign);
        caps.closed = false;
        assert_eq!(caps.standing(&["GPU-2"], 0), Standing::Free);
    }

    #[test]
    fn another_source_lowers_and_never_raises() {
        let file = Caps {
            tenant: "t".into(),
            gpus: vec![
                given(Which::Uuid("GPU-1".into()), 10),
                given(Which::Uuid("GPU-2".into()), 10),
            ],
            closed: true,
        };
        let mut asked = Caps {
            gpus: vec![given(Which::Ordinal(1), 4), given(Which::Any, 90)],
            ..Caps::default()
        };
        asked.gpus[0].compute = Some(ComputeCap::of(300));
        let mut caps = file.clone();
        caps.lower_to(&asked);
        assert_eq!(caps.gpus[0], file.gpus[0]);
        assert_eq!(caps.gpus[1].memory_bytes, Some(4));
        assert_eq!(caps.gpus[1].compute, Some(ComputeCap::of(300)));
        let more = Caps { gpus: vec![given(Which::Any, 900)], ..Caps::default() };
        let before = caps.clone();
        caps.lower_to(&more);
        assert_eq!(caps, before);
    }
}
