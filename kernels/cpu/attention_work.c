/* attention_work.c - attention's work, cut by cost. Nothing here changes a result: a query's float
 * operations depend on its own position only (attention_vec.h).
 *
 * Order of the items: run of rows of one sequence, KV head, split (if splits are work of their
 * own), query. A thread's range of cost is contiguous in it, so that neighbours in a thread share
 * keys.
 *
 * Scratch: [thread] { q, scores, partial and merged results of one tile } [partials]. */
#include "kernels/cpu/attention_work.h"

/* One tile's q [24, head_dim], scores [24, 256], partial and merged [24, partial]. */
static size_t tile_floats(uint32_t head_dim)
{
    return ATTENTION_TILE_QUERIES * (kv_dim_padded(head_dim) + ATTENTION_SPLIT_TOKENS +
                                     2 * attention_partial_floats(head_dim));
}

size_t attention_scratch_bytes(uint32_t rows_max, uint32_t q_heads, uint32_t head_dim,
                               uint32_t context_max, uint32_t threads)
{
    size_t queries = (size_t)rows_max * q_heads;
    if (queries > ATTENTION_SPLIT_QUERIES_MAX) queries = ATTENTION_SPLIT_QUERIES_MAX;
    size_t partials = queries * attention_splits(context_max) * attention_partial_floats(head_dim);
    return (threads * tile_floats(head_dim) + partials) * sizeof(float);
}
