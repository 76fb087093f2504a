/* test_pool.c - the compute pool: everybody runs once, barriers hold, what was written before one
 * is seen after it, and more threads than cores cost time but no collapse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "kernels/pool.h"

enum { THREADS_MAX = 8, ROUNDS = 500 };

struct shared {
    struct pool *pool;
    uint32_t runs[THREADS_MAX];     /* each thread its own, plain memory on purpose: a thread */
    uint32_t value[2][THREADS_MAX]; /* sanitizer sees a barrier that does not order */
    uint32_t wrong[THREADS_MAX], rounds;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void count_run(void *arg, uint32_t ith, uint32_t nth)
{
    struct shared *s = arg;
    s->runs[ith]++;
    if (nth != pool_threads(s->pool)) s->wrong[ith]++;
}

/* Each round everybody writes, then reads all others. Two halves, so that a round's reading and the
 * next one's writing do not meet. */
static void exchange(void *arg, uint32_t ith, uint32_t nth)
{
    struct shared *s = arg;
    for (uint32_t round = 0; round < s->rounds; round++) {
        uint32_t *value = s->value[round % 2];
        value[ith] = round * 31 + ith;
        pool_barrier(s->pool, ith);
        for (uint32_t i = 0; i < nth; i++)
            if (value[i] != round * 31 + i) s->wrong[ith]++;
    }
}

static void everybody_runs_once_a_run(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
        struct shared s = {.pool = pool_create(threads, 0)};
        assert_non_null(s.pool);
        assert_int_equal(pool_threads(s.pool), threads);
        for (uint32_t i = 0; i < 100; i++)
            pool_run(s.pool, count_run, &s);
        for (uint32_t i = 0; i < threads; i++) {
            assert_int_equal(s.runs[i], 100);
            assert_int_equal(s.wrong[i], 0);
        }
        pool_destroy(s.pool);
    }
}

static void barriers_order_memory(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= THREADS_MAX; threads++) {
        struct shared s = {.pool = pool_create(threads, threads == 3 ? 1 : 0), .rounds = ROUNDS};
        assert_non_null(s.pool);
        for (uint32_t i = 0; i < 3; i++)
            pool_run(s.pool, exchange, &s);
        for (uint32_t i = 0; i < threads; i++)
            assert_int_equal(s.wrong[i], 0);
        pool_destroy(s.pool);
    }
}

static void helpers_wake_after_sleep(void **state)
{
    (void)state;
    struct shared s = {.pool = pool_create(3, 1)};
    assert_non_null(s.pool);
    for (uint32_t i = 0; i < 20; i++) {
        struct timespec pause = {0, 2000000};
        (void)nanosleep(&pause, NULL);
        pool_run(s.pool, count_run, &s);
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(s.runs[i], 20);
    pool_destroy(s.pool);
}

static double barrier_ns(uint32_t threads, uint32_t spin_us)
{
    struct shared s = {.pool = pool_create(threads, spin_us), .rounds = 2000};
    assert_non_null(s.pool);
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < 5; i++) {
        uint64_t begin = now_ns();
        pool_run(s.pool, exchange, &s);
        uint64_t took = now_ns() - begin;
        best = took < best ? took : best;
    }
    pool_destroy(s.pool);
    return (double)best / s.rounds;
}

/* Spinners that hold the core which the last thread needs would cost a scheduler tick,
 * milliseconds, for each barrier. */
static void crowded_cores_do_not_collapse(void **state)
{
    (void)state;
    double two = barrier_ns(2, 0), crowd = barrier_ns(THREADS_MAX, 0);
    print_message("barrier: %.0f ns with 2 threads, %.0f ns with %d\n", two, crowd, THREADS_MAX);
    assert_true(crowd < 1e6);
}

static void refuses_impossible_sizes(void **state)
{
    (void)state;
    assert_null(pool_create(0, 0));
    assert_null(pool_create(POOL_THREADS_MAX + 1, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_runs_once_a_run),
        cmocka_unit_test(barriers_order_memory),
        cmocka_unit_test(helpers_wake_after_sleep),
        cmocka_unit_test(crowded_cores_do_not_collapse),
        cmocka_unit_test(refuses_impossible_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
