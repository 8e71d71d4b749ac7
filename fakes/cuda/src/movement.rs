//! Bytes on the move: copies and fills in up to three dimensions, and how long a GPU takes for them.

use fake_gpu::Work;

use crate::driver::Driver;
use crate::mapping;
use crate::result::{INVALID_VALUE, Outcome};

/// Memory that is moved as boxes of rows.
#[derive(Clone, Copy)]
pub(crate) enum Movement {
    Copy {
        to: Corner,
        from: Corner,
        extent: Extent,
    },
    /// Elements of 1, 2 or 4 bytes; the extent's width is in elements.
    Fill {
        to: u64,
        pitch: u64,
        element: u32,
        value: u32,
        extent: Extent,
    },
}

/// Where a box begins and how far apart its rows and slices are, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Corner {
    pub(crate) address: u64,
    pub(crate) pitch: u64,
    pub(crate) slice: u64,
    /// It is device memory, not the client's own.
    pub(crate) device: bool,
}

/// The size of a box: bytes of a row, rows of a slice, slices.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// Bytes per µs over PCIe or NVLink to the host; inside a GPU's memory. Rough: what counts is that
/// copies take time and large ones more.
const TO_HOST: u64 = 25_000;
const INSIDE: u64 = 1_000_000;
/// What starting one takes, in ns.
const START_NS: u64 = 1_000;

impl Extent {
    pub(crate) fn row(bytes: u64) -> Self {
        Self { width: bytes, height: 1, depth: 1 }
    }

    fn bytes(&self) -> u64 {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }

    /// Starts of the rows at a corner.
    fn rows(self, address: u64, pitch: u64, slice: u64) -> impl Iterator<Item = u64> {
        let rows = move |z| (0..self.height).map(move |y| address + z * slice + y * pitch);
        (0..self.depth).flat_map(rows)
    }

    /// Bytes from the first to behind the last.
    fn span(&self, pitch: u64, slice: u64) -> u64 {
        if self.bytes() == 0 {
            return 0;
        }
        (self.depth - 1) * slice + (self.height - 1) * pitch + self.width
    }
}

impl Corner {
    pub(crate) fn device(address: u64) -> Self {
        Self { address, pitch: 0, slice: 0, device: true }
    }

    pub(crate) fn host(address: u64) -> Self {
        Self { device: false, ..Self::device(address) }
    }
}

impl Movement {
    /// A copy of bytes in a row.
    pub(crate) fn row(to: Corner, from: Corner, bytes: u64) -> Self {
        Self::Copy { to, from, extent: Extent::row(bytes) }
    }

    /// Moves the bytes.
    pub(crate) fn carry_out(&self) {
        match *self {
            Self::Copy { to, from, extent } => {
                let to = extent.rows(to.address, to.pitch, to.slice);
                let from = extent.rows(from.address, from.pitch, from.slice);
                to.zip(from).for_each(|(to, from)| mapping::copy(to, from, extent.width));
            }
            Self::Fill { to, pitch, element, value, extent } => {
                let rows = extent.rows(to, pitch, 0);
                rows.for_each(|row| mapping::fill(row, value, element, extent.width));
            }
        }
    }

    /// How long a GPU takes, with one multiprocessor's worth of it.
    pub(crate) fn work(&self) -> Work {
        let (bytes, speed) = match self {
            Self::Copy { to, from, extent } => {
                (extent.bytes(), if to.device && from.device { INSIDE } else { TO_HOST })
            }
            Self::Fill { element, extent, .. } => {
                (extent.bytes().saturating_mul(u64::from(*element)), INSIDE)
            }
        };
        Work { ns: START_NS + bytes.saturating_mul(1000) / speed, sms: 1 }
    }

    /// Whether the client's own memory is on one side.
    pub(crate) fn touches_host(&self) -> bool {
        match self {
            Self::Copy { to, from, .. } => !to.device || !from.device,
            Self::Fill { .. } => false,
        }
    }

    /// Refuses what is not the driver's memory where it must be, and notes what will be written.
    pub(crate) fn check(&self, driver: &mut Driver) -> Outcome {
        match self {
            Self::Copy { to, from, extent } => {
                for corner in [to, from] {
                    let bytes = extent.span(corner.pitch, corner.slice);
                    let must = corner.device || driver.arena.contains(corner.address);
                    if bytes > 0 && must && !driver.knows(corner.address, bytes) {
                        return Err(INVALID_VALUE);
                    }
                    if bytes > 0 && corner.address == 0 {
                        return Err(INVALID_VALUE);
                    }
                }
                driver.touch(to.address);
            }
            Self::Fill { to, pitch, element, extent, .. } => {
                let wide = Extent { width: extent.width * u64::from(*element), ..*extent };
                let bytes = wide.span(*pitch, 0);
                if !to.is_multiple_of(u64::from(*element)) || bytes > 0 && !driver.knows(*to, bytes)
                {
                    return Err(INVALID_VALUE);
                }
                driver.touch(*to);
            }
        }
        Ok(())
    }
}
