//! Address space that is handed out in pieces: that of all device memory, or of one block.

use std::collections::BTreeMap;

use crate::mapping;

/// Free ranges: start and length, none next to another.
pub(crate) struct Addresses {
    start: u64,
    end: u64,
    free: BTreeMap<u64, u64>,
    left: u64,
}

/// Address space to begin with, in bytes: room for many reservations as large as a GPU's memory. Where
/// the system allows less, half of it is tried, and so on.
const MOST: u64 = 16 << 40;
const LEAST: u64 = 1 << 30;
/// What large pieces start at multiples of.
pub(crate) const LARGE: u64 = 2 << 20;

impl Addresses {
    /// Reserves the address space of a process's device memory.
    pub(crate) fn reserve() -> Option<Self> {
        let mut bytes = MOST;
        while bytes >= LEAST {
            if let Some(start) = mapping::reserve(bytes) {
                let aligned = start.next_multiple_of(LARGE);
                return Some(Self::of(aligned, (start + bytes - aligned) / LARGE * LARGE));
            }
            bytes /= 2;
        }
        None
    }

    /// A range, all of it free.
    pub(crate) fn of(start: u64, bytes: u64) -> Self {
        Self { start, end: start + bytes, free: BTreeMap::from([(start, bytes)]), left: bytes }
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Bytes that are free.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Whether nothing is taken.
    pub(crate) fn is_whole(&self) -> bool {
        self.left == self.end - self.start
    }

    /// Takes the first range of a size whose start is a multiple of `align`.
    pub(crate) fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let fits = |(start, length): (&u64, &u64)| {
            let at = start.next_multiple_of(align);
            (at + bytes <= start + length).then_some((*start, *length, at))
        };
        let (start, length, at) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        let end = start + length;
        if at + bytes < end {
            self.free.insert(at + bytes, end - at - bytes);
        }
        self.left -= bytes;
        Some(at)
    }

    /// Gives a range back.
    pub(crate) fn give(&mut self, at: u64, bytes: u64) {
        let (mut start, mut length) = (at, bytes);
        let before = self.free.range(..at).next_back().map(|(start, length)| (*start, *length));
        if let Some((other, size)) = before.filter(|(other, size)| other + size == at) {
            self.free.remove(&other);
            (start, length) = (other, size + length);
        }
        if let Some(size) = self.free.remove(&(at + bytes)) {
            length += size;
        }
        self.free.insert(start, length);
        self.left += bytes;
    }
}
