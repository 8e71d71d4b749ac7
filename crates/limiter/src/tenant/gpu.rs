//! One GPU of which the tenant has a part, and the books of it.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use caps::{GpuCaps, KINDS, Kind, Ledger, OverCap, ProcessId, Slot};

use crate::abi::Device;
use crate::memory::amount::{Amount, blocks};
use crate::memory::graph::Graphs;
use crate::memory::own::Own;
use crate::memory::primary::Primary;

/// A GPU and its books. Amounts are bytes.
pub(crate) struct Gpu {
    /// CUDA's number.
    pub(crate) device: Device,
    /// Its name, or the MIG device's.
    uuid: CString,
    /// What the tenant has been given.
    pub(crate) given: GpuCaps,
    ledger: Ledger,
    slot: Slot,
    own: ProcessId,
    /// Sum of the small allocations, which share blocks.
    small: Mutex<u64>,
    /// What this process holds by kind, as it knows itself.
    kinds: [AtomicU64; KINDS],
    /// How often that has changed.
    changes: AtomicU64,
    /// Memory that the process has open and another one of the tenant pays for, in bytes.
    opened: AtomicU64,
    /// What is exported or opened, by the keys under which the tenant's other processes know it.
    keys: Mutex<Vec<u64>>,
    /// What NVML says of this process.
    pub(crate) own_use: Own,
    /// The primary context.
    pub(crate) primary: Mutex<Primary>,
    /// Graphs with memory of their own.
    pub(crate) graphs: Mutex<Graphs>,
}

impl Gpu {
    pub(crate) fn new(
        device: Device,
        uuid: CString,
        given: GpuCaps,
        (ledger, slot): (Ledger, Slot),
        own: ProcessId,
    ) -> Self {
        Self {
            device,
            uuid,
            given,
            ledger,
            slot,
            own,
            small: Mutex::new(0),
            kinds: [const { AtomicU64::new(0) }; KINDS],
            changes: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            keys: Mutex::default(),
            own_use: Own::new(),
            primary: Mutex::default(),
            graphs: Mutex::default(),
        }
    }

    /// Its UUID as text.
    pub(crate) fn uuid(&self) -> &CStr {
        &self.uuid
    }

    /// The books, for what is not memory.
    pub(crate) fn ledger(&self) -> (&Ledger, Slot) {
        (&self.ledger, self.slot)
    }

    /// What the tenant may hold.
    pub(crate) fn cap(&self) -> Option<u64> {
        self.given.memory_bytes
    }

    /// What all living processes of the tenant hold.
    pub(crate) fn held(&self) -> u64 {
        self.ledger.reap(self.own)
    }

    /// Whether the tenant's living processes hold more than they may; so it is where an amount is known
    /// only afterwards.
    pub(crate) fn is_over(&self) -> bool {
        self.cap().is_some_and(|cap| self.ledger.total() > cap && self.held() > cap)
    }

    /// What this process holds of one kind, in bytes.
    pub(crate) fn own(&self, kind: Kind) -> u64 {
        self.kinds.get(kind as usize).map_or(0, |own| own.load(Ordering::Relaxed))
    }

    /// What this process holds by the books, or has open of what is in those of the tenant's others; in
    /// bytes.
    pub(crate) fn explained(&self) -> u64 {
        let opened = self.opened.load(Ordering::Relaxed);
        Kind::ALL.iter().fold(opened, |sum, kind| sum.saturating_add(self.own(*kind)))
    }

    /// How often what this process holds has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Books an amount that the driver is to be asked for.
    pub(crate) fn reserve(&self, kind: Kind, amount: Amount) -> Result<(), OverCap> {
        match amount {
            Amount::Own(bytes) => self.take(kind, bytes),
            Amount::Shared(bytes) => {
                let mut small = self.small.lock().unwrap_or_else(PoisonError::into_inner);
                let after = small.saturating_add(bytes);
                let more = blocks(after).saturating_sub(blocks(*small));
                if more > 0 {
                    self.take(Kind::Plain, more)?;
                }
                *small = after;
                Ok(())
            }
        }
    }

    /// Takes an amount off the books that the driver has back.
    pub(crate) fn release(&self, kind: Kind, amount: Amount) {
        match amount {
            Amount::Own(bytes) => self.give(kind, bytes),
            Amount::Shared(bytes) => {
                let mut small = self.small.lock().unwrap_or_else(PoisonError::into_inner);
                let after = small.saturating_sub(bytes);
                self.give(Kind::Plain, blocks(*small).saturating_sub(blocks(after)));
                *small = after;
            }
        }
    }

    fn take(&self, kind: Kind, bytes: u64) -> Result<(), OverCap> {
        self.ledger.reserve(self.slot, kind, bytes, self.cap())?;
        self.note_own(kind, bytes, 0);
        Ok(())
    }

    fn give(&self, kind: Kind, bytes: u64) {
        if bytes > 0 {
            self.ledger.release(self.slot, kind, bytes);
            self.note_own(kind, 0, bytes);
        }
    }

    fn note_own(&self, kind: Kind, more: u64, less: u64) {
        if let Some(own) = self.kinds.get(kind as usize) {
            // Never below 0: what is given back was taken here.
            own.fetch_add(more.wrapping_sub(less), Ordering::Relaxed);
        }
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Corrects an amount of a kind to what it has turned out to be.
    pub(crate) fn settle(&self, kind: Kind, before: u64, after: u64) {
        if before != after {
            self.ledger.settle(self.slot, kind, before, after);
            self.note_own(kind, after.saturating_sub(before), before.saturating_sub(after));
        }
    }

    /// Notes that the cap has refused an amount.
    pub(crate) fn note_over(&self, over: OverCap) {
        self.ledger.refused(over);
    }

    /// Notes that the driver has refused an amount for which the cap had room.
    pub(crate) fn note_full(&self, asked: u64) {
        self.ledger.card_full(asked, crate::driver::free_memory().unwrap_or(0));
    }

    /// Notes memory that others of the tenant may open.
    pub(crate) fn export(&self, key: u64, bytes: u64) {
        self.keys().push(key);
        self.ledger.export(self.slot, key, bytes);
    }

    /// Opens memory that another process of the tenant pays for; whether there is such.
    pub(crate) fn open(&self, key: u64) -> bool {
        let opened = self.ledger.open_export(self.slot, key);
        if opened {
            self.keys().push(key);
        }
        opened
    }

    /// Ends a hold of memory that others of the tenant may have open too.
    pub(crate) fn close(&self, key: u64) {
        self.ledger.close_export(self.slot, key);
        let mut keys = self.keys();
        if let Some(at) = keys.iter().position(|known| *known == key) {
            keys.swap_remove(at);
        }
    }

    /// Whether this process has exported or opened memory under a key.
    pub(crate) fn has_open(&self, key: u64) -> bool {
        self.keys().contains(&key)
    }

    fn keys(&self) -> MutexGuard<'_, Vec<u64>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes memory that this process has open, or no longer, and does not pay for. Bytes.
    pub(crate) fn note_opened(&self, more: u64, less: u64) {
        let after = |sum: u64| Some(sum.saturating_add(more).saturating_sub(less));
        let _always = self.opened.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a living process of the tenant pays for memory under this key.
    pub(crate) fn exported(&self, key: u64) -> bool {
        self.ledger.exported(self.own, key)
    }
}
