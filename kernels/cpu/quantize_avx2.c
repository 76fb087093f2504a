/* quantize_avx2.c - activations to 8 bits: one group of 32 columns is four registers. */
#include <immintrin.h>
#include <math.h>

#include "kernels/cpu/quantize.h"
#include "kernels/layout.h"

static inline int32_t reduce_add(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

static inline float reduce_max_bits(__m256i v)
{
    __m128i s = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_max_epu32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epu32(s, _mm_shuffle_epi32(s, 0xb1))));
}

/* 32 int32 as bytes: packs work within 128-bit lanes, so the eight 4-byte pieces are put back in
 * order. */
static inline void store_bytes(int8_t *to, const __m256i q[4])
{
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)to, bytes);
}

static inline void quantize_group(const float *x, enum act_type type, struct act_tile_group *t,
                                  uint32_t r)
{
    const float steps = act_steps(type);
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 v[4];
    __m256i bits = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        bits = _mm256_max_epu32(bits, _mm256_castps_si256(_mm256_and_ps(v[i], magnitude)));
    }
    float amax = reduce_max_bits(bits);
    if (!isfinite(amax) || amax <= ACT_AMAX_MIN) {
        for (uint32_t i = 0; i < act_planes(type); i++)
            _mm256_storeu_si256((__m256i *)t[i].q[r], _mm256_setzero_si256());
        t->scale[r] = isfinite(amax) ? amax / steps : NAN;
        t->scaled_sum[r] = isfinite(amax) ? 0 : NAN;
        t->minus_sum[r] = 0;
        return;
    }
    __m256 inverse = _mm256_set1_ps(steps / amax);
    __m256i q[4];
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    if (type == ACT_Q16) {
        const __m256i half = _mm256_set1_epi32(1 << (ACT_LOW_BITS - 1));
        __m256i low[4];
        for (int i = 0; i < 4; i++) {
            __m256i high = _mm256_srai_epi32(_mm256_add_epi32(q[i], half), ACT_LOW_BITS);
            low[i] = _mm256_sub_epi32(q[i], _mm256_slli_epi32(high, ACT_LOW_BITS));
            q[i] = high;
        }
        store_bytes(t[1].q[r], low);
    }
    store_bytes(t->q[r], q);
    t->scale[r] = amax / steps;
    int32_t total = reduce_add(sum);
    t->scaled_sum[r] = t->scale[r] * (float)total;
    t->minus_sum[r] = -total;
}

void act_quantize_avx2(const float *x, const struct act *out, uint32_t row, uint32_t col,
                       uint32_t count)
{
    if (out->type == ACT_F32) {
        act_quantize_plain(x, out, row, col, count);
        return;
    }
    struct act_tile_group *t = act_tile(out, row, col / GROUP_COLS);
    for (uint32_t g = 0; g < count / GROUP_COLS; g++)
        quantize_group(x + g * GROUP_COLS, out->type, t + g * act_planes(out->type),
                       row % ACT_TILE_ROWS);
}

void quantize_avx2(const struct op_quantize *op, uint32_t ith, uint32_t nth)
{
    quantize_walk(op, ith, nth, act_quantize_avx2);
}
