/* clock.h - the only door to time. Cores take now_ns as an argument; only shells call this. Any
 * thread. */
#ifndef PENSTOCK_COMMON_CLOCK_H
#define PENSTOCK_COMMON_CLOCK_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

uint64_t clock_now_ns(void);    /* CLOCK_MONOTONIC */
int64_t clock_wall_s(void);     /* seconds since 1970, for "created" and logs only */
uint64_t clock_thread_ns(void); /* CPU time of the calling thread */
/* 16 (or len) random bytes from the kernel; the only door to chance. CHECKs that the kernel gives
 * them. */
void clock_random(void *out, uint32_t len);

#endif
