/* What the fuzzer calls: each function of the driver that the limiter stands before, and those that make
 * what these work on. By letters, one for each argument:
 *
 * - A capital letter is a place for a new thing of a kind, the small one a thing of that kind: a(ddress),
 *   c(ontext), s(tream), e(vent), m(odule), f(unction), l(ibrary), p(ool), v (piece of physical memory),
 *   r (array), q (mipmapped array), x (external memory), g(raph), n(ode), k (executable graph), w (range
 *   of addresses), o (opened memory), y (device of the management library), i (file descriptor).
 *   `-` in front: the call ends the first of them.
 * - Figures: b(ytes), u (bytes that fit each other), z (bytes of a buffer of the host), j (a length),
 *   d (number of a GPU), t (small figure or flags), ! (CUDA version), ^ (threads or blocks), 0 to 9.
 * - Places: * (anything), + (the newer figures of the management library), h (buffer of the host),
 *   ' (mode of captures), = (a large figure), $ (parameters), @ (image of code), / (file of code),
 *   : (name of a kernel), " (name of a function).
 * - Descriptions: ( (array), ) (array of three sides), [ (physical memory), ] (pool), { (launch),
 *   } (external memory), < (allocation in a graph), % (a handle for other processes: place or value). */
#pragma once

struct Entry {
    const char *name, *arguments;
    /* How often, compared with others. */
    int weight;
    int (*at)();
};

static struct Entry entries[] = {
    { "cuInit", "0", 1, 0 },
    { "cuGetProcAddress", "\"*!t", 1, 0 },
    { "cuGetProcAddress_v2", "\"*!t*", 1, 0 },
    /* Contexts. */
    { "cuDevicePrimaryCtxRetain", "Cd", 3, 0 },
    { "cuDevicePrimaryCtxRelease", "d", 1, 0 },
    { "cuDevicePrimaryCtxRelease_v2", "d", 1, 0 },
    { "cuDevicePrimaryCtxReset", "d", 1, 0 },
    { "cuDevicePrimaryCtxReset_v2", "d", 1, 0 },
    { "cuCtxCreate", "Ctd", 1, 0 },
    { "cuCtxCreate_v2", "Ctd", 1, 0 },
    { "cuCtxCreate_v3", "C00td", 1, 0 },
    { "cuCtxCreate_v4", "C0td", 1, 0 },
    { "cuCtxDestroy", "-c", 1, 0 },
    { "cuCtxDestroy_v2", "-c", 3, 0 },
    { "cuCtxDetach", "-c", 1, 0 },
    { "cuCtxAttach", "Ct", 1, 0 },
    { "cuCtxSetLimit", "tb", 1, 0 },
    { "cuGreenCtxCreate", "C0d1", 1, 0 },
    { "cuGreenCtxDestroy", "-c", 1, 0 },
    { "cuCtxSetCurrent", "c", 12, 0 },
    { "cuCtxPushCurrent_v2", "c", 2, 0 },
    { "cuCtxPopCurrent_v2", "*", 1, 0 },
    /* Waits. */
    { "cuCtxSynchronize", "", 1, 0 },
    { "cuCtxSynchronize_v2", "c", 1, 0 },
    { "cuStreamSynchronize", "s", 2, 0 },
    { "cuStreamSynchronize_ptsz", "s", 1, 0 },
    { "cuEventSynchronize", "e", 1, 0 },
    { "cuMemcpyDtoH_v2", "haz", 2, 0 },
    { "cuMemcpyDtoH_v2_ptds", "haz", 1, 0 },
    /* Plain memory, and what is shown of it. */
    { "cuMemAlloc", "Ab", 1, 0 },
    { "cuMemAlloc_v2", "Ab", 8, 0 },
    { "cuMemAllocPitch", "A*jj4", 1, 0 },
    { "cuMemAllocPitch_v2", "A*jj4", 3, 0 },
    { "cuMemAllocManaged", "Ab1", 3, 0 },
    { "cuMemFree", "t", 1, 0 },
    { "cuMemFree_v2", "-a", 8, 0 },
    { "cuMemsetD8Async", "a0zs", 2, 0 },
    { "cuMemGetInfo", "**", 1, 0 },
    { "cuMemGetInfo_v2", "**", 2, 0 },
    { "cuDeviceTotalMem", "*d", 1, 0 },
    { "cuDeviceTotalMem_v2", "*d", 1, 0 },
    { "nvmlDeviceGetMemoryInfo", "y*", 1, 0 },
    { "nvmlDeviceGetMemoryInfo_v2", "y+", 1, 0 },
    /* Pools. */
    { "cuMemAllocAsync", "Abs", 4, 0 },
    { "cuMemAllocAsync_ptsz", "Abs", 1, 0 },
    { "cuMemAllocFromPoolAsync", "Abps", 4, 0 },
    { "cuMemAllocFromPoolAsync_ptsz", "Abps", 1, 0 },
    { "cuMemFreeAsync", "-as", 5, 0 },
    { "cuMemFreeAsync_ptsz", "-as", 1, 0 },
    { "cuMemPoolCreate", "P]", 3, 0 },
    { "cuMemPoolDestroy", "-p", 2, 0 },
    { "cuMemPoolTrimTo", "pb", 1, 0 },
    { "cuMemPoolSetAttribute", "p4=", 2, 0 },
    { "cuDeviceSetMemPool", "dp", 1, 0 },
    { "cuDeviceGetDefaultMemPool", "Pd", 1, 0 },
    /* Physical memory. */
    { "cuMemAddressReserve", "Wu000", 4, 0 },
    { "cuMemAddressFree", "-wu", 1, 0 },
    { "cuMemCreate", "Vu[0", 4, 0 },
    { "cuMemRelease", "-v", 3, 0 },
    { "cuMemMap", "wu0v0", 6, 0 },
    { "cuMemUnmap", "wu", 4, 0 },
    { "cuMemRetainAllocationHandle", "Vw", 2, 0 },
    { "cuMemExportToShareableHandle", "Iv10", 3, 0 },
    { "cuMemImportFromShareableHandle", "Vi1", 2, 0 },
    { "cuImportExternalMemory", "X}", 2, 0 },
    { "cuDestroyExternalMemory", "-x", 2, 0 },
    /* Memory of other processes. */
    { "cuIpcGetMemHandle", "%a", 3, 0 },
    { "cuIpcOpenMemHandle", "O%1", 2, 0 },
    { "cuIpcOpenMemHandle_v2", "O%1", 2, 0 },
    { "cuIpcCloseMemHandle", "-o", 3, 0 },
    /* Arrays. */
    { "cuArrayCreate", "R(", 1, 0 },
    { "cuArrayCreate_v2", "R(", 3, 0 },
    { "cuArray3DCreate", "R)", 1, 0 },
    { "cuArray3DCreate_v2", "R)", 3, 0 },
    { "cuArrayDestroy", "-r", 4, 0 },
    { "cuMipmappedArrayCreate", "Q)t", 2, 0 },
    { "cuMipmappedArrayDestroy", "-q", 2, 0 },
    /* Code. */
    { "cuModuleLoad", "M/", 1, 0 },
    { "cuModuleLoadData", "M@", 3, 0 },
    { "cuModuleLoadDataEx", "M@000", 1, 0 },
    { "cuModuleLoadFatBinary", "M@", 1, 0 },
    { "cuModuleUnload", "-m", 2, 0 },
    { "cuModuleGetFunction", "Fm:", 6, 0 },
    { "cuLibraryLoadData", "L@000000", 1, 0 },
    { "cuLibraryLoadFromFile", "L/000000", 1, 0 },
    { "cuLibraryUnload", "-l", 1, 0 },
    { "cuLibraryGetKernel", "Fl:", 1, 0 },
    /* Streams and launches. */
    { "cuStreamCreate", "S1", 4, 0 },
    { "cuStreamDestroy", "-s", 1, 0 },
    { "cuStreamDestroy_v2", "-s", 2, 0 },
    { "cuEventCreate", "E0", 2, 0 },
    { "cuEventRecord", "es", 3, 0 },
    { "cuEventDestroy_v2", "-e", 1, 0 },
    { "cuStreamWaitEvent", "se0", 3, 0 },
    { "cuLaunchKernel", "f^^^^^^0s$0", 12, 0 },
    { "cuLaunchKernel_ptsz", "f^^^^^^0s$0", 3, 0 },
    { "cuLaunchKernelEx", "{f$0", 3, 0 },
    { "cuLaunchKernelEx_ptsz", "{f$0", 1, 0 },
    { "cuLaunchCooperativeKernel", "f^^^^^^0s$", 1, 0 },
    { "cuLaunchCooperativeKernel_ptsz", "f^^^^^^0s$", 1, 0 },
    { "cuLaunchCooperativeKernelMultiDevice", "0t0", 1, 0 },
    { "cuLaunch", "f", 1, 0 },
    { "cuLaunchGrid", "f23", 1, 0 },
    { "cuLaunchGridAsync", "f23s", 1, 0 },
    /* Graphs and captures. */
    { "cuGraphCreate", "G0", 2, 0 },
    { "cuGraphDestroy", "-g", 1, 0 },
    { "cuGraphClone", "Gg", 1, 0 },
    { "cuGraphAddMemAllocNode", "Ng00<", 4, 0 },
    { "cuGraphAddMemFreeNode", "Ng00a", 2, 0 },
    { "cuGraphAddChildGraphNode", "Ng00g", 1, 0 },
    { "cuGraphInstantiate", "Kg**8", 1, 0 },
    { "cuGraphInstantiate_v2", "Kg**8", 1, 0 },
    { "cuGraphInstantiateWithFlags", "Kgt", 3, 0 },
    { "cuGraphInstantiateWithParams", "Kg*", 1, 0 },
    { "cuGraphInstantiateWithParams_ptsz", "Kg*", 1, 0 },
    { "cuGraphExecDestroy", "-k", 2, 0 },
    { "cuGraphLaunch", "ks", 4, 0 },
    { "cuGraphLaunch_ptsz", "ks", 1, 0 },
    { "cuDeviceGraphMemTrim", "d", 1, 0 },
    { "cuThreadExchangeStreamCaptureMode", "'", 2, 0 },
    { "cuStreamBeginCapture", "s", 1, 0 },
    { "cuStreamBeginCapture_ptsz", "s", 1, 0 },
    { "cuStreamBeginCapture_v2", "st", 1, 0 },
    { "cuStreamBeginCapture_v2_ptsz", "st", 1, 0 },
    { "cuStreamBeginCaptureToGraph", "sg000t", 1, 0 },
    { "cuStreamBeginCaptureToGraph_ptsz", "sg000t", 1, 0 },
    { "cuStreamBeginRecaptureToGraph", "stg00", 1, 0 },
    { "cuStreamBeginRecaptureToGraph_ptsz", "stg00", 1, 0 },
    { "cuStreamEndCapture", "sG", 5, 0 },
    { "cuStreamEndCapture_ptsz", "sG", 2, 0 },
};

#define ENTRIES (int)(sizeof entries / sizeof entries[0])

/* What the simulated driver has no function for: a program that is linked with it calls the limiter. */
#define WITHOUT_DRIVER(EACH) \
    EACH(cuArrayCreate) EACH(cuArray3DCreate) EACH(cuCtxAttach) EACH(cuMemAllocPitch) \
    EACH(cuStreamBeginRecaptureToGraph) EACH(cuStreamBeginRecaptureToGraph_ptsz)
