/* test_weights.c - packing and reading back, halves, sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/act.h"
#include "kernels/isa.h"
#include "kernels/weights.h"

static uint64_t seed = 1;
static uint32_t dice(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

static void halves_round_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = f16_to_f32((uint16_t)h);
        if (isnan(f))
            assert_true(isnan(f16_to_f32(f32_to_f16(f))));
        else
            assert_int_equal(f32_to_f16(f), h);
        if ((h & 0x7fff) >= 0x7bff) continue;
        /* halfway to the next one goes to the even one, a hair more goes up */
        float next = f16_to_f32((uint16_t)(h + 1)), middle = f + (next - f) / 2;
        assert_int_equal(f32_to_f16(middle), h % 2 ? h + 1 : h);
        assert_int_equal(f32_to_f16(nextafterf(middle, next)), h + 1);
        assert_int_equal(f32_to_f16(nextafterf(middle, f)), h);
    }
    assert_true(f16_to_f32(0x3c00) == 1.0f && f16_to_f32(0xc000) == -2.0f);
    assert_true(f16_to_f32(0x0001) == 0x1p-24f && isinf(f16_to_f32(0x7c00)));
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
}

static void sizes_are_refused_or_whole_lines(void **state)
{
    (void)state;
    assert_int_equal(weight_bytes(WEIGHT_Q4, 16, 48, false), 0);
    assert_int_equal(weight_bytes(WEIGHT_Q8, 0, 32, false), 0);
    assert_int_equal(weight_bytes(WEIGHT_F16, 16, 32, true), 0);
    assert_int_equal(weight_bytes(WEIGHT_NONE, 16, 32, false), 0);
    assert_int_equal(weight_bytes(WEIGHT_Q4, 16, 64, false), 16 * 64 / 2 + 2 * 32);
    assert_int_equal(weight_bytes(WEIGHT_Q4, 17, 64, true), 2 * (16 * 64 / 2 + 4 * 32));
    assert_int_equal(weight_bytes(WEIGHT_BF16, 1, 3, false), 128);
    for (uint32_t i = 0; i < 200; i++) {
        enum weight_type type = (enum weight_type)(1 + dice(5));
        uint32_t cols = 32 * (1 + dice(9));
        assert_int_equal(weight_bytes(type, 1 + dice(99), cols, type >= WEIGHT_Q4 && i % 2) % 64,
                         0);
    }
}

static void groups_come_back(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        struct weight w = {.type = round % 2 ? WEIGHT_Q4 : WEIGHT_Q8,
                           .rows = 1 + dice(50),
                           .cols = 32 * (1 + dice(7)),
                           .has_min = round / 2 % 2,
                           .zero = (uint8_t)dice(200)};
        size_t bytes = weight_bytes(w.type, w.rows, w.cols, w.has_min);
        w.data = aligned_alloc(64, bytes);
        float *want = malloc(sizeof(float) * w.rows * w.cols), *got = malloc(4 * w.cols);
        for (uint32_t p = 0; p < weight_panels(&w); p++) {
            for (uint32_t g = 0; g < w.cols / GROUP_COLS; g++) {
                struct panel_group group;
                memset(&group, 0, sizeof(group));
                for (uint32_t r = 0; r < PANEL_ROWS && p * PANEL_ROWS + r < w.rows; r++) {
                    group.scale[r] = f32_to_f16((float)dice(1000) / 777 - 0.5f);
                    group.min[r] = f32_to_f16((float)dice(1000) / 333 - 1.5f);
                    float scale = f16_to_f32(group.scale[r]);
                    float min = w.has_min ? f16_to_f32(group.min[r]) : -(float)w.zero * scale;
                    for (uint32_t c = 0; c < GROUP_COLS; c++) {
                        group.q[r][c] = (uint8_t)dice(w.type == WEIGHT_Q4 ? 16 : 256);
                        want[(p * PANEL_ROWS + r) * w.cols + g * GROUP_COLS + c] =
                            fmaf(group.q[r][c], scale, min);
                    }
                }
                weight_put_group(&w, p, g, &group);
            }
        }
        for (uint32_t r = 0; r < w.rows; r++) {
            weight_get_row(&w, r, got);
            assert_memory_equal(got, want + r * w.cols, 4 * w.cols);
        }
        free(w.data);
        free(want);
        free(got);
    }
}

static void float_rows_come_back(void **state)
{
    (void)state;
    for (uint32_t type = WEIGHT_F32; type <= WEIGHT_BF16; type++) {
        struct weight w = {.type = (enum weight_type)type, .rows = 19, .cols = 37};
        size_t bytes = weight_bytes(w.type, w.rows, w.cols, false),
               each = type == WEIGHT_F32 ? 4 : 2;
        w.data = aligned_alloc(64, bytes);
        uint8_t *rows = calloc(w.rows * w.cols, each);
        float want[37], got[37];
        for (uint32_t i = 0; i < w.rows * w.cols; i++) {
            float f = (float)dice(4096) / 64 - 32;
            uint32_t bits;
            memcpy(&bits, &f, 4);
            uint16_t half = type == WEIGHT_F16 ? f32_to_f16(f) : (uint16_t)(bits >> 16);
            memcpy(rows + i * each, each == 4 ? (void *)&f : (void *)&half, each);
        }
        for (uint32_t p = 0; p < 2; p++) {
            const void *src[PANEL_ROWS];
            for (uint32_t r = 0; r < PANEL_ROWS; r++)
                src[r] = p * 16 + r < w.rows ? rows + (p * 16 + r) * w.cols * each : NULL;
            weight_put_rows(&w, p, src);
        }
        for (uint32_t r = 0; r < w.rows; r++) {
            for (uint32_t c = 0; c < w.cols; c++) {
                const uint8_t *at = rows + (r * w.cols + c) * each;
                uint16_t half;
                memcpy(&half, at, 2);
                memcpy(&want[c], at, each);
                if (type != WEIGHT_F32)
                    want[c] = type == WEIGHT_F16 ? f16_to_f32(half) : bf16_to_f32(half);
            }
            weight_get_row(&w, r, got);
            assert_memory_equal(got, want, sizeof(want));
        }
        free(w.data);
        free(rows);
    }
}

static void isa_best_is_supported(void **state)
{
    (void)state;
    assert_true(isa_supported(ISA_PLAIN) && isa_supported(isa_best()));
    if (isa_supported(ISA_AVX512)) assert_true(isa_supported(ISA_AVX2));
    assert_false(isa_supported(ISA_COUNT_));
    assert_string_equal(isa_name(ISA_AVX512), "avx512-vnni");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(sizes_are_refused_or_whole_lines),
        cmocka_unit_test(groups_come_back),
        cmocka_unit_test(float_rows_come_back),
        cmocka_unit_test(isa_best_is_supported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
