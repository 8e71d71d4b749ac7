/* What programs rely on when they ask the loader: prints `42 next` if all is as without the limiter. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

/* Hides the C library's function from everybody but who asks for the next one. */
pid_t getppid(void) {
    return -7;
}

int main(int argc, char **argv) {
    void *opener = dlopen(argv[argc - 1], RTLD_NOW);
    int (*opened)(void) = opener ? dlsym(opener, "opened") : 0;
    pid_t (*next)(void) = dlsym(RTLD_NEXT, "getppid");
    printf("%d %s\n", opened ? opened() : -2, next && next() != -7 ? "next" : "own");
    return dlsym(RTLD_DEFAULT, "no_such_function") != 0 || dlerror() == 0;
}
