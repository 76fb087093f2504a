/* linear_avx2.c - linears with AVX2 and FMA.
 *
 * A tile is 16 output rows, two registers of eight lanes, x up to 8 activation rows. vpmaddubsw
 * multiplies unsigned by signed bytes and adds pairs with saturation at 16 bits:
 *   Q4: 8 x 2 x 15 x 127 = 30480 fits, so a whole group is summed in 16 bits.
 *   Q8: 2 x 255 x 127 does not, so q - 128 is taken as magnitude times the activation with its
 *       sign: 2 x 128 x 127 = 32512 fits, once; the 128 moves into the minimum.
 * Then, as everywhere: acc += dot * (scale_w * scale_x), acc += min_w * (scale_x * sum x). */
#include <immintrin.h>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/quantize.h"
#include "kernels/layout.h"

#define INLINE static inline __attribute__((always_inline))

enum { PREFETCH_BYTES = 4096, LINE = 64, WORDS = GROUP_COLS / 4, LANES = 8 };

INLINE __m256 halves(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m256i four_of(const int8_t *q)
{
    int32_t word;
    __builtin_memcpy(&word, q, 4);
    return _mm256_set1_epi32(word);
}

/* Eight rows of a group: their scales, minima and lines of q, each at the first of the eight. */
struct half_group {
    const uint8_t *scale, *min, *q;
};

INLINE void fixup(__m256 *acc, __m256i sum, __m256 dw, __m256 dm, const struct act_tile_group *a,
                  uint32_t m)
{
    __m256 scales = _mm256_mul_ps(dw, _mm256_broadcast_ss(&a->scale[m]));
    __m256 v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scales, *acc);
    *acc = _mm256_fmadd_ps(dm, _mm256_broadcast_ss(&a->scaled_sum[m]), v);
}

INLINE __m256i sum_q4(const __m256i q[WORDS], const int8_t *x)
{
    __m256i sum = _mm256_maddubs_epi16(q[0], four_of(x));
#pragma GCC unroll 8
    for (uint32_t j = 1; j < WORDS; j++)
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(q[j], four_of(x + 4 * j)));
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

INLINE __m256i sum_q8(const __m256i q[WORDS], const int8_t *x)
{
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (uint32_t j = 0; j < WORDS; j++) {
        __m256i signs = _mm256_sign_epi8(four_of(x + 4 * j), q[j]);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q[j]), signs);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return sum;
}

/* Both planes of ACT_Q16, or the only one. */
INLINE __m256i sum_planes(bool q4, bool two_planes, const __m256i q[WORDS],
                          const struct act_tile_group *a, uint32_t m)
{
    __m256i sum = q4 ? sum_q4(q, a->q[m]) : sum_q8(q, a->q[m]);
    if (!two_planes) return sum;
    __m256i low = q4 ? sum_q4(q, a[1].q[m]) : sum_q8(q, a[1].q[m]);
    return _mm256_add_epi32(_mm256_slli_epi32(sum, ACT_LOW_BITS), low);
}

INLINE void step_q4(struct half_group h, const struct weight *w, bool two_planes,
                    const struct act_tile_group *a, uint32_t rows, __m256 *acc)
{
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i q[WORDS];
    for (uint32_t j = 0; j < WORDS / 2; j++) {
        __m256i v = _mm256_load_si256((const __m256i *)(const void *)(h.q + LINE * j));
        q[j] = _mm256_and_si256(v, nibble);
        q[j + WORDS / 2] = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
    }
    __m256 dw = halves(h.scale);
    __m256 dm = w->has_min ? halves(h.min) : _mm256_mul_ps(dw, _mm256_set1_ps(-(float)w->zero));
    for (uint32_t m = 0; m < rows; m++)
        fixup(&acc[2 * m], sum_planes(true, two_planes, q, a, m), dw, dm, a, m);
}

INLINE void step_q8(struct half_group h, const struct weight *w, bool two_planes,
                    const struct act_tile_group *a, uint32_t rows, __m256 *acc)
{
    const __m256i top = _mm256_set1_epi8(-128);
    __m256i q[WORDS];
    for (uint32_t j = 0; j < WORDS; j++)
        q[j] = _mm256_xor_si256(_mm256_load_si256((const __m256i *)(const void *)(h.q + LINE * j)),
                                top);
    __m256 dw = halves(h.scale);
    __m256 min = w->has_min ? halves(h.min) : _mm256_mul_ps(dw, _mm256_set1_ps(-(float)w->zero));
    __m256 dm = _mm256_fmadd_ps(dw, _mm256_set1_ps(128), min);
    for (uint32_t m = 0; m < rows; m++)
        fixup(&acc[2 * m], sum_planes(false, two_planes, q, a, m), dw, dm, a, m);
}

INLINE void dot_quantized(const struct linear_tile *t, bool q4, bool two_planes, __m256 *acc)
{
    const struct weight *w = t->weight;
    const size_t head = pair_head_bytes(w->has_min), q_bytes = group_q_bytes(w->type);
    const uint8_t *panel = weight_panel(w, t->panel);
    const struct act_tile_group *a = act_tile(t->in, t->row, 0);
    for (uint32_t g = 0; g < w->cols / GROUP_COLS; g++, a += two_planes ? 2 : 1) {
        const uint8_t *pair = panel + g / 2 * (head + 2 * q_bytes);
        struct half_group h = {pair + 32 * (g % 2), pair + 64 + 32 * (g % 2),
                               pair + head + q_bytes * (g % 2)};
        for (size_t i = 0; t->prefetch && i < q_bytes + head / 2; i += LINE)
            _mm_prefetch((const char *)h.q + PREFETCH_BYTES + i, _MM_HINT_T0);
        for (uint32_t half = 0; half < 2; half++) {
            if (q4)
                step_q4(h, w, two_planes, a, t->rows, acc + half);
            else
                step_q8(h, w, two_planes, a, t->rows, acc + half);
            h = (struct half_group){h.scale + 16, h.min + 16, h.q + 32};
        }
    }
}

/* 8 values of one column as floats, from the half-th eight of the panel's 16 rows */
INLINE __m256 column(enum weight_type type, const uint8_t *panel, size_t k, uint32_t half)
{
    if (type == WEIGHT_F32)
        return _mm256_load_ps((const float *)(const void *)(panel + 64 * k + 32 * half));
    const uint8_t *p = panel + 32 * k + 16 * half;
    if (type == WEIGHT_F16) return halves(p);
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* One or two rows; even and odd columns have an accumulator each: half the latency, and a fixed
 * order. */
INLINE void dot_float(const struct linear_tile *t, enum weight_type type, uint32_t m, uint32_t rows,
                      __m256 *acc)
{
    const uint8_t *p = weight_panel(t->weight, t->panel);
    const size_t cols = t->weight->cols, line = PANEL_ROWS * float_bytes(type);
    const float *x = (const float *)t->in->data + (size_t)(t->row + m) * t->in->cols;
    const size_t stride = t->in->cols;
    __m256 sum[8]; /* [row][odd][half] */
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 4 * rows; i++)
        sum[i] = _mm256_setzero_ps();
    for (size_t k = 0; k < cols; k++) {
        if (t->prefetch) _mm_prefetch((const char *)p + PREFETCH_BYTES + k * line, _MM_HINT_T0);
        __m256 low = column(type, p, k, 0), high = column(type, p, k, 1);
#pragma GCC unroll 2
        for (uint32_t r = 0; r < rows; r++) {
            __m256 v = _mm256_broadcast_ss(&x[r * stride + k]);
            sum[4 * r] = _mm256_fmadd_ps(low, v, sum[4 * r]);
            sum[4 * r + 1] = _mm256_fmadd_ps(high, v, sum[4 * r + 1]);
        }
        if (++k == cols) break;
        low = column(type, p, k, 0);
        high = column(type, p, k, 1);
#pragma GCC unroll 2
        for (uint32_t r = 0; r < rows; r++) {
            __m256 v = _mm256_broadcast_ss(&x[r * stride + k]);
            sum[4 * r + 2] = _mm256_fmadd_ps(low, v, sum[4 * r + 2]);
            sum[4 * r + 3] = _mm256_fmadd_ps(high, v, sum[4 * r + 3]);
        }
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 2 * rows; i++)
        acc[2 * m + i] = _mm256_add_ps(sum[4 * (i / 2) + i % 2], sum[4 * (i / 2) + 2 + i % 2]);
}

INLINE void dot_float_rows(const struct linear_tile *t, enum weight_type type, __m256 *acc)
{
    uint32_t m = 0;
    for (; m + 2 <= t->rows; m += 2)
        dot_float(t, type, m, 2, acc);
    if (m < t->rows) dot_float(t, type, m, 1, acc);
}

static void store(const struct linear_tile *t, const __m256 *acc)
{
    uint32_t first = t->panel * PANEL_ROWS, left = t->weight->rows - first;
    uint32_t count = left < PANEL_ROWS ? left : PANEL_ROWS;
    for (uint32_t m = 0; m < t->rows; m++) {
        float v[PANEL_ROWS];
        _mm256_storeu_ps(v, acc[2 * m]);
        _mm256_storeu_ps(v + LANES, acc[2 * m + 1]);
        float *out = t->out + m * t->out_stride;
        for (uint32_t r = 0; r < count; r++) {
            float sum = t->bias ? v[r] + t->bias[first + r] : v[r];
            out[r] = t->add ? out[r] + sum : sum;
        }
    }
}

INLINE void dot_planes(const struct linear_tile *t, bool q4, __m256 *acc)
{
    if (t->in->type == ACT_Q16)
        dot_quantized(t, q4, true, acc);
    else
        dot_quantized(t, q4, false, acc);
}

static void tile(const struct linear_tile *t)
{
    __m256 acc[2 * ACT_TILE_ROWS];
    for (uint32_t m = 0; m < 2 * ACT_TILE_ROWS; m++)
        acc[m] = _mm256_setzero_ps();
    switch (t->weight->type) {
    case WEIGHT_Q4: dot_planes(t, true, acc); break;
    case WEIGHT_Q8: dot_planes(t, false, acc); break;
    case WEIGHT_F32: dot_float_rows(t, WEIGHT_F32, acc); break;
    case WEIGHT_F16: dot_float_rows(t, WEIGHT_F16, acc); break;
    default: dot_float_rows(t, WEIGHT_BF16, acc); break;
    }
    store(t, acc);
}

/* exp by 2^n * p(r), |r| <= ln(2)/2: Cephes' degree 5 polynomial, about 1 ulp. -88 <= x <= 88. */
INLINE __m256 exp_ps(__m256 x)
{
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
    __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    __m256i one = _mm256_castps_si256(_mm256_set1_ps(1.0f));
    __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(bits, one));
    return _mm256_mul_ps(_mm256_add_ps(p, _mm256_set1_ps(1.0f)), power);
}

static void silu(const float *gate, const float *up, const struct act *out, uint32_t row,
                 uint32_t col, uint32_t count)
{
    const __m256 one = _mm256_set1_ps(1.0f), limit = _mm256_set1_ps(88.0f);
    float v[GROUP_COLS];
    for (uint32_t i = 0; i < GROUP_COLS; i += LANES) {
        __m256 g = _mm256_loadu_ps(gate + i);
        /* min and max keep their second operand when one is NaN */
        __m256 x = _mm256_min_ps(limit, _mm256_sub_ps(_mm256_setzero_ps(), g));
        __m256 e = exp_ps(_mm256_max_ps(_mm256_sub_ps(_mm256_setzero_ps(), limit), x));
        __m256 s = _mm256_div_ps(g, _mm256_add_ps(one, e));
        _mm256_storeu_ps(v + i, _mm256_mul_ps(s, _mm256_loadu_ps(up + i)));
    }
    act_quantize_avx2(v, out, row, col, count);
}

static const struct linear_kernel kernel = {.tile = tile, .silu = silu};

void linear_avx2(const struct op_linear *op, uint32_t ith, uint32_t nth)
{
    linear_walk(op, ith, nth, &kernel);
}

void head_avx2(const struct op_head *op, uint32_t ith, uint32_t nth)
{
    head_walk(op, ith, nth, &kernel);
}
