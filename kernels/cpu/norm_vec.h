/* norm_vec.h - RMS norm for a vector instruction set; included by norm_avx2.c and norm_avx512.c. A
 * row's sum runs over four accumulators in a fixed order. */
#include <math.h>

#include "kernels/cpu/norm.h"
#include "kernels/cpu/quantize.h"

static float square_sum(const float *x, uint32_t n)
{
    vec sum[4] = {vec_set(0), vec_set(0), vec_set(0), vec_set(0)};
    uint32_t i = 0;
    for (; i + 4 * VEC_LANES <= n; i += 4 * VEC_LANES) {
        for (uint32_t j = 0; j < 4; j++) {
            vec v = vec_load(x + i + j * VEC_LANES);
            sum[j] = vec_fma(v, v, sum[j]);
        }
    }
    for (; i < n; i += VEC_LANES) {
        vec v = n - i < VEC_LANES ? vec_load_part(x + i, n - i, 0) : vec_load(x + i);
        sum[0] = vec_fma(v, v, sum[0]);
    }
    return vec_sum(vec_add(vec_add(sum[0], sum[1]), vec_add(sum[2], sum[3])));
}

static void scale_weight(const float *x, const float *weight, float scale, float *out, uint32_t n)
{
    uint32_t i = 0;
    for (; i + VEC_LANES <= n; i += VEC_LANES)
        vec_store(out + i, vec_mul(vec_mul(vec_load(x + i), vec_set(scale)), vec_load(weight + i)));
    for (; i < n; i++)
        out[i] = x[i] * scale * weight[i];
}

void VEC_NAME(norm)(const struct op_norm *op, uint32_t ith, uint32_t nth)
{
    uint32_t end = (uint32_t)((uint64_t)op->rows * (ith + 1) / nth);
    for (uint32_t r = (uint32_t)((uint64_t)op->rows * ith / nth); r < end; r++) {
        const float *x = op->x + (size_t)(op->x_rows ? op->x_rows[r] : r) * op->cols;
        float scale = 1.0f / sqrtf(square_sum(x, op->cols) / (float)op->cols + op->eps);
        for (uint32_t col = 0; col < op->cols; col += NORM_CHUNK_COLS) {
            float normed[NORM_CHUNK_COLS];
            uint32_t count = op->cols - col < NORM_CHUNK_COLS ? op->cols - col : NORM_CHUNK_COLS;
            scale_weight(x + col, op->weight + col, scale, normed, count);
            VEC_NAME(act_quantize)(normed, &op->out, r, col, count);
        }
    }
}
