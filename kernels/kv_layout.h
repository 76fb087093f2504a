/* kv_layout.h - where things lie inside a KV block. Private to kernels: kv.c draws the picture, the
 * rope_store and attention kernels read and write by these. */
#ifndef PENSTOCK_KERNELS_KV_LAYOUT_H
#define PENSTOCK_KERNELS_KV_LAYOUT_H

#include "kernels/ops.h"

static inline size_t kv_value_bytes(enum kv_type type)
{
    return type == KV_F32 ? 4 : type == KV_F16 ? 2 : 1;
}
/* V rows are padded to whole vectors; what the padding holds never reaches a result. */
static inline uint32_t kv_dim_padded(uint32_t head_dim)
{
    return (head_dim + 15) / 16 * 16;
}
static inline size_t kv_k_bytes(enum kv_type type, uint32_t head_dim)
{
    return (head_dim * KV_BLOCK_TOKENS * kv_value_bytes(type) + 63) / 64 * 64;
}
static inline size_t kv_v_bytes(enum kv_type type, uint32_t head_dim)
{
    return KV_BLOCK_TOKENS * kv_dim_padded(head_dim) * kv_value_bytes(type);
}
static inline size_t kv_head_bytes(enum kv_type type, uint32_t head_dim)
{
    return kv_k_bytes(type, head_dim) + kv_v_bytes(type, head_dim) + (type == KV_Q8 ? 64 : 0);
}

/* One KV head of one block. */
struct kv_head {
    uint8_t *k;                  /* [head_dim, 16] */
    uint8_t *v;                  /* [16, kv_dim_padded(head_dim)] */
    uint16_t *k_scale, *v_scale; /* [16] f16; KV_Q8 only */
};
static inline struct kv_head kv_head_at(const struct kv_layer *kv, uint32_t block, uint32_t head)
{
    struct kv_head h;
    h.k = kv->data + block * kv->block_bytes + head * kv_head_bytes(kv->type, kv->head_dim);
    h.v = h.k + kv_k_bytes(kv->type, kv->head_dim);
    h.k_scale = (uint16_t *)(void *)(h.v + kv_v_bytes(kv->type, kv->head_dim));
    h.v_scale = h.k_scale + KV_BLOCK_TOKENS;
    return h;
}

/* One element: side 0 = K, 1 = V. */
float kv_head_get(const struct kv_layer *kv, const struct kv_head *h, uint32_t side, uint32_t token,
                  uint32_t dim);

#endif
