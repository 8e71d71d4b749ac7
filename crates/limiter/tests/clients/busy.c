/* Launches kernels for a while.
 *
 * busy MS NS HOW   kernels of NS each for MS; HOW: `flood` without waiting, `wait` for each one, `graph` a
 *                  recorded graph of ten of them at a time, `record` floods while another thread records
 *                  graphs, which must not be spoilt, `copy` fetches results, `bare` prints the median of a launch in ns.
 * Prints the number of launches. */
#include "client.h"

static int order(const void *a, const void *b) {
    Word x = *(const Word *)a, y = *(const Word *)b;
    return (x > y) - (x < y);
}

static void *context, *kernel;
static volatile int over;

/* Records and makes ready again and again, in the mode that minds what other threads do. */
static void *record(void *unused) {
    void *stream, *graph, *exec;
    Word ns = 1000, times = 0;
    void *parameters[] = { &ns };
    must(CALL("cuCtxSetCurrent", context), "current");
    must(CALL("cuStreamCreate", &stream, 1), "stream");
    for (; !over; times++) {
        must(CALL("cuStreamBeginCapture_v2", stream, 0), "begin capture");
        for (int node = 0; node < 5; node++) {
            must(CALL("cuLaunchKernel", kernel, 8, 1, 1, 32, 1, 1, 0, stream, parameters, NULL),
                 "launch into a capture");
            usleep(300);
        }
        must(CALL("cuStreamEndCapture", stream, &graph), "end capture");
        must(CALL("cuGraphInstantiateWithFlags", &exec, graph, (Word)0), "instantiate");
        must(CALL("cuGraphExecDestroy", exec), "destroy");
        must(CALL("cuGraphDestroy", graph), "destroy");
        usleep(500);
    }
    if (times < 20) fprintf(stderr, "only %llu recordings\n", times), exit(5);
    return unused;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    Word end = strtoull(words[1], NULL, 10) * 1000000, ns = strtoull(words[2], NULL, 10);
    const char *how = words[3];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *module, *stream, *graph = NULL, *exec = NULL;
    int device;
    must(CALL("cuInit", 0), "init");
    must(CALL("cuDeviceGet", &device, 0), "device");
    must(CALL("cuDevicePrimaryCtxRetain", &context, device), "context");
    must(CALL("cuCtxSetCurrent", context), "current");
    must(CALL("cuModuleLoadData", &module, image), "module");
    must(CALL("cuModuleGetFunction", &kernel, module, "spin"), "kernel");
    if (!strcmp(how, "copy")) stream = NULL;
    else must(CALL("cuStreamCreate", &stream, 1), "stream");
    void *parameters[] = { &ns };
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                  void *, void **, void **) = function("cuLaunchKernel");
    int (*wait)(void *) = function("cuStreamSynchronize");
    int (*run)(void *, void *) = function("cuGraphLaunch");
#define LAUNCH() must(launch(kernel, 1024, 1, 1, 256, 1, 1, 0, stream, parameters, NULL), "launch")
    int graphs = !strcmp(how, "graph"), waits = !strcmp(how, "wait"), bare = !strcmp(how, "bare");
    if (graphs) {
        must(CALL("cuStreamBeginCapture_v2", stream, 0), "begin capture");
        for (int node = 0; node < 10; node++) LAUNCH();
        must(CALL("cuStreamEndCapture", stream, &graph), "end capture");
        must(CALL("cuGraphInstantiateWithFlags", &exec, graph, (Word)0), "instantiate");
    }
    Word launches = 0, begin = now();
    if (bare) {
        enum { TIMES = 20000 };
        static Word took[TIMES];
        for (int at = 0; at < TIMES; at++) {
            Word before = now();
            LAUNCH();
            took[at] = now() - before;
            if (at % 50 == 49) must(wait(stream), "wait");
        }
        qsort(took, TIMES, sizeof *took, order);
        printf("%llu %llu\n", took[TIMES / 2], took[TIMES * 99 / 100]);
        return 0;
    }
    pthread_t recorder;
    int records = !strcmp(how, "record"), copies = !strcmp(how, "copy");
    Word memory, result;
    if (records) pthread_create(&recorder, NULL, record, NULL);
    if (copies) must(CALL("cuMemAlloc_v2", &memory, (Word)8), "memory");
    while (now() - begin < end) {
        if (graphs) must(run(exec, stream), "run"), launches += 10;
        else LAUNCH(), launches++;
        if (waits) must(wait(stream), "wait");
        if (copies) must(CALL("cuMemcpyDtoH_v2", &result, memory, (Word)8), "copy");
    }
    over = 1;
    if (records) pthread_join(recorder, NULL);
    printf("%llu\n", launches);
    fflush(stdout);
    return 0;
}
