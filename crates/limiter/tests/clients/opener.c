/* Opens a library that only its own RUNPATH leads to, and says what a function of it says. */
#include <dlfcn.h>

int opened(void) {
    void *library = dlopen("libprivate.so", RTLD_NOW);
    int (*answer)(void) = library ? dlsym(library, "answer") : 0;
    return answer ? answer() : -1;
}
