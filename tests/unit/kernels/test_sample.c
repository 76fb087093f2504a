/* test_sample.c - the sampling kernels: Philox against published vectors, each instruction set
 * against the plain twin, and the Gumbel sampler against softmax. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/sample.h"

enum { N_MAX = 5000 };

static uint64_t seed = 5;
static uint32_t dice(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}
static float uniform(void)
{
    return (float)dice(1 << 24) / (1 << 23) - 1.0f;
}

/* kat_vectors of the Random123 distribution, philox2x32 10 */
static void philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[2], key, want[2];
    } known[] = {
        {{0, 0}, 0, {0xff1dae59, 0x6cd10df2}},
        {{0xffffffff, 0xffffffff}, 0xffffffff, {0x2c3f628b, 0xab4fd7ad}},
        {{0x243f6a88, 0x85a308d3}, 0x13198a2e, {0xdd7ce038, 0xf62a4c12}},
    };
    for (uint32_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t counter[2] = {known[i].counter[0], known[i].counter[1]};
        philox2x32(counter, known[i].key);
        assert_int_equal(counter[0], known[i].want[0]);
        assert_int_equal(counter[1], known[i].want[1]);
    }
}

static void each_isa_like_plain(void **state)
{
    (void)state;
    const struct cpu_ops *plain = cpu_ops_get(ISA_PLAIN);
    static float logits[N_MAX];
    static uint32_t want[N_MAX], got[N_MAX];
    for (int isa = ISA_AVX2; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        for (uint32_t round = 0; round < 300; round++) {
            uint32_t n = round < 40 ? round + 1 : 1 + dice(N_MAX), a, b;
            for (uint32_t i = 0; i < n; i++)
                logits[i] = dice(20) == 0 ? -INFINITY : (float)dice(300) * 0.1f + uniform() * 0.01f;
            if (dice(3) == 0) logits[dice(n)] = logits[dice(n)]; /* ties */
            float max_a = 0, max_b = 0, floor = dice(4) == 0 ? -INFINITY : (float)dice(30);
            assert_true(plain->row_max(logits, n, &max_a, &a));
            assert_true(ops->row_max(logits, n, &max_b, &b));
            assert_true(max_a == max_b);
            assert_int_equal(a, b);
            if (max_a > -INFINITY) {
                float inverse = 0.3f + (float)dice(20) * 0.1f;
                float sum_a = plain->row_exp_sum(logits, n, max_a, inverse);
                float sum_b = ops->row_exp_sum(logits, n, max_a, inverse);
                assert_true(fabsf(sum_a - sum_b) <= 2e-6f * sum_a);
            }
            a = plain->row_above(logits, n, floor, want, n / 2);
            b = ops->row_above(logits, n, floor, got, n / 2);
            assert_int_equal(a, b);
            assert_memory_equal(want, got, (a < n / 2 ? a : n / 2) * sizeof(uint32_t));
            uint64_t key = (uint64_t)dice(1u << 31) << 32 | dice(1u << 31);
            a = plain->row_gumbel_argmax(logits, n, 0.7f, floor, key);
            b = ops->row_gumbel_argmax(logits, n, 0.7f, floor, key);
            assert_int_equal(a, b);
        }
    }
}

static void bad_logits_are_seen(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        for (uint32_t n = 1; n < 70; n++) {
            float logits[70] = {0}, max;
            uint32_t index;
            for (uint32_t i = 0; i < n; i++) {
                logits[i] = NAN;
                assert_false(ops->row_max(logits, n, &max, &index));
                logits[i] = INFINITY;
                assert_false(ops->row_max(logits, n, &max, &index));
                logits[i] = -INFINITY;
            }
            assert_true(ops->row_max(logits, n, &max, &index));
            assert_true(max == -INFINITY && index == 0);
        }
    }
}

/* The share of each index among many keys is its softmax. The
 * statistic has 39 degrees of freedom; 85 is exceeded with probability 3e-5, and keys are fixed. */
static void gumbel_draws_from_softmax(void **state)
{
    (void)state;
    enum { N = 40, DRAWS = 40000 };
    float logits[N];
    double p[N], sum = 0;
    for (uint32_t i = 0; i < N; i++) {
        logits[i] = uniform() * 2;
        p[i] = exp((double)logits[i] / 0.8);
        sum += p[i];
    }
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        uint32_t seen[N] = {0};
        for (uint64_t draw = 0; draw < DRAWS; draw++)
            seen[ops->row_gumbel_argmax(logits, N, 1.25f, -INFINITY, draw << 31 | 77)]++;
        double chi2 = 0;
        for (uint32_t i = 0; i < N; i++) {
            double want = p[i] / sum * DRAWS;
            chi2 += ((double)seen[i] - want) * ((double)seen[i] - want) / want;
        }
        assert_true(chi2 < 85);
    }
}

static double gumbel(uint64_t key, uint32_t i)
{
    uint32_t word[2] = {i, (uint32_t)(key >> 32)};
    philox2x32(word, (uint32_t)key);
    return -log(-log(((double)word[0] + 0.5) * 0x1p-32));
}

/* The largest Gumbel numbers come from u next to 1, where float32 has steps as wide as 1 - u
 * itself. Two indexes, the second's logit 0.02 short of, or above, a draw: the better one must win.
 */
static void gumbel_has_its_tail(void **state)
{
    (void)state;
    uint32_t found = 0;
    for (uint64_t key = 1; found < 10; key++) {
        double rare = gumbel(key, 3), other = gumbel(key, 20);
        if (rare < 14.5) continue; /* one of two million */
        found++;
        for (int isa = 0; isa < ISA_COUNT_; isa++) {
            const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
            if (ops == NULL) continue;
            float logits[21];
            for (uint32_t i = 0; i < 21; i++)
                logits[i] = -INFINITY;
            logits[3] = 0;
            logits[20] = (float)(rare - other - 0.02);
            assert_int_equal(ops->row_gumbel_argmax(logits, 21, 1, -1000, key), 3);
            logits[20] = (float)(rare - other + 0.02);
            assert_int_equal(ops->row_gumbel_argmax(logits, 21, 1, -1000, key), 20);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers), cmocka_unit_test(each_isa_like_plain),
        cmocka_unit_test(bad_logits_are_seen),  cmocka_unit_test(gumbel_draws_from_softmax),
        cmocka_unit_test(gumbel_has_its_tail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
