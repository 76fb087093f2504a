/* cpu_ops.h - the CPU's table of op functions: one table for each instruction set, all with the
 * same results up to rounding. Each function does the share of thread `ith` of `nth` of one op; the
 * caller (worker/backend/cpu.c) puts a barrier between ops. Functions with a `_phases` count above
 * 1 need barriers inside: they are called once for each phase. */
#ifndef PENSTOCK_KERNELS_CPU_CPU_OPS_H
#define PENSTOCK_KERNELS_CPU_CPU_OPS_H

#include "kernels/isa.h"
#include "kernels/ops.h"

struct cpu_ops {
    enum isa isa;
    void (*embed)(const struct op_embed *op, uint32_t ith, uint32_t nth);
    void (*norm)(const struct op_norm *op, uint32_t ith, uint32_t nth);
    void (*linear)(const struct op_linear *op, uint32_t ith, uint32_t nth);
    void (*quantize)(const struct op_quantize *op, uint32_t ith, uint32_t nth);
    void (*rope_store)(const struct op_rope_store *op, uint32_t ith, uint32_t nth);
    void (*attention)(const struct op_attention *op, uint32_t ith,
                      uint32_t nth); /* phase 1: partial results */
    void (*attention_merge)(const struct op_attention *op, uint32_t ith,
                            uint32_t nth); /* phase 2; after a barrier */
    bool (*attention_needs_merge)(
        const struct op_attention *op); /* same answer on every thread; false: phase 1 wrote out */
    void (*head)(const struct op_head *op, uint32_t ith, uint32_t nth);
    void (*copy_blocks)(const struct op_copy_blocks *op, uint32_t ith, uint32_t nth);

    /* sampling kernels, on one row of logits; single-threaded, the caller shares rows out */
    /* Largest value and its lowest index; false when a NaN or +inf is in the row (the row must
     * fail). */
    bool (*row_max)(const float *logits, uint32_t n, float *max, uint32_t *index);
    /* sum over i of exp((logits[i] - max) * inv_temperature), in a fixed order */
    float (*row_exp_sum)(const float *logits, uint32_t n, float max, float inv_temperature);
    /* argmax over i of logits[i] * inv_temperature + gumbel(key, i); only i with logits[i] >= floor
     * take part. gumbel(key, i) = -log(-log(u)), u = (w + 0.5) / 2^32, w the first word of
     * Philox2x32-10 (Salmon et al. 2011). Its key has 32 bits: it is key's low half; the counter is
     * {i, key's high half}. The same on each instruction set up to rounding of log. Ties: lowest
     * index. */
    uint32_t (*row_gumbel_argmax)(const float *logits, uint32_t n, float inv_temperature,
                                  float floor, uint64_t key);
    /* indexes i with logits[i] >= floor, ascending, at most cap of them; returns how many there are
     * in all. */
    uint32_t (*row_above)(const float *logits, uint32_t n, float floor, uint32_t *out,
                          uint32_t cap);
};

/* NULL when the instruction set is not supported here. */
const struct cpu_ops *cpu_ops_get(enum isa isa);

/* To be filled by each family's file: linear_plain.c sets linear, head; attention_avx2.c sets
 * attention ... ; the table is assembled in cpu_ops.c. */

#endif
