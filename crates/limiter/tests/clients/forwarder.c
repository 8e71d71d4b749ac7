/* A `libcuda.so.1` that has no driver in it: it looks each function up where the real one is, by
 * `dlsym`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

typedef unsigned long long Word;

static void *behind(const char *name) {
    static void *library;
    if (!library) library = dlopen(getenv("BEHIND"), RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

/* Six words are as many as pass in registers. */
#define FORWARD(name)                                                       \
    int name(Word a, Word b, Word c, Word d, Word e, Word f) {              \
        int (*real)(Word, Word, Word, Word, Word, Word) = behind(#name);    \
        return real ? real(a, b, c, d, e, f) : 500;                         \
    }

FORWARD(cuInit)
FORWARD(cuDeviceGet)
FORWARD(cuDeviceGetCount)
FORWARD(cuDeviceGetUuid)
FORWARD(cuDeviceGetUuid_v2)
FORWARD(cuDevicePrimaryCtxRetain)
FORWARD(cuDevicePrimaryCtxGetState)
FORWARD(cuCtxSetCurrent)
FORWARD(cuCtxGetCurrent)
FORWARD(cuCtxGetDevice)
FORWARD(cuMemAlloc_v2)
FORWARD(cuMemFree_v2)
FORWARD(cuMemGetInfo_v2)
FORWARD(cuGetProcAddress)
FORWARD(cuGetProcAddress_v2)
