/* attention_work.h - how attention's work is cut for the vector versions, and its scratch. */
#ifndef PENSTOCK_KERNELS_CPU_ATTENTION_WORK_H
#define PENSTOCK_KERNELS_CPU_ATTENTION_WORK_H

#include "kernels/cpu/attention.h"
#include "kernels/kv_layout.h"

enum {
    ATTENTION_TILE_QUERIES = 24,       /* queries that share one pass over the keys */
    ATTENTION_SPLIT_QUERIES_MAX = 256, /* up to so many in all, splits are work of their own */
    ATTENTION_SPLIT_BLOCKS = ATTENTION_SPLIT_TOKENS / KV_BLOCK_TOKENS,
};

/* A result that is not yet divided by sum: maximum of the scores (times log2 e), sum of
 * 2^(score - max), and the values weighted with it. */
struct attention_partial {
    _Alignas(64) float max;
    float sum;
    _Alignas(64) float value[]; /* [kv_dim_padded(head_dim)] */
};
static inline size_t attention_partial_bytes(uint32_t head_dim)
{
    return sizeof(struct attention_partial) + kv_dim_padded(head_dim) * sizeof(float);
}

/* Where the partial results of an op lie, when splits are work of their own. */
struct attention_place {
    uint8_t *begin;
    uint32_t q_heads, splits; /* [rows, q_heads, splits] */
    size_t bytes;             /* of one */
};
struct attention_place attention_place_init(const struct op_attention *op, uint32_t nth);
static inline struct attention_partial *attention_partial_at(const struct attention_place *place,
                                                             uint32_t row, uint32_t head,
                                                             uint32_t split)
{
    size_t at = ((size_t)row * place->q_heads + head) * place->splits + split;
    return (struct attention_partial *)(void *)(place->begin + at * place->bytes);
}

/* Queries of one KV head and one sequence: flat indexes [first, last) stand for row = run_row +
 * flat / group, head = kv_head * group + flat % group. */
struct attention_item {
    const struct op_attention *op;
    const uint32_t *blocks; /* the sequence's */
    uint32_t group;         /* query heads of a KV head */
    uint32_t run_row, kv_head, first, last;
    uint32_t split_begin, split_end; /* splits that some of its rows may see */
    bool by_split;                   /* one split, its result goes to `place` */
    struct attention_place place;
};

/* Calls fn for the items of thread ith. The queries are cut into nth ranges of equal cost (visible
 * keys), at any query: three KV heads keep two threads busy alike. */
void attention_share(const struct op_attention *op, uint32_t ith, uint32_t nth,
                     void (*fn)(const struct attention_item *item, uint8_t *tile));

/* True when few queries see several splits: each split of each is then work of its own, and merged
 * after a barrier. */
bool attention_needs_merge(const struct op_attention *op);

/* Parts of a thread's tile memory, each ATTENTION_TILE_QUERIES times [floats]. */
size_t attention_tile_bytes(uint32_t head_dim);
static inline float *attention_tile_q(uint8_t *tile, uint32_t head_dim, uint32_t query)
{
    return (float *)(void *)tile + (size_t)query * kv_dim_padded(head_dim);
}
static inline float *attention_tile_scores(uint8_t *tile, uint32_t head_dim, uint32_t query)
{
    return attention_tile_q(tile, head_dim, ATTENTION_TILE_QUERIES) +
           (size_t)query * ATTENTION_SPLIT_TOKENS;
}
/* which: 0 = of the split at hand, 1 = merged so far */
static inline struct attention_partial *attention_tile_partial(uint8_t *tile, uint32_t head_dim,
                                                               uint32_t which, uint32_t query)
{
    float *begin = attention_tile_scores(tile, head_dim, ATTENTION_TILE_QUERIES);
    size_t at = (which * ATTENTION_TILE_QUERIES + query) * attention_partial_bytes(head_dim);
    return (struct attention_partial *)(void *)((uint8_t *)begin + at);
}

#endif
