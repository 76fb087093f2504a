/* quantize_avx512.c - activations to 8 bits: one group of 32 columns is two registers. */
#include <immintrin.h>
#include <math.h>

#include "kernels/cpu/quantize.h"
#include "kernels/layout.h"

static inline void quantize_group(const float *x, struct act_tile_group *t, uint32_t r)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    __m512i bits = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                    _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    float amax =
        _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)_mm512_reduce_max_epu32(bits))));
    if (!isfinite(amax) || amax <= 1e-36f) {
        _mm256_storeu_si256((__m256i *)t->q[r], _mm256_setzero_si256());
        t->scale[r] = isfinite(amax) ? amax / 127.0f : NAN;
        t->scaled_sum[r] = isfinite(amax) ? 0 : NAN;
        return;
    }
    __m512 inverse = _mm512_set1_ps(127.0f / amax);
    __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
    __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    _mm_storeu_si128((__m128i *)t->q[r], _mm512_cvtepi32_epi8(qa));
    _mm_storeu_si128((__m128i *)(t->q[r] + 16), _mm512_cvtepi32_epi8(qb));
    t->scale[r] = amax / 127.0f;
    t->scaled_sum[r] = t->scale[r] * (float)_mm512_reduce_add_epi32(_mm512_add_epi32(qa, qb));
}

void act_quantize_avx512(const float *x, const struct act *out, uint32_t row, uint32_t col,
                         uint32_t count)
{
    if (out->type == ACT_F32) {
        act_quantize_plain(x, out, row, col, count);
        return;
    }
    struct act_tile_group *t = act_tile(out, row, col / GROUP_COLS);
    for (uint32_t g = 0; g < count / GROUP_COLS; g++)
        quantize_group(x + g * GROUP_COLS, t + g, row % ACT_TILE_ROWS);
}

void quantize_avx512(const struct op_quantize *op, uint32_t ith, uint32_t nth)
{
    quantize_walk(op, ith, nth, act_quantize_avx512);
}
