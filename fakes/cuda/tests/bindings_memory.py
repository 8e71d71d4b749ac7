"""The part of bindings.py that is about memory: what is booked, where bytes go, sharing between
processes. Run by itself with a token it is the other process of `sharing`.
"""
import ctypes
import os
import subprocess
import sys
import time

from cuda.bindings import driver as cu

OK = cu.CUresult.CUDA_SUCCESS
MIB = 1 << 20


def ok(result):
    """The values of a call that must succeed: none, one or a tuple."""
    assert result[0] == OK, result
    return result[1] if len(result) == 2 else result[1:]


def fails(result, name):
    """A call that must fail with that code."""
    assert result[0] == getattr(cu.CUresult, "CUDA_ERROR_" + name), (result, name)


class Used(int):
    """Bytes. Under a limiter they are by its books, which pack small things more tightly than the driver:
    then two blocks more or less are the same."""
    SLACK = 4 * MIB if "HOTPOT_CAPS" in os.environ else 0

    def __sub__(self, other):
        return Used(int(self) - int(other))

    def __eq__(self, other):
        return abs(int(self) - int(other)) <= self.SLACK

    def __ne__(self, other):
        return not self == other

    __hash__ = int.__hash__


def used():
    free, total = ok(cu.cuMemGetInfo())
    return Used(total - free)


def bytes_at(address, count):
    data = bytearray(count)
    ok(cu.cuMemcpyDtoH(data, address, count))
    return bytes(data)


def memory():
    before = used()
    address = ok(cu.cuMemAlloc(3 * MIB + 5))
    assert used() - before == 4 * MIB, used() - before
    data = os.urandom(3 * MIB + 5)
    ok(cu.cuMemcpyHtoD(address, data, len(data)))
    assert bytes_at(address, len(data)) == data
    start, size = ok(cu.cuMemGetAddressRange(int(address) + 100))
    assert int(start) == int(address) and size == 3 * MIB + 5
    ok(cu.cuMemsetD32(address, 0x01020304, 4))
    assert bytes_at(address, 17) == b"\4\3\2\1" * 4 + data[16:17]
    fails(cu.cuMemcpyHtoD(address, data + b"x", len(data) + 1), "INVALID_VALUE")
    small = [ok(cu.cuMemAlloc(1000)) for _ in range(10)]
    assert used() - before == 6 * MIB
    for one in small:
        ok(cu.cuMemFree(one))
    fails(cu.cuMemFree(small[0]), "INVALID_VALUE")
    ok(cu.cuMemFree(address))
    assert used() == before
    fails(cu.cuMemAlloc(0), "INVALID_VALUE")
    fails(cu.cuMemAlloc(1 << 42), "OUT_OF_MEMORY")
    pitched, pitch = ok(cu.cuMemAllocPitch(1000, 10, 4))
    assert pitch == 1024
    copy = cu.CUDA_MEMCPY2D()
    copy.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    rows = ctypes.create_string_buffer(os.urandom(10_000), 10_000)
    copy.srcHost, copy.srcPitch = ctypes.addressof(rows), 1000
    copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.dstDevice, copy.dstPitch = pitched, pitch
    copy.WidthInBytes, copy.Height = 1000, 10
    ok(cu.cuMemcpy2D(copy))
    assert bytes_at(int(pitched) + 9 * pitch, 1000) == rows.raw[9000:]
    ok(cu.cuMemFree(pitched))
    host = ok(cu.cuMemHostAlloc(4096, 0))
    kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert int(ok(cu.cuPointerGetAttribute(kind, int(host)))) == 1
    ok(cu.cuMemFreeHost(host))
    large = ok(cu.cuMemAlloc(30 << 30))
    ok(cu.cuMemcpyHtoD(int(large) + (29 << 30), b"far", 3))
    assert bytes_at(int(large) + (29 << 30), 3) == b"far"
    ok(cu.cuMemFree(large))


def pools():
    before = used()
    stream = ok(cu.cuStreamCreate(1))
    pool = ok(cu.cuDeviceGetDefaultMemPool(0))
    attribute = cu.CUmemPool_attribute
    first = ok(cu.cuMemAllocAsync(10 * MIB, stream))
    assert used() - before == 32 * MIB
    ok(cu.cuMemFreeAsync(first, stream))
    assert used() - before == 32 * MIB
    ok(cu.cuStreamSynchronize(stream))
    assert used() == before
    ok(cu.cuMemPoolSetAttribute(
        pool, attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, cu.cuuint64_t(64 * MIB)))
    first = ok(cu.cuMemAllocAsync(10 * MIB, stream))
    ok(cu.cuMemFreeAsync(first, stream))
    ok(cu.cuStreamSynchronize(stream))
    assert used() - before == 32 * MIB
    ok(cu.cuMemPoolTrimTo(pool, 0))
    assert used() == before
    props = cu.CUmemPoolProps()
    props.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    props.maxSize = 64 * MIB
    own = ok(cu.cuMemPoolCreate(props))
    some = ok(cu.cuMemAllocFromPoolAsync(60 * MIB, own, stream))
    fails(cu.cuMemAllocFromPoolAsync(60 * MIB, own, stream), "OUT_OF_MEMORY")
    assert int(ok(cu.cuMemPoolGetAttribute(
        own, attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))) == 60 * MIB
    ok(cu.cuMemFreeAsync(some, stream))
    ok(cu.cuMemPoolDestroy(own))
    ok(cu.cuStreamDestroy(stream))
    assert used() == before


def physical_properties(kind="DEVICE"):
    props = cu.CUmemAllocationProp()
    props.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = getattr(cu.CUmemLocationType, "CU_MEM_LOCATION_TYPE_" + kind)
    props.location.id = 0 if kind == "DEVICE" else 12345
    props.requestedHandleTypes = (
        cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return props


def virtual_memory():
    before = used()
    props = physical_properties()
    step = ok(cu.cuMemGetAllocationGranularity(
        props, cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
    assert step == 2 * MIB
    handle = ok(cu.cuMemCreate(8 * MIB, props, 0))
    assert used() - before == 8 * MIB
    address = ok(cu.cuMemAddressReserve(32 * MIB, 0, 0, 0))
    ok(cu.cuMemMap(address, 8 * MIB, 0, handle, 0))
    ok(cu.cuMemMap(int(address) + 8 * MIB, 8 * MIB, 0, handle, 0))
    access = cu.CUmemAccessDesc()
    access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 0
    access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(cu.cuMemSetAccess(address, 16 * MIB, [access], 1))
    ok(cu.cuMemcpyHtoD(address, b"twice", 5))
    assert bytes_at(int(address) + 8 * MIB, 5) == b"twice"
    fails(cu.cuMemcpyHtoD(int(address) + 16 * MIB, b"x", 1), "INVALID_VALUE")
    ok(cu.cuMemRelease(handle))
    assert used() - before == 8 * MIB
    ok(cu.cuMemUnmap(address, 16 * MIB))
    assert used() == before
    ok(cu.cuMemAddressFree(address, 32 * MIB))
    for kind in ("HOST", "HOST_NUMA", "HOST_NUMA_CURRENT"):
        handle = ok(cu.cuMemCreate(2 * MIB, physical_properties(kind), 0))
        assert used() == before, kind
        ok(cu.cuMemRelease(handle))


def arrays():
    before = used()
    shape = cu.CUDA_ARRAY_DESCRIPTOR()
    shape.Width, shape.Height, shape.NumChannels = 100, 50, 4
    shape.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
    array = ok(cu.cuArrayCreate(shape))
    assert used() - before == 2 * MIB
    rows = ctypes.create_string_buffer(os.urandom(80_000), 80_000)
    there, back = cu.CUDA_MEMCPY2D(), cu.CUDA_MEMCPY2D()
    there.srcMemoryType = back.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    there.dstMemoryType = back.srcMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
    there.srcHost, there.dstArray, there.srcPitch = ctypes.addressof(rows), array, 1600
    result = ctypes.create_string_buffer(80_000)
    back.dstHost, back.srcArray, back.dstPitch = ctypes.addressof(result), array, 1600
    there.WidthInBytes = back.WidthInBytes = 1600
    there.Height = back.Height = 50
    ok(cu.cuMemcpy2D(there))
    ok(cu.cuMemcpy2D(back))
    assert result.raw == rows.raw
    assert ok(cu.cuArrayGetDescriptor(array)).Width == 100
    ok(cu.cuArrayDestroy(array))
    levels = cu.CUDA_ARRAY3D_DESCRIPTOR()
    levels.Width, levels.Height, levels.NumChannels = 1024, 1024, 4
    levels.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
    mipmapped = ok(cu.cuMipmappedArrayCreate(levels, 3))
    assert used() - before == 6 * MIB
    level = ok(cu.cuMipmappedArrayGetLevel(mipmapped, 2))
    assert ok(cu.cuArray3DGetDescriptor(level)).Width == 256
    ok(cu.cuMipmappedArrayDestroy(mipmapped))
    assert used() == before


def external():
    before = used()
    handle = ok(cu.cuMemCreate(4 * MIB, physical_properties(), 0))
    at = ok(cu.cuMemAddressReserve(4 * MIB, 0, 0, 0))
    ok(cu.cuMemMap(at, 4 * MIB, 0, handle, 0))
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    from_handle = cu.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    from_handle.type = cu.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
    from_handle.handle.fd = int(ok(cu.cuMemExportToShareableHandle(handle, kind, 0)))
    from_handle.size = 4 * MIB
    imported = ok(cu.cuImportExternalMemory(from_handle))
    part = cu.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
    part.offset, part.size = 4096, 4096
    buffer = ok(cu.cuExternalMemoryGetMappedBuffer(imported, part))
    ok(cu.cuMemcpyHtoD(buffer, b"same", 4))
    assert bytes_at(int(at) + 4096, 4) == b"same"
    assert used() - before == 4 * MIB
    ok(cu.cuDestroyExternalMemory(imported))
    assert used() - before == 4 * MIB, "the handle and the mapping are still there"
    ok(cu.cuMemUnmap(at, 4 * MIB))
    ok(cu.cuMemRelease(handle))
    assert used() == before


def child(token):
    """The other process of `sharing`: reads what lies there, writes, and keeps it until told."""
    ok(cu.cuInit(0))
    context = ok(cu.cuDevicePrimaryCtxRetain(0))
    ok(cu.cuCtxSetCurrent(context))
    handle = cu.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(token), 64)
    address = ok(cu.cuIpcOpenMemHandle(handle, 1))
    assert bytes_at(address, 5) == b"hello"
    ok(cu.cuMemcpyHtoD(address, b"there", 5))
    fd = int(os.environ["SHARED_FD"])
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    physical = ok(cu.cuMemImportFromShareableHandle(fd, kind))
    at = ok(cu.cuMemAddressReserve(2 * MIB, 0, 0, 0))
    ok(cu.cuMemMap(at, 2 * MIB, 0, physical, 0))
    assert bytes_at(at, 4) == b"phys"
    print("ready", flush=True)
    sys.stdin.readline()
    ok(cu.cuIpcCloseMemHandle(address))
    print("closed", flush=True)
    sys.stdin.readline()


def sharing():
    before = used()
    address = ok(cu.cuMemAlloc(6 * MIB))
    ok(cu.cuMemcpyHtoD(address, b"hello", 5))
    token = ctypes.string_at(ok(cu.cuIpcGetMemHandle(address)).getPtr(), 64)
    handle = ok(cu.cuMemCreate(2 * MIB, physical_properties(), 0))
    at = ok(cu.cuMemAddressReserve(2 * MIB, 0, 0, 0))
    ok(cu.cuMemMap(at, 2 * MIB, 0, handle, 0))
    ok(cu.cuMemcpyHtoD(at, b"phys", 4))
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    fd = int(ok(cu.cuMemExportToShareableHandle(handle, kind, 0)))
    os.set_inheritable(fd, True)
    alone = used()
    other = subprocess.Popen(
        [sys.executable, __file__, token.hex()], close_fds=False, text=True,
        env={**os.environ, "SHARED_FD": str(fd)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout.readline() == "ready\n"
    assert bytes_at(address, 5) == b"there"
    # The other process has a context, but what is shared counts once.
    context = used() - alone
    assert 200 * MIB < context < 700 * MIB, context
    ok(cu.cuMemFree(address))
    assert used() - alone == context, "the other process still holds it"
    other.stdin.write("\n")
    other.stdin.flush()
    assert other.stdout.readline() == "closed\n"
    assert used() - alone == context - 6 * MIB
    other.stdin.close()
    assert other.wait() == 0
    os.close(fd)
    ok(cu.cuMemUnmap(at, 2 * MIB))
    ok(cu.cuMemRelease(handle))
    # That a process has ended is seen after some ms.
    deadline = time.monotonic() + 20
    while used() != before:
        assert time.monotonic() < deadline, used() - before


if __name__ == "__main__":
    child(sys.argv[1])
