/* cpu_ops.c - one table of op functions for each instruction set. */
#include "kernels/cpu/cpu_ops.h"

#include "kernels/cpu/linear.h"
#include "kernels/cpu/quantize.h"

#define TABLE(isa_, suffix)                                                                        \
    {                                                                                              \
        .isa = isa_, .linear = linear_##suffix, .head = head_##suffix,                             \
        .quantize = quantize_##suffix,                                                             \
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
