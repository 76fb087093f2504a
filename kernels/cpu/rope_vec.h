/* rope_vec.h - rope_store for a vector instruction set; included by rope_avx2.c and rope_avx512.c.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/rope.h"
#include "kernels/weights.h"

static void head_norm(float *x, const float *weight, float eps, uint32_t dim)
{
    vec sum = vec_set(0);
    for (uint32_t d = 0; d < dim; d += VEC_LANES) {
        vec v = dim - d < VEC_LANES ? vec_load_part(x + d, dim - d, 0) : vec_load(x + d);
        sum = vec_fma(v, v, sum);
    }
    float scale = 1.0f / sqrtf(vec_sum(sum) / (float)dim + eps);
    uint32_t d = 0;
    for (; d + VEC_LANES <= dim; d += VEC_LANES)
        vec_store(x + d, vec_mul(vec_mul(vec_load(x + d), vec_set(scale)), vec_load(weight + d)));
    for (; d < dim; d++)
        x[d] = x[d] * scale * weight[d];
}

static void rotate(float *x, const float *table, uint32_t rope_dim)
{
    uint32_t half = rope_dim / 2, i = 0;
    for (; i + VEC_LANES <= half; i += VEC_LANES) {
        vec c, s, a = vec_load(x + i), b = vec_load(x + i + half);
        vec_load_pairs(table + 2 * (size_t)i, &c, &s);
        vec_store(x + i, vec_fms(a, c, vec_mul(b, s)));
        vec_store(x + i + half, vec_fma(b, c, vec_mul(a, s)));
    }
    for (; i < half; i++) {
        float c = table[2 * i], s = table[2 * i + 1], a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

/* the largest magnitude; +Inf when a NaN is among them */
static float abs_max(const float *x, uint32_t n)
{
    vec amax = vec_set(0), whole = vec_set(INFINITY);
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i += VEC_LANES) {
        vec v = vec_abs(n - i < VEC_LANES ? vec_load_part(x + i, n - i, 0) : vec_load(x + i));
        bad |= vec_bits(vec_not_less(v, whole));
        amax = vec_max(v, amax);
    }
    return bad ? INFINITY : vec_max_lane(amax);
}

/* One vector's worth of values, converted: f32, f16 or int8 as the cache wants them. */
VEC_INLINE void convert(enum kv_type type, void *to, vec v, float inverse)
{
    if (type == KV_F32)
        vec_store(to, v);
    else if (type == KV_F16)
        vec_store_f16(to, v);
    else
        vec_store_i8(to, vec_mul(v, vec_set(inverse)));
}

VEC_INLINE void put_transposed(enum kv_type type, uint8_t *k, const void *from, uint32_t count)
{
    for (uint32_t d = 0; d < count; d++) {
        size_t at = (size_t)d * KV_BLOCK_TOKENS;
        if (type == KV_F32)
            ((float *)(void *)k)[at] = ((const float *)from)[d];
        else if (type == KV_F16)
            ((uint16_t *)(void *)k)[at] = ((const uint16_t *)from)[d];
        else
            k[at] = ((const uint8_t *)from)[d];
    }
}

VEC_INLINE void store_as(enum kv_type type, const struct kv_layer *kv, const struct kv_head *h,
                         uint32_t token, const float *k, const float *v)
{
    size_t bytes = kv_value_bytes(type);
    uint8_t *k_to = h->k + token * bytes,
            *v_to = h->v + token * kv_dim_padded(kv->head_dim) * bytes;
    float k_inverse = 0, v_inverse = 0;
    if (type == KV_Q8) {
        h->k_scale[token] = kv_scale(abs_max(k, kv->head_dim), &k_inverse);
        h->v_scale[token] = kv_scale(abs_max(v, kv->head_dim), &v_inverse);
    }
    for (uint32_t d = 0; d < kv->head_dim; d += VEC_LANES) {
        uint32_t count = kv->head_dim - d < VEC_LANES ? kv->head_dim - d : VEC_LANES;
        vec kd = count < VEC_LANES ? vec_load_part(k + d, count, 0) : vec_load(k + d);
        vec vd = count < VEC_LANES ? vec_load_part(v + d, count, 0) : vec_load(v + d);
        _Alignas(64) uint8_t part[VEC_LANES * sizeof(float)];
        convert(type, part, kd, k_inverse);
        put_transposed(type, k_to + d * KV_BLOCK_TOKENS * bytes, part, count);
        convert(type, v_to + d * bytes, vd, v_inverse); /* V's rows are padded to whole vectors */
    }
}

static void store(const struct kv_layer *kv, const struct kv_head *h, uint32_t token,
                  const float *k, const float *v)
{
    switch (kv->type) {
    case KV_F32: store_as(KV_F32, kv, h, token, k, v); break;
    case KV_F16: store_as(KV_F16, kv, h, token, k, v); break;
    case KV_Q8: store_as(KV_Q8, kv, h, token, k, v); break;
    }
}

void VEC_NAME(rope_store)(const struct op_rope_store *op, uint32_t ith, uint32_t nth)
{
    static const struct rope_kernel kernel = {head_norm, rotate, store};
    rope_walk(op, ith, nth, &kernel);
}
