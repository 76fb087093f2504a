/* kv.c - the layout of a KV block of the CPU backend: 16 tokens of one layer.
 *
 *      KV head 0                                                      | KV head 1 ...
 *      +---------------------------+--------------------------+---------+
 *      | K [head_dim][16 tokens]   | V [16 tokens][dim padded]| scales  |   each part a multiple of
 *      +---------------------------+--------------------------+---------+   64 bytes
 *
 * K lies transposed: the products of one query with 16 keys are a running sum over head_dim of
 * q[d] * K[d][0..15], sixteen scores in one AVX-512 register (two of AVX2), and no sum across a
 * register. V lies as it is: an output is a running sum over tokens of p[t] * V[t][0..dim). Both
 * are read front to back. Values are f16, f32, or int8; the latter with scales, 16 x f16 for K and
 * 16 x f16 for V, a token each: K's multiplies the score, V's the probability, so that the inner
 * loops only convert. V's rows are padded to a multiple of 16 values. */
#include "kernels/kv.h"

#include "kernels/kv_layout.h"
#include "kernels/weights.h"

size_t kv_block_bytes(enum kv_type type, uint32_t kv_heads, uint32_t head_dim)
{
    return kv_heads * kv_head_bytes(type, head_dim);
}

float kv_head_get(const struct kv_layer *kv, const struct kv_head *h, uint32_t side, uint32_t token,
                  uint32_t dim)
{
    const void *part = side == 0 ? h->k : h->v;
    size_t at = side == 0 ? (size_t)dim * KV_BLOCK_TOKENS + token
                          : (size_t)token * kv_dim_padded(kv->head_dim) + dim;
    if (kv->type == KV_F32) return ((const float *)part)[at];
    if (kv->type == KV_F16) return f16_to_f32(((const uint16_t *)part)[at]);
    uint16_t scale = (side == 0 ? h->k_scale : h->v_scale)[token];
    return (float)((const int8_t *)part)[at] * f16_to_f32(scale);
}

float kv_get(const struct kv_layer *kv, uint32_t block, uint32_t side, uint32_t head,
             uint32_t token, uint32_t dim)
{
    struct kv_head h = kv_head_at(kv, block, head);
    return kv_head_get(kv, &h, side, token, dim);
}
