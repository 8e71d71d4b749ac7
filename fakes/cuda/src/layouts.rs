//! Structs that cross the interface, as in cuda.h 13.5. Names of fields are ours; order, types and
//! sizes are what counts.

use std::ffi::{c_int, c_void};

use crate::handles::Handle;

/// A struct that is written as zeros before its fields are set.
macro_rules! zeroed {
    ($($name:ident),*) => {$(
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: plain numbers and pointers, for all of which zeros are a value.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

/// `CUmemLocation`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: c_int,
    pub(crate) id: c_int,
}

impl Location {
    pub(crate) const DEVICE: c_int = 1;
    pub(crate) const HOST: c_int = 2;
    pub(crate) const HOST_NUMA: c_int = 3;
    pub(crate) const HOST_NUMA_CURRENT: c_int = 4;
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: Location,
    pub(crate) windows: usize,
    pub(crate) flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: c_int,
}

/// `CUmemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProperties {
    pub(crate) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(crate) location: Location,
    pub(crate) windows: usize,
    pub(crate) size_max: usize,
    pub(crate) usage: u16,
    pub(crate) rdma: u8,
    pub(crate) reserved: [u8; 53],
}

/// One side of the copies below.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Side2 {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) kind: c_int,
    pub(crate) host: usize,
    pub(crate) device: u64,
    pub(crate) array: Handle,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy2 {
    pub(crate) from: Side2,
    pub(crate) to: Side2,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One side of a copy in three dimensions; `context` is reserved where it is not between devices.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Side3 {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    pub(crate) level: usize,
    pub(crate) kind: c_int,
    pub(crate) host: usize,
    pub(crate) device: u64,
    pub(crate) array: Handle,
    pub(crate) context: Handle,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy3 {
    pub(crate) from: Side3,
    pub(crate) to: Side3,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Array3Descriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MemoryRequirements {
    pub(crate) size: usize,
    pub(crate) alignment: usize,
    pub(crate) reserved: [u32; 4],
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`, the form without kernel and context.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelParamsV1 {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) params: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelParams {
    pub(crate) first: KernelParamsV1,
    pub(crate) kernel: Handle,
    pub(crate) context: Handle,
}

/// `CUlaunchConfig`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) stream: Handle,
    pub(crate) attributes: *const LaunchAttribute,
    pub(crate) attribute_count: u32,
}

/// `CUlaunchAttribute`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: u32,
    pub(crate) pad: u32,
    pub(crate) value: [u64; 8],
}

/// `CUDA_LAUNCH_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MultiDeviceLaunch {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) stream: Handle,
    pub(crate) params: *mut *mut c_void,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MemsetParams {
    pub(crate) to: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct HostParams {
    pub(crate) function: Option<extern "C" fn(*mut c_void)>,
    pub(crate) data: *mut c_void,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocParams {
    pub(crate) pool: PoolProperties,
    pub(crate) access: *const AccessDescription,
    pub(crate) access_count: usize,
    pub(crate) bytes: usize,
    pub(crate) address: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CopyNodeParams {
    pub(crate) flags: c_int,
    pub(crate) reserved: c_int,
    pub(crate) context: Handle,
    pub(crate) copy: Copy3,
}

/// The parameters of any node; which of them counts is the node's type.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union AnyParams {
    pub(crate) kernel: KernelParams,
    pub(crate) copy: CopyNodeParams,
    pub(crate) memset: MemsetParams,
    pub(crate) host: HostParams,
    pub(crate) handle: Handle,
    pub(crate) alloc: AllocParams,
    pub(crate) address: u64,
    pub(crate) words: [u64; 29],
}

/// `CUgraphNodeParams`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NodeParams {
    pub(crate) kind: u32,
    pub(crate) reserved: [c_int; 3],
    pub(crate) any: AnyParams,
    pub(crate) reserved_after: i64,
}

/// `CUgraphEdgeData`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct EdgeData {
    pub(crate) bytes: [u8; 8],
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct InstantiateParams {
    pub(crate) flags: u64,
    pub(crate) upload: Handle,
    pub(crate) error_node: Handle,
    pub(crate) result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct UpdateResult {
    pub(crate) result: u32,
    pub(crate) node: Handle,
    pub(crate) from: Handle,
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ExternalDescription {
    pub(crate) kind: u32,
    pub(crate) handle: ExternalHandle,
    pub(crate) size: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 16],
}

/// The union in [`ExternalDescription`].
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ExternalHandle {
    pub(crate) fd: c_int,
    pub(crate) pad: u32,
    pub(crate) second: u64,
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ExternalBuffer {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 16],
}

/// `CUipcMemHandle`, `CUipcEventHandle` and `CUmemPoolPtrExportData`: 64 bytes that only the driver
/// understands.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Token(pub(crate) [u8; 64]);

zeroed!(AllocationProperties, PoolProperties, Side2, Side3, Copy3, KernelParamsV1, KernelParams);
zeroed!(AllocParams, HostParams, MemsetParams, NodeParams, ExternalHandle);

// Offsets that a different alignment of the union would move.
const _: () = assert!(std::mem::offset_of!(ExternalDescription, handle) == 8);
const _: () = assert!(std::mem::offset_of!(ExternalDescription, size) == 24);
const _: () = assert!(size_of::<ExternalDescription>() == 104);
const _: () = assert!(size_of::<PoolProperties>() == 88);
const _: () = assert!(size_of::<NodeParams>() == 256);
const _: () = assert!(size_of::<Copy2>() == 128);
const _: () = assert!(size_of::<Copy3>() == 200);
const _: () = assert!(size_of::<LaunchAttribute>() == 72);
