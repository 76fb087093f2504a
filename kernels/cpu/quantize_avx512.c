/* quantize_avx512.c - activations to 8 bits: one group of 32 columns is two registers. */
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/quantize_group_avx512.h"

void act_quantize_avx512(const float *x, const struct act *out, uint32_t row, uint32_t col,
                         uint32_t count)
{
    if (out->type == ACT_F32) {
        act_quantize_plain(x, out, row, col, count);
        return;
    }
    struct act_tile_group *t = act_tile(out, row, col / GROUP_COLS);
    for (uint32_t g = 0; g < count / GROUP_COLS; g++)
        quantize_group_avx512(_mm512_loadu_ps(x + g * GROUP_COLS),
                              _mm512_loadu_ps(x + g * GROUP_COLS + 16), out->type,
                              t + g * act_planes(out->type), row % ACT_TILE_ROWS);
}

void quantize_avx512(const struct op_quantize *op, uint32_t ith, uint32_t nth)
{
    quantize_walk(op, ith, nth, act_quantize_avx512);
}
