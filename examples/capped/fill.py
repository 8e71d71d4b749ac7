"""Allocates GPU memory until it is refused, and says how much it got. Needs cuda-bindings only;
docs/caps.md says how to run it."""

from cuda.bindings import driver as cuda

BLOCK_MIB = 256


def call(function, *arguments):
    """What a function of the driver returns; its error as an exception."""
    code, *results = function(*arguments)
    if code != cuda.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {code.name}")
    return results[0] if len(results) == 1 else results


call(cuda.cuInit, 0)
device = call(cuda.cuDeviceGet, 0)
call(cuda.cuCtxSetCurrent, call(cuda.cuDevicePrimaryCtxRetain, device))
free, total = call(cuda.cuMemGetInfo)
print(f"the GPU seems to have {total >> 20} MiB, {free >> 20} MiB of them free", flush=True)

got_mib = 0
while True:
    try:
        call(cuda.cuMemAlloc, BLOCK_MIB << 20)
    except RuntimeError as error:
        print(f"refused after {got_mib} MiB: {error}")
        break
    got_mib += BLOCK_MIB

# Failed, so that hotpot adds to this output who refused it.
raise SystemExit(1)
