/* vec_avx512.h - sixteen floats. The *_vec.h kernels are written once in these words, and compiled
 * for AVX-512 with this file and for AVX2 with vec_avx2.h. Only for *_avx512.c. */
#ifndef PENSTOCK_KERNELS_CPU_VEC_AVX512_H
#define PENSTOCK_KERNELS_CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define VEC_NAME(name) name##_avx512
#define VEC_INLINE static inline __attribute__((always_inline))

enum { VEC_LANES = 16 };
typedef __m512 vec;
typedef __m512i ivec;
typedef __mmask16 vmask;

VEC_INLINE vec vec_set(float x)
{
    return _mm512_set1_ps(x);
}
VEC_INLINE vec vec_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VEC_INLINE void vec_store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}
VEC_INLINE vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
VEC_INLINE vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
VEC_INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
VEC_INLINE vec vec_fma(vec a, vec b, vec c) /* a * b + c */
{
    return _mm512_fmadd_ps(a, b, c);
}
VEC_INLINE vec vec_fms(vec a, vec b, vec c) /* a * b - c */
{
    return _mm512_fmsub_ps(a, b, c);
}
VEC_INLINE vec vec_max(vec a, vec b) /* b when either is NaN */
{
    return _mm512_max_ps(a, b);
}
VEC_INLINE vec vec_abs(vec a)
{
    return _mm512_abs_ps(a);
}
VEC_INLINE float vec_sum(vec v)
{
    return _mm512_reduce_add_ps(v);
}
VEC_INLINE float vec_max_lane(vec v)
{
    return _mm512_reduce_max_ps(v);
}
VEC_INLINE float vec_first(vec v)
{
    return _mm512_cvtss_f32(v);
}

/* masks */
VEC_INLINE vmask vec_lanes(uint32_t begin, uint32_t end) /* begin <= lane < end <= VEC_LANES */
{
    return (vmask)(((1u << end) - 1) & ~((1u << begin) - 1));
}
VEC_INLINE vec vec_select(vmask m, vec yes, vec no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
VEC_INLINE ivec ivec_select(vmask m, ivec yes, ivec no)
{
    return _mm512_mask_blend_epi32(m, no, yes);
}
VEC_INLINE uint32_t vec_bits(vmask m)
{
    return m;
}
VEC_INLINE vmask vec_greater(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
VEC_INLINE vmask vec_at_least(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
VEC_INLINE vmask vec_not_less(vec a, vec b) /* true for NaN */
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ);
}
VEC_INLINE vmask vec_equal(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
/* The first n < VEC_LANES floats, the rest `other`. */
VEC_INLINE vec vec_load_part(const float *p, uint32_t n, float other)
{
    return _mm512_mask_loadu_ps(vec_set(other), vec_lanes(0, n), p);
}
VEC_INLINE void vec_store_part(float *p, uint32_t n, vec v)
{
    _mm512_mask_storeu_ps(p, vec_lanes(0, n), v);
}

/* conversions */
VEC_INLINE vec vec_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
VEC_INLINE void vec_store_f16(uint16_t *p, vec v)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
VEC_INLINE vec vec_load_i8(const int8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
VEC_INLINE void vec_store_i8(int8_t *p, vec v) /* nearest even, within -127..127 */
{
    ivec q = _mm512_max_epi32(_mm512_cvtps_epi32(v), _mm512_set1_epi32(-127));
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtsepi32_epi8(q));
}
/* [a0 b0 a1 b1 ...] of 2 * VEC_LANES floats -> a, b */
VEC_INLINE void vec_load_pairs(const float *p, vec *a, vec *b)
{
    const ivec even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    vec low = vec_load(p), high = vec_load(p + VEC_LANES);
    *a = _mm512_permutex2var_ps(low, even, high);
    *b = _mm512_permutex2var_ps(low, _mm512_or_si512(even, _mm512_set1_epi32(1)), high);
}

/* integers */
VEC_INLINE ivec ivec_set(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}
VEC_INLINE ivec ivec_iota(uint32_t first)
{
    return _mm512_add_epi32(
        ivec_set(first), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
VEC_INLINE void ivec_store(uint32_t *p, ivec v)
{
    _mm512_storeu_si512(p, v);
}
VEC_INLINE ivec ivec_add(ivec a, ivec b)
{
    return _mm512_add_epi32(a, b);
}
VEC_INLINE ivec ivec_sub(ivec a, ivec b)
{
    return _mm512_sub_epi32(a, b);
}
VEC_INLINE ivec ivec_xor(ivec a, ivec b)
{
    return _mm512_xor_si512(a, b);
}
VEC_INLINE ivec ivec_exponent(ivec a) /* a >> 23, arithmetic */
{
    return _mm512_srai_epi32(a, 23);
}
VEC_INLINE ivec ivec_shift_exponent(ivec a) /* a << 23 */
{
    return _mm512_slli_epi32(a, 23);
}
/* pairs of 32-bit lanes as 64-bit ones: products of the even lanes; the odd lanes in even places;
 * both back, from what lies in even places */
VEC_INLINE ivec ivec_mul_even(ivec a, ivec b)
{
    return _mm512_mul_epu32(a, b);
}
VEC_INLINE ivec ivec_odd(ivec a)
{
    return _mm512_srli_epi64(a, 32);
}
VEC_INLINE ivec ivec_weave(ivec even, ivec odd)
{
    return _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
VEC_INLINE ivec ivec_xor3(ivec a, ivec b, ivec c)
{
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
VEC_INLINE vec vec_from_unsigned(ivec a)
{
    return _mm512_cvtepu32_ps(a);
}
VEC_INLINE vec vec_from_signed(ivec a)
{
    return _mm512_cvtepi32_ps(a);
}
VEC_INLINE ivec ivec_bits_of(vec a)
{
    return _mm512_castps_si512(a);
}
VEC_INLINE vec vec_from_bits(ivec a)
{
    return _mm512_castsi512_ps(a);
}
VEC_INLINE vmask ivec_top_two(ivec a) /* the two top bits are set: >= 0xc0000000 */
{
    return _mm512_cmpge_epu32_mask(a, ivec_set(0xc0000000u));
}
VEC_INLINE vec vec_round(vec a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a * 2^n for a near 1 and whole n of -126..0; 0 in lanes without keep */
VEC_INLINE vec vec_scale_keep(vec a, vec n, vmask keep)
{
    return _mm512_maskz_scalef_ps(keep, a, n);
}

#endif
