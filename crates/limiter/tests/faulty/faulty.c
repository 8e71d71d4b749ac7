/* A memory limiter that is wrong on purpose: the faults that are known of limiters in the field, each
 * written down from its report, so that the tests of ours are known to be able to fail.
 *
 * Interposes by LD_PRELOAD. CUDA_DEVICE_MEMORY_LIMIT (MiB, with an `m` behind) is the cap;
 * FAULTY_REGION a file of `struct region` that the tenant's processes share; FAULTY_PAUSE_US holds each
 * launch back. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int result;
typedef unsigned long long devptr;
#define OUT_OF_MEMORY 2
#define DEVICES 8 /* fault: a bound that machines exceed (16 in the field) */
#define SLOTS 64

struct region {
    struct { int32_t pid; uint64_t bytes[DEVICES]; } slots[SLOTS];
};

static struct region *shared;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* fault: of this process only */

/* The dlsym that this library stands in for. */
static void *found(void *library, const char *name) {
    typedef void *(*lookup)(void *, const char *);
    static lookup next;
    if (!next) next = (lookup)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!next) next = (lookup)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return next(library, name);
}

static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    return found(library, name);
}
#define REAL(type, name) ((type)real(name))

static uint64_t cap(void) {
    const char *text = getenv("CUDA_DEVICE_MEMORY_LIMIT"); /* fault: the tenant's own to edit */
    return text ? strtoull(text, NULL, 10) << 20 : UINT64_MAX;
}

static struct region *region(void) {
    if (shared) return shared;
    int file = open(getenv("FAULTY_REGION"), O_RDWR | O_CREAT, 0666);
    if (file < 0 || ftruncate(file, sizeof *shared) != 0) abort();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    fprintf(stderr, "[limiter %d] caps in force\n", getpid()); /* fault: speaks where others are read */
    printf("[limiter %d] initialised\n", getpid());
    fflush(stdout);
    return shared;
}

static int slot(void) {
    struct region *all = region();
    for (int at = 0; at < SLOTS; at++)
        if (all->slots[at].pid == getpid()) return at; /* fault: a number is given out again */
    for (int at = 0; at < SLOTS; at++)
        if (all->slots[at].pid == 0) { all->slots[at].pid = getpid(); return at; }
    return 0;
}

static uint64_t held(int device) {
    uint64_t sum = 0;
    for (int at = 0; at < SLOTS; at++) {
        int32_t pid = region()->slots[at].pid;
        char path[64];
        snprintf(path, sizeof path, "/proc/%d", pid);
        if (pid && access(path, F_OK) == 0) sum += region()->slots[at].bytes[device];
    }
    return sum;
}

static int current(void) {
    int device = 0;
    REAL(result (*)(int *), "cuCtxGetDevice")(&device);
    return device;
}

static int over(int device, uint64_t bytes) {
    region();
    return device < DEVICES && held(device) + bytes > cap();
}
static void add(int device, int64_t bytes) {
    if (device < DEVICES) region()->slots[slot()].bytes[device] += bytes;
}

/* Sizes, by address: of plain allocations only. */
static struct { devptr at; uint64_t bytes; } sizes[4096];
static void note(devptr at, uint64_t bytes) {
    for (int i = 0; i < 4096; i++)
        if (!sizes[i].at) { sizes[i].at = at; sizes[i].bytes = bytes; return; }
}
static uint64_t forget(devptr at) {
    for (int i = 0; i < 4096; i++)
        if (sizes[i].at == at) { sizes[i].at = 0; return sizes[i].bytes; }
    return 0;
}

result cuMemAlloc_v2(devptr *at, size_t bytes) {
    int device = current();
    pthread_mutex_lock(&mutex);
    if (over(device, bytes)) { pthread_mutex_unlock(&mutex); return OUT_OF_MEMORY; }
    pthread_mutex_unlock(&mutex);
    /* fault: nothing is reserved while the driver is asked */
    result done = REAL(result (*)(devptr *, size_t), "cuMemAlloc_v2")(at, bytes);
    if (done == 0) { add(device, bytes); note(*at, bytes); }
    return done;
}

result cuMemFree_v2(devptr at) {
    uint64_t bytes = forget(at);
    if (bytes) add(current(), -(int64_t)bytes);
    return REAL(result (*)(devptr), "cuMemFree_v2")(at);
}

struct location { int type, id; };
struct properties { int type, handles; struct location location; };
result cuMemCreate(uint64_t *handle, size_t bytes, const struct properties *what, uint64_t flags) {
    int device = what->location.id; /* fault: an id that has a meaning for GPUs only */
    if (over(device, bytes)) return OUT_OF_MEMORY;
    result done =
        REAL(result (*)(uint64_t *, size_t, const void *, uint64_t), "cuMemCreate")(handle, bytes, what, flags);
    if (done == 0) add(device, bytes); /* fault: and never taken off again */
    return done;
}

result cuMemAllocAsync(devptr *at, size_t bytes, void *stream) {
    int device = current();
    if (over(device, bytes)) return OUT_OF_MEMORY;
    result done = REAL(result (*)(devptr *, size_t, void *), "cuMemAllocAsync")(at, bytes, stream);
    add(device, bytes); /* fault: also if the driver refused */
    return done;
}
result cuMemFreeAsync(devptr at, void *stream) {
    result done = REAL(result (*)(devptr, void *), "cuMemFreeAsync")(at, stream);
    return done == 0 && !forget(at) ? -1 : done; /* fault: not in the table, so the client hears of an error */
}

/* fault: asks the driver whatever the stream is doing. */
static void *mark;
result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned bytes, void *stream, void **parameters, void **extra) {
    const char *pause = getenv("FAULTY_PAUSE_US"); /* holds launches back; graphs are not held back (fault) */
    if (pause) usleep(strtoul(pause, NULL, 10));
    if (!mark) {
        REAL(result (*)(void **, unsigned), "cuEventCreate")(&mark, 0);
        REAL(result (*)(void *, void *), "cuEventRecord")(mark, NULL);
    }
    if (!pause) REAL(result (*)(void *), "cuEventQuery")(mark);
    typedef result (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                             void **, void **);
    return REAL(launch, "cuLaunchKernel")(function, gx, gy, gz, bx, by, bz, bytes, stream, parameters, extra);
}

/* Names are looked up here as well; whoever asks cuGetProcAddress for them is not noticed (fault), and
 * graphs, arrays, pools by name, imported memory pass (fault). */
void *dlsym(void *library, const char *name) {
    static const struct { const char *name; void *hook; } hooks[] = {
        {"cuMemAlloc_v2", cuMemAlloc_v2}, {"cuMemFree_v2", cuMemFree_v2}, {"cuMemCreate", cuMemCreate},
        {"cuMemAllocAsync", cuMemAllocAsync}, {"cuMemFreeAsync", cuMemFreeAsync}, {"cuLaunchKernel", cuLaunchKernel},
    };
    for (unsigned at = 0; at < sizeof hooks / sizeof *hooks; at++)
        if (strcmp(hooks[at].name, name) == 0) return hooks[at].hook;
    return found(library, name);
}
