/* pool.h - the compute pool: nth threads (the caller is number 0) that run one function together,
 * with barriers inside. Waiting spins for a bounded time and then sleeps on a futex, so that the
 * pool does not collapse when cores are shared with other processes; between runs the helpers spin
 * briefly (a decode step follows soon), then sleep. */
#ifndef PENSTOCK_KERNELS_POOL_H
#define PENSTOCK_KERNELS_POOL_H

#include <stdint.h>

enum { POOL_THREADS_MAX = 256 };

struct pool;

/* thread_count >= 1 including the caller. spin_us: how long a waiter spins before it sleeps (0: a
 * sensible default, less when the machine has fewer cores than threads). NULL when threads cannot
 * be had. */
struct pool *pool_create(uint32_t thread_count, uint32_t spin_us);
void pool_destroy(struct pool *pool);
uint32_t pool_threads(const struct pool *pool);
/* Runs fn(arg, ith, nth) on all threads; returns when all are done. Only the creating thread calls
 * it. No allocation. */
void pool_run(struct pool *pool, void (*fn)(void *arg, uint32_t ith, uint32_t nth), void *arg);
/* Inside fn only, by every thread: all have arrived, and what they wrote before is seen after. */
void pool_barrier(struct pool *pool, uint32_t ith);

#endif
