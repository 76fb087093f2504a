/* test_rope.c - rope_store: norm, rotation and the cache's formats against float64, on each
 * instruction set; slots are written where they should be and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/kv.h"

enum { ROWS = 5, BLOCKS = 3, POSITIONS = 50 };

static uint64_t seed = 9;
static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((seed >> 33) % (1 << 24)) / (1 << 23) - 1.0f;
}

struct shape {
    uint32_t kv_heads, group, head_dim, rope_dim;
    bool norm;
    enum kv_type type;
};
static const uint32_t position[ROWS] = {0, 1, 49, 17, 30};
static const uint32_t slot[ROWS] = {2 * 16 + 15, 0, 16 + 3, 2 * 16, 7};

struct data {
    float *q, *k, *v, *rope, *norm; /* rows padded by 8 */
    uint32_t q_stride, kv_stride;
};

static float *random_floats(size_t n)
{
    float *x = malloc(n * sizeof(float));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = uniform() * 3;
    return x;
}
static struct data data_make(const struct shape *s)
{
    struct data d = {.q_stride = s->kv_heads * s->group * s->head_dim + 8,
                     .kv_stride = s->kv_heads * s->head_dim + 8};
    d.q = random_floats((size_t)ROWS * d.q_stride);
    d.k = random_floats((size_t)ROWS * d.kv_stride);
    d.v = random_floats((size_t)ROWS * d.kv_stride);
    d.norm = random_floats(s->head_dim);
    d.rope = random_floats((size_t)POSITIONS * s->rope_dim);
    return d;
}
static void data_free(struct data *d)
{
    free(d->q);
    free(d->k);
    free(d->v);
    free(d->rope);
    free(d->norm);
}

static void head_reference(const struct shape *s, const struct data *d, uint32_t row,
                           const float *x, double *out)
{
    double factor = 1, sum = 0;
    for (uint32_t i = 0; i < s->head_dim; i++)
        sum += (double)x[i] * (double)x[i];
    if (s->norm) factor = 1 / sqrt(sum / s->head_dim + 1e-6);
    for (uint32_t i = 0; i < s->head_dim; i++)
        out[i] = (double)x[i] * (s->norm ? factor * (double)d->norm[i] : 1);
    const float *table = d->rope + (size_t)position[row] * s->rope_dim;
    uint32_t half = s->rope_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double c = (double)table[2 * i], n = (double)table[2 * i + 1], a = out[i],
               b = out[i + half];
        out[i] = a * c - b * n;
        out[i + half] = b * c + a * n;
    }
}

/* What may differ between x and what the cache gives back. */
static double tolerance(enum kv_type type, const double *x, uint32_t n)
{
    double amax = 0;
    for (uint32_t i = 0; i < n; i++)
        amax = fmax(amax, fabs(x[i]));
    return type == KV_F32 ? 4e-6 * amax : type == KV_F16 ? amax / 2048 * 1.01 : amax / 254 * 1.15;
}

static void check_head(const struct shape *s, const struct kv_layer *kv, uint32_t row,
                       uint32_t head, uint32_t side, const double *want)
{
    double limit = tolerance(s->type, want, s->head_dim);
    for (uint32_t i = 0; i < s->head_dim; i++) {
        double got = (double)kv_get(kv, slot[row] / 16, side, head, slot[row] % 16, i);
        assert_true(fabs(got - want[i]) <= limit);
    }
}

static void check(const struct cpu_ops *ops, const struct shape *s)
{
    struct data d = data_make(s);
    size_t q_bytes = (size_t)ROWS * d.q_stride * sizeof(float);
    size_t k_bytes = (size_t)ROWS * d.kv_stride * sizeof(float);
    float *q = malloc(q_bytes), *k = malloc(k_bytes);
    memcpy(q, d.q, q_bytes);
    memcpy(k, d.k, k_bytes);
    struct kv_layer kv = {.type = s->type, .kv_heads = s->kv_heads, .head_dim = s->head_dim};
    kv.block_bytes = kv_block_bytes(s->type, s->kv_heads, s->head_dim);
    kv.data = aligned_alloc(64, kv.block_bytes * BLOCKS);
    memset(kv.data, 0, kv.block_bytes * BLOCKS);
    struct op_rope_store op = {
        .q = q,
        .k = k,
        .v = d.v,
        .q_stride = d.q_stride,
        .kv_stride = d.kv_stride,
        .q_norm = s->norm ? d.norm : NULL,
        .k_norm = s->norm ? d.norm : NULL,
        .norm_eps = 1e-6f,
        .rope = d.rope,
        .rope_dim = s->rope_dim,
        .position = position,
        .slot = slot,
        .kv = kv,
        .rows = ROWS,
        .q_heads = s->kv_heads * s->group,
    };
    for (uint32_t i = 0; i < 3; i++)
        ops->rope_store(&op, i, 3);
    double want[256];
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t h = 0; h < op.q_heads; h++) {
            size_t at = (size_t)r * d.q_stride + (size_t)h * s->head_dim;
            head_reference(s, &d, r, d.q + at, want);
            double limit = tolerance(KV_F32, want, s->head_dim);
            for (uint32_t i = 0; i < s->head_dim; i++)
                assert_true(fabs((double)q[at + i] - want[i]) <= limit);
        }
        for (uint32_t h = 0; h < s->kv_heads; h++) {
            size_t at = (size_t)r * d.kv_stride + (size_t)h * s->head_dim;
            head_reference(s, &d, r, d.k + at, want);
            check_head(s, &kv, r, h, 0, want);
            for (uint32_t i = 0; i < s->head_dim; i++)
                want[i] = (double)d.v[at + i];
            check_head(s, &kv, r, h, 1, want);
        }
        /* the padding behind a row is not q's */
        assert_memory_equal(q + (size_t)(r + 1) * d.q_stride - 8,
                            d.q + (size_t)(r + 1) * d.q_stride - 8, 8 * sizeof(float));
    }
    for (uint32_t side = 0; side < 2; side++) /* a slot that nobody named */
        for (uint32_t i = 0; i < s->head_dim; i++)
            assert_true(kv_get(&kv, 1, side, s->kv_heads - 1, 4, i) == 0);
    free(kv.data);
    free(q);
    free(k);
    data_free(&d);
}

static void matches_float64(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        for (int type = KV_F16; type <= KV_F32; type++) {
            const struct shape shapes[] = {
                {3, 3, 64, 64, false, (enum kv_type)type},
                {2, 4, 128, 128, true, (enum kv_type)type},
                {1, 1, 80, 32, false, (enum kv_type)type},
                {2, 2, 24, 24, true, (enum kv_type)type},
                {1, 7, 72, 70, true, (enum kv_type)type},
            };
            for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                check(ops, &shapes[i]);
        }
    }
}

/* What cannot be held in 8 bits becomes NaN, not a plausible number; zeros stay zeros. */
static void int8_keeps_failures_visible(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        struct kv_layer kv = {.type = KV_Q8, .kv_heads = 1, .head_dim = 32};
        kv.block_bytes = kv_block_bytes(KV_Q8, 1, 32);
        kv.data = aligned_alloc(64, kv.block_bytes);
        float q[32] = {0}, k[32] = {0}, v[32] = {0}, rope[32];
        for (uint32_t i = 0; i < 32; i++)
            rope[i] = i % 2 ? 0.0f : 1.0f;
        const uint32_t zero = 0;
        struct op_rope_store op = {.q = q,
                                   .k = k,
                                   .v = v,
                                   .rope = rope,
                                   .rope_dim = 32,
                                   .position = &zero,
                                   .slot = &zero,
                                   .kv = kv,
                                   .rows = 1,
                                   .q_heads = 1};
        v[20] = NAN;
        ops->rope_store(&op, 0, 1);
        assert_true(kv_get(&kv, 0, 0, 0, 0, 5) == 0);
        assert_true(isnan(kv_get(&kv, 0, 1, 0, 0, 20)));
        v[20] = -INFINITY;
        ops->rope_store(&op, 0, 1);
        assert_true(isnan(kv_get(&kv, 0, 1, 0, 0, 20)));
        free(kv.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_float64),
        cmocka_unit_test(int8_keeps_failures_visible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
