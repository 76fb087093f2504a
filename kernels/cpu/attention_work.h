/* attention_work.h - how attention's work is cut for the vector versions, and its scratch. */
#ifndef PENSTOCK_KERNELS_CPU_ATTENTION_WORK_H
#define PENSTOCK_KERNELS_CPU_ATTENTION_WORK_H

#include "kernels/cpu/attention.h"
#include "kernels/kv_layout.h"

enum {
    ATTENTION_TILE_QUERIES = 24,       /* queries that share one pass over the keys */
    ATTENTION_SPLIT_QUERIES_MAX = 256, /* up to so many in all, splits are work of their own */
    ATTENTION_PARTIAL_HEAD = 16,       /* floats before a partial's vector: max, sum */
};

/* Queries of one KV head and one sequence: flat indexes [first, last) stand for row = run_row +
 * flat / group, head = kv_head * group + flat % group. */
struct attention_item {
    const uint32_t *blocks; /* the sequence's */
    uint32_t run_row;
    uint32_t kv_head;
    uint32_t first, last;
    uint32_t split; /* UINT32_MAX: all of them */
};
/* Calls fn for the items of thread ith: the queries are cut into nth ranges of equal cost (visible
 * keys), at any query, so that three KV heads keep two threads busy alike. */
void attention_share(const struct op_attention *op, uint32_t ith, uint32_t nth,
                     void (*fn)(const struct op_attention *op, const struct attention_item *item,
                                float *scratch));
/* True when few queries see several splits: each split of each is then work of its own. */
bool attention_needs_merge(const struct op_attention *op);
/* A partial result: max, sum, [ATTENTION_PARTIAL_HEAD] vector, [kv_dim_padded]. */
float *attention_partial(const struct op_attention *op, uint32_t row, uint32_t head,
                         uint32_t split);

static inline uint32_t attention_splits(uint32_t context)
{
    return (context + ATTENTION_SPLIT_TOKENS - 1) / ATTENTION_SPLIT_TOKENS;
}
static inline size_t attention_partial_floats(uint32_t head_dim)
{
    return ATTENTION_PARTIAL_HEAD + kv_dim_padded(head_dim);
}

#endif
