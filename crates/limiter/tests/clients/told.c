/* Does one thing of the driver's interface per line of its input, and answers with the code and a number.
 * `s`, `t` are slots in which addresses and handles are kept; amounts are bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef unsigned long long Word;
#define SLOTS 256
static Word slot[SLOTS], size[SLOTS];

static void *driver, *management;

/* By the way of the CUDA runtime: the name without version, for CUDA 12.4. */
static void *by_address(const char *name) {
    char base[128];
    void *at = NULL;
    int status = 0;
    int (*get)(const char *, void **, int, Word, int *) = dlsym(driver, "cuGetProcAddress_v2");
    snprintf(base, sizeof base, "%s", strcmp(name, "cuGraphInstantiateWithFlags") ? name : "cuGraphInstantiate");
    char *version = strstr(base, "_v");
    if (version) *version = 0;
    if (get(base, &at, 12040, 0, &status) || status) fprintf(stderr, "%s has no address\n", base), exit(3);
    return at;
}

static void *function(const char *name) {
    /* Functions that make contexts take other arguments in their newest forms. */
    if (!strncmp(name, "cu", 2) && strncmp(name, "cuCtx", 5) && getenv("TOLD_BY_ADDRESS")) return by_address(name);
    void *library = strncmp(name, "nvml", 4) ? driver : management;
    void *at = dlsym(library, name);
    if (!at) fprintf(stderr, "%s is not there\n", name), exit(3);
    return at;
}
/* The primary context. */
static void *context;

/* All arguments are words: integers and pointers are passed alike. */
#define CALL(name, ...) ((int (*)())function(name))(__VA_ARGS__)

struct Properties { int type, handles, location, id; void *meta; Word flags; };
struct PoolProperties { int type, handles, location, id; void *meta; Word most; char rest[56]; };
struct Shape3 { size_t width, height, depth; int format; unsigned channels, flags; };
struct Shape2 { size_t width, height; int format; unsigned channels; };
struct Node { struct PoolProperties pool; void *access; size_t accesses, bytes; Word at; };
struct Handle { char bytes[64]; };

static int begin(int ordinal, Word *number) {
    int device = 0;
    int code = CALL("cuInit", 0);
    if (!code) code = CALL("cuDeviceGet", &device, ordinal);
    if (!code) code = CALL("cuDevicePrimaryCtxRetain", &context, device);
    if (!code) code = CALL("cuCtxSetCurrent", context);
    *number = getpid();
    return code;
}

static int create(Word s, Word bytes, int location, int id) {
    struct Properties properties = { 1, 1, location, id, NULL, 0 };
    size[s] = bytes;
    return CALL("cuMemCreate", &slot[s], bytes, &properties, (Word)0);
}

static int map(Word s, Word t) {
    size[t] = size[s];
    int code = CALL("cuMemAddressReserve", &slot[t], size[t], (Word)0, (Word)0, (Word)0);
    return code ? code : CALL("cuMemMap", slot[t], size[t], (Word)0, slot[s], (Word)0);
}

static int make_pool(Word s) {
    struct PoolProperties properties = { .type = 1, .location = 1 };
    int code = CALL("cuMemPoolCreate", &slot[s], &properties);
    Word most = ~0ULL;
    return code ? code : CALL("cuMemPoolSetAttribute", slot[s], 4, &most);
}

/* A graph that allocates and frees, made ready to run. */
static int make_graph(Word s, Word bytes) {
    Word graph, first, last;
    struct Node node = { .pool = { .type = 1, .location = 1 }, .bytes = bytes };
    int code = CALL("cuGraphCreate", &graph, 0);
    if (!code) code = CALL("cuGraphAddMemAllocNode", &first, graph, NULL, (Word)0, &node);
    if (!code) code = CALL("cuGraphAddMemFreeNode", &last, graph, &first, (Word)1, node.at);
    /* A form with other arguments would take the flag for a place to write to. */
    Word flags = getenv("TOLD_BY_ADDRESS") ? 1 : 0;
    return code ? code : CALL("cuGraphInstantiateWithFlags", &slot[s], graph, flags);
}

/* Allocates in a stream that is recorded. */
static int capture(Word s, Word bytes) {
    Word stream, graph, at;
    int code = CALL("cuStreamCreate", &stream, 1);
    if (!code) code = CALL("cuStreamBeginCapture_v2", stream, 0);
    if (!code) code = CALL("cuMemAllocAsync", &at, bytes, stream);
    if (!code) code = CALL("cuMemFreeAsync", at, stream);
    if (!code) code = CALL("cuStreamEndCapture", stream, &graph);
    return code ? code : CALL("cuGraphInstantiateWithFlags", &slot[s], graph, (Word)0);
}

/* Records a launch, as programs do that run the same work again and again. */
static int record(void) {
    Word module, kernel, stream, graph, ns = 1000;
    void *parameters[] = { &ns };
    const char *image = ".entry k\n// hotpot-kernel k first_parameter_ns\n";
    int code = CALL("cuModuleLoadData", &module, image);
    if (!code) code = CALL("cuModuleGetFunction", &kernel, module, "k");
    if (!code) code = CALL("cuStreamCreate", &stream, 1);
    if (!code) code = CALL("cuStreamBeginCapture_v2", stream, 0);
    if (!code) code = CALL("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    return code ? code : CALL("cuStreamEndCapture", stream, &graph);
}

static int handle_file(Word s, const char *path, int write) {
    struct Handle handle = { { 0 } };
    int code = write ? CALL("cuIpcGetMemHandle", &handle, slot[s]) : 0;
    FILE *file = fopen(path, write ? "w" : "r");
    if (!file) return -1;
    size_t done = write ? fwrite(&handle, 64, 1, file) : fread(&handle, 64, 1, file);
    fclose(file);
    if (write || done != 1) return code;
    return ((int (*)(Word *, struct Handle, unsigned))function("cuIpcOpenMemHandle_v2"))(&slot[s], handle, 1);
}

/* A descriptor of another process: a piece of so many bytes. */
static int import_piece(Word s, int pid, int theirs, Word bytes) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, theirs);
    int file = open(path, O_RDWR);
    if (file < 0) return -1;
    size[s] = bytes;
    int code = CALL("cuMemImportFromShareableHandle", &slot[s], (void *)(Word)file, 1);
    close(file);
    return code;
}

/* What a child gets that was made by a process which had begun. */
static int forked(Word bytes, Word *number) {
    pid_t child = fork();
    if (child == 0) {
        Word at;
        int code = CALL("cuMemAlloc_v2", &at, bytes);
        _exit(code == 0 ? 0 : code == 3 ? 3 : 99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    *number = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    return 0;
}

/* Threads that each take and give back so many pieces of 8 MiB, some at a time. */
static void *worker(void *times) {
    Word held[8] = { 0 }, refused = 0;
    CALL("cuCtxSetCurrent", context);
    for (Word at = 0; at < (Word)times; at++) {
        Word *place = &held[at % 8];
        if (*place && CALL("cuMemFree_v2", *place)) return (void *)~0UL;
        *place = 0;
        int code = CALL("cuMemAlloc_v2", place, (Word)8 << 20);
        if (code) *place = 0, refused++;
        if (code && code != 2) return (void *)~0UL;
    }
    for (int at = 0; at < 8; at++)
        if (held[at] && CALL("cuMemFree_v2", held[at])) return (void *)~0UL;
    return (void *)refused;
}

static int threads(Word count, Word times, Word *number) {
    pthread_t started[16];
    for (Word at = 0; at < count % 17; at++) pthread_create(&started[at], NULL, worker, (void *)times);
    for (Word at = 0; at < count % 17; at++) {
        void *refused = NULL;
        pthread_join(started[at], &refused);
        if (refused == (void *)~0UL) return 999;
        *number += (Word)refused;
    }
    return 0;
}

static Word beside_slot;
static int beside_what, beside_over;

static void *beside_thread(void *unused) {
    Word at = 0;
    void *again = NULL;
    CALL("cuCtxSetCurrent", context);
    if (beside_what == 1) CALL("cuMemAllocAsync", &at, (Word)8 << 20, NULL);
    if (beside_what == 2) CALL("cuMemUnmap", slot[beside_slot], size[beside_slot]);
    if (beside_what == 3) CALL("cuDevicePrimaryCtxRetain", &again, 0);
    __atomic_store_n(&beside_over, 1, __ATOMIC_SEQ_CST);
    return unused;
}

/* While a thread is in a slow call, this one does something else: whether it was over first. */
static int beside(Word what, Word s, Word *number) {
    pthread_t thread;
    Word piece = 0, other = 0;
    struct Properties properties = { 1, 1, 1, 0, NULL, 0 };
    beside_what = (int)what, beside_slot = s, beside_over = 0;
    pthread_create(&thread, NULL, beside_thread, NULL);
    usleep(200000);
    int code = 0;
    if (what == 1) code = CALL("cuStreamSynchronize", NULL);
    if (what == 1 && !code) code = CALL("cuMemAlloc_v2", &other, (Word)4 << 20);
    if (what == 2) code = CALL("cuMemCreate", &piece, (Word)2 << 20, &properties, (Word)0);
    if (what == 3) code = CALL("cuCtxCreate_v2", &other, 0, 0);
    *number = !__atomic_load_n(&beside_over, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    return code;
}

static int of_gpu(const char *what, Word *number) {
    void *device = NULL;
    Word figures[5] = { 40 | 2 << 24 };
    int code = CALL("nvmlInit_v2");
    if (!code) code = CALL("nvmlDeviceGetHandleByIndex_v2", 0, &device);
    if (!strcmp(what, "v2")) {
        if (!code) code = CALL("nvmlDeviceGetMemoryInfo_v2", device, figures);
        *number = figures[4];
    } else {
        if (!code) code = CALL("nvmlDeviceGetMemoryInfo", device, figures);
        *number = !strcmp(what, "total") ? figures[0] : figures[2];
    }
    return code;
}

static void *in_driver(Word offset) {
    struct link_map *map = NULL;
    return dlinfo(driver, RTLD_DI_LINKMAP, &map) ? NULL : (void *)(map->l_addr + offset);
}

#define IS(name) (!strcmp(word, name))

static int done(const char *word, Word a, Word b, Word c, Word d, const char *text, Word *number) {
    size_t free = 0, total = 0, pitch = 0;
    Word s = a % SLOTS, t = b % SLOTS;
    if (IS("begin")) return begin((int)a, number);
    if (IS("become")) return execlp("sleep", "sleep", "60", NULL);
    if (IS("init")) return CALL("cuInit", 0);
    if (IS("release")) return CALL("cuDevicePrimaryCtxRelease_v2", 0);
    if (IS("reset")) return CALL("cuDevicePrimaryCtxReset_v2", 0);
    if (IS("retain")) return CALL("cuDevicePrimaryCtxRetain", &slot[s], 0);
    if (IS("green")) return CALL("cuGreenCtxCreate", &slot[s], NULL, 0, 1);
    if (IS("end-green")) return CALL("cuGreenCtxDestroy", slot[s]);
    if (IS("green-context")) return CALL("cuCtxFromGreenCtx", &slot[s], slot[t]);
    if (IS("heap")) return CALL("cuCtxSetLimit", 2, a);
    if (IS("detach")) return CALL("cuCtxDetach", slot[s]);
    if (IS("context")) return CALL("cuCtxCreate_v2", &slot[s], 0, 0);
    if (IS("end-context")) return CALL("cuCtxDestroy_v2", slot[s]);
    if (IS("current")) return CALL("cuCtxSetCurrent", slot[s]);
    if (IS("alloc")) return CALL("cuMemAlloc_v2", &slot[s], b);
    /* Past whoever stands before the driver: `c` is where the function lies in its file. */
    if (IS("unseen")) return ((int (*)())in_driver(c))(&slot[s], b);
    if (IS("unseen-free")) return ((int (*)())in_driver(c))(slot[s]);
    if (IS("alloc-pitch")) return CALL("cuMemAllocPitch_v2", &slot[s], &pitch, b, c, 4);
    if (IS("alloc-managed")) return CALL("cuMemAllocManaged", &slot[s], b, 1);
    if (IS("free")) return CALL("cuMemFree_v2", slot[s]);
    if (IS("alloc-async")) return CALL("cuMemAllocAsync", &slot[s], b, NULL);
    if (IS("alloc-pool")) return CALL("cuMemAllocFromPoolAsync", &slot[s], c, slot[t], NULL);
    if (IS("alloc-own")) return CALL("cuMemAllocAsync_ptsz", &slot[s], b, NULL);
    if (IS("default-pool")) {
        struct { int kind, id; } place = { 1, 0 };
        return CALL("cuMemGetDefaultMemPool", &slot[s], &place, 2);
    }
    if (IS("free-async")) return CALL("cuMemFreeAsync", slot[s], NULL);
    if (IS("pool")) return make_pool(s);
    if (IS("end-pool")) return CALL("cuMemPoolDestroy", slot[s]);
    if (IS("trim")) return CALL("cuMemPoolTrimTo", slot[s], b);
    if (IS("wait")) return CALL("cuStreamSynchronize", NULL);
    if (IS("create")) return create(s, b, (int)c, (int)d);
    if (IS("map")) return map(s, t);
    if (IS("unmap")) return CALL("cuMemUnmap", slot[s], size[s]);
    if (IS("end-piece")) return CALL("cuMemRelease", slot[s]);
    if (IS("again")) return CALL("cuMemRetainAllocationHandle", &slot[s], slot[t]);
    if (IS("array")) {
        struct Shape2 shape = { b, c, 1, 4 };
        return CALL("cuArrayCreate_v2", &slot[s], &shape);
    }
    if (IS("array-3d")) {
        struct Shape3 shape = { b, c, d, 1, 4, 0 };
        return CALL("cuArray3DCreate_v2", &slot[s], &shape);
    }
    if (IS("mipmapped")) {
        struct Shape3 shape = { b, c, 0, 1, 4, 0 };
        return CALL("cuMipmappedArrayCreate", &slot[s], &shape, (unsigned)d);
    }
    if (IS("end-array")) return CALL("cuArrayDestroy", slot[s]);
    if (IS("end-mipmapped")) return CALL("cuMipmappedArrayDestroy", slot[s]);
    if (IS("graph")) return make_graph(s, b);
    if (IS("capture")) return capture(s, b);
    if (IS("record")) return record();
    if (IS("launch")) return CALL("cuGraphLaunch", slot[s], NULL);
    if (IS("end-graph")) return CALL("cuGraphExecDestroy", slot[s]);
    if (IS("trim-graphs")) return CALL("cuDeviceGraphMemTrim", 0);
    if (IS("module")) return CALL("cuModuleLoadData", &slot[s], ".entry k\n// hotpot-kernel k block_ns=1\n");
    if (IS("end-module")) return CALL("cuModuleUnload", slot[s]);
    if (IS("export-piece")) {
        int file = -1;
        int code = CALL("cuMemExportToShareableHandle", &file, slot[s], 1, (Word)0);
        *number = file;
        return code;
    }
    if (IS("import-piece")) return import_piece(s, (int)b, (int)c, d);
    if (IS("export")) return handle_file(s, text, 1);
    if (IS("open")) return handle_file(s, text, 0);
    if (IS("close")) return CALL("cuIpcCloseMemHandle", slot[s]);
    if (IS("beside")) return beside(a, t, number);
    if (IS("threads")) return threads(a, b, number);
    if (IS("fork")) return forked(a, number);
    if (IS("nvml")) return of_gpu(text, number);
    if (IS("free-memory") || IS("all-memory")) {
        int code = CALL("cuMemGetInfo_v2", &free, &total);
        *number = IS("free-memory") ? free : total;
        return code;
    }
    if (IS("total-memory")) {
        int code = CALL("cuDeviceTotalMem_v2", &total, 0);
        *number = total;
        return code;
    }
    fprintf(stderr, "what is `%s`?\n", word);
    exit(3);
}

int main(void) {
    char line[512], word[64], text[256];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    management = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!driver || !management) return fprintf(stderr, "%s\n", dlerror()), 3;
    while (fgets(line, sizeof line, stdin)) {
        Word a = 0, b = 0, c = 0, d = 0, number = 0;
        text[0] = 0;
        sscanf(line, "%63s %llu %llu %llu %llu", word, &a, &b, &c, &d);
        /* A text follows the first number, or stands in its place. */
        if (sscanf(line, "%*s %*u %255s", text) != 1) sscanf(line, "%*s %255s", text);
        int code = done(word, a, b, c, d, text, &number);
        printf("%d %llu\n", code, number);
        fflush(stdout);
    }
    return 0;
}
