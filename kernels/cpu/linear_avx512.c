/* linear_avx512.c - linears with AVX-512 VNNI.
 *
 * A tile is 16 output rows (the lanes) x up to 8 activation rows. For each group of 32 columns the
 * weights are unpacked once into eight registers; each activation row broadcasts four of its values
 * at a time into vpdpbusd (exact in int32: 32 * 255 * 127 * 128 < 2^31), then one or two FMAs bring
 * the group into the float accumulator: += dot * (scale_w * scale_x) and += min_w * (scale_x * sum
 * x). Every tile size does these same operations in the same order. */
#include <immintrin.h>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/quantize_group_avx512.h"
#include "kernels/layout.h"

#define INLINE static inline __attribute__((always_inline))

enum { PREFETCH_BYTES = 4096, LINE = 64, WORDS = GROUP_COLS / 4 };

INLINE __m512 halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE __m512i four_of(const int8_t *q)
{
    int32_t word;
    __builtin_memcpy(&word, q, 4);
    return _mm512_set1_epi32(word);
}

/* Where a weight's minimum comes from. */
enum zero_kind {
    ZERO_MIN,   /* stored */
    ZERO_USUAL, /* -zero * scale with zero 8 (Q4) or 128 (Q8), as in Q4_0, Q8_0, GPTQ: the integer
                   sum starts at -zero * sum x and the second FMA is not needed */
    ZERO_OTHER,
};

/* What the kernel is made for; constants, so that each combination is compiled by itself. */
struct shape {
    bool q4, prefetch, two_planes; /* of the activations: ACT_Q16 */
    enum zero_kind zero;
    uint32_t rows;
};

INLINE void group_step(const struct shape s, __m512 minus_zero, const uint8_t *scale,
                       const uint8_t *min, const uint8_t *q, const struct act_tile_group *a,
                       __m512 *acc)
{
    __m512i w[WORDS];
    if (s.q4) {
        const __m512i nibble = _mm512_set1_epi8(15);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < WORDS / 2; j++) {
            __m512i v = _mm512_load_si512(q + LINE * j);
            w[j] = _mm512_and_si512(v, nibble);
            w[j + WORDS / 2] = _mm512_and_si512(_mm512_srli_epi16(v, 4), nibble);
        }
    } else {
#pragma GCC unroll 8
        for (uint32_t j = 0; j < WORDS; j++)
            w[j] = _mm512_load_si512(q + LINE * j);
    }
    __m512 dw = halves(scale), dm = _mm512_setzero_ps();
    if (s.zero == ZERO_MIN) dm = halves(min);
    if (s.zero == ZERO_OTHER) dm = _mm512_mul_ps(dw, minus_zero);
#pragma GCC unroll 8
    for (uint32_t m = 0; m < s.rows; m++) {
        __m512i sum = _mm512_setzero_si512(), start = sum;
        if (s.zero == ZERO_USUAL)
            start = _mm512_slli_epi32(_mm512_set1_epi32(a->minus_sum[m]), s.q4 ? 3 : 7);
        if (s.two_planes) {
#pragma GCC unroll 8
            for (uint32_t j = 0; j < WORDS; j++)
                sum = _mm512_dpbusd_epi32(sum, w[j], four_of(a[0].q[m] + 4 * j));
            start = _mm512_add_epi32(start, _mm512_slli_epi32(sum, ACT_LOW_BITS));
        }
        sum = start;
#pragma GCC unroll 8
        for (uint32_t j = 0; j < WORDS; j++)
            sum = _mm512_dpbusd_epi32(sum, w[j], four_of(a[s.two_planes].q[m] + 4 * j));
        __m512 scales = _mm512_mul_ps(dw, _mm512_set1_ps(a->scale[m]));
        acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scales, acc[m]);
        if (s.zero != ZERO_USUAL)
            acc[m] = _mm512_fmadd_ps(dm, _mm512_set1_ps(a->scaled_sum[m]), acc[m]);
    }
}

INLINE void prefetch(const uint8_t *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += LINE)
        _mm_prefetch((const char *)p + PREFETCH_BYTES + i, _MM_HINT_T0);
}

INLINE void dot_quantized(const struct linear_tile *t, const struct shape s, __m512 *acc)
{
    const struct weight *w = t->weight;
    const __m512 minus_zero = _mm512_set1_ps(-(float)w->zero);
    const size_t q_bytes = s.q4 ? 256 : 512, head = s.zero == ZERO_MIN ? 128 : 64;
    const uint8_t *p = weight_panel(w, t->panel);
    const struct act_tile_group *a = act_tile(t->in, t->row, 0);
    const uint32_t groups = w->cols / GROUP_COLS, planes = s.two_planes ? 2 : 1;
    for (uint32_t pair = 0; pair < groups / 2; pair++, a += 2 * planes, p += head + 2 * q_bytes) {
        if (s.prefetch) prefetch(p, head + 2 * q_bytes);
        group_step(s, minus_zero, p, p + 64, p + head, a, acc);
        group_step(s, minus_zero, p + 32, p + 96, p + head + q_bytes, a + planes, acc);
    }
    if (groups % 2) group_step(s, minus_zero, p, p + 64, p + head, a, acc);
}

/* 16 values of one column as floats */
INLINE __m512 column(enum weight_type type, const uint8_t *panel, size_t k)
{
    if (type == WEIGHT_F32) return _mm512_load_ps(panel + 64 * k);
    if (type == WEIGHT_F16) return halves(panel + 32 * k);
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(panel + 32 * k));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* Even and odd columns have an accumulator each: half the latency, and a fixed order. */
INLINE void dot_float(const struct linear_tile *t, enum weight_type type, uint32_t rows,
                      __m512 *acc)
{
    const uint8_t *p = weight_panel(t->weight, t->panel);
    const float *x = (const float *)t->in->data + (size_t)t->row * t->in->cols;
    const size_t cols = t->weight->cols, stride = t->in->cols;
    __m512 odd[ACT_TILE_ROWS];
#pragma GCC unroll 8
    for (uint32_t m = 0; m < rows; m++)
        odd[m] = _mm512_setzero_ps();
    size_t k = 0;
    for (; k + 2 <= cols; k += 2) {
        if (t->prefetch)
            _mm_prefetch((const char *)p + PREFETCH_BYTES + k * PANEL_ROWS * float_bytes(type),
                         _MM_HINT_T0);
        if (t->prefetch && type == WEIGHT_F32)
            _mm_prefetch((const char *)p + PREFETCH_BYTES + LINE + k * LINE, _MM_HINT_T0);
        __m512 even_w = column(type, p, k), odd_w = column(type, p, k + 1);
#pragma GCC unroll 8
        for (uint32_t m = 0; m < rows; m++) {
            acc[m] = _mm512_fmadd_ps(even_w, _mm512_set1_ps(x[m * stride + k]), acc[m]);
            odd[m] = _mm512_fmadd_ps(odd_w, _mm512_set1_ps(x[m * stride + k + 1]), odd[m]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t m = 0; m < rows; m++) {
        if (k < cols)
            acc[m] = _mm512_fmadd_ps(column(type, p, k), _mm512_set1_ps(x[m * stride + k]), acc[m]);
        acc[m] = _mm512_add_ps(acc[m], odd[m]);
    }
}

/* Whole panels take plain stores: a masked one is not forwarded to the loads of silu. */
INLINE void store(const struct linear_tile *t, uint32_t rows, const __m512 *acc)
{
    uint32_t first = t->panel * PANEL_ROWS, left = t->weight->rows - first;
    __mmask16 mask = (__mmask16)(left < PANEL_ROWS ? (1u << left) - 1 : 0xffff);
    __m512 bias = _mm512_setzero_ps();
    if (t->bias) bias = _mm512_maskz_loadu_ps(mask, t->bias + first);
#pragma GCC unroll 8
    for (uint32_t m = 0; m < rows; m++) {
        float *out = t->out + m * t->out_stride;
        __m512 v = _mm512_add_ps(acc[m], bias);
        if (t->add) v = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), v);
        if (left >= PANEL_ROWS)
            _mm512_storeu_ps(out, v);
        else
            _mm512_mask_storeu_ps(out, mask, v);
    }
}

INLINE void dot_planes(const struct linear_tile *t, const struct shape s, __m512 *acc)
{
    if (t->in->type == ACT_Q16)
        dot_quantized(t, (struct shape){s.q4, s.prefetch, true, s.zero, s.rows}, acc);
    else
        dot_quantized(t, (struct shape){s.q4, s.prefetch, false, s.zero, s.rows}, acc);
}

INLINE void dot_zero_kind(const struct linear_tile *t, bool q4, bool prefetched, uint32_t rows,
                          __m512 *acc)
{
    if (t->weight->has_min)
        dot_planes(t, (struct shape){q4, prefetched, false, ZERO_MIN, rows}, acc);
    else if (t->weight->zero == (q4 ? 8 : 128))
        dot_planes(t, (struct shape){q4, prefetched, false, ZERO_USUAL, rows}, acc);
    else
        dot_planes(t, (struct shape){q4, prefetched, false, ZERO_OTHER, rows}, acc);
}

INLINE void tile_rows(const struct linear_tile *t, bool prefetched, uint32_t rows)
{
    __m512 acc[ACT_TILE_ROWS];
#pragma GCC unroll 8
    for (uint32_t m = 0; m < rows; m++)
        acc[m] = _mm512_setzero_ps();
    switch (t->weight->type) {
    case WEIGHT_Q4: dot_zero_kind(t, true, prefetched, rows, acc); break;
    case WEIGHT_Q8: dot_zero_kind(t, false, prefetched, rows, acc); break;
    case WEIGHT_F32: dot_float(t, WEIGHT_F32, rows, acc); break;
    case WEIGHT_F16: dot_float(t, WEIGHT_F16, rows, acc); break;
    default: dot_float(t, WEIGHT_BF16, rows, acc); break;
    }
    store(t, rows, acc);
}

static void tile(const struct linear_tile *t)
{
    switch (t->rows) {
    case 1: tile_rows(t, true, 1); break;
    case 2: tile_rows(t, true, 2); break;
    case 3: tile_rows(t, true, 3); break;
    case 4: tile_rows(t, true, 4); break;
    case 5: tile_rows(t, true, 5); break;
    case 6: tile_rows(t, true, 6); break;
    case 7: tile_rows(t, true, 7); break;
    default:
        if (t->prefetch)
            tile_rows(t, true, 8);
        else
            tile_rows(t, false, 8);
    }
}

/* exp by 2^n * p(r), |r| <= ln(2)/2: Cephes' degree 5 polynomial, about 1 ulp; overflows to Inf,
 * underflows to 0, NaN stays. */
INLINE __m512 exp_ps(__m512 x)
{
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n);
}

INLINE __m512 silu_mul(__m512 gate, __m512 up)
{
    /* min keeps its second operand when one is NaN */
    __m512 minus = _mm512_sub_ps(_mm512_setzero_ps(), gate);
    __m512 e = exp_ps(_mm512_min_ps(_mm512_set1_ps(88.0f), minus));
    return _mm512_mul_ps(_mm512_div_ps(gate, _mm512_add_ps(_mm512_set1_ps(1.0f), e)), up);
}

static void silu(const float *gate, const float *up, const struct act *out, uint32_t row,
                 uint32_t col, uint32_t count)
{
    __m512 a = silu_mul(_mm512_loadu_ps(gate), _mm512_loadu_ps(up));
    __m512 b = silu_mul(_mm512_loadu_ps(gate + 16), _mm512_loadu_ps(up + 16));
    if (out->type != ACT_F32) {
        quantize_group_avx512(a, b, out->type, act_tile(out, row, col / GROUP_COLS),
                              row % ACT_TILE_ROWS);
        return;
    }
    uint32_t mask = count < GROUP_COLS ? (1u << count) - 1 : 0xffffffff;
    float *to = (float *)out->data + (size_t)row * out->cols + col;
    _mm512_mask_storeu_ps(to, (__mmask16)mask, a);
    _mm512_mask_storeu_ps(to + 16, (__mmask16)(mask >> 16), b);
}

static const struct linear_kernel kernel = {.tile = tile, .silu = silu};

void linear_avx512(const struct op_linear *op, uint32_t ith, uint32_t nth)
{
    linear_walk(op, ith, nth, &kernel);
}

void head_avx512(const struct op_head *op, uint32_t ith, uint32_t nth)
{
    head_walk(op, ith, nth, &kernel);
}
