/* rope.h - norm and rotation of q and k, and K and V into the cache. Pure; any thread, disjoint
 * (row, KV head). */
#ifndef PENSTOCK_KERNELS_CPU_ROPE_H
#define PENSTOCK_KERNELS_CPU_ROPE_H

#include "kernels/kv_layout.h"

void rope_store_plain(const struct op_rope_store *op, uint32_t ith, uint32_t nth);
void rope_store_avx2(const struct op_rope_store *op, uint32_t ith, uint32_t nth);
void rope_store_avx512(const struct op_rope_store *op, uint32_t ith, uint32_t nth);

/* What the instruction sets differ in. */
struct rope_kernel {
    /* x = x / sqrt(mean(x^2) + eps) * weight */
    void (*norm)(float *x, const float *weight, float eps, uint32_t dim);
    /* table: [rope_dim / 2, 2] cos and sin */
    void (*rotate)(float *x, const float *table, uint32_t rope_dim);
    /* k and v, [head_dim] each, into one token's slot */
    void (*store)(const struct kv_layer *kv, const struct kv_head *h, uint32_t token,
                  const float *k, const float *v);
};
/* Shares (row, KV head) out; the head's group of query heads comes along. */
void rope_walk(const struct op_rope_store *op, uint32_t ith, uint32_t nth,
               const struct rope_kernel *kernel);

/* int8 K and V of one token: scale = amax / 127 in f16; 0 scales to 0, what is not finite to NaN.
 * *inverse: what values are multiplied with before they are rounded. */
uint16_t kv_scale(float amax, float *inverse);

#endif
