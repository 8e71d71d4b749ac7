//! A ledger as it is seen from outside: copied, never mapped, for its tenant may write anything.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::page::{KINDS, LedgerPage, Member, Refusals};
use super::row_lock;
use crate::process::ProcessId;
use crate::shared;
use crate::sync::Ordering;

/// What a tenant holds and has had on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Processes that live, or that cannot be judged from here.
    pub processes: Vec<ProcessUse>,
    /// The most that all held at once, in bytes.
    pub peak_bytes: u64,
    /// What the cap has refused.
    pub over_cap: Refused,
    /// What the driver has refused although the cap had room; `limit` is what the card had left.
    pub card_full: Refused,
    /// Kernels and graphs launched.
    pub launches: u64,
    /// GPU time had, in µs.
    pub gpu_us: u64,
    /// Launches held back.
    pub throttled: u64,
    /// For how long, in µs.
    pub throttled_us: u64,
}

/// What one process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// The process.
    pub id: ProcessId,
    /// Bytes by [`super::Kind`].
    pub bytes: [u64; KINDS],
}

/// Refusals of one sort: how many, and the last of them in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub count: u64,
    /// Asked for.
    pub asked: u64,
    /// Held by the tenant then.
    pub held: u64,
    /// The cap, or what the card had left.
    pub limit: u64,
    /// The process, by its own number.
    pub pid: u32,
}

impl Account {
    /// Reads a ledger's file. It may change while it is read: figures of different rows may then be
    /// some µs apart.
    ///
    /// # Errors
    /// The system's; `InvalidData` if it is no ledger.
    pub fn read(path: &Path) -> io::Result<Self> {
        let page = shared::copy::<LedgerPage>(path)?;
        let file = shared::options().open(path)?;
        let number = file.metadata()?.ino();
        Ok(Self::of(&page, number, &|row| row_lock::is_held_in(&file, row)))
    }

    /// What a page says.
    ///
    /// * `file` — the number of its file.
    /// * `is_held` — whether a row is locked by its process.
    pub(super) fn of(page: &LedgerPage, file: u64, is_held: &dyn Fn(usize) -> bool) -> Self {
        let process = |member: &Member| {
            let id = ProcessId::from_word(member.owner.load(Ordering::Acquire))?;
            let bytes = std::array::from_fn(|kind| {
                member.held.get(kind).map_or(0, |held| sane(held.load(Ordering::Relaxed)))
            });
            row_lock::lives(page, id, file, is_held).then_some(ProcessUse { id, bytes })
        };
        Self {
            processes: page.members.iter().filter_map(process).collect(),
            peak_bytes: sane(page.peak.load(Ordering::Relaxed)),
            over_cap: refused(&page.over_cap),
            card_full: refused(&page.card_full),
            launches: sane(page.launches.load(Ordering::Relaxed)),
            gpu_us: sane(page.gpu_us.load(Ordering::Relaxed)),
            throttled: sane(page.throttled.load(Ordering::Relaxed)),
            throttled_us: sane(page.throttled_us.load(Ordering::Relaxed)),
        }
    }

    /// What all processes hold, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.by_kind().iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// The same by kind.
    pub fn by_kind(&self) -> [u64; KINDS] {
        let mut sums = [0_u64; KINDS];
        for process in &self.processes {
            for (sum, bytes) in sums.iter_mut().zip(process.bytes) {
                *sum = sum.saturating_add(bytes);
            }
        }
        sums
    }
}

/// A figure that can be: none of a GPU reaches 2^50 (a PiB, 35 years of µs). What its tenant has spoilt
/// must not show in sums with others.
fn sane(figure: u64) -> u64 {
    if figure < 1 << 50 { figure } else { 0 }
}

fn refused(refusals: &Refusals) -> Refused {
    Refused {
        count: sane(refusals.count.load(Ordering::Acquire)),
        asked: refusals.asked.load(Ordering::Relaxed),
        held: refusals.held.load(Ordering::Relaxed),
        limit: refusals.limit.load(Ordering::Relaxed),
        pid: refusals.pid.load(Ordering::Relaxed) as u32,
    }
}
