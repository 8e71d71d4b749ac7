//! Types and codes of the driver's interface (CUDA driver API reference, `cuda.h`).

use std::ffi::{c_int, c_void};

/// `CUresult`, and NVML's `nvmlReturn_t`.
pub(crate) type Code = c_int;
/// `CUdeviceptr`.
pub(crate) type DevicePtr = u64;
/// `CUdeviceptr_v1`, of the interface before CUDA 3.2.
pub(crate) type OldPtr = u32;
/// `CUdevice`: the number of a GPU in this process.
pub(crate) type Device = c_int;
/// Any of the driver's pointers to things of its own: contexts, streams, arrays, pools, graphs.
pub(crate) type Handle = *mut c_void;

/// It worked.
pub(crate) const SUCCESS: Code = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: Code = 2;
/// `CUDA_ERROR_DEVICE_UNAVAILABLE`: for GPUs that are not the tenant's.
pub(crate) const UNAVAILABLE: Code = 46;
/// `CUDA_ERROR_OPERATING_SYSTEM`: there are caps, and they or their books cannot be read.
pub(crate) const OPERATING_SYSTEM: Code = 304;
/// `CUDA_ERROR_NOT_FOUND`: the driver lacks the function.
pub(crate) const NOT_FOUND: Code = 500;
/// `NVML_ERROR_FUNCTION_NOT_FOUND`.
pub(crate) const NVML_NOT_FOUND: Code = 13;
/// `NVML_ERROR_INSUFFICIENT_SIZE`.
pub(crate) const NVML_NO_ROOM: Code = 7;

/// `CU_MEM_LOCATION_TYPE_DEVICE`: the id is a device's.
const LOCATION_DEVICE: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`: the first byte of the id is a device's.
const LOCATION_DOMAIN: c_int = 6;

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    /// A place by the numbers of its kind and its own.
    pub(crate) const fn of(kind: c_int, id: c_int) -> Self {
        Self { kind, id }
    }

    /// The device whose memory this is; `None` for memory of the host, whatever the id says.
    pub(crate) fn device(self) -> Option<Device> {
        match self.kind {
            LOCATION_DEVICE => Some(self.id),
            LOCATION_DOMAIN => Some(self.id & 0xff),
            _ => None,
        }
    }
}

/// `CUmemAllocationProp`, `CUmemPoolProps`: both begin with a type, the kinds of handles and the place.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Placed {
    allocation: c_int,
    handles: c_int,
    /// Where the memory lies.
    pub(crate) location: Location,
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub(crate) struct AllocationProperties {
    /// What it begins with.
    pub(crate) placed: Placed,
    rest: [u64; 2],
}

impl AllocationProperties {
    /// To be filled by the driver.
    pub(crate) const EMPTY: Self = Self {
        placed: Placed { allocation: 0, handles: 0, location: Location { kind: 0, id: 0 } },
        rest: [0; 2],
    };
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct AllocNode {
    /// The pool's properties, 88 bytes.
    pub(crate) placed: Placed,
    pool: [u64; 9],
    access: *const c_void,
    accesses: usize,
    /// Asked for.
    pub(crate) bytes: usize,
    address: DevicePtr,
}
const _: () =
    assert!(size_of::<AllocNode>() == 120 && std::mem::offset_of!(AllocNode, bytes) == 104);

impl AllocNode {
    /// To be filled by the driver.
    pub(crate) const EMPTY: Self = Self {
        placed: AllocationProperties::EMPTY.placed,
        pool: [0; 9],
        access: std::ptr::null(),
        accesses: 0,
        bytes: 0,
        address: 0,
    };
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayShape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: c_int,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR` before CUDA 3.2.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct OldArrayShape {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) format: c_int,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Array3dShape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: c_int,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR` before CUDA 3.2.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct OldArray3dShape {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) depth: u32,
    pub(crate) format: c_int,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUipcMemHandle`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
pub(crate) struct ExternalMemory {
    kind: c_int,
    handle: [u64; 2],
    /// Of the memory, in bytes.
    pub(crate) size: u64,
    flags: u32,
    reserved: [u32; 16],
}
const _: () = assert!(std::mem::offset_of!(ExternalMemory, size) == 24);

/// `nvmlMemory_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NvmlMemory {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlMemory_v2_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NvmlMemory2 {
    pub(crate) version: u32,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlProcessInfo_t`, as of its second version.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NvmlProcess {
    pub(crate) pid: u32,
    pub(crate) bytes: u64,
    instances: [u32; 2],
}

impl NvmlProcess {
    /// To be filled by NVML.
    pub(crate) const EMPTY: Self = Self { pid: 0, bytes: 0, instances: [0; 2] };
}

/// What a pointer of the client's points to; `None` if it is null.
///
/// # Safety
/// The pointer is null or valid for a read.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Option<T> {
    // SAFETY: the caller's.
    (!from.is_null()).then(|| unsafe { from.read_unaligned() })
}

/// Writes where a client wants it, unless that is nowhere.
///
/// # Safety
/// The pointer is null or valid for a write.
pub(crate) unsafe fn write<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's.
        unsafe { to.write_unaligned(value) };
    }
}
