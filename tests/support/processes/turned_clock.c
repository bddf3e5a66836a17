/* A process's wall clock, turned by the ns that the file TURNED_CLOCK holds (8 bytes, shared).

   Only CLOCK_REALTIME and what is read from it; monotonic clocks and all waits stay as they are,
   as on a machine whose clock somebody sets. Preloaded into JVMs and Python alike (turned_clock.py).
   Debian's libfaketime does the same for Python, but a JVM under it all but stands still. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t second_ns = 1000000000;
static const volatile int64_t *turned_ns;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("TURNED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED) turned_ns = at;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_gettime) begin();
    int failed = real_gettime(clock, now);
    if (failed || !turned_ns || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t at_ns = now->tv_sec * second_ns + now->tv_nsec + *turned_ns;
    now->tv_sec = at_ns / second_ns;
    now->tv_nsec = at_ns % second_ns;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec at;
    int failed = clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *kept) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (kept) *kept = at.tv_sec;
    return at.tv_sec;
}
