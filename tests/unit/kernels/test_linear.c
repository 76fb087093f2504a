/* test_linear.c - linears of each instruction set: against float64, against the plain twin, and bit
 * for bit independent of the other rows and of the number of threads. */
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
#include "kernels/pool.h"
#include "kernels/weights.h"

enum { ROWS_MAX = 40 };

static uint64_t seed = 7;
static uint32_t dice(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}
static float uniform(void)
{
    return (float)dice(1 << 24) / (1 << 23) - 1.0f;
}

static void *block(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, (bytes + 63) / 64 * 64); /* NaN wherever nothing was written */
    return p;
}

static struct weight weight_random(enum weight_type type, uint32_t rows, uint32_t cols,
                                   bool has_min)
{
    struct weight w = {.type = type, .rows = rows, .cols = cols, .has_min = has_min};
    w.zero = (uint8_t)(dice(3) == 0 ? dice(200) : type == WEIGHT_Q4 ? 8 : 128);
    w.data = block(weight_bytes(type, rows, cols, has_min));
    for (uint32_t p = 0; p < weight_panels(&w); p++) {
        uint32_t count = rows - p * PANEL_ROWS < PANEL_ROWS ? rows - p * PANEL_ROWS : PANEL_ROWS;
        if (type >= WEIGHT_Q4) {
            for (uint32_t g = 0; g < cols / GROUP_COLS; g++) {
                struct panel_group group;
                memset(&group, 0, sizeof(group));
                for (uint32_t r = 0; r < count; r++) {
                    group.scale[r] = f32_to_f16(uniform() * 0.02f);
                    group.min[r] = f32_to_f16(uniform() * 0.2f);
                    for (uint32_t c = 0; c < GROUP_COLS; c++)
                        group.q[r][c] = (uint8_t)dice(type == WEIGHT_Q4 ? 16 : 256);
                }
                if (dice(4) == 0) /* the extremes: where 16-bit sums would saturate */
                    memset(group.q, type == WEIGHT_Q4 ? 15 : 255, count * GROUP_COLS);
                weight_put_group(&w, p, g, &group);
            }
            continue;
        }
        void *src[PANEL_ROWS] = {0};
        for (uint32_t r = 0; r < count; r++) {
            src[r] = malloc(cols * 4);
            for (uint32_t c = 0; c < cols; c++) {
                float f = uniform();
                uint32_t bits;
                memcpy(&bits, &f, 4);
                if (type == WEIGHT_F32)
                    ((float *)src[r])[c] = f;
                else
                    ((uint16_t *)src[r])[c] =
                        type == WEIGHT_F16 ? f32_to_f16(f) : (uint16_t)(bits >> 16);
            }
        }
        weight_put_rows(&w, p, (const void *const *)src);
        for (uint32_t r = 0; r < count; r++)
            free(src[r]);
    }
    return w;
}

static struct act act_from(const struct cpu_ops *ops, enum act_type type, const float *x,
                           uint32_t rows, uint32_t cols, uint32_t threads)
{
    struct act a = {.type = type, .cols = cols, .data = block(act_bytes(type, rows, cols))};
    struct op_quantize op = {.x = x, .rows = rows, .cols = cols, .out = a};
    for (uint32_t i = 0; i < threads; i++)
        ops->quantize(&op, i, threads);
    return a;
}

/* A case: up to three weights that share an input, one epilogue. */
struct trial {
    struct weight w[LINEAR_WEIGHTS_MAX];
    float *bias[LINEAR_WEIGHTS_MAX];
    float *x, *residual[LINEAR_WEIGHTS_MAX];
    uint32_t count, rows, cols;
    enum linear_epilogue epilogue;
    enum act_type in_type, out_type;
};
/* Its results: per weight [rows, w->rows], or the out_act's values. */
struct result {
    float *out[LINEAR_WEIGHTS_MAX];
};

static uint32_t result_count(const struct trial *t)
{
    return t->epilogue == LINEAR_SILU_MUL ? 1 : t->count;
}

static struct trial trial_random(enum weight_type type, enum linear_epilogue epilogue)
{
    bool quantized = type >= WEIGHT_Q4, silu = epilogue == LINEAR_SILU_MUL;
    struct trial t = {.epilogue = epilogue, .rows = 1 + dice(ROWS_MAX)};
    t.cols = quantized ? 32 * (1 + dice(12)) : 1 + dice(300);
    t.count = silu ? 2 : 1 + dice(3);
    t.in_type = dice(2) ? act_type_for(type) : act_type_fine(type);
    t.out_type = (enum act_type)dice(ACT_TYPES_);
    uint32_t common = t.out_type != ACT_F32 ? 32 * (1 + dice(4)) : 1 + dice(130);
    bool same_min = quantized && dice(2), biased = dice(2);
    for (uint32_t i = 0; i < t.count; i++) {
        enum weight_type each = quantized && dice(4) == 0 ? WEIGHT_Q8 : type;
        uint32_t rows = silu ? common : 1 + dice(130);
        t.w[i] = weight_random(each, rows, t.cols, same_min);
        t.residual[i] = block(4 * t.rows * rows);
        for (uint32_t j = 0; j < t.rows * rows; j++)
            t.residual[i][j] = uniform();
        if (!biased) continue;
        t.bias[i] = block(4 * rows);
        for (uint32_t j = 0; j < rows; j++)
            t.bias[i][j] = uniform();
    }
    t.x = block(4 * t.rows * t.cols);
    for (uint32_t j = 0; j < t.rows * t.cols; j++)
        t.x[j] = uniform() * (dice(50) ? 1 : 20);
    for (uint32_t j = 0; j < t.cols && dice(2); j++) /* a row where every q is 127 */
        t.x[j] = 1;
    return t;
}

static void trial_free(struct trial *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        free(t->w[i].data);
        free(t->bias[i]);
        free(t->residual[i]);
    }
    free(t->x);
}

/* Rows [row, row + rows) of the trial on one instruction set. */
static struct result trial_run(const struct trial *t, enum isa isa, uint32_t row, uint32_t rows,
                               uint32_t threads)
{
    const struct cpu_ops *ops = cpu_ops_get(isa);
    struct result result = {{0}};
    struct act in = act_from(ops, t->in_type, t->x + (size_t)row * t->cols, rows, t->cols, threads);
    struct op_linear op = {
        .in = in, .weight_count = t->count, .rows = rows, .epilogue = t->epilogue};
    float *out[LINEAR_WEIGHTS_MAX];
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t cols = t->w[i].rows;
        op.weight[i] = &t->w[i];
        op.bias[i] = t->bias[i];
        op.out_stride[i] = cols + 3;
        op.out[i] = out[i] = block(4 * rows * (cols + 3));
        result.out[i] = block(4 * rows * cols);
        for (uint32_t r = 0; r < rows; r++)
            memcpy(out[i] + r * (cols + 3), t->residual[i] + (row + r) * cols, 4 * cols);
    }
    op.out_act = (struct act){.type = t->out_type, .cols = t->w[0].rows};
    op.out_act.data = block(act_bytes(op.out_act.type, rows, op.out_act.cols));
    for (uint32_t i = 0; i < threads; i++)
        ops->linear(&op, i, threads);
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t cols = t->w[i].rows;
        for (uint32_t r = 0; r < rows; r++) {
            memcpy(result.out[i] + r * cols, out[i] + r * (cols + 3), 4 * cols);
            for (uint32_t c = 0; c < 3; c++) /* nothing beyond the row was touched */
                assert_true(isnan(out[i][r * (cols + 3) + cols + c]));
            for (uint32_t c = 0; c < cols && t->epilogue == LINEAR_SILU_MUL && i == 0; c++)
                result.out[0][r * cols + c] = act_get(&op.out_act, rows, r, c);
        }
        free(out[i]);
    }
    free(in.data);
    free(op.out_act.data);
    return result;
}

static void result_free(struct result *r)
{
    for (uint32_t i = 0; i < LINEAR_WEIGHTS_MAX; i++)
        free(r->out[i]);
}

/* in * w[i]^T in float64, and the sum of magnitudes that bounds its rounding. */
static double reference(const struct trial *t, const struct act *in, uint32_t row, uint32_t i,
                        uint32_t col, double *magnitude)
{
    float w[384];
    double sum = t->bias[i] ? t->bias[i][col] : 0;
    *magnitude = fabs(sum);
    weight_get_row(&t->w[i], col, w);
    for (uint32_t k = 0; k < t->cols; k++) {
        double term = (double)w[k] * act_get(in, t->rows, row, k);
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

static void compare_with_float64(const struct trial *t, enum isa isa, const struct result *got)
{
    struct act in = act_from(cpu_ops_get(ISA_PLAIN), t->in_type, t->x, t->rows, t->cols, 1);
    for (uint32_t i = 0; i < result_count(t); i++) {
        uint32_t cols = t->w[i].rows;
        for (uint32_t n = 0; n < 200; n++) {
            uint32_t r = dice(t->rows), c = dice(cols);
            double magnitude, up_magnitude, want = reference(t, &in, r, i, c, &magnitude);
            double tolerance = 1e-5 * magnitude + 1e-6;
            if (t->epilogue == LINEAR_ADD) want += t->residual[i][r * cols + c];
            if (t->epilogue == LINEAR_SILU_MUL) {
                double up = reference(t, &in, r, 1, c, &up_magnitude);
                want = want / (1 + exp(-want)) * up;
                tolerance = 1e-5 * (magnitude + 1) * (up_magnitude + 1);
                if (t->out_type != ACT_F32) { /* half a step of the group's scale */
                    float amax = 0;
                    for (uint32_t k = c / 32 * 32; k < c / 32 * 32 + 32; k++)
                        amax = fmaxf(amax, fabsf(got->out[0][r * cols + k]));
                    tolerance += amax / (t->out_type == ACT_Q8 ? 127 : 16256) * 0.51;
                }
            }
            double error = fabs(want - got->out[i][r * cols + c]);
            if (!(error <= tolerance))
                fail_msg("%s type %d epilogue %d row %u col %u: %g, want %g", isa_name(isa),
                         t->w[i].type, t->epilogue, r, c, got->out[i][r * cols + c], want);
        }
    }
    free(in.data);
}

static void compare_rows_alone(const struct trial *t, enum isa isa, const struct result *all)
{
    for (uint32_t n = 0; n < 6; n++) {
        uint32_t row = dice(t->rows), rows = 1 + dice(n < 3 ? 1 : t->rows - row);
        struct result alone = trial_run(t, isa, row, rows, 1 + dice(3));
        for (uint32_t i = 0; i < result_count(t); i++) {
            uint32_t cols = t->w[i].rows;
            assert_memory_equal(alone.out[i], all->out[i] + row * cols, 4 * rows * cols);
        }
        result_free(&alone);
    }
}

static void linear_is_right_and_independent(void **state)
{
    (void)state;
    for (uint32_t isa = 0; isa < ISA_COUNT_; isa++) {
        if (!cpu_ops_get((enum isa)isa)) continue;
        for (uint32_t n = 0; n < 150; n++) {
            struct trial t =
                trial_random((enum weight_type)(1 + n % 5), (enum linear_epilogue)(n / 5 % 3));
            struct result got = trial_run(&t, (enum isa)isa, 0, t.rows, 1 + n % 3);
            compare_with_float64(&t, (enum isa)isa, &got);
            compare_rows_alone(&t, (enum isa)isa, &got);
            result_free(&got);
            trial_free(&t);
        }
    }
}

/* Many rows and few panels: rows are shared out among threads, and go in chunks. */
static void large_shapes_are_independent(void **state)
{
    (void)state;
    enum { ROWS = 300, COLS = 4096, OUT = 80 };
    struct weight w = weight_random(WEIGHT_Q4, OUT, COLS, true);
    float *x = block(4 * ROWS * COLS), *out = block(4 * ROWS * OUT), *alone = block(4 * OUT);
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        x[i] = uniform();
    for (uint32_t isa = ISA_AVX2; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (!ops) continue;
        for (uint32_t threads = 1; threads <= 16; threads += 5) {
            struct act in = act_from(ops, ACT_Q8, x, ROWS, COLS, 3);
            memset(out, 0xff, 4 * ROWS * OUT);
            struct op_head op = {
                .in = in, .weight = &w, .logits = out, .logits_stride = OUT, .rows = ROWS};
            for (uint32_t i = 0; i < threads; i++)
                ops->head(&op, i, threads);
            free(in.data);
            for (uint32_t r = 0; r < ROWS; r += 37) {
                in = act_from(ops, ACT_Q8, x + r * COLS, 1, COLS, 1);
                struct op_head one = {
                    .in = in, .weight = &w, .logits = alone, .logits_stride = OUT, .rows = 1};
                ops->head(&one, 0, 1);
                assert_memory_equal(alone, out + r * OUT, 4 * OUT);
                free(in.data);
            }
        }
    }
    free(w.data);
    free(x);
    free(out);
    free(alone);
}

static void quantize_is_the_same_everywhere(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 60; n++) {
        uint32_t rows = 1 + dice(20), cols = 32 * (1 + dice(9));
        float *x = block(4 * rows * cols);
        for (uint32_t i = 0; i < rows * cols; i++)
            x[i] = uniform() * ldexpf(1, (int)dice(240) - 150); /* subnormal groups as well */
        for (uint32_t i = 0; i < 64; i += 2)
            x[dice(rows * cols)] = 0;
        enum act_type type = n % 2 ? ACT_Q8 : ACT_Q16;
        float steps = type == ACT_Q8 ? 127 : 16256;
        struct act plain = act_from(cpu_ops_get(ISA_PLAIN), type, x, rows, cols, 1);
        for (uint32_t r = 0; r < rows; r++)
            for (uint32_t g = 0; g < cols; g += 32) {
                float amax = 0;
                for (uint32_t c = g; c < g + 32; c++)
                    amax = fmaxf(amax, fabsf(x[r * cols + c]));
                for (uint32_t c = g; c < g + 32; c++)
                    assert_true(fabsf(act_get(&plain, rows, r, c) - x[r * cols + c]) <=
                                amax / steps * 0.502f + 1.1e-34f);
            }
        for (uint32_t isa = ISA_AVX2; isa < ISA_COUNT_; isa++) {
            if (!cpu_ops_get((enum isa)isa)) continue;
            struct act a = act_from(cpu_ops_get((enum isa)isa), type, x, rows, cols, 3);
            for (uint32_t r = 0; r < rows; r++)
                for (uint32_t c = 0; c < cols; c++)
                    assert_true(act_get(&plain, rows, r, c) == act_get(&a, rows, r, c));
            free(a.data);
        }
        free(plain.data);
        free(x);
    }
}

static void nan_and_inf_spoil_their_row_only(void **state)
{
    (void)state;
    for (uint32_t isa = 0; isa < ISA_COUNT_; isa++) {
        if (!cpu_ops_get((enum isa)isa)) continue;
        for (uint32_t n = 0; n < 20; n++) {
            struct trial t =
                trial_random(n % 2 ? WEIGHT_Q4 : WEIGHT_Q8, (enum linear_epilogue)(n % 3));
            struct result before = trial_run(&t, (enum isa)isa, 0, t.rows, 2);
            uint32_t row = dice(t.rows);
            t.x[row * t.cols + dice(t.cols)] = n % 4 < 2 ? NAN : n % 4 == 2 ? INFINITY : -INFINITY;
            struct result after = trial_run(&t, (enum isa)isa, 0, t.rows, 2);
            for (uint32_t i = 0; i < result_count(&t); i++)
                for (uint32_t r = 0; r < t.rows; r++)
                    for (uint32_t c = 0; c < t.w[i].rows; c++) {
                        size_t at = (size_t)r * t.w[i].rows + c;
                        if (r == row)
                            assert_true(isnan(after.out[i][at]));
                        else
                            assert_true(after.out[i][at] == before.out[i][at]);
                    }
            result_free(&before);
            result_free(&after);
            trial_free(&t);
        }
    }
}

/* The threads of a real pool: what the thread sanitizer watches. */
struct pool_job {
    const struct cpu_ops *ops;
    struct op_linear *op;
    struct op_quantize *quantize;
    struct pool *pool;
};

static void pool_work(void *arg, uint32_t ith, uint32_t nth)
{
    struct pool_job *job = arg;
    job->ops->quantize(job->quantize, ith, nth);
    pool_barrier(job->pool, ith);
    job->ops->linear(job->op, ith, nth);
}

static void threads_of_a_pool_agree_with_one(void **state)
{
    (void)state;
    enum { ROWS = 21, COLS = 160, OUT = 96 };
    struct weight w[2] = {weight_random(WEIGHT_Q4, OUT, COLS, false),
                          weight_random(WEIGHT_Q8, OUT, COLS, true)};
    float *x = block(4 * ROWS * COLS);
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        x[i] = uniform();
    struct act in = {ACT_Q8, COLS, block(act_bytes(ACT_Q8, ROWS, COLS))};
    struct act out[2] = {{ACT_Q8, OUT, block(act_bytes(ACT_Q8, ROWS, OUT))},
                         {ACT_Q8, OUT, block(act_bytes(ACT_Q8, ROWS, OUT))}};
    struct op_quantize quantize = {.x = x, .rows = ROWS, .cols = COLS, .out = in};
    struct op_linear op = {.in = in,
                           .weight = {&w[0], &w[1]},
                           .weight_count = 2,
                           .rows = ROWS,
                           .epilogue = LINEAR_SILU_MUL};
    for (uint32_t i = 0; i < 2; i++) {
        struct pool *pool = pool_create(i ? 3 : 1, 0);
        struct pool_job job = {cpu_ops_get(isa_best()), &op, &quantize, pool};
        op.out_act = out[i];
        pool_run(pool, pool_work, &job);
        pool_destroy(pool);
    }
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t c = 0; c < OUT; c++)
            assert_true(act_get(&out[0], ROWS, r, c) == act_get(&out[1], ROWS, r, c));
    free(w[0].data);
    free(w[1].data);
    free(x);
    free(in.data);
    free(out[0].data);
    free(out[1].data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_right_and_independent),
        cmocka_unit_test(large_shapes_are_independent),
        cmocka_unit_test(quantize_is_the_same_everywhere),
        cmocka_unit_test(threads_of_a_pool_agree_with_one),
        cmocka_unit_test(nan_and_inf_spoil_their_row_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
