/* sample.h - what the sampler needs of one row of logits, and the random numbers. Pure; any thread.
 * Contracts: cpu_ops.h. */
#ifndef PENSTOCK_KERNELS_CPU_SAMPLE_H
#define PENSTOCK_KERNELS_CPU_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

enum { PHILOX_ROUNDS = 10 };
#define PHILOX_MULTIPLIER 0xD256D193u
#define PHILOX_WEYL 0x9E3779B9u

/* Philox2x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011). */
static inline void philox2x32(uint32_t counter[2], uint32_t key)
{
    for (uint32_t i = 0; i < PHILOX_ROUNDS; i++) {
        uint64_t product = (uint64_t)counter[0] * PHILOX_MULTIPLIER;
        counter[0] = (uint32_t)(product >> 32) ^ key ^ counter[1];
        counter[1] = (uint32_t)product;
        key += PHILOX_WEYL;
    }
}

#define SAMPLE_DECLARE(suffix)                                                                     \
    bool row_max_##suffix(const float *logits, uint32_t n, float *max, uint32_t *index);           \
    float row_exp_sum_##suffix(const float *logits, uint32_t n, float max, float inv_temperature); \
    uint32_t row_gumbel_argmax_##suffix(const float *logits, uint32_t n, float inv_temperature,    \
                                        float floor, uint64_t key);                                \
    uint32_t row_above_##suffix(const float *logits, uint32_t n, float floor, uint32_t *out,       \
                                uint32_t cap);
SAMPLE_DECLARE(plain)
SAMPLE_DECLARE(avx2)
SAMPLE_DECLARE(avx512)
#undef SAMPLE_DECLARE

#endif
