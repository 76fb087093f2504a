/* sample_plain.c - the sampling kernels in plain C: the reference. */
#include "kernels/cpu/sample.h"

#include <math.h>

bool row_max_plain(const float *logits, uint32_t n, float *max, uint32_t *index)
{
    float best = -INFINITY;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) return false;
        if (logits[i] > best) {
            best = logits[i];
            at = i;
        }
    }
    *max = best;
    *index = at;
    return true;
}

float row_exp_sum_plain(const float *logits, uint32_t n, float max, float inv_temperature)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)((logits[i] - max) * inv_temperature));
    return (float)sum;
}

uint32_t row_gumbel_argmax_plain(const float *logits, uint32_t n, float inv_temperature,
                                 float floor, uint64_t key)
{
    float best = -INFINITY;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(logits[i] >= floor)) continue;
        uint32_t word[2] = {i, (uint32_t)(key >> 32)};
        philox2x32(word, (uint32_t)key);
        double u = ((double)word[0] + 0.5) * 0x1p-32;
        float value = logits[i] * inv_temperature + (float)-log(-log(u));
        if (value > best) {
            best = value;
            at = i;
        }
    }
    return at;
}

uint32_t row_above_plain(const float *logits, uint32_t n, float floor, uint32_t *out, uint32_t cap)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!(logits[i] >= floor)) continue;
        if (count < cap) out[count] = i;
        count++;
    }
    return count;
}
