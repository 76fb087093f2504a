/* test_norm.c - RMS norm and embedding rows: against float64, against the plain twin, and bit for
 * bit the same whatever rows and threads share the op. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/act.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/weights.h"

enum { ROWS = 11 };

static uint64_t seed = 3;
static float uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((seed >> 33) % (1 << 24)) / (1 << 23) - 1.0f;
}
static float *random_floats(size_t n, float scale)
{
    float *x = malloc(n * sizeof(float));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = uniform() * scale;
    return x;
}
static struct act act_make(enum act_type type, uint32_t rows, uint32_t cols)
{
    struct act a = {
        .type = type, .cols = cols, .data = aligned_alloc(64, act_bytes(type, rows, cols))};
    assert_non_null(a.data);
    memset(a.data, 0xff, act_bytes(type, rows, cols));
    return a;
}

static void run(const struct cpu_ops *ops, const struct op_norm *op, uint32_t threads)
{
    for (uint32_t i = 0; i < threads; i++)
        ops->norm(op, i, threads);
}

/* x_rows picks rows in another order than they lie */
static const uint32_t picked[ROWS] = {3, 0, 10, 10, 7, 1, 2, 5, 4, 9, 8};

static void check_norm(const struct cpu_ops *ops, uint32_t cols, enum act_type type, float scale)
{
    float *x = random_floats((size_t)ROWS * cols, scale), *weight = random_floats(cols, 2);
    struct op_norm op = {.x = x,
                         .x_rows = picked,
                         .weight = weight,
                         .eps = 1e-5f,
                         .rows = ROWS,
                         .cols = cols,
                         .out = act_make(type, ROWS, cols)};
    run(ops, &op, 2);
    for (uint32_t r = 0; r < ROWS; r++) {
        const float *row = x + (size_t)picked[r] * cols;
        double sum = 0, amax = 0;
        for (uint32_t c = 0; c < cols; c++)
            sum += (double)row[c] * (double)row[c];
        double factor = 1 / sqrt(sum / cols + 1e-5);
        for (uint32_t c = 0; c < cols; c++) {
            double want = (double)row[c] * factor * (double)weight[c];
            if (type == ACT_Q8 && c % 32 == 0) {
                amax = 0;
                for (uint32_t i = c; i < c + 32; i++)
                    amax = fmax(amax, fabs((double)row[i] * factor * (double)weight[i]));
            }
            double tolerance =
                type == ACT_Q8 ? amax / 254 * 1.001 + 1e-9 : 2e-6 * fabs(want) + 1e-9;
            assert_true(fabs((double)act_get(&op.out, ROWS, r, c) - want) <= tolerance);
        }
    }
    /* alone, and with other numbers of threads: the same bits */
    struct op_norm other = op, one = op;
    other.out = act_make(type, ROWS, cols);
    run(ops, &other, 3);
    for (uint32_t r = 0; r < ROWS; r++) {
        one.out = act_make(type, 1, cols);
        one.x_rows = &picked[r];
        one.rows = 1;
        run(ops, &one, 1);
        for (uint32_t c = 0; c < cols; c++) {
            float a = act_get(&op.out, ROWS, r, c);
            assert_true(a == act_get(&other.out, ROWS, r, c));
            assert_true(a == act_get(&one.out, 1, 0, c));
        }
        free(one.out.data);
    }
    free(other.out.data);
    free(op.out.data);
    free(x);
    free(weight);
}

static void norm_matches_float64(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        check_norm(ops, 576, ACT_F32, 1);
        check_norm(ops, 45, ACT_F32, 1e-3f);
        check_norm(ops, 2080, ACT_F32, 100);
        check_norm(ops, 576, ACT_Q8, 1);
        check_norm(ops, 4096, ACT_Q8, 30);
        check_norm(ops, 32, ACT_Q8, 0);
    }
}

static void embed_gathers_rows(void **state)
{
    (void)state;
    enum { VOCAB = 37, COLS = 40 };
    float *values = random_floats((size_t)VOCAB * COLS, 1);
    struct weight table = {.type = WEIGHT_F32, .rows = VOCAB, .cols = COLS};
    table.data = aligned_alloc(64, (weight_bytes(WEIGHT_F32, VOCAB, COLS, false) + 63) / 64 * 64);
    for (uint32_t p = 0; p < weight_panels(&table); p++) {
        const void *src[PANEL_ROWS];
        for (uint32_t r = 0; r < PANEL_ROWS; r++)
            src[r] =
                p * PANEL_ROWS + r < VOCAB ? values + (size_t)(p * PANEL_ROWS + r) * COLS : NULL;
        weight_put_rows(&table, p, src);
    }
    const uint32_t tokens[ROWS] = {36, 0, 16, 15, 31, 32, 5, 5, 1, 2, 17};
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        float out[ROWS * COLS];
        struct op_embed op = {
            .table = &table, .tokens = tokens, .out = out, .rows = ROWS, .scale = 2};
        for (uint32_t i = 0; i < 3; i++)
            ops->embed(&op, i, 3);
        for (uint32_t i = 0; i < ROWS * COLS; i++)
            assert_true(out[i] == 2 * values[(size_t)tokens[i / COLS] * COLS + i % COLS]);
    }
    free(table.data);
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_matches_float64),
        cmocka_unit_test(embed_gathers_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
