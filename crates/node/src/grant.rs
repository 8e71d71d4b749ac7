//! What a tenant is handed when it starts: which device it sees, under which caps, held how hard.

use std::path::PathBuf;

use model::{Share, SharingKind};
use serde::{Deserialize, Serialize};

use crate::backend::Enforcement;

/// Who is given a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// A name, unique on the machine: `RUN/TASK`, or one word.
    pub who: &'a str,
    /// Whose turn comes first where tenants take turns: the higher.
    pub priority: i32,
    /// Whose processes they are, if not those of whoever grants.
    pub user: Option<User>,
}

/// A user of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Number of the user.
    pub uid: u32,
    /// Number of the user's first group.
    pub gid: u32,
}

impl<'a> From<&'a str> for Holder<'a> {
    /// A holder of the usual priority.
    fn from(who: &'a str) -> Self {
        Self { who, priority: 0, user: None }
    }
}

/// One tenant's hold on one GPU, made real.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// UUID of the physical GPU.
    pub gpu: String,
    /// The share.
    pub share: Share,
    /// What CUDA calls the device: the UUID of the GPU or of the MIG device.
    pub device: String,
    /// Variables that the tenant's process needs, caps and pipes included; without
    /// `CUDA_VISIBLE_DEVICES`, which names the devices of all its grants.
    pub env: Vec<(String, String)>,
    /// The cgroup that holds its memory cap: its first process must be moved there before it uses
    /// the GPU.
    pub cgroup: Option<PathBuf>,
    /// Where its processes book what they hold, if the limiter holds one of its caps.
    pub ledger: Option<PathBuf>,
    /// Number of its hold in the journal.
    pub hold: i64,
    /// How hard its memory cap holds.
    pub memory: Enforcement,
    /// How hard its compute cap holds.
    pub compute: Enforcement,
}

impl Grant {
    /// The way in which the GPU is shared.
    pub fn kind(&self) -> SharingKind {
        self.share.kind()
    }
}
