//! The memory that all processes of one tenant hold on one GPU, in a file that they map.
//!
//! Reserve, then call the driver, then settle: an amount is in the books before the driver is asked,
//! so that processes cannot race past the cap together. What a process holds is in its own row; the
//! sum is kept beside the rows and made anew from them after a death. A process also locks a byte of the
//! file for its row, by which others know that it lives: also from another namespace, and not after an
//! `exec`, which ends what it has of the GPU.

mod books;
mod exports;
#[cfg(all(test, not(loom)))]
mod garbage;
#[cfg(all(test, loom))]
mod interleavings;
mod lock;
mod page;
#[cfg(not(loom))]
mod read;
#[cfg(not(loom))]
mod row_lock;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use page::LedgerPage;
pub use page::{EXPORTS_MAX, KINDS, Kind, PROCESSES_MAX};
#[cfg(not(loom))]
pub use read::{Account, ProcessUse, Refused};

#[cfg(not(loom))]
use std::{io, path::Path};

#[cfg(not(loom))]
use books::{NotBooked, Seat, note};
#[cfg(not(loom))]
use row_lock::RowLock;

use crate::process::ProcessId;
#[cfg(not(loom))]
use crate::shared::Mapped;
#[cfg(not(loom))]
use crate::sync::{AtomicU64, Ordering};

/// A process that has joined a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
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

/// All rows are taken by living processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

impl std::fmt::Display for Crowded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{PROCESSES_MAX} processes of this tenant use the GPU")
    }
}

/// One tenant's books on one GPU, mapped, with this process's row in them.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct Ledger {
    page: Mapped<LedgerPage>,
    lock: RowLock,
    /// The row, plus 1; 0 before it has joined.
    row: AtomicU64,
    /// What this process holds by kind, should its row be lost: the file is the tenant's to spoil.
    mine: [AtomicU64; KINDS],
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
        Mapped::make(path, mode).and_then(|page| Self::of(page, path))
    }

    /// Opens the file.
    ///
    /// # Errors
    /// The system's; `InvalidData` if it is no ledger.
    pub fn open(path: &Path) -> io::Result<Self> {
        Mapped::open(path).and_then(|page| Self::of(page, path))
    }

    fn of(page: Mapped<LedgerPage>, path: &Path) -> io::Result<Self> {
        let (lock, row) = (RowLock::open(path)?, AtomicU64::new(0));
        Ok(Self { page, lock, row, mine: std::array::from_fn(|_| AtomicU64::new(0)) })
    }

    /// Takes a row for the calling process, which holds nothing yet. Rows of the dead are taken over; so
    /// is its own of before an `exec`, which ends what a process has of the GPU and not its number.
    ///
    /// # Errors
    /// All rows are of the living.
    pub fn join(&self, own: ProcessId) -> Result<Slot, Crowded> {
        self.mine.iter().for_each(|held| held.store(0, Ordering::Relaxed));
        self.take_row(own).ok_or(Crowded)?;
        Ok(Slot { own })
    }

    fn take_row(&self, own: ProcessId) -> Option<Seat> {
        let seat = self.page.join(own, ProcessId::space_here(), &|id| self.lives(id))?;
        self.row.store(seat.row as u64 + 1, Ordering::Relaxed);
        self.lock.hold(seat.row);
        Some(seat)
    }

    /// The process's row; if it was lost, another one with what the process holds.
    fn seat(&self, slot: Slot) -> Seat {
        let row = usize::try_from(self.row.load(Ordering::Relaxed)).unwrap_or(0);
        let seat = Seat { row: row.wrapping_sub(1), own: slot.own };
        if self.page.member(seat).is_some() {
            return seat;
        }
        let Some(seat) = self.take_row(slot.own) else { return seat };
        for (kind, held) in Kind::ALL.iter().zip(&self.mine) {
            self.page.add(seat, *kind, held.load(Ordering::Relaxed), &|id| self.lives(id));
        }
        seat
    }

    /// Gives the row back with all that it holds.
    pub fn leave(&self, slot: Slot) {
        self.page.leave(self.seat(slot), &|id| self.lives(id));
    }

    /// Books an amount before the driver is asked for it.
    ///
    /// * `cap` — in bytes, for the whole tenant; `None` for none.
    ///
    /// # Errors
    /// It would go over the cap, also after rows of the dead are cleared. Nothing is booked then; what
    /// was refused is noted by [`Ledger::refused`].
    pub fn reserve(
        &self,
        slot: Slot,
        kind: Kind,
        bytes: u64,
        cap: Option<u64>,
    ) -> Result<(), OverCap> {
        let cap = cap.unwrap_or(u64::MAX);
        match self.page.reserve(self.seat(slot), kind, bytes, cap, &|id| self.lives(id)) {
            Ok(()) => self.hold(kind, bytes),
            Err(NotBooked::Over(over)) => return Err(over),
            Err(NotBooked::NoRow) => {
                return Err(OverCap { asked: bytes, held: self.total(), cap });
            }
        }
        Ok(())
    }

    /// Books an amount that exists already, whatever the cap says.
    pub fn add(&self, slot: Slot, kind: Kind, bytes: u64) {
        self.page.add(self.seat(slot), kind, bytes, &|id| self.lives(id));
        self.hold(kind, bytes);
    }

    fn hold(&self, kind: Kind, bytes: u64) {
        if let Some(held) = self.mine.get(kind as usize) {
            held.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Takes an amount off the books. More than is there leaves 0.
    pub fn release(&self, slot: Slot, kind: Kind, bytes: u64) {
        self.page.release(self.seat(slot), kind, bytes, &|id| self.lives(id));
        if let Some(held) = self.mine.get(kind as usize) {
            let less = |held: u64| Some(held.saturating_sub(bytes));
            let _always = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Corrects what was reserved to what it has turned out to be.
    pub fn settle(&self, slot: Slot, kind: Kind, reserved: u64, actual: u64) {
        if actual > reserved {
            self.add(slot, kind, actual - reserved);
        } else if reserved > actual {
            self.release(slot, kind, reserved - actual);
        }
    }

    /// What the process holds of one kind, in bytes.
    pub fn holds(&self, slot: Slot, kind: Kind) -> u64 {
        let member = self.page.member(self.seat(slot));
        let held = member.and_then(|member| member.held.get(kind as usize));
        held.map_or(0, |held| held.load(Ordering::Relaxed))
    }

    /// What the tenant holds, in bytes; the dead may still count.
    pub fn total(&self) -> u64 {
        self.page.total.load(Ordering::Relaxed)
    }

    /// Clears the rows of the dead; what the tenant holds then, in bytes.
    pub fn reap(&self, own: ProcessId) -> u64 {
        self.page.reap(own, &|id| self.lives(id))
    }

    /// Notes what the cap has refused.
    pub fn refused(&self, over: OverCap) {
        note(&self.page.over_cap, over.asked, over.held, over.cap);
    }

    /// Notes what the driver has refused although the cap had room.
    ///
    /// * `free` — what the driver said that the card has left, in bytes.
    pub fn card_full(&self, asked: u64, free: u64) {
        note(&self.page.card_full, asked, self.total(), free);
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
        add(&self.page.launches, launches);
        add(&self.page.gpu_us, gpu_us);
        add(&self.page.throttled, throttled.0);
        add(&self.page.throttled_us, throttled.1);
    }

    /// Notes memory that the process has allocated and that others of the tenant may open. With no room
    /// it is not noted, and counts again for whoever opens it.
    ///
    /// * `key` — what it will be known by; not 0.
    pub fn export(&self, slot: Slot, key: u64, bytes: u64) {
        self.page.export(self.seat(slot), key, bytes, &|id| self.lives(id));
    }

    /// Opens memory that a living process of the tenant pays for; whether there is such. If not, the
    /// caller has to book it.
    pub fn open_export(&self, slot: Slot, key: u64) -> bool {
        self.page.open_export(self.seat(slot), key, &|id| self.lives(id))
    }

    /// Ends one hold of the process: the exporter has freed the memory, or an opener has closed it.
    pub fn close_export(&self, slot: Slot, key: u64) {
        self.page.close_export(self.seat(slot), key, &|id| self.lives(id));
    }

    /// Whether a living process of the tenant pays for memory of this key.
    pub fn exported(&self, own: ProcessId, key: u64) -> bool {
        self.page.exported(own, key, &|id| self.lives(id))
    }

    /// In a forked process, which has no part in this ledger: lets the parent's lock go, so that it is not
    /// held for the parent when that is gone.
    pub fn forget_in_child(&self) {
        self.lock.forget();
    }

    /// Whether a process lives: as it is seen from here, or by its row's lock if it is not.
    fn lives(&self, id: ProcessId) -> bool {
        row_lock::lives(&self.page, id, self.lock.file(), |row| self.lock.is_held(row))
    }
}
