/* Takes memory in pieces of 64 MiB until it is refused, by the way in that the first argument names:
 * prints the pieces, the code of the refusal, and the total that is shown, in MiB. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cuda.h"

#define PIECE ((size_t)64 << 20)
#define PIECES_MAX 4096

static struct Function functions[FUNCTIONS] = CUDA_FUNCTIONS;

#ifdef LINKED
void linked(struct Function *);
#endif

static void fail(const char *what) {
    const char *why = dlerror();
    printf("failed: %s: %s\n", what, why ? why : "");
    exit(3);
}

static void by_dlsym(void *handle) {
    for (int i = 0; i < FUNCTIONS; i++) {
        functions[i].at = dlsym(handle, functions[i].exported);
        if (!functions[i].at) fail(functions[i].exported);
    }
}

static void *opened(int flags) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | flags);
    if (!handle) fail("dlopen");
    return handle;
}

static void by_proc_address(int version) {
    void *handle = opened(0);
    if (version == 1) {
        Code (*get)(const char *, void **, int, unsigned long long) = dlsym(handle, "cuGetProcAddress");
        for (int i = 0; i < FUNCTIONS; i++)
            if (get(functions[i].base, &functions[i].at, 11030, 0)) fail(functions[i].base);
    } else {
        Code (*get)(const char *, void **, int, unsigned long long, int *) =
            dlsym(handle, "cuGetProcAddress_v2");
        /* The function that gives functions can be had from itself. */
        int status = 0;
        if (version == 3 && get("cuGetProcAddress", (void **)&get, 12000, 0, &status)) fail("itself");
        for (int i = 0; i < FUNCTIONS; i++)
            if (get(functions[i].base, &functions[i].at, 12040, i % 2 ? 2 : 0, &status) || status)
                fail(functions[i].base);
    }
}

static void by_library(int flags) {
    void *library = dlopen(getenv("LINKED_LIBRARY"), RTLD_NOW | flags);
    if (!library) fail("dlopen of a library that is linked with the driver");
    void (*fill)(struct Function *) = dlsym(library, "linked");
    fill(functions);
}

static void take(int quiet) {
    static Address pieces[PIECES_MAX];
    int device = 0, count = 0;
    void *context = NULL;
    size_t free = 0, total = 0;
    Code code = ((Code (*)(unsigned))functions[INIT].at)(0);
    if (!code) code = ((Code (*)(int *, int))functions[DEVICE].at)(&device, 0);
    if (!code) code = ((Code (*)(void **, int))functions[RETAIN].at)(&context, device);
    if (!code) code = ((Code (*)(void *))functions[SET_CURRENT].at)(context);
    if (!code) code = ((Code (*)(size_t *, size_t *))functions[INFO].at)(&free, &total);
    while (!code && count < PIECES_MAX) {
        code = ((Code (*)(Address *, size_t))functions[ALLOCATE].at)(&pieces[count], PIECE);
        if (!code) count++;
    }
    if (quiet) return;
    printf("%d %d %zu\n", count, code, total >> 20);
    fflush(stdout);
    /* What is given back can be had again. */
    if (count > 0) {
        if (((Code (*)(Address))functions[FREE].at)(pieces[0])) fail("free");
        if (((Code (*)(Address *, size_t))functions[ALLOCATE].at)(&pieces[0], PIECE)) fail("again");
    }
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    if (!strcmp(way, "dlsym")) by_dlsym(opened(0));
    else if (!strcmp(way, "deepbind")) by_dlsym(opened(RTLD_DEEPBIND));
    else if (!strcmp(way, "global-default")) opened(RTLD_GLOBAL), by_dlsym(RTLD_DEFAULT);
    else if (!strcmp(way, "next")) opened(RTLD_GLOBAL), by_dlsym(RTLD_NEXT);
    else if (!strcmp(way, "program")) opened(RTLD_GLOBAL), by_dlsym(dlopen(NULL, RTLD_NOW));
    else if (!strcmp(way, "proc-address")) by_proc_address(1);
    else if (!strcmp(way, "proc-address-v2")) by_proc_address(2);
    else if (!strcmp(way, "proc-address-itself")) by_proc_address(3);
    else if (!strcmp(way, "library")) by_library(0);
    else if (!strcmp(way, "library-deepbind")) by_library(RTLD_DEEPBIND);
#ifdef LINKED
    else if (!strcmp(way, "linked")) linked(functions);
#endif
    else if (!strcmp(way, "fork")) {
        /* The child begins with the driver, the parent never does. */
        pid_t child = fork();
        if (child > 0) {
            int status = 0;
            waitpid(child, &status, 0);
            return WEXITSTATUS(status);
        }
        by_dlsym(opened(0));
    } else if (!strcmp(way, "exec")) {
        /* A process that holds all it can becomes another program, which holds nothing. */
        by_dlsym(opened(0));
        take(1);
        execl(argv[0], argv[0], "dlsym", (char *)NULL);
        fail("exec");
    } else if (!strcmp(way, "absent")) {
        /* No driver is loaded: none may seem to be there. */
        dlerror();
        void *found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
        printf("%s %s\n", found ? "found" : "absent", dlerror() ? "said" : "silent");
        return 0;
    } else fail("no such way");
    take(0);
    return 0;
}
