"""NVIDIA's own Python bindings against the simulated driver: data, time, capture, pools, virtual memory,
sharing between processes, errors. One line for each topic; the first thing that is wrong ends it.

Needs: cuda-bindings 13.5 (`pip install cuda-bindings==13.5.0`); LD_LIBRARY_PATH with a folder in which
libcuda.so.1 is the built library; HOTPOT_FAKE_MACHINE with a machine of at least two GPUs without MIG.
"""
import ctypes
import os
import threading

from cuda.bindings import driver as cu

import bindings_memory as of_memory
from bindings_memory import MIB, OK, bytes_at, fails, ok, used

PTX = b"""
// hotpot-kernel timed first_parameter_ns
// hotpot-kernel waves block_ns=20000
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 table[1024];
.visible .entry timed(.param .u64 timed_param_0, .param .u32 timed_param_1) { ret; }
.visible .entry waves() { ret; }
\0"""


def graph_memory():
    """What the driver keeps of the first device's memory for graphs."""
    kind = cu.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
    return int(ok(cu.cuDeviceGetGraphMemAttribute(0, kind)))


def devices():
    assert ok(cu.cuDeviceGetCount()) >= 2
    device = ok(cu.cuDeviceGet(0))
    name = ok(cu.cuDeviceGetName(100, device)).split(b"\0")[0].decode()
    attribute = cu.CUdevice_attribute
    sms = ok(cu.cuDeviceGetAttribute(
        attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device))
    assert sms > 10 and ok(cu.cuDeviceTotalMem(device)) > 10 << 30
    assert ok(cu.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE, device)) == 32
    bus = ok(cu.cuDeviceGetPCIBusId(20, device))
    assert int(ok(cu.cuDeviceGetByPCIBusId(bus))) == int(device)
    assert len(bytes(ok(cu.cuDeviceGetUuid(device)).bytes)) == 16
    fails(cu.cuDeviceGet(99), "INVALID_DEVICE")
    assert ok(cu.cuDriverGetVersion()) == 13050
    return name


def launch(function, stream, ns=None, blocks=1):
    """Launches `timed` for some ns, or `waves` with some blocks."""
    given = ((ns, 7), (ctypes.c_uint64, ctypes.c_uint32)) if ns is not None else 0
    ok(cu.cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, given, 0))


def functions():
    before = used()
    module = ok(cu.cuModuleLoadData(PTX))
    assert used() - before == 2 * MIB
    fails(cu.cuModuleGetFunction(module, b"missing"), "NOT_FOUND")
    timed = ok(cu.cuModuleGetFunction(module, b"timed"))
    waves = ok(cu.cuModuleGetFunction(module, b"waves"))
    address, size = ok(cu.cuModuleGetGlobal(module, b"table"))
    assert size == 1024
    ok(cu.cuMemcpyHtoD(address, b"x" * 1024, 1024))
    assert ok(cu.cuFuncGetName(timed)) == b"timed"
    assert tuple(ok(cu.cuFuncGetParamInfo(timed, 1))) == (8, 4)
    library = ok(cu.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    kernel = ok(cu.cuLibraryGetKernel(library, b"waves"))
    assert ok(cu.cuKernelGetName(kernel)) == b"waves"
    ok(cu.cuKernelGetFunction(kernel))
    ok(cu.cuLibraryUnload(library))
    return timed, waves


class Gate:
    """Something that a stream waits for until it is opened, whatever the clock says."""

    def __init__(self, stream):
        self.flag = int(ok(cu.cuMemHostAlloc(4, 0)))
        ctypes.c_uint32.from_address(self.flag).value = 0
        ok(cu.cuStreamWaitValue32(stream, self.flag, 1, 1))

    def open(self):
        ctypes.c_uint32.from_address(self.flag).value = 1


def timing(timed, waves):
    stream = ok(cu.cuStreamCreate(1))
    start, end = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))

    def measured(work):
        ok(cu.cuEventRecord(start, stream))
        work()
        ok(cu.cuEventRecord(end, stream))
        ok(cu.cuEventSynchronize(end))
        return ok(cu.cuEventElapsedTime(start, end))

    launch(timed, stream, ns=1000)
    ok(cu.cuStreamSynchronize(stream))
    assert measured(lambda: launch(timed, stream, ns=5_000_000)) >= 5
    sms = ok(cu.cuDeviceGetAttribute(
        cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
    # 100 waves of 20 us each.
    assert measured(lambda: launch(waves, stream, blocks=100 * sms)) >= 2
    gate = Gate(stream)
    fails(cu.cuStreamQuery(stream), "NOT_READY")
    other = ok(cu.cuStreamCreate(1))
    ok(cu.cuEventRecord(end, stream))
    ok(cu.cuStreamWaitEvent(other, end, 0))
    fails(cu.cuStreamQuery(other), "NOT_READY")
    fails(cu.cuEventQuery(end), "NOT_READY")
    gate.open()
    ok(cu.cuStreamSynchronize(other))
    ok(cu.cuStreamQuery(stream))
    ok(cu.cuStreamDestroy(other))
    ok(cu.cuStreamDestroy(stream))
    fails(cu.cuStreamQuery(stream), "INVALID_HANDLE")


def host_functions(timed):
    stream = ok(cu.cuStreamCreate(0))
    device = ok(cu.cuMemAlloc(8))
    source = ctypes.create_string_buffer(b"before!", 8)
    seen = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def change(data):
        seen.append(cu.cuMemAlloc(1)[0])
        source.raw = b"after!!\0"

    gate = Gate(stream)
    launch(timed, stream, ns=1000)
    ok(cu.cuLaunchHostFunc(stream, cu.CUhostFn(ctypes.cast(change, ctypes.c_void_p).value), 0))
    ok(cu.cuMemcpyHtoDAsync(device, ctypes.addressof(source), 8, stream))
    fails(cu.cuStreamQuery(stream), "NOT_READY")
    gate.open()
    ok(cu.cuStreamSynchronize(stream))
    assert bytes_at(device, 7) == b"after!!"
    assert seen == [cu.CUresult.CUDA_ERROR_NOT_PERMITTED]
    flag = ok(cu.cuMemHostAlloc(4, 0))
    value = ctypes.c_uint32.from_address(int(flag))
    value.value = 0
    ok(cu.cuStreamWaitValue32(stream, int(flag), 1, 0))
    fails(cu.cuStreamQuery(stream), "NOT_READY")
    value.value = 1
    ok(cu.cuStreamWriteValue32(stream, int(flag), 9, 0))
    ok(cu.cuStreamSynchronize(stream))
    assert value.value == 9
    ok(cu.cuMemFreeHost(flag))
    ok(cu.cuMemFree(device))
    ok(cu.cuStreamDestroy(stream))


def capture(timed):
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    stream, other = ok(cu.cuStreamCreate(1)), ok(cu.cuStreamCreate(1))
    fork, join = ok(cu.cuEventCreate(2)), ok(cu.cuEventCreate(2))
    device = ok(cu.cuMemAlloc(16))
    ok(cu.cuMemsetD8(device, 0, 16))
    ok(cu.cuStreamBeginCapture(stream, mode))
    launch(timed, stream, ns=1_000_000)
    ok(cu.cuEventRecord(fork, stream))
    ok(cu.cuStreamWaitEvent(other, fork, 0))
    ok(cu.cuMemsetD8Async(device, 7, 16, other))
    ok(cu.cuEventRecord(join, other))
    ok(cu.cuStreamWaitEvent(stream, join, 0))
    scratch = ok(cu.cuMemAllocAsync(5 * MIB, stream))
    ok(cu.cuMemFreeAsync(scratch, stream))
    graph = ok(cu.cuStreamEndCapture(stream))
    assert bytes_at(device, 1) == b"\0"
    nodes, count = ok(cu.cuGraphGetNodes(graph, 10))
    assert count == 4, count
    fails(cu.cuEventQuery(fork), "CAPTURED_EVENT")
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    gate = Gate(stream)
    for _ in range(3):
        ok(cu.cuGraphLaunch(executable, stream))
    fails(cu.cuStreamQuery(stream), "NOT_READY")
    gate.open()
    ok(cu.cuStreamSynchronize(stream))
    assert bytes_at(device, 16) == b"\7" * 16
    # Not by `used`: a limiter may count what a graph will take before it runs.
    assert graph_memory() == 6 * MIB
    ok(cu.cuDeviceGraphMemTrim(0))
    assert graph_memory() == 0
    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuGraphDestroy(graph))

    # What must not be called breaks it.
    ok(cu.cuStreamBeginCapture(stream, mode))
    fails(cu.cuMemAlloc(1), "STREAM_CAPTURE_UNSUPPORTED")
    fails(cu.cuStreamEndCapture(stream), "STREAM_CAPTURE_INVALIDATED")
    # Another thread breaks a global one too, but not in relaxed mode.
    ok(cu.cuStreamBeginCapture(stream, mode))
    seen = []

    def relaxed():
        ok(cu.cuCtxSetCurrent(context))
        ok(cu.cuThreadExchangeStreamCaptureMode(
            cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        seen.append(cu.cuMemAlloc(1)[0])

    context = ok(cu.cuCtxGetCurrent())
    thread = threading.Thread(target=relaxed)
    thread.start()
    thread.join()
    assert seen == [OK], seen
    ok(cu.cuGraphDestroy(ok(cu.cuStreamEndCapture(stream))))
    # A stream that is not joined again.
    ok(cu.cuStreamBeginCapture(stream, mode))
    ok(cu.cuEventRecord(fork, stream))
    ok(cu.cuStreamWaitEvent(other, fork, 0))
    ok(cu.cuMemsetD8Async(device, 7, 16, other))
    fails(cu.cuStreamEndCapture(stream), "STREAM_CAPTURE_UNJOINED")
    ok(cu.cuMemFree(device))


def graphs(timed):
    graph = ok(cu.cuGraphCreate(0))
    params = cu.CUDA_KERNEL_NODE_PARAMS()
    params.func = timed
    params.gridDimX = params.gridDimY = params.gridDimZ = 1
    params.blockDimX = params.blockDimY = params.blockDimZ = 1
    params.kernelParams = ((3_000_000, 1), (ctypes.c_uint64, ctypes.c_uint32))
    first = ok(cu.cuGraphAddKernelNode(graph, [], 0, params))
    second = ok(cu.cuGraphAddEmptyNode(graph, [first], 1))
    assert int(ok(cu.cuGraphNodeGetType(second))) == 5
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    stream = ok(cu.cuStreamCreate(1))
    start, end = ok(cu.cuEventCreate(0)), ok(cu.cuEventCreate(0))
    ok(cu.cuEventRecord(start, stream))
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuEventRecord(end, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert ok(cu.cuEventElapsedTime(start, end)) >= 3
    params.kernelParams = ((9_000_000, 1), (ctypes.c_uint64, ctypes.c_uint32))
    ok(cu.cuGraphExecKernelNodeSetParams(executable, first, params))
    ok(cu.cuEventRecord(start, stream))
    ok(cu.cuGraphLaunch(executable, stream))
    ok(cu.cuEventRecord(end, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert ok(cu.cuEventElapsedTime(start, end)) >= 9
    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuGraphDestroy(graph))
    ok(cu.cuStreamDestroy(stream))


def default_streams(timed):
    """The legacy stream goes in step with blocking ones and not with others."""
    legacy = cu.CUstream(1)
    blocking, free = ok(cu.cuStreamCreate(0)), ok(cu.cuStreamCreate(1))
    gate = Gate(blocking)
    launch(timed, blocking, ns=1000)
    launch(timed, legacy, ns=1000)
    launch(timed, free, ns=1000)
    ok(cu.cuStreamSynchronize(free))
    fails(cu.cuStreamQuery(blocking), "NOT_READY")
    fails(cu.cuStreamQuery(legacy), "NOT_READY")
    gate.open()
    ok(cu.cuStreamSynchronize(legacy))
    ok(cu.cuStreamQuery(blocking))
    gate = Gate(legacy)
    launch(timed, blocking, ns=1000)
    fails(cu.cuStreamQuery(blocking), "NOT_READY")
    gate.open()
    ok(cu.cuStreamSynchronize(blocking))
    ok(cu.cuStreamQuery(legacy))
    # What the legacy stream writes may be waited for by one that goes in step with it.
    launch(timed, legacy, ns=1_000_000)
    ok(cu.cuStreamWriteValue32(legacy, gate.flag, 7, 0))
    ok(cu.cuStreamWaitValue32(blocking, gate.flag, 7, 1))
    ok(cu.cuStreamSynchronize(blocking))
    own = cu.CUstream(2)
    launch(timed, own, ns=1000)
    ok(cu.cuStreamSynchronize(own))
    for stream in (blocking, free):
        ok(cu.cuStreamDestroy(stream))


def many_threads(timed):
    """More pieces than a queue holds, from several threads at once."""
    context = ok(cu.cuCtxGetCurrent())
    before = used()
    wrong = []

    def work():
        try:
            ok(cu.cuCtxSetCurrent(context))
            stream = ok(cu.cuStreamCreate(1))
            for _ in range(1500):
                launch(timed, stream, ns=1000)
            for _ in range(200):
                ok(cu.cuMemFree(ok(cu.cuMemAlloc(3000))))
            ok(cu.cuStreamSynchronize(stream))
            ok(cu.cuStreamDestroy(stream))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert used() == before


def forked():
    pid = os.fork()
    if pid == 0:
        refused = cu.CUresult.CUDA_ERROR_NOT_INITIALIZED
        works = cu.cuDeviceGetCount()[0] != refused or cu.cuInit(0)[0] != refused
        os._exit(1 if works else 0)
    assert os.waitpid(pid, 0)[1] == 0


def main():
    fails(cu.cuDeviceGetCount(), "NOT_INITIALIZED")
    ok(cu.cuInit(0))
    print("devices:", devices())
    fails(cu.cuMemAlloc(1), "INVALID_CONTEXT")
    context = ok(cu.cuDevicePrimaryCtxRetain(0))
    ok(cu.cuCtxSetCurrent(context))
    of_memory.memory()
    print("memory")
    timed, waves = functions()
    print("functions")
    timing(timed, waves)
    print("timing")
    host_functions(timed)
    print("host functions")
    capture(timed)
    print("capture")
    graphs(timed)
    print("graphs")
    of_memory.pools()
    print("pools")
    of_memory.virtual_memory()
    print("virtual memory")
    of_memory.arrays()
    print("arrays")
    of_memory.external()
    print("external memory")
    default_streams(timed)
    print("default streams")
    many_threads(timed)
    print("threads")
    of_memory.sharing()
    print("sharing")
    forked()
    print("fork")
    ok(cu.cuDevicePrimaryCtxRelease(0))
    fails(cu.cuCtxSynchronize(), "CONTEXT_IS_DESTROYED")
    print("end")


if __name__ == "__main__":
    main()
