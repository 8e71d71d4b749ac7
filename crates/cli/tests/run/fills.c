/* Takes a GPU's memory piece by piece until no more is had, says how much that was, and waits. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE (256UL << 20)

static void *driver;

static void *find(const char *name) {
    void *found = dlsym(driver, name);
    if (!found) {
        printf("no %s\n", name);
        exit(9);
    }
    return found;
}

int main(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        printf("%s\n", dlerror());
        return 8;
    }
    int (*init)(unsigned) = find("cuInit");
    int (*retain)(void **, int) = find("cuDevicePrimaryCtxRetain");
    int (*current)(void *) = find("cuCtxSetCurrent");
    int (*total)(size_t *, int) = find("cuDeviceTotalMem_v2");
    int (*take)(unsigned long long *, size_t) = find("cuMemAlloc_v2");
    void *context = NULL;
    size_t size = 0;
    if (init(0) || retain(&context, 0) || current(context) || total(&size, 0)) return 7;
    unsigned long long piece, pieces = 0;
    int code;
    while (!(code = take(&piece, PIECE)) && pieces < 1000) pieces++;
    printf("%zu %llu %d\n", size, pieces * PIECE, code);
    fflush(stdout);
    while (access("go", F_OK)) usleep(20000);
    return 3;
}
