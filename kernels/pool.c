/* pool.c - the compute pool. Owns: its threads and two gates, nothing else. The creating thread is
 * number 0.
 *
 * A gate is a 32-bit generation that waiters watch: first with pause instructions, then yielding
 * the core to whoever wants it, for spin_ns in all, then on a futex. Sleeping early looks polite
 * and is ruinous: a core that idles is given to another thread, and waking up costs tens of
 * microseconds, at each of a hundred barriers (measured: 13 ms a step instead of 5 with a neighbour
 * on one of two cores). Who opens it pays for the system call only when somebody sleeps. The
 * `start` gate opens once a run; the `barrier` gate opens when the last of the threads has arrived,
 * and the end of a run is one more barrier. */
#include "kernels/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    CACHE_LINE = 64,
    SPIN_NS_FREE = 2000000, /* a core each: longer than whoever borrows one for a moment */
    SPIN_NS_CROWDED = 500,  /* fewer cores than threads: whom we wait for needs this very core */
    YIELD_NS = 3000, /* from then on, a thread that waits for our core gets it: it may be ours */
    PAUSES_PER_CLOCK = 32, /* between two looks at the clock */
};

struct gate {
    _Alignas(CACHE_LINE) _Atomic uint32_t generation;
    _Alignas(CACHE_LINE) _Atomic uint32_t sleepers;
};

struct pool {
    struct gate start, barrier;
    _Alignas(CACHE_LINE) _Atomic uint32_t arrived;
    _Alignas(CACHE_LINE) void (*fn)(void *arg, uint32_t ith, uint32_t nth);
    void *arg;
    _Atomic bool stop;
    uint32_t thread_count, started; /* helpers that exist: started - 1 */
    uint64_t spin_ns;
    struct helper {
        struct pool *pool;
        uint32_t ith;
        pthread_t thread;
    } helper[];
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    (void)syscall(SYS_futex, (uint32_t *)word, operation, value, NULL, NULL, 0);
}

static void gate_open(struct gate *g)
{
    /* sequentially consistent, as are the sleeper's two: either it sees the new generation, or we
     * see that it sleeps */
    atomic_fetch_add(&g->generation, 1);
    if (atomic_load(&g->sleepers) != 0) futex(&g->generation, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

static void gate_wait(struct gate *g, uint32_t old, uint64_t spin_ns)
{
    uint64_t begin_ns = 0;
    for (;;) {
        for (uint32_t i = 0; i < PAUSES_PER_CLOCK; i++) {
            if (atomic_load_explicit(&g->generation, memory_order_acquire) != old) return;
            __builtin_ia32_pause();
        }
        uint64_t now = now_ns();
        if (begin_ns == 0) begin_ns = now;
        if (now - begin_ns >= spin_ns) break;
        if (now - begin_ns >= YIELD_NS) (void)sched_yield();
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->generation) == old)
        futex(&g->generation, FUTEX_WAIT_PRIVATE, old);
    atomic_fetch_sub(&g->sleepers, 1);
}

void pool_barrier(struct pool *pool, uint32_t ith)
{
    (void)ith;
    if (pool->thread_count == 1) return;
    uint32_t old = atomic_load_explicit(&pool->barrier.generation, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == pool->thread_count) {
        /* nobody can arrive anew before the gate opens */
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        gate_open(&pool->barrier);
    } else {
        gate_wait(&pool->barrier, old, pool->spin_ns);
    }
}

static void *helper_main(void *arg)
{
    struct helper *self = arg;
    struct pool *pool = self->pool;
    for (uint32_t generation = 0;; generation++) {
        gate_wait(&pool->start, generation, pool->spin_ns);
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed)) return NULL;
        pool->fn(pool->arg, self->ith, pool->thread_count);
        pool_barrier(pool, self->ith);
    }
}

/* Cores that this process may use; 1 if the system does not say. */
static uint32_t cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

struct pool *pool_create(uint32_t thread_count, uint32_t spin_us)
{
    if (thread_count == 0 || thread_count > POOL_THREADS_MAX) return NULL;
    size_t bytes = sizeof(struct pool) + thread_count * sizeof(struct helper);
    bytes = (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    struct pool *pool = aligned_alloc(CACHE_LINE, bytes);
    if (pool == NULL) return NULL;
    *pool = (struct pool){.thread_count = thread_count, .started = 1};
    pool->spin_ns = thread_count > cores() ? SPIN_NS_CROWDED : SPIN_NS_FREE;
    if (spin_us != 0) pool->spin_ns = (uint64_t)spin_us * 1000;

    /* signals are for the threads that know what to do with them */
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 1; i < thread_count; i++) {
        pool->helper[i] = (struct helper){.pool = pool, .ith = i};
        if (pthread_create(&pool->helper[i].thread, NULL, helper_main, &pool->helper[i]) != 0)
            break;
        (void)pthread_setname_np(pool->helper[i].thread, "compute");
        pool->started++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->started == thread_count) return pool;
    pool_destroy(pool);
    return NULL;
}

void pool_destroy(struct pool *pool)
{
    atomic_store(&pool->stop, true);
    gate_open(&pool->start);
    for (uint32_t i = 1; i < pool->started; i++)
        (void)pthread_join(pool->helper[i].thread, NULL);
    free(pool);
}

uint32_t pool_threads(const struct pool *pool)
{
    return pool->thread_count;
}

void pool_run(struct pool *pool, void (*fn)(void *arg, uint32_t ith, uint32_t nth), void *arg)
{
    pool->fn = fn;
    pool->arg = arg;
    gate_open(&pool->start);
    fn(arg, 0, pool->thread_count);
    pool_barrier(pool, 0);
}
