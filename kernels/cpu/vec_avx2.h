/* vec_avx2.h - eight floats: what vec_avx512.h is, for AVX2, FMA and F16C. Only for *_avx2.c. */
#ifndef PENSTOCK_KERNELS_CPU_VEC_AVX2_H
#define PENSTOCK_KERNELS_CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define VEC_NAME(name) name##_avx2
#define VEC_INLINE static inline __attribute__((always_inline))

enum { VEC_LANES = 8 };
typedef __m256 vec;
typedef __m256i ivec;
typedef __m256 vmask;

VEC_INLINE vec vec_set(float x)
{
    return _mm256_set1_ps(x);
}
VEC_INLINE vec vec_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VEC_INLINE void vec_store(float *p, vec v)
{
    _mm256_storeu_ps(p, v);
}
VEC_INLINE vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
VEC_INLINE vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
VEC_INLINE vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
VEC_INLINE vec vec_fma(vec a, vec b, vec c) /* a * b + c */
{
    return _mm256_fmadd_ps(a, b, c);
}
VEC_INLINE vec vec_fms(vec a, vec b, vec c) /* a * b - c */
{
    return _mm256_fmsub_ps(a, b, c);
}
VEC_INLINE vec vec_max(vec a, vec b) /* b when either is NaN */
{
    return _mm256_max_ps(a, b);
}
VEC_INLINE vec vec_abs(vec a)
{
    return _mm256_andnot_ps(vec_set(-0.0f), a);
}
VEC_INLINE float vec_sum(vec v)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
VEC_INLINE float vec_max_lane(vec v)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
VEC_INLINE float vec_first(vec v)
{
    return _mm256_cvtss_f32(v);
}

/* integers */
VEC_INLINE ivec ivec_set(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}
VEC_INLINE ivec ivec_iota(uint32_t first)
{
    return _mm256_add_epi32(ivec_set(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
VEC_INLINE void ivec_store(uint32_t *p, ivec v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, v);
}
VEC_INLINE ivec ivec_add(ivec a, ivec b)
{
    return _mm256_add_epi32(a, b);
}
VEC_INLINE ivec ivec_sub(ivec a, ivec b)
{
    return _mm256_sub_epi32(a, b);
}
VEC_INLINE ivec ivec_xor(ivec a, ivec b)
{
    return _mm256_xor_si256(a, b);
}
VEC_INLINE ivec ivec_exponent(ivec a) /* a >> 23, arithmetic */
{
    return _mm256_srai_epi32(a, 23);
}
VEC_INLINE ivec ivec_shift_exponent(ivec a) /* a << 23 */
{
    return _mm256_slli_epi32(a, 23);
}
/* pairs of 32-bit lanes as 64-bit ones: products of the even lanes; the odd lanes in even places;
 * both back, from what lies in even places */
VEC_INLINE ivec ivec_mul_even(ivec a, ivec b)
{
    return _mm256_mul_epu32(a, b);
}
VEC_INLINE ivec ivec_odd(ivec a)
{
    return _mm256_srli_epi64(a, 32);
}
VEC_INLINE ivec ivec_weave(ivec even, ivec odd)
{
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
VEC_INLINE ivec ivec_xor3(ivec a, ivec b, ivec c)
{
    return ivec_xor(ivec_xor(a, b), c);
}
VEC_INLINE vec vec_from_signed(ivec a)
{
    return _mm256_cvtepi32_ps(a);
}
VEC_INLINE vec vec_from_unsigned(ivec a) /* both halves are exact, the sum rounds once */
{
    vec high = vec_from_signed(_mm256_srli_epi32(a, 16));
    vec low = vec_from_signed(_mm256_and_si256(a, ivec_set(0xffff)));
    return vec_fma(high, vec_set(65536.0f), low);
}
VEC_INLINE ivec ivec_bits_of(vec a)
{
    return _mm256_castps_si256(a);
}
VEC_INLINE vec vec_from_bits(ivec a)
{
    return _mm256_castsi256_ps(a);
}
VEC_INLINE vmask ivec_top_two(ivec a) /* the two top bits are set: >= 0xc0000000 */
{
    return vec_from_bits(_mm256_srai_epi32(_mm256_and_si256(a, _mm256_slli_epi32(a, 1)), 31));
}
VEC_INLINE vec vec_round(vec a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for a near 1 and whole n of -126..0; 0 in lanes without keep */
VEC_INLINE vec vec_scale_keep(vec a, vec n, vmask keep)
{
    ivec exponent = ivec_shift_exponent(_mm256_cvtps_epi32(n)); /* 0 for NaN, and a is NaN then */
    return _mm256_and_ps(keep, vec_from_bits(ivec_add(ivec_bits_of(a), exponent)));
}

/* masks: all bits of a lane */
VEC_INLINE vmask vec_lanes(uint32_t begin, uint32_t end) /* begin <= lane < end <= VEC_LANES */
{
    ivec lane = ivec_iota(0);
    ivec low = _mm256_cmpgt_epi32(ivec_set(begin), lane);
    return vec_from_bits(_mm256_andnot_si256(low, _mm256_cmpgt_epi32(ivec_set(end), lane)));
}
VEC_INLINE vec vec_select(vmask m, vec yes, vec no)
{
    return _mm256_blendv_ps(no, yes, m);
}
VEC_INLINE ivec ivec_select(vmask m, ivec yes, ivec no)
{
    return ivec_bits_of(vec_select(m, vec_from_bits(yes), vec_from_bits(no)));
}
VEC_INLINE uint32_t vec_bits(vmask m)
{
    return (uint32_t)_mm256_movemask_ps(m);
}
VEC_INLINE vmask vec_greater(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}
VEC_INLINE vmask vec_at_least(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_GE_OQ);
}
VEC_INLINE vmask vec_not_less(vec a, vec b) /* true for NaN */
{
    return _mm256_cmp_ps(a, b, _CMP_NLT_UQ);
}
VEC_INLINE vmask vec_equal(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
/* The first n < VEC_LANES floats, the rest `other`. */
VEC_INLINE vec vec_load_part(const float *p, uint32_t n, float other)
{
    vmask m = vec_lanes(0, n);
    return vec_select(m, _mm256_maskload_ps(p, ivec_bits_of(m)), vec_set(other));
}
VEC_INLINE void vec_store_part(float *p, uint32_t n, vec v)
{
    _mm256_maskstore_ps(p, ivec_bits_of(vec_lanes(0, n)), v);
}

/* conversions */
VEC_INLINE vec vec_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
VEC_INLINE void vec_store_f16(uint16_t *p, vec v)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
VEC_INLINE vec vec_load_i8(const int8_t *p)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return vec_from_signed(_mm256_cvtepi8_epi32(bytes));
}
VEC_INLINE void vec_store_i8(int8_t *p, vec v) /* nearest even, within -127..127 */
{
    ivec q = _mm256_max_epi32(_mm256_cvtps_epi32(v), _mm256_set1_epi32(-127));
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(words, words));
}
/* [a0 b0 a1 b1 ...] of 2 * VEC_LANES floats -> a, b */
VEC_INLINE void vec_load_pairs(const float *p, vec *a, vec *b)
{
    vec x = vec_load(p), y = vec_load(p + VEC_LANES);
    vec low = _mm256_permute2f128_ps(x, y, 0x20), high = _mm256_permute2f128_ps(x, y, 0x31);
    *a = _mm256_shuffle_ps(low, high, 0x88);
    *b = _mm256_shuffle_ps(low, high, 0xdd);
}

#endif
