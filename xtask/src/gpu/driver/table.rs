//! The driver's functions as they are found in its library. Names and types: NVIDIA's `cuda.h`.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Address in the GPU's memory.
type Address = u64;
/// Context, module, function, stream, event, graph.
type Handle = *mut c_void;

/// The GPU's memory as `cuMemCreate` is asked for it.
#[repr(C)]
pub(super) struct Properties {
    pub(super) kind: c_int,
    pub(super) handle_types: c_int,
    pub(super) location: Location,
    pub(super) security: *mut c_void,
    pub(super) flags: [u8; 8],
}

/// A place of memory: kind 1 is a GPU.
#[repr(C)]
pub(super) struct Location {
    pub(super) kind: c_int,
    pub(super) id: c_int,
}

/// Who may use mapped memory.
#[repr(C)]
pub(super) struct Access {
    pub(super) location: Location,
    pub(super) flags: c_int,
}

/// A two-dimensional array.
#[repr(C)]
pub(super) struct ArrayShape {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) format: c_int,
    pub(super) channels: c_uint,
}

/// `CUDA_ERROR_NOT_FOUND`: what a library without the function is taken to answer.
pub(super) const NOT_FOUND: c_int = 500;

macro_rules! functions {
    ($($name:ident($($kind:ty),*);)*) => {
        /// All functions that the tests use; `None` if the library lacks one.
        #[allow(non_snake_case, reason = "the library's names")]
        pub(super) struct Functions {
            $(pub(super) $name: Option<unsafe extern "C" fn($($kind),*) -> c_int>,)*
        }

        impl Functions {
            /// Looks all of them up.
            ///
            /// # Safety
            /// `find` answers with the driver's function of that name, or null.
            pub(super) unsafe fn find(find: impl Fn(&str) -> *mut c_void) -> Self {
                Self {
                    // SAFETY: pointer and optional pointer to a function look alike, null is `None`,
                    // and the types are those of NVIDIA's header.
                    $($name: unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($kind),*) -> c_int>,
                        >(find(stringify!($name)))
                    },)*
                }
            }
        }
    };
}

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuDeviceGet(*mut c_int, c_int);
    cuDeviceGetName(*mut c_char, c_int, c_int);
    cuDeviceGetUuid_v2(*mut [u8; 16], c_int);
    cuDeviceGetAttribute(*mut c_int, c_int, c_int);
    cuDeviceTotalMem_v2(*mut usize, c_int);
    cuDevicePrimaryCtxRetain(*mut Handle, c_int);
    cuCtxSetCurrent(Handle);
    cuCtxSynchronize();
    cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut Address, usize);
    cuMemAllocPitch_v2(*mut Address, *mut usize, usize, usize, c_uint);
    cuMemAllocManaged(*mut Address, usize, c_uint);
    cuMemFree_v2(Address);
    cuMemAllocAsync(*mut Address, usize, Handle);
    cuMemFreeAsync(Address, Handle);
    cuMemCreate(*mut u64, usize, *const Properties, u64);
    cuMemRelease(u64);
    cuMemAddressReserve(*mut Address, usize, usize, Address, u64);
    cuMemAddressFree(Address, usize);
    cuMemMap(Address, usize, usize, u64, u64);
    cuMemUnmap(Address, usize);
    cuMemSetAccess(Address, usize, *const Access, usize);
    cuArrayCreate_v2(*mut Handle, *const ArrayShape);
    cuArrayDestroy(Handle);
    cuMemcpyDtoH_v2(*mut c_void, Address, usize);
    cuModuleLoadData(*mut Handle, *const c_void);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuStreamCreateWithPriority(*mut Handle, c_uint, c_int);
    cuStreamSynchronize(Handle);
    cuStreamBeginCapture_v2(Handle, c_int);
    cuStreamEndCapture(Handle, *mut Handle);
    cuGraphInstantiateWithFlags(*mut Handle, Handle, u64);
    cuGraphLaunch(Handle, Handle);
    cuEventCreate(*mut Handle, c_uint);
    cuEventRecord(Handle, Handle);
    cuEventSynchronize(Handle);
    cuEventElapsedTime(*mut f32, Handle, Handle);
    cuLaunchKernel(
        Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void,
        *mut *mut c_void
    );
}
