/* What clients have in common that launch kernels which take as long as they are told. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long Word;
static void *driver;
#define CALL(name, ...) ((int (*)())function(name))(__VA_ARGS__)

static void *function(const char *name) {
    void *at = dlsym(driver, name);
    if (!at) fprintf(stderr, "%s is not there\n", name), exit(3);
    return at;
}

static void must(int code, const char *what) {
    if (code) fprintf(stderr, "%s: %d\n", what, code), exit(4);
}

static Word now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static const char *image =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    "// hotpot-kernel spin first_parameter_ns\n"
    ".visible .entry spin(.param .u64 ns) { ret; }\n";
