/* Ends things while the limiter may be asking about them, and launches where it cannot ask.
 *
 * ends MS HOW   for MS ms; HOW:
 *   streams     a stream is destroyed right after a launch, while others have work too
 *   contexts    a context is destroyed with work in it, while another thread launches in another one
 *   graphs      a graph that can be launched is destroyed after each launch
 *   paced       a short kernel ten times a second; prints the longest launch of the second half in us
 *   long        one kernel that runs for MS; prints `runs` once it has been launched
 *   several     floods by the launch that is for several GPUs
 *   leaky       loses recordings in three ways, then floods
 * Says nothing else if all goes well. */
#include "client.h"

static int device;
static Word end;

static void *load(void) {
    void *module, *kernel;
    must(CALL("cuModuleLoadData", &module, image), "module");
    must(CALL("cuModuleGetFunction", &kernel, module, "spin"), "kernel");
    return kernel;
}

static void launch(void *kernel, void *stream, Word ns) {
    void *parameters[] = { &ns };
    must(CALL("cuLaunchKernel", kernel, 64, 1, 1, 256, 1, 1, 0, stream, parameters, NULL), "launch");
}

static void *new_stream(void) {
    void *stream;
    must(CALL("cuStreamCreate", &stream, 1), "stream");
    return stream;
}

static void *flood(void *kernel) {
    void *context = NULL;
    if (!kernel) {
        must(CALL("cuDevicePrimaryCtxRetain", &context, device), "primary");
        must(CALL("cuCtxSetCurrent", context), "current");
        kernel = load();
    }
    void *stream = new_stream();
    while (now() < end) launch(kernel, stream, 100000);
    must(CALL("cuStreamSynchronize", stream), "wait");
    return NULL;
}

static void streams(void *kernel) {
    void *other = new_stream();
    for (Word times = 0; now() < end; times++) {
        void *stream = new_stream();
        launch(kernel, other, 200000);
        launch(kernel, stream, 20000 + times % 7 * 1000);
        if (times % 5 == 0) usleep(700);
        must(CALL("cuStreamDestroy_v2", stream), "destroy");
        if (times % 16 == 0) must(CALL("cuStreamSynchronize", other), "wait");
    }
}

static void contexts(void) {
    pthread_t flooding;
    pthread_create(&flooding, NULL, flood, NULL);
    while (now() < end) {
        void *context;
        must(CALL("cuCtxCreate_v2", &context, 0, device), "context");
        void *kernel = load();
        for (int at = 0; at < 20; at++) launch(kernel, at % 2 ? NULL : new_stream(), 50000);
        must(CALL("cuCtxDestroy_v2", context), "destroy");
    }
    pthread_join(flooding, NULL);
}

static void *recorded(void *kernel, void *stream) {
    void *graph, *exec;
    must(CALL("cuStreamBeginCapture_v2", stream, 0), "begin capture");
    for (int node = 0; node < 5; node++) launch(kernel, stream, 50000);
    must(CALL("cuStreamEndCapture", stream, &graph), "end capture");
    must(CALL("cuGraphInstantiateWithFlags", &exec, graph, (Word)0), "instantiate");
    must(CALL("cuGraphDestroy", graph), "destroy");
    return exec;
}

static void graphs(void *kernel) {
    void *stream = new_stream();
    while (now() < end) {
        void *exec = recorded(kernel, stream);
        must(CALL("cuGraphLaunch", exec, stream), "launch");
        must(CALL("cuGraphExecDestroy", exec), "destroy");
    }
}

static void paced(void *kernel, Word begin) {
    void *stream = new_stream();
    Word longest = 0;
    while (now() < end) {
        Word before = now();
        launch(kernel, stream, 1000);
        Word took = now() - before;
        if (now() - begin > (end - begin) / 2 && took > longest) longest = took;
        usleep(100000);
    }
    printf("%llu\n", longest / 1000);
}

static void several(void *kernel) {
    Word ns = 200000;
    void *parameters[] = { &ns };
    struct {
        void *function;
        unsigned grid[3], block[3], shared;
        void *stream, **parameters;
    } list = { kernel, { 8, 1, 1 }, { 32, 1, 1 }, 0, new_stream(), parameters };
    while (now() < end) must(CALL("cuLaunchCooperativeKernelMultiDevice", &list, 1, 0), "launch");
    must(CALL("cuStreamSynchronize", list.stream), "wait");
}

static void leaky(void *kernel) {
    void *context, *graph, *before = NULL;
    must(CALL("cuCtxGetCurrent", &before), "current");
    /* By two names of one stream. */
    must(CALL("cuStreamBeginCapture_v2_ptsz", NULL, 0), "begin capture");
    must(CALL("cuStreamEndCapture", (void *)2, &graph), "end capture");
    must(CALL("cuCtxCreate_v2", &context, 0, device), "context");
    must(CALL("cuStreamBeginCapture_v2", new_stream(), 0), "begin capture");
    must(CALL("cuCtxDestroy_v2", context), "destroy");
    must(CALL("cuCtxSetCurrent", before), "current");
    void *stream = new_stream();
    must(CALL("cuStreamBeginCapture_v2", stream, 0), "begin capture");
    must(CALL("cuStreamDestroy_v2", stream), "destroy");
    flood(kernel);
}

int main(int count, char **words) {
    if (count < 3) return 2;
    Word ms = strtoull(words[1], NULL, 10);
    const char *how = words[2];
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *context, *kernel;
    must(CALL("cuInit", 0), "init");
    must(CALL("cuDeviceGet", &device, 0), "device");
    must(CALL("cuDevicePrimaryCtxRetain", &context, device), "context");
    must(CALL("cuCtxSetCurrent", context), "current");
    kernel = load();
    Word begin = now();
    end = begin + ms * 1000000;
    if (!strcmp(how, "streams")) streams(kernel);
    else if (!strcmp(how, "contexts")) contexts();
    else if (!strcmp(how, "graphs")) graphs(kernel);
    else if (!strcmp(how, "paced")) paced(kernel, begin);
    else if (!strcmp(how, "several")) several(kernel);
    else if (!strcmp(how, "leaky")) leaky(kernel);
    else if (!strcmp(how, "long")) {
        void *stream = new_stream();
        launch(kernel, stream, ms * 1000000);
        puts("runs");
        fflush(stdout);
        must(CALL("cuStreamSynchronize", stream), "wait");
    } else return 2;
    fflush(stdout);
    return 0;
}
