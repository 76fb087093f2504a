/* quantize_plain.c - activations to 8 bits in plain C: the reference; and how the op is shared out
 * among threads, on every instruction set. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/quantize.h"
#include "kernels/layout.h"

/* amax of 32 values by their bits, so that Inf and NaN win over every number */
static float group_amax(const float *x)
{
    uint32_t amax = 0;
    for (uint32_t i = 0; i < GROUP_COLS; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        bits &= 0x7fffffff;
        amax = bits > amax ? bits : amax;
    }
    float f;
    memcpy(&f, &amax, 4);
    return f;
}

static void quantize_group(const float *x, enum act_type type, struct act_tile_group *t, uint32_t r)
{
    float amax = group_amax(x), steps = act_steps(type);
    /* below ACT_AMAX_MIN steps / amax would overflow; such a group is zero */
    float inverse = amax > ACT_AMAX_MIN && isfinite(amax) ? steps / amax : 0.0f;
    int32_t sum = 0;
    for (uint32_t i = 0; i < GROUP_COLS; i++) {
        int32_t q = inverse > 0 ? (int32_t)lrintf(x[i] * inverse) : 0;
        sum += q;
        if (type == ACT_Q16) {
            int32_t high = (q + (1 << (ACT_LOW_BITS - 1))) >> ACT_LOW_BITS;
            t[1].q[r][i] = (int8_t)(q - high * (1 << ACT_LOW_BITS));
            q = high;
        }
        t->q[r][i] = (int8_t)q;
    }
    t->scale[r] = isfinite(amax) ? amax / steps : NAN;
    t->scaled_sum[r] = t->scale[r] * (float)sum;
    t->minus_sum[r] = -sum;
}

void act_quantize_plain(const float *x, const struct act *out, uint32_t row, uint32_t col,
                        uint32_t count)
{
    if (out->type == ACT_F32) {
        memcpy((float *)out->data + (size_t)row * out->cols + col, x, count * sizeof(float));
        return;
    }
    struct act_tile_group *t = act_tile(out, row, col / GROUP_COLS);
    for (uint32_t g = 0; g < count / GROUP_COLS; g++)
        quantize_group(x + g * GROUP_COLS, out->type, t + g * act_planes(out->type),
                       row % ACT_TILE_ROWS);
}

void quantize_walk(const struct op_quantize *op, uint32_t ith, uint32_t nth,
                   void (*row_fn)(const float *x, const struct act *out, uint32_t row, uint32_t col,
                                  uint32_t count))
{
    uint64_t blocks = (op->cols + GROUP_COLS - 1) / GROUP_COLS, total = blocks * op->rows;
    uint64_t at = total * ith / nth, end = total * (ith + 1) / nth;
    while (at < end) {
        uint32_t row = (uint32_t)(at / blocks), block = (uint32_t)(at % blocks);
        uint64_t take = blocks - block < end - at ? blocks - block : end - at;
        uint32_t col = block * GROUP_COLS, stop = col + (uint32_t)take * GROUP_COLS;
        row_fn(op->x + (size_t)row * op->cols + col, &op->out, row, col,
               (stop < op->cols ? stop : op->cols) - col);
        at += take;
    }
}

void quantize_plain(const struct op_quantize *op, uint32_t ith, uint32_t nth)
{
    quantize_walk(op, ith, nth, act_quantize_plain);
}
