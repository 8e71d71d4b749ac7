//! Identifiers: small, ordered, printable.

use alloc::sync::Arc;
use core::fmt;

use serde::Serialize;

/// A node's position in its [`Fleet`](crate::Fleet); equal scores go to the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The position as an index into the fleet's nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One physical GPU: the node and the device's index on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct GpuId {
    /// The node that carries the GPU.
    pub node: NodeId,
    /// Zero-based index on that node.
    pub index: u8,
}

/// A GPU model's position in its [`Catalogue`](crate::Catalogue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ModelId(pub u16);

/// A workload, numbered in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct WorkloadId(pub u64);

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// Who answers for a workload: a user, an account or a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// Names an owner.
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
