/* sample_vec.h - the sampling kernels for a vector instruction set; included by sample_avx2.c and
 * sample_avx512.c. */
#include <math.h>

#include "kernels/cpu/sample.h"

enum { EXP_CHUNK = 1024 }; /* summed in float32 lanes; chunks are summed in float64 */

/* No Gumbel number of a 33-bit grid is larger: -log(-log(1 - 2^-33)) = 22.87. */
#define GUMBEL_MAX 23.0f

VEC_INLINE vec load_row(const float *logits, uint32_t i, uint32_t n)
{
    return n - i < VEC_LANES ? vec_load_part(logits + i, n - i, -INFINITY) : vec_load(logits + i);
}

bool VEC_NAME(row_max)(const float *logits, uint32_t n, float *max, uint32_t *index)
{
    vec best = vec_set(-INFINITY), whole = vec_set(INFINITY);
    ivec at = ivec_set(0);
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i += VEC_LANES) {
        vec x = load_row(logits, i, n);
        bad |= vec_bits(vec_not_less(x, whole));
        vmask better = vec_greater(x, best);
        best = vec_select(better, x, best);
        at = ivec_select(better, ivec_iota(i), at);
    }
    if (bad) return false;
    uint32_t lane_index[VEC_LANES], lowest = UINT32_MAX;
    ivec_store(lane_index, at);
    *max = vec_max_lane(best);
    for (uint32_t bits = vec_bits(vec_equal(best, vec_set(*max))); bits; bits &= bits - 1) {
        uint32_t i = lane_index[__builtin_ctz(bits)];
        lowest = i < lowest ? i : lowest;
    }
    *index = lowest;
    return true;
}

float VEC_NAME(row_exp_sum)(const float *logits, uint32_t n, float max, float inv_temperature)
{
    vec top = vec_set(max), factor = vec_set(inv_temperature * VEC_LOG2E);
    double sum = 0;
    for (uint32_t begin = 0; begin < n; begin += EXP_CHUNK) {
        uint32_t end = n - begin < EXP_CHUNK ? n : begin + EXP_CHUNK;
        vec part = vec_set(0);
        for (uint32_t i = begin; i < end; i += VEC_LANES)
            part = vec_add(part, vec_exp2(vec_mul(vec_sub(load_row(logits, i, n), top), factor)));
        sum += (double)vec_sum(part);
    }
    return (float)sum;
}

/* The first words for each lane's counter. Even and odd lanes apart, each in the low half of 64
 * bits: a product then is both words at once, and what lies in high halves is never read. */
VEC_INLINE ivec philox(ivec counter, uint64_t key64)
{
    ivec multiplier = ivec_set(PHILOX_MULTIPLIER), second = ivec_set((uint32_t)(key64 >> 32));
    ivec even = counter, odd = ivec_odd(counter), even_second = second, odd_second = second;
    uint32_t key = (uint32_t)key64;
    for (uint32_t i = 0; i < PHILOX_ROUNDS; i++) {
        ivec a = ivec_mul_even(even, multiplier), b = ivec_mul_even(odd, multiplier);
        even = ivec_xor3(ivec_odd(a), ivec_set(key), even_second);
        odd = ivec_xor3(ivec_odd(b), ivec_set(key), odd_second);
        even_second = a;
        odd_second = b;
        key += PHILOX_WEYL;
    }
    return ivec_weave(even, odd);
}

/* -log(-log((word + 0.5) / 2^32)). Near 1 the inner logarithm is taken of the distance from 1,
 * which is exact: the large Gumbel numbers, those which win, come from there. */
VEC_INLINE vec gumbel(ivec word)
{
    vec half = vec_set(0.5f), unit = vec_set(0x1p-32f), f, e;
    vec_log_parts(vec_mul(vec_add(vec_from_unsigned(word), half), unit), &f, &e);
    vec rest = vec_from_unsigned(ivec_xor(word, ivec_set(UINT32_MAX)));
    vmask near_one = ivec_top_two(word);
    f = vec_select(near_one, vec_mul(vec_add(rest, half), vec_set(-0x1p-32f)), f);
    e = vec_select(near_one, vec_set(0), e);
    vec exponential = vec_sub(vec_set(0), vec_log_of(f, e));
    vec_log_parts(exponential, &f, &e);
    return vec_sub(vec_set(0), vec_log_of(f, e));
}

/* The best so far; strictly better ones replace it, so that ties go to the lowest index. */
struct best {
    vec value;
    uint32_t at;
};
VEC_INLINE void best_offer(struct best *best, vec value, uint32_t i)
{
    if (!vec_bits(vec_greater(value, best->value))) return;
    best->value = vec_set(vec_max_lane(value));
    best->at = i + (uint32_t)__builtin_ctz(vec_bits(vec_equal(value, best->value)));
}

uint32_t VEC_NAME(row_gumbel_argmax)(const float *logits, uint32_t n, float inv_temperature,
                                     float floor, uint64_t key)
{
    struct best best = {vec_set(-INFINITY), 0};
    vec factor = vec_set(inv_temperature), none = vec_set(-INFINITY), limit = vec_set(floor);
    /* two vectors at a time: one chain of ten rounds and two logarithms leaves the core waiting */
    for (uint32_t i = 0; i < n; i += 2 * VEC_LANES) {
        uint32_t j = i + VEC_LANES;
        vec a = load_row(logits, i, n), b = j < n ? load_row(logits, j, n) : none;
        a = vec_select(vec_at_least(a, limit), vec_mul(a, factor), none);
        b = vec_select(vec_at_least(b, limit), vec_mul(b, factor), none);
        /* not even the largest Gumbel number would make one win */
        vec most = vec_add(vec_max(a, b), vec_set(GUMBEL_MAX));
        if (!vec_bits(vec_greater(most, best.value))) continue;
        vec noise_a = gumbel(philox(ivec_iota(i), key)),
            noise_b = gumbel(philox(ivec_iota(j), key));
        best_offer(&best, vec_add(a, noise_a), i);
        best_offer(&best, vec_add(b, noise_b), j);
    }
    return best.at;
}

uint32_t VEC_NAME(row_above)(const float *logits, uint32_t n, float floor, uint32_t *out,
                             uint32_t cap)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i += VEC_LANES) {
        uint32_t bits = vec_bits(vec_at_least(load_row(logits, i, n), vec_set(floor)));
        if (n - i < VEC_LANES) bits &= (1u << (n - i)) - 1; /* floor may be -Inf */
        for (; bits; bits &= bits - 1, count++)
            if (count < cap) out[count] = i + (uint32_t)__builtin_ctz(bits);
    }
    return count;
}
