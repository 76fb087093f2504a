/* kv.h - the layout of a KV block of the CPU backend: 16 tokens of one layer, K and V, all KV
 * heads. Pure. */
#ifndef PENSTOCK_KERNELS_KV_H
#define PENSTOCK_KERNELS_KV_H

#include "kernels/ops.h"

/* Bytes of one block of one layer, a multiple of 64. */
size_t kv_block_bytes(enum kv_type type, uint32_t kv_heads, uint32_t head_dim);
/* Scratch of op_attention for up to rows rows of contexts up to context_max. */
size_t attention_scratch_bytes(uint32_t rows_max, uint32_t q_heads, uint32_t head_dim,
                               uint32_t context_max, uint32_t threads);
/* One element back, for tests: side 0 = K, 1 = V. */
float kv_get(const struct kv_layer *kv, uint32_t block, uint32_t side, uint32_t head,
             uint32_t token, uint32_t dim);

#endif
