#include "common/clock.h"

#include "common/err.h"

#include <sys/random.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts;
    CHECK(clock_gettime(id, &ts) == 0);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_wall_s(void)
{
    return (int64_t)(read_clock(CLOCK_REALTIME) / NS_PER_S);
}

uint64_t clock_thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void clock_random(void *out, uint32_t len)
{
    uint8_t *at = out;
    while (len > 0) {
        ssize_t n = getrandom(at, len, 0);
        CHECK(n > 0);
        at += n;
        len -= (uint32_t)n;
    }
}
