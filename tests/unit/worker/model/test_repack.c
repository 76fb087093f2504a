/* test_repack.c - packed weights hold the numbers of the file, for every type, shape, row order and
 * number of threads. The plain twin here decodes blocks by their definition, one value at a time.
 */
#include "tests/unit/worker/model/gguf_fixture.h"
#include "worker/model/repack.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const uint32_t all_types[] = {GGML_F32,  GGML_F16,  GGML_BF16, GGML_Q4_0,
                                     GGML_Q4_1, GGML_Q5_0, GGML_Q5_1, GGML_Q8_0};

/* Value `at` of a run of blocks, exactly as float64 has it. */
static double plain_value(uint32_t type, const uint8_t *data, size_t at)
{
    uint32_t values, bytes;
    assert_true(gguf_type_block(type, &values, &bytes));
    const uint8_t *p = data + at / values * bytes;
    uint32_t j = (uint32_t)(at % values);
    float f;
    if (type == GGML_F32) {
        memcpy(&f, p, 4);
        return f;
    }
    if (type == GGML_F16) return f16_to_f32(load_le16(p));
    if (type == GGML_BF16) return bf16_to_f32(load_le16(p));
    double d = f16_to_f32(load_le16(p));
    if (type == GGML_Q8_0) return d * (int8_t)p[2 + j];
    bool has_min = type == GGML_Q4_1 || type == GGML_Q5_1;
    bool five = type == GGML_Q5_0 || type == GGML_Q5_1;
    const uint8_t *high = p + (has_min ? 4 : 2), *low = high + (five ? 4 : 0);
    int q = j < 16 ? low[j] & 15 : low[j - 16] >> 4;
    if (five && (high[j / 8] >> (j % 8) & 1)) q += 16;
    if (has_min) return d * q + (double)f16_to_f32(load_le16(p + 2));
    return d * (q - (five ? 16 : 8));
}

struct matrix {
    struct gguf_tensor t;
    uint8_t *data;
};

static void matrix_make(struct matrix *m, uint32_t type, uint32_t rows, uint32_t cols)
{
    uint32_t values, bytes, state = rows * 31 + cols + type;
    assert_true(gguf_type_block(type, &values, &bytes));
    size_t n = (size_t)rows * cols / values * bytes;
    m->data = malloc(n);
    fix_fill(type, n, &state, m->data);
    m->t = (struct gguf_tensor){
        .name = SPAN_LIT("m"),
        .type = type,
        .dim_count = 2,
        .dims = {cols, rows, 1, 1},
        .data = span_of(m->data, n),
    };
}

static enum err pack(const struct matrix *m, bool as_f32, uint32_t head_dim, uint32_t threads,
                     struct weight *w, struct errmsg *why)
{
    struct pool *pool = pool_create(threads, 0);
    assert_non_null(pool);
    repack_plan(&m->t, as_f32, w);
    size_t bytes = weight_bytes(w->type, w->rows, w->cols, w->has_min);
    assert_true(bytes > 0);
    w->data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(w->data, 0xaa, bytes);
    enum err err = repack_run(&m->t, head_dim, w, pool, why);
    pool_destroy(pool);
    return err;
}

static void check_rows(const struct matrix *m, const struct weight *w, uint32_t head_dim)
{
    float *row = malloc(w->cols * sizeof *row);
    for (uint32_t r = 0; r < w->rows; r++) {
        uint32_t from = r;
        /* packed row i of a head is 2i of the file, packed row head_dim / 2 + i is 2i + 1 */
        if (head_dim != 0) {
            uint32_t in = r % head_dim, half = head_dim / 2;
            from = r - in + (in < half ? 2 * in : 2 * (in - half) + 1);
        }
        weight_get_row(w, r, row);
        for (uint32_t c = 0; c < w->cols; c++) {
            double want = plain_value(m->t.type, m->data, (size_t)from * w->cols + c);
            /* one float32 rounding */
            if (fabs(row[c] - want) > 6e-8 * fabs(want) + 1e-12)
                fail_msg("%s row %u col %u: %.9g, expected %.9g", gguf_type_name(m->t.type), r, c,
                         (double)row[c], want);
        }
    }
    free(row);
}

static void test_every_type_keeps_its_numbers(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows, cols, head_dim;
    } shapes[] = {{16, 32, 0}, {1, 64, 0}, {37, 96, 0}, {48, 64, 24}, {64, 160, 32}, {4, 32, 2}};
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++)
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++)
            for (int as_f32 = 0; as_f32 < 2; as_f32++) {
                struct matrix m;
                struct weight w;
                struct errmsg why;
                matrix_make(&m, all_types[t], shapes[s].rows, shapes[s].cols);
                assert_int_equal(pack(&m, as_f32, shapes[s].head_dim, 1, &w, &why), OK);
                if (as_f32) assert_int_equal(w.type, WEIGHT_F32);
                check_rows(&m, &w, shapes[s].head_dim);
                free(w.data);
                free(m.data);
            }
}

static void test_float_rows_need_not_be_whole_groups(void **state)
{
    (void)state;
    for (size_t t = 0; t < 3; t++) {
        struct matrix m;
        struct weight w;
        struct errmsg why;
        matrix_make(&m, all_types[t], 19, 45);
        assert_int_equal(pack(&m, false, 0, 1, &w, &why), OK);
        check_rows(&m, &w, 0);
        free(w.data);
        free(m.data);
    }
}

static void test_threads_change_nothing(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++) {
        struct matrix m;
        struct weight one, three;
        struct errmsg why;
        matrix_make(&m, all_types[t], 203, 64);
        assert_int_equal(pack(&m, false, 0, 1, &one, &why), OK);
        assert_int_equal(pack(&m, false, 0, 3, &three, &why), OK);
        assert_memory_equal(one.data, three.data,
                            weight_bytes(one.type, one.rows, one.cols, one.has_min));
        free(one.data);
        free(three.data);
        free(m.data);
    }
}

static void test_what_each_type_becomes(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        enum weight_type becomes;
        bool has_min;
        uint8_t zero;
    } all[] = {{GGML_F32, WEIGHT_F32, false, 0},   {GGML_F16, WEIGHT_F16, false, 0},
               {GGML_BF16, WEIGHT_BF16, false, 0}, {GGML_Q4_0, WEIGHT_Q4, false, 8},
               {GGML_Q4_1, WEIGHT_Q4, true, 0},    {GGML_Q5_0, WEIGHT_Q8, false, 16},
               {GGML_Q5_1, WEIGHT_Q8, true, 0},    {GGML_Q8_0, WEIGHT_Q8, false, 128}};
    struct weight w;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const struct gguf_tensor t = {.type = all[i].type, .dims = {64, 16, 1, 1}};
        repack_plan(&t, false, &w);
        assert_true(w.type == all[i].becomes && w.has_min == all[i].has_min);
        if (!w.has_min) assert_int_equal(w.zero, all[i].zero);
        assert_true(w.rows == 16 && w.cols == 64 && w.data == NULL);
        assert_non_null(strstr(repack_supported(), gguf_type_name(all[i].type)));
    }
    const struct gguf_tensor k_quant = {.type = 12, .dims = {256, 16, 1, 1}};
    repack_plan(&k_quant, false, &w);
    assert_int_equal(w.type, WEIGHT_NONE);
}

/* One value that is not finite, in the scale or the minimum of some block. */
static void test_not_finite_is_refused(void **state)
{
    (void)state;
    static const uint16_t f16_bad[] = {0x7c00, 0xfc00, 0x7e01};
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++)
        for (int as_f32 = 0; as_f32 < 2; as_f32++)
            for (size_t k = 0; k < ARRAY_LEN(f16_bad); k++)
                for (int in_min = 0; in_min < 2; in_min++) {
                    uint32_t type = all_types[t], values, bytes;
                    struct matrix m;
                    struct weight w;
                    struct errmsg why = {""};
                    if (in_min && type != GGML_Q4_1 && type != GGML_Q5_1) continue;
                    matrix_make(&m, type, 20, 64);
                    assert_true(gguf_type_block(type, &values, &bytes));
                    uint8_t *p = m.data + (size_t)(17 * 64 + 32) / values * bytes;
                    uint32_t wide = type == GGML_F32 ? 0xff800000 + (uint32_t)k : 0;
                    if (type == GGML_F32)
                        store_le32(p, wide);
                    else if (type == GGML_BF16)
                        store_le16(p, (uint16_t)(0x7f80 + k));
                    else
                        store_le16(p + (in_min ? 2 : 0), f16_bad[k]);
                    assert_int_equal(pack(&m, as_f32, 0, 2, &w, &why), ERR_PROTO);
                    if (strstr(why.text, "'m': row 17") == NULL) fail_msg("%s", why.text);
                    free(w.data);
                    free(m.data);
                }
}

static void test_vectors(void **state)
{
    (void)state;
    float out[48];
    struct errmsg why;
    for (size_t t = 0; t < ARRAY_LEN(all_types); t++) {
        uint32_t state_bits = 5, values, bytes;
        uint8_t data[256];
        assert_true(gguf_type_block(all_types[t], &values, &bytes));
        fix_fill(all_types[t], 32 / values * bytes, &state_bits, data);
        const struct gguf_tensor v = {.name = SPAN_LIT("norm"),
                                      .type = all_types[t],
                                      .dim_count = 1,
                                      .dims = {32, 1, 1, 1},
                                      .data = span_of(data, 32 / values * bytes)};
        enum err err = repack_vector(&v, out, &why);
        if (values > 1) {
            assert_int_equal(err, ERR_UNSUPPORTED);
            assert_non_null(strstr(why.text, "'norm'"));
            continue;
        }
        assert_int_equal(err, OK);
        for (size_t i = 0; i < 32; i++)
            assert_true((double)out[i] == plain_value(all_types[t], data, i));
        memset(data + 31 * bytes, 0xff, bytes);
        assert_int_equal(repack_vector(&v, out, &why), ERR_PROTO);
        assert_non_null(strstr(why.text, "value 31"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_keeps_its_numbers),
        cmocka_unit_test(test_float_rows_need_not_be_whole_groups),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_what_each_type_becomes),
        cmocka_unit_test(test_not_finite_is_refused),
        cmocka_unit_test(test_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
