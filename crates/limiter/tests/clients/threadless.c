/* A C library in which no thread can be started. */
#include <errno.h>
#include <pthread.h>

int pthread_create(pthread_t *thread, const pthread_attr_t *with, void *(*what)(void *), void *data) {
    (void)thread, (void)with, (void)what, (void)data;
    return EAGAIN;
}
