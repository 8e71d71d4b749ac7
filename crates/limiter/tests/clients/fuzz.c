/* Calls the driver at random, with arguments that are right, stale, of a wrong kind, null or far too large.
 * The same numbers make the same calls.
 *
 *     fuzz SEED CALLS HOW FOLDER
 *
 * HOW is letters: t (threads), f (forks), x (becomes itself once more by exec), w (amounts of whole blocks
 * only), b (a line with the arguments before each call), g (things that are gone are not named again), l (every kernel is short and waited for, so that
 * nothing depends on time), q (says `quiet` and waits for a line whenever all threads have ended).
 * Each call is a line of FOLDER/calls: the function and the driver's code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fuzz_calls.h"

typedef uint64_t Word;
struct Token { char bytes[64]; };

#define EXTERN(name) extern int name() __attribute__((weak));
WITHOUT_DRIVER(EXTERN)

/* What there is of each kind (a small letter), the oldest making room. Threads share it. */
#define KEPT 12
static Word kept[26][KEPT];
static unsigned kept_next[26];
/* Handles for other processes, in a file that these share. */
#define TOKENS 16
static struct Token *tokens;
static int calls_file = -1;
static int all_weights, is_child, has_begun;
static const char *how, *folder;
static char code_file[512];

#define CODE ".entry k\n// hotpot-kernel k block_ns=20000\n.entry long\n// hotpot-kernel long block_ns=300000\n"

/* One thread's numbers, and room for what pointers lead to. */
struct Thread {
    Word numbers;
    int wide;
    Word room[12][40];
    Word host[512];
    unsigned calls;
};

/* splitmix64 */
static Word mixed(struct Thread *of) {
    Word mix = of->numbers += 0x9e3779b97f4a7c15u;
    mix = (mix ^ mix >> 30) * 0xbf58476d1ce4e5b9u;
    mix = (mix ^ mix >> 27) * 0x94d049bb133111ebu;
    return mix ^ mix >> 31;
}

static Word below(struct Thread *of, Word limit) { return mixed(of) % limit; }
static int is_how(char letter) { return strchr(how, letter) != NULL; }

#define PICK(of, list) (list)[below(of, sizeof(list) / sizeof((list)[0]))]

static void keep(char kind, Word handle) {
    unsigned at = __atomic_fetch_add(&kept_next[kind - 'a'], 1, __ATOMIC_RELAXED) % KEPT;
    Word before = __atomic_exchange_n(&kept[kind - 'a'][at], handle, __ATOMIC_RELAXED);
    if (kind == 'i' && before) close((int)before);
}

static void forget(char kind, Word handle) {
    for (int at = 0; at < KEPT; at++)
        if (__atomic_load_n(&kept[kind - 'a'][at], __ATOMIC_RELAXED) == handle)
            __atomic_store_n(&kept[kind - 'a'][at], 0, __ATOMIC_RELAXED);
}

/* A thing of a kind, mostly. */
static Word thing(struct Thread *of, char kind) {
    static const Word wrong[] = { 0, 7, 0x1234, ~(Word)0, (Word)1 << 63, 0x7ead0000000 };
    Word luck = below(of, 40);
    if (kind == 's' && luck < 8) return luck % 3;
    if (luck == 39) return PICK(of, wrong);
    if (luck == 38) kind = 'a' + below(of, 24);
    if (kind == 'i') kind = 's';
    Word found = 0, first = below(of, KEPT);
    for (int at = 0; at < KEPT && !found; at++)
        found = __atomic_load_n(&kept[kind - 'a'][(first + at) % KEPT], __ATOMIC_RELAXED);
    return found;
}

/* A descriptor, which is taken out: the driver may close it. */
static int descriptor(struct Thread *of) {
    Word *place = &kept['i' - 'a'][below(of, KEPT)];
    Word found = __atomic_exchange_n(place, 0, __ATOMIC_RELAXED);
    if (found) return (int)found;
    if (below(of, 3) == 0) return -1;
    int file = memfd_create("fuzz", MFD_CLOEXEC);
    return ftruncate(file, 2 << 20) ? -1 : file;
}

static Word bytes(struct Thread *of) {
    static const Word all[] = { 0, 1, 4096, 256 << 10, 1 << 20, 2 << 20, 3 << 20, 8 << 20, 33 << 20,
        64 << 20, (Word)1 << 30, (Word)1 << 40, ~(Word)0, (Word)1 << 63 };
    Word chosen = PICK(of, all);
    /* Small pieces share blocks, which the driver packs otherwise than the books do. */
    return is_how('w') && chosen > 0 && chosen < 1 << 20 ? 2 << 20 : chosen;
}

static Word length(struct Thread *of) {
    static const Word all[] = { 0, 1, 100, 1024, 1024, 2048, 4096, (Word)1 << 33, ~(Word)0 };
    Word chosen = PICK(of, all);
    return is_how('w') && chosen < 1024 ? 1024 : chosen;
}

/* Threads or blocks of a launch; with `wide` it is none that can be made. */
static Word side(struct Thread *of) {
    static const Word all[] = { 1, 1, 1, 2, 3, 8 }, none[] = { 0, 4096, 0x7fffffff, 0xffffffff };
    return of->wide ? PICK(of, none) : PICK(of, all);
}

/* Room for a description or an answer: aligned or not, or none. */
static void *room(struct Thread *of, int at) {
    memset(of->room[at], 0, sizeof of->room[at]);
    Word luck = below(of, 24);
    return luck == 0 ? NULL : (char *)of->room[at] + (luck == 1);
}

static Word stored(char *at, const void *what, size_t size) {
    if (at) memcpy(at, what, size);
    return (Word)(uintptr_t)at;
}

/* A description of a kind, in the driver's layout. */
static Word described(struct Thread *of, char kind, int at) {
    char *to = room(of, at);
    Word a = length(of), b = length(of), c = below(of, 3);
    Word device = below(of, 8) ? below(of, 2) : 77, place = below(of, 8) ? 1 : below(of, 8);
    switch (kind) {
    case '(': return stored(to, (Word[]){ a, b, 0x20 | (Word)1 << 32 }, 24);
    case ')': return stored(to, (Word[]){ a, b, c, 0x20 | (Word)4 << 32, 0 }, 40);
    case '[':
    case ']': return stored(to, (Word[]){ 1 | (Word)1 << 32, place | device << 32, 0, 0 }, 32);
    case '<': return stored(to, (Word[16]){ 1, place | device << 32, [13] = bytes(of) }, 128);
    case '}': return stored(to, (Word[8]){ 1, (unsigned)descriptor(of), 0, below(of, 3) ? 2 << 20 : bytes(of) }, 64);
    default:
        return stored(to, (Word[7]){ side(of) | side(of) << 32, side(of) | side(of) << 32,
            side(of) | side(of) << 32, 0, thing(of, 's'), 0, 0 }, 56);
    }
}

static Word text(struct Thread *of, char kind) {
    static const char *const functions[] = { "cuMemAlloc", "cuMemFree", "cuLaunchKernel", "cuGetProcAddress",
        "cuCtxCreate", "cuStreamBeginCapture", "cuNone", "", "cu", "cuGraphInstantiate", "cuMemAlloc_v2" };
    static const char *const kernels[] = { "k", "k", "k", "long", "none", "" };
    static const char *const files[] = { code_file, code_file, "/nowhere", "" };
    if (below(of, 30) == 0) return 0;
    if (kind == '"') return (Word)(uintptr_t)PICK(of, functions);
    if (kind == ':') return (Word)(uintptr_t)(is_how('l') ? "k" : PICK(of, kernels));
    return kind == '@' ? (Word)(uintptr_t)CODE : (Word)(uintptr_t)PICK(of, files);
}

static Word argument(struct Thread *of, char kind, int at) {
    static const Word versions[] = { 2000, 11020, 12000, 12000, 13050, 20000, 0, 0xffffffff };
    static const Word large = 1 << 30;
    if (kind >= '0' && kind <= '9') return kind - '0';
    switch (kind) {
    case 'b': return bytes(of);
    case 'u': return below(of, 6) ? 2 << 20 : bytes(of);
    case 'z': return below(of, 6) ? below(of, sizeof of->host) : ~(Word)0 >> below(of, 8);
    case 'j': return length(of);
    case 'd': return below(of, 8) ? below(of, 2) : below(of, 4) * 0x7fffffff;
    case 't': return below(of, 12) ? below(of, 3) : mixed(of) >> below(of, 60);
    case '!': return PICK(of, versions);
    case '^': return side(of);
    case 'i': return (unsigned)descriptor(of);
    case '=': return (Word)(uintptr_t)&large;
    case 'h': return below(of, 16) ? (Word)(uintptr_t)of->host : 0;
    case '\'': return stored(room(of, at), (Word[]){ below(of, 4) }, 8);
    case '+': of->room[at][0] = 40 | 2 << 24; return (Word)(uintptr_t)of->room[at];
    case '$': return stored(room(of, at), (Word[4]){ 0 }, 32);
    case '*': return (Word)(uintptr_t)room(of, at);
    case '"': case ':': case '@': case '/': return text(of, kind);
    case '(': case ')': case '[': case ']': case '<': case '{': case '}': return described(of, kind, at);
    case '%': return (Word)(uintptr_t)room(of, at);
    default: return kind >= 'A' && kind <= 'Z' ? (Word)(uintptr_t)room(of, at) : thing(of, kind);
    }
}

static int opened_by_value(struct Thread *of, int (*at)(), Word to) {
    struct Token token = tokens[below(of, TOKENS)];
    if (below(of, 8) == 0) token.bytes[below(of, 64)] ^= 1;
    return ((int (*)(Word, struct Token, unsigned))at)(to, token, below(of, 8) ? 1 : 0);
}

/* What a call has made is kept; what it has ended is forgotten, or named again. */
static void follow(struct Thread *of, const struct Entry *entry, const char *kinds, const Word *words, int code) {
    int ends = entry->arguments[0] == '-';
    for (int at = 0; kinds[at]; at++) {
        char kind = kinds[at];
        Word made = 0;
        if (kind >= 'A' && kind <= 'Z' && words[at]) {
            memcpy(&made, (void *)(uintptr_t)words[at], 8);
            if (!code && made) keep(kind - 'A' + 'a', made);
        } else if (kind == '<' && !code && words[at]) {
            memcpy(&made, (char *)(uintptr_t)words[at] + 112, 8);
            keep('a', made);
        } else if (kind == '%' && !code && !strcmp(entry->name, "cuIpcGetMemHandle")) {
            memcpy(&tokens[below(of, TOKENS)], (void *)(uintptr_t)words[at], 64);
        } else if (ends && kind >= 'a' && kind <= 'z' && !code && (is_how('g') || below(of, 2))) {
            forget(kind, words[at]);
            ends = 0;
        } else if (kind == 'i' && (int)words[at] > 2) {
            close((int)words[at]);
        } else if (kind == '}' && words[at] && code) {
            int file;
            memcpy(&file, (char *)(uintptr_t)words[at] + 8, 4);
            if (file > 2) close(file);
        }
    }
}

static void note(const char *name, int code) {
    char line[96];
    int length = snprintf(line, sizeof line, "%s %d\n", name, code);
    if (write(calls_file, line, length) != length) _exit(4);
}

/* Of what these do the books know less than the driver: imported memory is told apart by its size only, and
 * a heap that a limit makes is seen by the management library, which tells nothing here; not
 * in the books until it is mapped is a piece that one thread gives back while another imports it, nor what
 * a pool takes beyond what it is asked for while another thread destroys it. */
static int is_guessed(const char *name) {
    if (strstr(name, "ImportExternal") || strstr(name, "CtxSetLimit")) return 1;
    return is_how('t') && (strstr(name, "MemImport") || strstr(name, "PoolDestroy"));
}

static void call(struct Thread *of, struct Entry *entry) {
    const char *kinds = entry->arguments + (entry->arguments[0] == '-');
    Word word[12] = { 0 };
    of->wide = below(of, 12) == 0;
    for (int at = 0; kinds[at]; at++) word[at] = argument(of, kinds[at], at);
    /* The management library may be locked by a thread that a forked process has not. */
    if (!entry->at || (is_child && entry->arguments[0] == 'y')) return;
    if (is_how('w') && is_guessed(entry->name)) return;
    if (is_how('b')) {
        dprintf(calls_file, "before %s", entry->name);
        for (int at = 0; kinds[at]; at++) dprintf(calls_file, " %c=%llx", kinds[at], (unsigned long long)word[at]);
        dprintf(calls_file, "\n");
    }
    int code = strncmp(entry->name, "cuIpcOpen", 9) == 0 ? opened_by_value(of, entry->at, word[0])
        : entry->at(word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7], word[8], word[9],
                    word[10]);
    note(entry->name, code);
    for (int at = 0; is_how('b') && kinds[at]; at++)
        if (kinds[at] >= 'A' && kinds[at] <= 'Z' && word[at])
            dprintf(calls_file, "made %llx\n", *(unsigned long long *)(uintptr_t)word[at]);
    follow(of, entry, kinds, word, code);
}

static struct Entry *entry_of(const char *name) {
    for (int at = 0; at < ENTRIES; at++)
        if (!strcmp(entries[at].name, name)) return &entries[at];
    abort();
}

static void calls(struct Thread *of, unsigned count) {
    for (; count > 0; count--) {
        int at = 0, left = below(of, all_weights);
        while ((left -= entries[at].weight) >= 0) at++;
        call(of, &entries[at]);
        if (is_how('l') && (strstr(entries[at].name, "Launch") || strstr(entries[at].name, "Async")))
            entry_of("cuCtxSynchronize")->at();
    }
}

/* What most programs begin with; some seeds do not. */
static void open_up(struct Thread *of) {
    static const char *const first[] = { "cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuStreamCreate",
        "cuModuleLoadData", "cuModuleGetFunction", "cuMemPoolCreate", "cuGraphCreate", "cuMemAlloc_v2" };
    for (unsigned at = 0; at < 3 * sizeof first / sizeof first[0]; at++)
        call(of, entry_of(first[at % (sizeof first / sizeof first[0])]));
    /* A process that is forked while the driver begins would wait for a thread that it has not. */
    has_begun = 1;
}

/* A child that has no driver any more, and must end all the same. */
static void forked(struct Thread *of) {
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        is_child = 1;
        calls(of, 12);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status) fprintf(stderr, "the child ended with %x\n", status), _exit(5);
}

static void *thread(void *argument) {
    struct Thread *of = argument;
    call(of, entry_of("cuCtxSetCurrent"));
    for (unsigned done = 0; done < of->calls; done += 20) {
        calls(of, 20);
        if (is_how('f') && has_begun && below(of, 30) == 0) forked(of);
    }
    return NULL;
}

/* So many calls on one thread or several, which then end. */
static void round_of(struct Thread *of, unsigned count) {
    enum { THREADS = 4 };
    static struct Thread others[THREADS];
    pthread_t started[THREADS];
    of->calls = count;
    if (!is_how('t')) {
        thread(of);
        return;
    }
    for (int at = 0; at < THREADS; at++) {
        others[at].numbers = mixed(of);
        others[at].calls = count / THREADS;
        pthread_create(&started[at], NULL, thread, &others[at]);
    }
    for (int at = 0; at < THREADS; at++) pthread_join(started[at], NULL);
}

/* Finds all functions, and brings contexts and code into being so that most calls have what they need. */
static void begin(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *management = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!driver || !management) fprintf(stderr, "%s\n", dlerror()), exit(3);
    for (int at = 0; at < ENTRIES; at++) {
        struct Entry *entry = &entries[at];
        all_weights += entry->weight;
        void *library = strncmp(entry->name, "nvml", 4) ? driver : management;
        entry->at = (int (*)())dlsym(library, entry->name);
#define LINKED(function) if (!strcmp(entry->name, #function) && function) entry->at = function;
        WITHOUT_DRIVER(LINKED)
    }
    Word device = 0;
    if (((int (*)())dlsym(management, "nvmlInit_v2"))()) exit(3);
    ((int (*)())dlsym(management, "nvmlDeviceGetHandleByIndex_v2"))(0, &device);
    /* The simulated driver makes its table of names at the first look-up; a process that is forked meanwhile
     * would wait for it for ever. */
    void *found;
    ((int (*)())dlsym(driver, "cuGetProcAddress"))("cuInit", &found, 12000, (Word)0);
    keep('y', device);
}

int main(int count, char **arguments) {
    static struct Thread first;
    if (count < 5) return 2;
    unsigned left = strtoul(arguments[2], NULL, 0);
    first.numbers = strtoul(arguments[1], NULL, 0);
    how = arguments[3], folder = arguments[4];
    char path[600];
    snprintf(path, sizeof path, "%s/calls", folder);
    calls_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    snprintf(path, sizeof path, "%s/../tokens", folder);
    int shared = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (calls_file < 0 || ftruncate(shared, 4096)) return 3;
    tokens = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    snprintf(code_file, sizeof code_file, "%s/code", folder);
    FILE *code = fopen(code_file, "w");
    if (!code || fputs(CODE, code) < 0 || fclose(code)) return 3;
    begin();
    if (below(&first, 8)) open_up(&first);
    for (unsigned now; left > 0; left -= now) {
        now = left < 500 ? left : 500;
        round_of(&first, now);
        char line[8];
        if (is_how('q')) printf("quiet\n"), fflush(stdout);
        if (is_how('q') && !fgets(line, sizeof line, stdin)) return 4;
    }
    if (is_how('x')) {
        char seed[24], rest[24], *again = strdup(how);
        snprintf(seed, sizeof seed, "%lu", (unsigned long)mixed(&first));
        snprintf(rest, sizeof rest, "%u", 300);
        *strchr(again, 'x') = 'n';
        execl("/proc/self/exe", arguments[0], seed, rest, again, folder, (char *)NULL);
    }
    printf("done\n");
    return 0;
}
