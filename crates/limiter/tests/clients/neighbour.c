/* Another library that stands before the driver: passes on what it is asked, to whoever comes next. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "cuda.h"

Code cuMemAlloc_v2(Address *to, size_t bytes) {
    Code (*next)(Address *, size_t) = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    return next ? next(to, bytes) : 500;
}
