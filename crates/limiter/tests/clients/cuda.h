/* The few types and functions of the driver's interface that these clients use. */
#pragma once
#include <stddef.h>

typedef int Code;
typedef unsigned long long Address;

/* One function: its name as it is exported, and as cuGetProcAddress is asked for it. */
struct Function {
    const char *exported;
    const char *base;
    void *at;
};

enum { INIT, DEVICE, RETAIN, SET_CURRENT, ALLOCATE, FREE, INFO, FUNCTIONS };

#define CUDA_FUNCTIONS {                                          \
    { "cuInit", "cuInit", 0 },                                    \
    { "cuDeviceGet", "cuDeviceGet", 0 },                          \
    { "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 0 },\
    { "cuCtxSetCurrent", "cuCtxSetCurrent", 0 },                  \
    { "cuMemAlloc_v2", "cuMemAlloc", 0 },                         \
    { "cuMemFree_v2", "cuMemFree", 0 },                           \
    { "cuMemGetInfo_v2", "cuMemGetInfo", 0 },                     \
}
