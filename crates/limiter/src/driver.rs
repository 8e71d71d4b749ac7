//! Calls of the driver that we make ourselves, past our own hooks.

use std::ffi::{CStr, c_char, c_int};

use crate::abi::{
    AllocNode, AllocationProperties, Device, DevicePtr, Handle, NOT_FOUND, NVML_NO_ROOM,
    NVML_NOT_FOUND, NvmlMemory, NvmlProcess, SUCCESS,
};
use crate::entry::hooks::calls;

calls! { NOT_FOUND;
    /// How many GPUs this process sees.
    fn device_count(count: *mut c_int) = "cuDeviceGetCount";
    /// A GPU by its number.
    fn device_get(device: *mut Device, ordinal: c_int) = "cuDeviceGet";
    /// The UUID of a GPU, also of one that is a MIG device's.
    fn uuid_of_gpu(uuid: *mut [u8; 16], device: Device) = "cuDeviceGetUuid";
    /// The UUID of a device: the MIG device's own if it is one.
    fn uuid_of_device(uuid: *mut [u8; 16], device: Device) = "cuDeviceGetUuid_v2";
    /// The context of the thread.
    fn current_context(context: *mut Handle) = "cuCtxGetCurrent";
    /// The GPU of the thread's context.
    fn current_device(device: *mut Device) = "cuCtxGetDevice";
    /// Ends a context.
    fn destroy_context(context: Handle) = "cuCtxDestroy_v2";
    /// Gives a primary context back.
    fn release_primary(device: Device) = "cuDevicePrimaryCtxRelease_v2";
    /// Whether there is a primary context.
    fn primary_state(
        device: Device, flags: *mut u32, active: *mut c_int
    ) = "cuDevicePrimaryCtxGetState";
    /// Ends a green context.
    fn destroy_green(green: Handle) = "cuGreenCtxDestroy";
    /// What the GPU of the thread's context has left, and has.
    fn memory_info(free: *mut usize, total: *mut usize) = "cuMemGetInfo_v2";
    /// The allocation around an address.
    fn address_range(
        base: *mut DevicePtr, bytes: *mut usize, address: DevicePtr
    ) = "cuMemGetAddressRange_v2";
    /// Gives plain memory back.
    fn free(address: DevicePtr) = "cuMemFree_v2";
    /// Closes what another process had exported.
    fn close_ipc(address: DevicePtr) = "cuIpcCloseMemHandle";
    /// Gives memory back to its pool.
    fn free_async(address: DevicePtr, stream: Handle) = "cuMemFreeAsync";
    /// The pool from which a GPU allocates now.
    fn current_pool(pool: *mut Handle, device: Device) = "cuDeviceGetMemPool";
    /// The pool that a GPU has by itself.
    fn default_pool(pool: *mut Handle, device: Device) = "cuDeviceGetDefaultMemPool";
    /// A figure of a pool.
    fn pool_attribute(pool: Handle, attribute: c_int, value: *mut u64) = "cuMemPoolGetAttribute";
    /// Gives back what a pool holds beyond an amount.
    fn trim_pool(pool: Handle, keep: usize) = "cuMemPoolTrimTo";
    /// The GPU of a stream.
    fn device_of_stream(stream: Handle, device: *mut Device) = "cuStreamGetDevice";
    /// What a piece of physical memory is.
    fn allocation_properties(
        properties: *mut AllocationProperties, handle: u64
    ) = "cuMemGetAllocationPropertiesFromHandle";
    /// Ends a module.
    fn unload_module(module: Handle) = "cuModuleUnload";
    /// Ends a library.
    fn unload_library(library: Handle) = "cuLibraryUnload";
    /// The nodes of a graph.
    fn graph_nodes(graph: Handle, nodes: *mut Handle, count: *mut usize) = "cuGraphGetNodes";
    /// What a node does.
    fn node_type(node: Handle, kind: *mut c_int) = "cuGraphNodeGetType";
    /// What a node allocates.
    fn alloc_node(node: Handle, parameters: *mut AllocNode) = "cuGraphMemAllocNodeGetParams";
    /// The graph inside a node.
    fn child_graph(node: Handle, graph: *mut Handle) = "cuGraphChildGraphNodeGetGraph";
    /// A figure of the memory of graphs.
    fn graph_memory(
        device: Device, attribute: c_int, value: *mut u64
    ) = "cuDeviceGetGraphMemAttribute";
    /// A function, as clients ask for it.
    fn proc_address(
        name: *const c_char, to: *mut Handle, version: c_int, flags: u64, status: *mut c_int
    ) = "cuGetProcAddress_v2";
    /// The same before CUDA 12.
    fn proc_address_v1(
        name: *const c_char, to: *mut Handle, version: c_int, flags: u64
    ) = "cuGetProcAddress";
}

calls! { NVML_NOT_FOUND;
    /// Begins with NVML; may be called again.
    fn nvml_begin() = "nvmlInit_v2";
    /// A device by its UUID.
    fn nvml_by_uuid(uuid: *const c_char, device: *mut Handle) = "nvmlDeviceGetHandleByUUID";
    /// The UUID of a device, as text.
    fn nvml_uuid(device: Handle, text: *mut c_char, room: u32) = "nvmlDeviceGetUUID";
    /// The number of a device.
    fn nvml_index(device: Handle, index: *mut u32) = "nvmlDeviceGetIndex";
    /// Processes that compute on a device.
    fn nvml_processes(
        device: Handle, count: *mut u32, processes: *mut NvmlProcess
    ) = "nvmlDeviceGetComputeRunningProcesses_v3";
    /// The same before there were notes of the instance's parts.
    fn nvml_processes_v2(
        device: Handle, count: *mut u32, processes: *mut NvmlProcess
    ) = "nvmlDeviceGetComputeRunningProcesses_v2";
    /// Memory of a device.
    fn nvml_memory(device: Handle, memory: *mut NvmlMemory) = "nvmlDeviceGetMemoryInfo";
}

/// The thread's context as a number; 0 if it has none.
pub(crate) fn context() -> u64 {
    let mut context = std::ptr::null_mut();
    // SAFETY: a place of ours.
    let code = unsafe { current_context(&raw mut context) };
    if code == SUCCESS { context.expose_provenance() as u64 } else { 0 }
}

/// The GPU of the thread's context.
pub(crate) fn device() -> Option<Device> {
    let mut device = 0;
    // SAFETY: a place of ours.
    (unsafe { current_device(&raw mut device) } == SUCCESS).then_some(device)
}

/// What the GPU of the thread's context has left, in bytes.
pub(crate) fn free_memory() -> Option<u64> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: places of ours.
    let code = unsafe { memory_info(&raw mut free, &raw mut total) };
    (code == SUCCESS).then_some(free as u64)
}

/// NVML's handle of a device. NVML is begun for it and not ended, so the handle stays.
pub(crate) fn nvml_device(uuid: &CStr) -> Option<Handle> {
    let mut device = std::ptr::null_mut();
    // SAFETY: a place of ours, and a text that ends.
    let known = unsafe {
        nvml_begin() == SUCCESS && nvml_by_uuid(uuid.as_ptr(), &raw mut device) == SUCCESS
    };
    (known && !device.is_null()).then_some(device)
}

/// The memory of a device that is in use, whoever uses it, by NVML; in bytes.
pub(crate) fn used_by_all(device: Handle) -> Option<u64> {
    let mut memory = NvmlMemory { total: 0, free: 0, used: 0 };
    // SAFETY: a place of ours.
    (unsafe { nvml_memory(device, &raw mut memory) } == SUCCESS).then_some(memory.used)
}

/// What a process computing on a device uses of its memory, by NVML, in bytes; 0 if it is not in NVML's
/// list, `None` if NVML does not tell.
pub(crate) fn used_by_process(device: Handle, pid: u32) -> Option<u64> {
    let mut processes = vec![NvmlProcess::EMPTY; 64];
    for _ in 0..3 {
        let mut count = u32::try_from(processes.len()).unwrap_or(0);
        let (places, to) = (processes.as_mut_ptr(), &raw mut count);
        // SAFETY: places of ours, as many as told.
        let mut code = unsafe { nvml_processes(device, to, places) };
        if code == NVML_NOT_FOUND {
            // SAFETY: as above.
            code = unsafe { nvml_processes_v2(device, to, places) };
        }
        match code {
            SUCCESS => {
                let listed = processes.iter().take(count as usize);
                let own = listed.filter(|process| process.pid == pid);
                let sum = own.fold(0, |sum: u64, process| sum.saturating_add(process.bytes));
                // All ones stand for a figure that the system does not have.
                return (sum != u64::MAX).then_some(sum);
            }
            // Others may come meanwhile.
            NVML_NO_ROOM => {
                let room = (count as usize).saturating_add(16);
                processes.resize(room.min(1 << 16), NvmlProcess::EMPTY);
            }
            _ => return None,
        }
    }
    None
}
