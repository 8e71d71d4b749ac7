//! What the process holds: for each address or handle how much of which GPU.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use caps::Kind;

use super::amount::Amount;
use crate::abi::Device;

/// How many parts the map has, so that threads seldom meet.
const PARTS: usize = 64;

/// What a number stands for: addresses and handles may be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// Memory by its address.
    Address(u64),
    /// What another process has exported, by its address.
    Opened(u64),
    /// An array or mipmapped array.
    Array(u64),
    /// A module.
    Module(u64),
    /// A library of code.
    Library(u64),
    /// A context that is not the primary one.
    Context(u64),
    /// Memory of another interface.
    External(u64),
}

impl Name {
    /// Numbers are mostly multiples of large powers of two; the upper bits of the product mix all.
    fn part(self) -> usize {
        let (Self::Address(number)
        | Self::Opened(number)
        | Self::Array(number)
        | Self::Module(number)
        | Self::Library(number)
        | Self::Context(number)
        | Self::External(number)) = self;
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
    }
}

/// One thing that is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The GPU.
    pub(crate) device: Device,
    /// What for.
    pub(crate) kind: Kind,
    /// How much.
    pub(crate) amount: Amount,
    /// The context that it ends with, or [`primary_of`] its GPU; 0 if it outlives contexts.
    pub(crate) context: u64,
    /// How many times it was opened.
    pub(crate) times: u32,
    /// What it is known by to other processes of the tenant; 0 if to none.
    pub(crate) key: u64,
    /// How much of it another process of the tenant pays for, in bytes.
    pub(crate) unpaid: u64,
}

impl Held {
    /// Nothing, opened once, known to nobody: what to begin with.
    pub(crate) const NONE: Self = Self {
        device: 0,
        kind: Kind::Plain,
        amount: Amount::Own(0),
        context: 0,
        times: 1,
        key: 0,
        unpaid: 0,
    };
}

/// Stands for a GPU's primary context and the green ones in it: a number that no address is.
pub(crate) fn primary_of(device: Device) -> u64 {
    u64::MAX.wrapping_sub(u64::from(device.unsigned_abs()))
}

/// All that is held.
pub(crate) struct Kept {
    parts: [Mutex<BTreeMap<Name, Held>>; PARTS],
    /// Whether there has ever been a context that is not primary.
    has_contexts: AtomicBool,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            parts: [const { Mutex::new(BTreeMap::new()) }; PARTS],
            has_contexts: AtomicBool::new(false),
        }
    }
}

impl Kept {
    fn part(&self, name: Name) -> Option<MutexGuard<'_, BTreeMap<Name, Held>>> {
        let part = self.parts.get(name.part())?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes what is held now; what was noted under this name before, which the driver must have taken
    /// back by a way that we have not seen.
    #[must_use = "it is to be taken off the books"]
    pub(crate) fn put(&self, name: Name, held: Held) -> Option<Held> {
        if matches!(name, Name::Context(_)) {
            self.has_contexts.store(true, Ordering::Release);
        }
        self.part(name)?.insert(name, held)
    }

    /// Whether a context is one that the client has made, and not primary.
    pub(crate) fn is_clients(&self, context: u64) -> bool {
        self.has_contexts.load(Ordering::Acquire) && self.get(Name::Context(context)).is_some()
    }

    /// Notes again what was taken; returns it if the name is another's by now.
    #[must_use = "it is to be taken off the books"]
    pub(crate) fn put_back(&self, name: Name, held: Held) -> Option<Held> {
        match self.part(name)?.entry(name) {
            Entry::Vacant(place) => {
                place.insert(held);
                None
            }
            Entry::Occupied(_) => Some(held),
        }
    }

    /// Notes that what may be there already has been opened once more; whether it was there.
    pub(crate) fn again(&self, name: Name) -> bool {
        let Some(mut part) = self.part(name) else { return false };
        part.get_mut(&name).is_some_and(|held| {
            held.times = held.times.saturating_add(1);
            true
        })
    }

    /// Notes what it is known by to others; whether it is there.
    pub(crate) fn set_key(&self, name: Name, key: u64) -> bool {
        let Some(mut part) = self.part(name) else { return false };
        part.get_mut(&name).is_some_and(|held| {
            held.key = key;
            true
        })
    }

    /// Forgets it. To be called before the driver has it back: afterwards the name may be another's.
    pub(crate) fn take(&self, name: Name) -> Option<Held> {
        self.part(name)?.remove(&name)
    }

    /// What is known of it.
    pub(crate) fn get(&self, name: Name) -> Option<Held> {
        self.part(name)?.get(&name).copied()
    }

    /// Notes that what was opened several times has been closed once; whether it was.
    pub(crate) fn once_less(&self, name: Name) -> bool {
        let Some(mut part) = self.part(name) else { return false };
        part.get_mut(&name).filter(|held| held.times > 1).is_some_and(|held| {
            held.times = held.times.saturating_sub(1);
            true
        })
    }

    /// Forgets all that ends with a context.
    pub(crate) fn take_of_context(&self, context: u64) -> Vec<(Name, Held)> {
        let mut gone = Vec::new();
        for part in &self.parts {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            gone.extend(part.extract_if(.., |_, held| held.context == context));
        }
        gone
    }
}
