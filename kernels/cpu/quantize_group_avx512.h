/* quantize_group_avx512.h - one group of 32 columns, held in two registers, into its tile: inline,
 * for AVX-512 files whose values never touch memory as floats. */
#ifndef PENSTOCK_KERNELS_CPU_QUANTIZE_GROUP_AVX512_H
#define PENSTOCK_KERNELS_CPU_QUANTIZE_GROUP_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "kernels/layout.h"

static inline void quantize_group_avx512(__m512 a, __m512 b, struct act_tile_group *t, uint32_t r)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i bits = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                    _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    float amax =
        _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)_mm512_reduce_max_epu32(bits))));
    if (!isfinite(amax) || amax <= 1e-36f) {
        _mm256_storeu_si256((__m256i *)t->q[r], _mm256_setzero_si256());
        t->scale[r] = isfinite(amax) ? amax / 127.0f : NAN;
        t->scaled_sum[r] = isfinite(amax) ? 0 : NAN;
        t->minus_sum[r] = 0;
        return;
    }
    __m512 inverse = _mm512_set1_ps(127.0f / amax);
    __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
    __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    _mm_storeu_si128((__m128i *)t->q[r], _mm512_cvtepi32_epi8(qa));
    _mm_storeu_si128((__m128i *)(t->q[r] + 16), _mm512_cvtepi32_epi8(qb));
    t->scale[r] = amax / 127.0f;
    int32_t total = _mm512_reduce_add_epi32(_mm512_add_epi32(qa, qb));
    t->scaled_sum[r] = t->scale[r] * (float)total;
    t->minus_sum[r] = -total;
}

#endif
