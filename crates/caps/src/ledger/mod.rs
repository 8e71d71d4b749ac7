//! The memory that all processes of one tenant hold on one GPU, in a file that they map.
//!
//! Reserve, then call the driver, then settle: an amount is in the books before the driver is asked,
//! so that processes cannot race past the cap together. What a process holds is in its own row; the
//! sum is kept beside the rows and made anew from them after a death.

mod exports;
#[cfg(all(test, loom))]
mod interleavings;
mod lock;
mod page;
mod read;
#[cfg(all(test, not(loom)))]
mod tests;

pub use page::{EXPORTS_MAX, KINDS, Kind, LedgerPage, PROCESSES_MAX};
pub use read::{Account, ProcessUse, Refused};

use std::io;
use std::ops::Deref;
use std::path::Path;

use page::{Member, Refusals};

use crate::process::ProcessId;
#[cfg(not(loom))]
use crate::shared::Mapped;
use crate::sync::{AtomicU64, Ordering};

/// A row of the ledger: one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    row: usize,
    own: ProcessId,
}

/// An amount would go over the cap. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverCap {
    /// Asked for.
    pub asked: u64,
    /// Held by the tenant's living processes.
    pub held: u64,
    /// The cap.
    pub cap: u64,
}

/// A ledger cannot be used.
#[derive(Debug)]
pub enum LedgerError {
    /// The file.
    File(io::Error),
    /// All rows are taken by living processes.
    Crowded,
}

impl std::fmt::Display for LedgerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(error) => write!(f, "{error}"),
            Self::Crowded => write!(f, "{PROCESSES_MAX} processes of this tenant use the GPU"),
        }
    }
}

/// One tenant's books on one GPU, mapped. Derefs to the operations on [`LedgerPage`].
#[derive(Debug)]
pub struct Ledger(#[cfg(not(loom))] Mapped<LedgerPage>, #[cfg(loom)] LedgerPage);

impl Deref for Ledger {
    type Target = LedgerPage;
    fn deref(&self) -> &LedgerPage {
        &self.0
    }
}

#[cfg(not(loom))]
impl Ledger {
    /// Makes the file if it is not there.
    ///
    /// * `mode` — rights: the tenant's processes must be able to write.
    ///
    /// # Errors
    /// The system's.
    pub fn make(path: &Path, mode: u32) -> io::Result<Self> {
        Mapped::make(path, mode).map(Self)
    }

    /// Opens the file.
    ///
    /// # Errors
    /// The system's; `InvalidData` if it is no ledger.
    pub fn open(path: &Path) -> io::Result<Self> {
        Mapped::open(path).map(Self)
    }
}

impl LedgerPage {
    /// Takes a row for the calling process, which holds nothing yet. Rows of the dead are taken over; so
    /// is its own of before an `exec`, which ends what a process has of the GPU and not its number.
    ///
    /// # Errors
    /// [`LedgerError::Crowded`].
    pub fn join(&self, own: ProcessId) -> Result<Slot, LedgerError> {
        self.join_as(own, ProcessId::is_alive)
    }

    fn join_as(
        &self,
        own: ProcessId,
        alive: impl Fn(ProcessId) -> bool + Copy,
    ) -> Result<Slot, LedgerError> {
        let _held = self.enter(own, alive);
        let mine = |row: &(usize, &Member)| row.1.owner.load(Ordering::Relaxed) == own.word();
        if let Some((row, member)) = self.rows().find(mine) {
            clear(member);
            self.hand_on_exports();
            member.owner.store(own.word(), Ordering::Relaxed);
            self.sum_up();
            return Ok(Slot { row, own });
        }
        let free = || self.rows().find(|(_, member)| member.owner.load(Ordering::Relaxed) == 0);
        let found = free().or_else(|| {
            self.sweep(own, alive);
            free()
        });
        let (row, member) = found.ok_or(LedgerError::Crowded)?;
        member.owner.store(own.word(), Ordering::Relaxed);
        Ok(Slot { row, own })
    }

    /// Gives a row back with all that it holds.
    pub fn leave(&self, slot: Slot) {
        let _held = self.enter(slot.own, ProcessId::is_alive);
        if let Some(member) = self.member(slot) {
            clear(member);
            self.hand_on_exports();
            self.sum_up();
        }
    }

    /// Books an amount before the driver is asked for it.
    ///
    /// * `cap` — in bytes, for the whole tenant; `None` for none.
    ///
    /// # Errors
    /// It would go over the cap, also after rows of the dead are cleared. Nothing is booked then; what
    /// was refused is noted by [`LedgerPage::refused`].
    pub fn reserve(
        &self,
        slot: Slot,
        kind: Kind,
        bytes: u64,
        cap: Option<u64>,
    ) -> Result<(), OverCap> {
        self.reserve_as(slot, kind, bytes, cap, ProcessId::is_alive)
    }

    fn reserve_as(
        &self,
        slot: Slot,
        kind: Kind,
        bytes: u64,
        cap: Option<u64>,
        alive: impl Fn(ProcessId) -> bool + Copy,
    ) -> Result<(), OverCap> {
        let cap = cap.unwrap_or(u64::MAX);
        let _held = self.enter(slot.own, alive);
        let fits = |total: u64| total.checked_add(bytes).is_some_and(|sum| sum <= cap);
        let mut total = self.total.load(Ordering::Relaxed);
        if !fits(total) {
            self.sweep(slot.own, alive);
            total = self.total.load(Ordering::Relaxed);
        }
        let (Some(member), true) = (self.member(slot), fits(total)) else {
            return Err(OverCap { asked: bytes, held: total, cap });
        };
        self.book(member, kind, bytes, total);
        Ok(())
    }

    /// Books an amount that exists already, whatever the cap says.
    pub fn add(&self, slot: Slot, kind: Kind, bytes: u64) {
        let _held = self.enter(slot.own, ProcessId::is_alive);
        // What the dead held must not count into the peak.
        self.sweep(slot.own, ProcessId::is_alive);
        if let Some(member) = self.member(slot) {
            self.book(member, kind, bytes, self.total.load(Ordering::Relaxed));
        }
    }

    /// Takes an amount off the books. More than is there leaves 0.
    pub fn release(&self, slot: Slot, kind: Kind, bytes: u64) {
        let _held = self.enter(slot.own, ProcessId::is_alive);
        let Some(held) = self.member(slot).and_then(|member| member.held.get(kind as usize)) else {
            return;
        };
        let before = held.load(Ordering::Relaxed);
        let taken = before.min(bytes);
        held.store(before - taken, Ordering::Relaxed);
        let total = self.total.load(Ordering::Relaxed);
        self.total.store(total.saturating_sub(taken), Ordering::Relaxed);
    }

    /// Corrects what was reserved to what it has turned out to be.
    pub fn settle(&self, slot: Slot, kind: Kind, reserved: u64, actual: u64) {
        if actual > reserved {
            self.add(slot, kind, actual - reserved);
        } else if reserved > actual {
            self.release(slot, kind, reserved - actual);
        }
    }

    /// Sets what a process holds of one kind.
    pub fn set(&self, slot: Slot, kind: Kind, bytes: u64) {
        let _held = self.enter(slot.own, ProcessId::is_alive);
        if let Some(held) = self.member(slot).and_then(|member| member.held.get(kind as usize)) {
            let before = held.swap(bytes, Ordering::Relaxed);
            let total = self.total.load(Ordering::Relaxed).saturating_sub(before);
            self.total.store(total.saturating_add(bytes), Ordering::Relaxed);
        }
    }

    /// What a process holds of one kind, in bytes.
    pub fn holds(&self, slot: Slot, kind: Kind) -> u64 {
        let held = self.member(slot).and_then(|member| member.held.get(kind as usize));
        held.map_or(0, |held| held.load(Ordering::Relaxed))
    }

    /// What the tenant holds, in bytes; the dead may still count.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Clears the rows of the dead; what the tenant holds then, in bytes.
    pub fn reap(&self, own: ProcessId) -> u64 {
        let _held = self.enter(own, ProcessId::is_alive);
        self.sweep(own, ProcessId::is_alive);
        self.total.load(Ordering::Relaxed)
    }

    /// Notes what the cap has refused.
    pub fn refused(&self, over: OverCap) {
        note(&self.over_cap, over.asked, over.held, over.cap);
    }

    /// Notes what the driver has refused although the cap had room.
    ///
    /// * `free` — what the driver said that the card has left, in bytes.
    pub fn card_full(&self, asked: u64, free: u64) {
        note(&self.card_full, asked, self.total(), free);
    }

    /// Counts launches, GPU time and time held back, in bulk.
    ///
    /// * `throttled` — launches that were held back, and for how long in µs.
    pub fn count(&self, launches: u64, gpu_us: u64, throttled: (u64, u64)) {
        let add = |to: &AtomicU64, amount: u64| {
            if amount > 0 {
                to.fetch_add(amount, Ordering::Relaxed);
            }
        };
        add(&self.launches, launches);
        add(&self.gpu_us, gpu_us);
        add(&self.throttled, throttled.0);
        add(&self.throttled_us, throttled.1);
    }

    /// Says whether a process has work on the GPU.
    pub fn set_busy(&self, slot: Slot, busy: bool) {
        if let Some(member) = self.member(slot) {
            member.busy.store(u32::from(busy), Ordering::SeqCst);
        }
    }

    /// Whether a living process of the tenant, other than `slot`'s, has work on the GPU.
    pub fn others_busy(&self, slot: Slot) -> bool {
        self.rows().any(|(row, member)| {
            let owner = ProcessId::from_word(member.owner.load(Ordering::Relaxed));
            row != slot.row
                && member.busy.load(Ordering::SeqCst) != 0
                && owner.is_some_and(ProcessId::is_alive)
        })
    }

    fn rows(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.members.iter().enumerate()
    }

    /// A process's row, while it is its own.
    fn member(&self, slot: Slot) -> Option<&Member> {
        let member = self.members.get(slot.row)?;
        (member.owner.load(Ordering::Relaxed) == slot.own.word()).then_some(member)
    }

    fn enter(&self, own: ProcessId, alive: impl Fn(ProcessId) -> bool) -> Inside<'_> {
        let broken = lock::take(&self.lock, own, alive);
        let inside = Inside { page: self, own };
        if broken {
            self.sum_up();
        }
        inside
    }

    fn book(&self, member: &Member, kind: Kind, bytes: u64, total: u64) {
        if let Some(held) = member.held.get(kind as usize) {
            held.store(held.load(Ordering::Relaxed).saturating_add(bytes), Ordering::Relaxed);
            let total = total.saturating_add(bytes);
            self.total.store(total, Ordering::Relaxed);
            if total > self.peak.load(Ordering::Relaxed) {
                self.peak.store(total, Ordering::Relaxed);
            }
        }
    }

    /// Clears the rows of the dead. Only inside the lock.
    fn sweep(&self, own: ProcessId, alive: impl Fn(ProcessId) -> bool) {
        for (_, member) in self.rows() {
            let owner = ProcessId::from_word(member.owner.load(Ordering::Relaxed));
            if owner.is_some_and(|owner| owner != own && !alive(owner)) {
                clear(member);
            }
        }
        self.hand_on_exports();
        self.sum_up();
    }

    /// Makes the sum anew. Only inside the lock.
    fn sum_up(&self) {
        let amounts = self.members.iter().flat_map(|member| &member.held);
        let sum = amounts.fold(0_u64, |sum, held| sum.saturating_add(held.load(Ordering::Relaxed)));
        self.total.store(sum, Ordering::Relaxed);
    }
}

/// Inside the lock.
struct Inside<'page> {
    page: &'page LedgerPage,
    own: ProcessId,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        lock::give(&self.page.lock, self.own);
    }
}

/// The amounts go first: a row without an owner holds nothing.
fn clear(member: &Member) {
    for held in &member.held {
        held.store(0, Ordering::Relaxed);
    }
    member.busy.store(0, Ordering::Relaxed);
    member.owner.store(0, Ordering::Release);
}

fn note(refusals: &Refusals, asked: u64, held: u64, limit: u64) {
    refusals.asked.store(asked, Ordering::Relaxed);
    refusals.held.store(held, Ordering::Relaxed);
    refusals.limit.store(limit, Ordering::Relaxed);
    refusals.pid.store(u64::from(std::process::id()), Ordering::Relaxed);
    refusals.count.fetch_add(1, Ordering::Release);
}
