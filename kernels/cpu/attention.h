/* attention.h - causal attention over paged keys. Pure; any thread, disjoint (ith, nth). */
#ifndef PENSTOCK_KERNELS_CPU_ATTENTION_H
#define PENSTOCK_KERNELS_CPU_ATTENTION_H

#include "kernels/kv.h"

void attention_plain(const struct op_attention *op, uint32_t ith, uint32_t nth);
void attention_avx2(const struct op_attention *op, uint32_t ith, uint32_t nth);
void attention_avx512(const struct op_attention *op, uint32_t ith, uint32_t nth);
void attention_merge_plain(const struct op_attention *op, uint32_t ith, uint32_t nth);
void attention_merge_avx2(const struct op_attention *op, uint32_t ith, uint32_t nth);
void attention_merge_avx512(const struct op_attention *op, uint32_t ith, uint32_t nth);
bool attention_needs_merge_plain(const struct op_attention *op);
bool attention_needs_merge_avx2(const struct op_attention *op);
bool attention_needs_merge_avx512(const struct op_attention *op);

/* The first position that a query at `position` sees. */
static inline uint32_t attention_begin(const struct op_attention *op, uint32_t position)
{
    return op->window == 0 || position < op->window ? 0 : position - op->window + 1;
}

#endif
