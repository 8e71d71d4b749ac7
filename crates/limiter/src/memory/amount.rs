//! How much of a GPU an allocation takes.
//!
//! The driver hands out blocks of 2 MiB. An allocation of 1 MiB or more takes blocks of its own; smaller
//! ones share blocks, and count together as if those were packed without gaps.

/// What the driver hands out at once, in bytes.
pub(crate) const BLOCK: u64 = 2 << 20;
/// From here on an allocation shares its blocks with no other, in bytes.
const OWN_FROM: u64 = 1 << 20;

/// An amount of memory in the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// Bytes that nothing else shares.
    Own(u64),
    /// Bytes in blocks that small allocations share.
    Shared(u64),
}

impl Amount {
    /// What an allocation of so many bytes takes.
    pub(crate) fn of(bytes: u64) -> Self {
        if bytes >= OWN_FROM { Self::Own(blocks(bytes)) } else { Self::Shared(bytes) }
    }

    /// In bytes.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Own(bytes) | Self::Shared(bytes) => bytes,
        }
    }
}

/// The blocks that so many bytes fill, in bytes; the largest multiple of a block if there is none above.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}
