/* quantize_group_avx512.h - one group of 32 columns, held in two registers, into its tile: inline,
 * for AVX-512 files whose values never touch memory as floats. */
#ifndef PENSTOCK_KERNELS_CPU_QUANTIZE_GROUP_AVX512_H
#define PENSTOCK_KERNELS_CPU_QUANTIZE_GROUP_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "kernels/layout.h"

static inline void quantize_group_avx512(__m512 a, __m512 b, enum act_type type,
                                         struct act_tile_group *t, uint32_t r)
{
    const float steps = act_steps(type);
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i bits = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                    _mm512_and_si512(_mm512_castps_si512(b), magnitude));
    float amax =
        _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)_mm512_reduce_max_epu32(bits))));
    if (!isfinite(amax) || amax <= ACT_AMAX_MIN) {
        for (uint32_t i = 0; i < act_planes(type); i++)
            _mm256_storeu_si256((__m256i *)t[i].q[r], _mm256_setzero_si256());
        t->scale[r] = isfinite(amax) ? amax / steps : NAN;
        t->scaled_sum[r] = isfinite(amax) ? 0 : NAN;
        t->minus_sum[r] = 0;
        return;
    }
    __m512 inverse = _mm512_set1_ps(steps / amax);
    __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
    __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    int32_t total = _mm512_reduce_add_epi32(_mm512_add_epi32(qa, qb));
    if (type == ACT_Q16) {
        const __m512i half = _mm512_set1_epi32(1 << (ACT_LOW_BITS - 1));
        __m512i ha = _mm512_srai_epi32(_mm512_add_epi32(qa, half), ACT_LOW_BITS);
        __m512i hb = _mm512_srai_epi32(_mm512_add_epi32(qb, half), ACT_LOW_BITS);
        qa = _mm512_sub_epi32(qa, _mm512_slli_epi32(ha, ACT_LOW_BITS));
        qb = _mm512_sub_epi32(qb, _mm512_slli_epi32(hb, ACT_LOW_BITS));
        _mm_storeu_si128((__m128i *)t[1].q[r], _mm512_cvtepi32_epi8(qa));
        _mm_storeu_si128((__m128i *)(t[1].q[r] + 16), _mm512_cvtepi32_epi8(qb));
        qa = ha;
        qb = hb;
    }
    _mm_storeu_si128((__m128i *)t->q[r], _mm512_cvtepi32_epi8(qa));
    _mm_storeu_si128((__m128i *)(t->q[r] + 16), _mm512_cvtepi32_epi8(qb));
    t->scale[r] = amax / steps;
    t->scaled_sum[r] = t->scale[r] * (float)total;
    t->minus_sum[r] = -total;
}

#endif
