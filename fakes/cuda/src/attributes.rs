//! What `cuDeviceGetAttribute` tells. Figures that follow from the compute capability are those of the
//! table "Technical Specifications per Compute Capability" of the CUDA programming guide.

use std::ffi::c_int;

use fake_machine::State;

use crate::visible::Device;

/// Threads of a block; of a warp.
pub(crate) const THREADS_PER_BLOCK: c_int = 1024;
pub(crate) const WARP: c_int = 32;
/// 32-bit registers of a multiprocessor.
pub(crate) const REGISTERS: c_int = 65_536;
/// Static shared memory of a block, in bytes.
pub(crate) const SHARED_PER_BLOCK: c_int = 48 << 10;
/// Shared memory of a block that the system keeps, in bytes (compute capability 8 and newer).
const SHARED_RESERVED: c_int = 1 << 10;

impl Device {
    /// Threads of a multiprocessor.
    pub(crate) fn threads_per_sm(&self) -> c_int {
        match self.facts.capability {
            (7, 5) => 1024,
            (8, 6 | 9) => 1536,
            _ => 2048,
        }
    }

    /// Blocks of a multiprocessor.
    pub(crate) fn blocks_per_sm(&self) -> c_int {
        match self.facts.capability {
            (7, 5) | (8, 6) => 16,
            (8, 9) => 24,
            _ => 32,
        }
    }

    /// Shared memory of a multiprocessor, in bytes.
    pub(crate) fn shared_per_sm(&self) -> c_int {
        let kib = match self.facts.capability {
            (7, 0) => 96,
            (7, 5) => 64,
            (8, 0) => 164,
            (8, 6 | 9) => 100,
            _ => 228,
        };
        kib << 10
    }

    /// Most shared memory of a block, in bytes.
    pub(crate) fn shared_per_block_most(&self) -> c_int {
        let reserved = if self.facts.capability.0 >= 8 { SHARED_RESERVED } else { 0 };
        self.shared_per_sm() - reserved
    }

    /// L2 cache in bytes, from the makers' data sheets.
    fn l2(&self) -> c_int {
        let mib = match self.facts.capability {
            (7, 0) | (8, 6) => 6,
            (7, 5) => 4,
            (8, 0) => 40,
            (8, 9) => 96,
            (9, _) => 50,
            _ => 126,
        };
        mib << 20
    }

    /// The value of an attribute by its number in cuda.h. `sms` are the multiprocessors. Of those that
    /// are not listed nothing is supported.
    pub(crate) fn attribute(&self, number: c_int, sms: u32, state: &State) -> Option<c_int> {
        if !(1..=LAST).contains(&number) {
            return None;
        }
        let gpu = state.gpu(self.place.gpu).ok();
        let (major, minor) = self.facts.capability;
        let (sm_mhz, memory_mhz) = self.facts.clocks_mhz;
        let int = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
        let from = |capability: (i32, i32)| c_int::from((major, minor) >= capability);
        let value = match number {
            13 => int(sm_mhz * 1000),
            16 => int(sms),
            20 => int(gpu.map_or(0, |gpu| gpu.compute_mode)),
            33 => int(self.bus),
            36 => int(memory_mhz * 1000),
            37 => int(self.facts.bus_bits),
            38 => self.l2(),
            39 => self.threads_per_sm(),
            75 => major,
            76 => minor,
            81 => self.shared_per_sm(),
            87 => {
                if (major, minor) == (8, 6) || minor == 9 || (major, minor) == (7, 5) {
                    64
                } else {
                    2
                }
            }
            97 => self.shared_per_block_most(),
            106 => self.blocks_per_sm(),
            108 => self.l2() / 2,
            109 => 128 << 20,
            111 => {
                if major >= 8 {
                    SHARED_RESERVED
                } else {
                    0
                }
            }
            107 | 112 => from((8, 0)),
            120 | 127 | 129 => from((9, 0)),
            126 => {
                if major >= 9 {
                    4
                } else {
                    1
                }
            }
            134 => int(self.numa_node),
            139 => int(self.facts.pci_device),
            other => constant(other),
        };
        Some(value)
    }
}

/// The last attribute of cuda.h 13.5.
const LAST: c_int = 161;

/// Attributes that are the same on all models.
fn constant(number: c_int) -> c_int {
    match number {
        1..=3 => THREADS_PER_BLOCK,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65_535,
        8 => SHARED_PER_BLOCK,
        9 => 65_536,
        10 => WARP,
        11 => c_int::MAX,
        12 | 82 => REGISTERS,
        14 | 30 => 512,
        21..=23 => 131_072,
        24..=26 | 47 | 48 => 16_384,
        27 | 28 | 42 | 45 | 46 | 52..=54 | 56 | 57 | 61 | 63 | 64 | 66 | 73 | 74 | 77 => 32_768,
        29 | 43 => 2048,
        51 => 32,
        69 => 1 << 28,
        70 | 71 => 131_072,
        72 => 2_097_120,
        40 => 3,
        // One of: GPU overlap, mapped host memory, concurrent kernels, ECC, unified addressing, gather,
        // priorities, L1 caches, managed memory and its concurrent access, preemption, host pointers of
        // registered memory, memory operations of streams, cooperative launch, flushing, registering,
        // virtual memory, file descriptors, registering read-only, timeline semaphores, pools, events
        // and pools of other processes, host memory as a place.
        15
        | 19
        | 31
        | 32
        | 41
        | 44
        | 78..=80
        | 83
        | 89
        | 90
        | 92..=95
        | 98
        | 99
        | 102
        | 103
        | 113
        | 115
        | 119
        | 122
        | 123
        | 125
        | 141
        | 142
        | 144
        | 145 => 1,
        _ => 0,
    }
}
