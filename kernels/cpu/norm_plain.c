/* norm_plain.c - RMS norm in plain C: the reference. */
#include <math.h>

#include "kernels/cpu/norm.h"
#include "kernels/cpu/quantize.h"

void norm_plain(const struct op_norm *op, uint32_t ith, uint32_t nth)
{
    uint32_t end = (uint32_t)((uint64_t)op->rows * (ith + 1) / nth);
    for (uint32_t r = (uint32_t)((uint64_t)op->rows * ith / nth); r < end; r++) {
        const float *x = op->x + (size_t)(op->x_rows ? op->x_rows[r] : r) * op->cols;
        double sum = 0;
        for (uint32_t c = 0; c < op->cols; c++)
            sum += (double)x[c] * (double)x[c];
        float scale = (float)(1.0 / sqrt(sum / op->cols + (double)op->eps));
        for (uint32_t col = 0; col < op->cols; col += NORM_CHUNK_COLS) {
            float normed[NORM_CHUNK_COLS];
            uint32_t count = op->cols - col < NORM_CHUNK_COLS ? op->cols - col : NORM_CHUNK_COLS;
            for (uint32_t c = 0; c < count; c++)
                normed[c] = x[col + c] * scale * op->weight[col + c];
            act_quantize_plain(normed, &op->out, r, col, count);
        }
    }
}
