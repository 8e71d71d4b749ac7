//! One GPU of which the tenant has a part, and the books of it.

use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

use caps::{GpuCaps, Kind, Ledger, OverCap, ProcessId, Slot};

use crate::abi::Device;
use crate::memory::amount::{Amount, blocks};
use crate::memory::context::Primary;
use crate::memory::graph::Graphs;

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

    /// Books an amount that the driver is to be asked for.
    pub(crate) fn reserve(&self, kind: Kind, amount: Amount) -> Result<(), OverCap> {
        match amount {
            Amount::Own(bytes) => self.ledger.reserve(self.slot, kind, bytes, self.cap()),
            Amount::Shared(bytes) => {
                let mut small = self.small.lock().unwrap_or_else(PoisonError::into_inner);
                let after = small.saturating_add(bytes);
                let more = blocks(after).saturating_sub(blocks(*small));
                if more > 0 {
                    self.ledger.reserve(self.slot, Kind::Plain, more, self.cap())?;
                }
                *small = after;
                Ok(())
            }
        }
    }

    /// Takes an amount off the books that the driver has back.
    pub(crate) fn release(&self, kind: Kind, amount: Amount) {
        match amount {
            Amount::Own(bytes) if bytes > 0 => self.ledger.release(self.slot, kind, bytes),
            Amount::Own(_) => {}
            Amount::Shared(bytes) => {
                let mut small = self.small.lock().unwrap_or_else(PoisonError::into_inner);
                let after = small.saturating_sub(bytes);
                let less = blocks(*small).saturating_sub(blocks(after));
                if less > 0 {
                    self.ledger.release(self.slot, Kind::Plain, less);
                }
                *small = after;
            }
        }
    }

    /// Corrects an amount of a kind to what it has turned out to be.
    pub(crate) fn settle(&self, kind: Kind, before: u64, after: u64) {
        self.ledger.settle(self.slot, kind, before, after);
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
        self.ledger.export(self.slot, key, bytes);
    }

    /// Opens memory that another process of the tenant pays for; whether there is such.
    pub(crate) fn open(&self, key: u64) -> bool {
        self.ledger.open_export(self.slot, key)
    }

    /// Ends a hold of memory that others of the tenant may have open too.
    pub(crate) fn close(&self, key: u64) {
        self.ledger.close_export(self.slot, key);
    }

    /// Whether a living process of the tenant pays for memory under this key.
    pub(crate) fn exported(&self, key: u64) -> bool {
        self.ledger.exported(self.own, key)
    }
}
