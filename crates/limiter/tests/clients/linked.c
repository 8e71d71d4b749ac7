/* A library that is linked with the driver: all it does is done by names that the loader binds. */
#include "cuda.h"

Code cuInit(unsigned);
Code cuDeviceGet(int *, int);
Code cuDevicePrimaryCtxRetain(void **, int);
Code cuCtxSetCurrent(void *);
Code cuMemAlloc_v2(Address *, size_t);
Code cuMemFree_v2(Address);
Code cuMemGetInfo_v2(size_t *, size_t *);

void linked(struct Function *functions) {
    functions[INIT].at = (void *)cuInit;
    functions[DEVICE].at = (void *)cuDeviceGet;
    functions[RETAIN].at = (void *)cuDevicePrimaryCtxRetain;
    functions[SET_CURRENT].at = (void *)cuCtxSetCurrent;
    functions[ALLOCATE].at = (void *)cuMemAlloc_v2;
    functions[FREE].at = (void *)cuMemFree_v2;
    functions[INFO].at = (void *)cuMemGetInfo_v2;
}
