/* Does with its first GPU what its words say, one after the other, and prints a line for each:
 *
 * alloc MIB    takes memory: `alloc MIB CODE`
 * info         what CUDA and NVML say that there is: `info FREE TOTAL NVML-TOTAL`, in MiB
 * devices      how many there are, and which: `devices N UUID...`
 * spin NS      launches kernels of so many ns until it is ended
 * touch FILE   makes a file
 * wait FILE    until there is such a file
 * pid          `pid N` */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long Word;

static void *driver, *management;

static void *function(const char *name) {
    void *library = strncmp(name, "nvml", 4) ? driver : management;
    void *at = dlsym(library, name);
    if (!at) fprintf(stderr, "%s is not there\n", name), exit(3);
    return at;
}
#define CALL(name, ...) ((int (*)())function(name))(__VA_ARGS__)

static void must(int code, const char *what) {
    if (code) printf("%s: %d\n", what, code), exit(4);
}

/* Makes a context, once. */
static void begin(void) {
    static void *context;
    if (context) return;
    must(CALL("cuInit", 0), "init");
    must(CALL("cuDevicePrimaryCtxRetain", &context, 0), "context");
    must(CALL("cuCtxSetCurrent", context), "current");
}

static void info(void) {
    size_t free = 0, total = 0;
    Word figures[3] = { 0 };
    void *device;
    begin();
    must(CALL("cuMemGetInfo_v2", &free, &total), "info");
    must(CALL("nvmlInit_v2"), "nvml");
    must(CALL("nvmlDeviceGetHandleByIndex_v2", 0, &device), "nvml device");
    must(CALL("nvmlDeviceGetMemoryInfo", device, figures), "nvml memory");
    printf("info %zu %zu %llu\n", free >> 20, total >> 20, figures[0] >> 20);
}

static void devices(void) {
    int count = 0;
    must(CALL("cuInit", 0), "init");
    must(CALL("cuDeviceGetCount", &count), "count");
    printf("devices %d", count);
    for (int at = 0; at < count; at++) {
        unsigned char uuid[16];
        must(CALL("cuDeviceGetUuid_v2", uuid, at), "uuid");
        for (int byte = 0; byte < 16; byte++)
            printf("%s%02x", byte ? byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "" : " ", uuid[byte]);
    }
    puts("");
}

static void spin(Word ns) {
    void *module, *kernel, *stream, *parameters[] = { &ns };
    begin();
    must(CALL("cuModuleLoadData", &module, ".entry spin\n// hotpot-kernel spin first_parameter_ns\n"), "module");
    must(CALL("cuModuleGetFunction", &kernel, module, "spin"), "kernel");
    must(CALL("cuStreamCreate", &stream, 1), "stream");
    for (Word turn = 0;; turn++) {
        must(CALL("cuLaunchKernel", kernel, 1024, 1, 1, 256, 1, 1, 0, stream, parameters, NULL), "launch");
        if (turn == 2) puts("spins");
    }
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    management = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!driver || !management) return puts(dlerror()), 3;
    for (int at = 1; at < count; at++) {
        const char *word = words[at], *value = at + 1 < count ? words[at + 1] : "";
        int alone = 1;
        if (!strcmp(word, "info")) info();
        else if (!strcmp(word, "devices")) devices();
        else if (!strcmp(word, "pid")) printf("pid %d\n", getpid());
        else alone = 0;
        if (alone) continue;
        at++;
        if (!strcmp(word, "alloc")) {
            Word piece;
            begin();
            printf("alloc %s %d\n", value, CALL("cuMemAlloc_v2", &piece, strtoull(value, NULL, 10) << 20));
        } else if (!strcmp(word, "spin")) spin(strtoull(value, NULL, 10));
        else if (!strcmp(word, "touch")) close(open(value, O_CREAT | O_WRONLY, 0666));
        else if (!strcmp(word, "wait")) while (access(value, F_OK)) usleep(10000);
        else return printf("what is `%s`?\n", word), 2;
    }
    return 0;
}
