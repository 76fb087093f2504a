/* cpu_ops.c - one table of op functions for each instruction set. */
#include "kernels/cpu/cpu_ops.h"

#include "kernels/cpu/attention.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/embed.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/sample.h"

#define TABLE(isa_, suffix)                                                                        \
    {                                                                                              \
        .isa = isa_, .embed = embed_plain, .norm = norm_##suffix, .linear = linear_##suffix,       \
        .quantize = quantize_##suffix, .rope_store = rope_store_##suffix,                          \
        .attention = attention_##suffix, .attention_merge = attention_merge_##suffix,              \
        .attention_needs_merge = attention_needs_merge_##suffix, .head = head_##suffix,            \
        .copy_blocks = copy_blocks_plain, .row_max = row_max_##suffix,                             \
        .row_exp_sum = row_exp_sum_##suffix, .row_gumbel_argmax = row_gumbel_argmax_##suffix,      \
        .row_above = row_above_##suffix,                                                           \
    }

static const struct cpu_ops table[ISA_COUNT_] = {
    [ISA_PLAIN] = TABLE(ISA_PLAIN, plain),
    [ISA_AVX2] = TABLE(ISA_AVX2, avx2),
    [ISA_AVX512] = TABLE(ISA_AVX512, avx512),
};

const struct cpu_ops *cpu_ops_get(enum isa isa)
{
    return isa_supported(isa) ? &table[isa] : 0;
}
