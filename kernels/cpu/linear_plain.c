/* linear_plain.c - linears in plain C: the reference of the other instruction sets. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/quantize.h"
#include "kernels/layout.h"

static int32_t dot_plane(const struct weight *w, const uint8_t *q, uint32_t r, const int8_t *x)
{
    int32_t sum = 0;
    for (uint32_t k = 0; k < GROUP_COLS; k++) {
        uint32_t at = w->type == WEIGHT_Q4 ? k % 16 : k;
        uint32_t byte = q[64 * (at / 4) + 4 * r + at % 4];
        if (w->type == WEIGHT_Q4) byte = k < 16 ? byte & 15 : byte >> 4;
        sum += (int32_t)byte * x[k];
    }
    return sum;
}

static int32_t dot_group(const struct weight *w, const uint8_t *q, uint32_t r, enum act_type type,
                         const struct act_tile_group *a, uint32_t m)
{
    int32_t sum = dot_plane(w, q, r, a->q[m]);
    return type == ACT_Q16 ? sum * (1 << ACT_LOW_BITS) + dot_plane(w, q, r, a[1].q[m]) : sum;
}

static void dot_quantized(const struct linear_tile *t, uint32_t row, float acc[PANEL_ROWS])
{
    const struct weight *w = t->weight;
    const struct act_tile_group *a = act_tile(t->in, row, 0);
    const uint8_t *panel = weight_panel(w, t->panel);
    uint32_t m = row % ACT_TILE_ROWS;
    for (uint32_t g = 0; g < w->cols / GROUP_COLS; g++, a += act_planes(t->in->type)) {
        const uint8_t *pair = panel + g / 2 * pair_bytes(w->type, w->has_min);
        const uint8_t *q = pair + pair_head_bytes(w->has_min) + g % 2 * group_q_bytes(w->type);
        for (uint32_t r = 0; r < PANEL_ROWS; r++) {
            uint16_t half[2] = {0, 0};
            memcpy(&half[0], pair + 32 * (g % 2) + 2 * r, 2);
            if (w->has_min) memcpy(&half[1], pair + 64 + 32 * (g % 2) + 2 * r, 2);
            float scale = f16_to_f32(half[0]);
            float min = w->has_min ? f16_to_f32(half[1]) : -(float)w->zero * scale;
            acc[r] += (float)dot_group(w, q, r, t->in->type, a, m) * (scale * a->scale[m]);
            acc[r] += min * a->scaled_sum[m];
        }
    }
}

static void dot_float(const struct linear_tile *t, uint32_t row, float acc[PANEL_ROWS])
{
    const struct weight *w = t->weight;
    const float *x = (const float *)t->in->data + (size_t)row * t->in->cols;
    const void *panel = weight_panel(w, t->panel);
    for (size_t k = 0; k < w->cols; k++) {
        for (size_t r = 0; r < PANEL_ROWS; r++) {
            size_t at = k * PANEL_ROWS + r;
            float v = w->type == WEIGHT_F32   ? ((const float *)panel)[at]
                      : w->type == WEIGHT_F16 ? f16_to_f32(((const uint16_t *)panel)[at])
                                              : bf16_to_f32(((const uint16_t *)panel)[at]);
            acc[r] += v * x[k];
        }
    }
}

static void tile(const struct linear_tile *t)
{
    uint32_t left = t->weight->rows - t->panel * PANEL_ROWS;
    uint32_t count = left < PANEL_ROWS ? left : PANEL_ROWS;
    for (uint32_t m = 0; m < t->rows; m++) {
        float acc[PANEL_ROWS] = {0};
        if (t->in->type != ACT_F32)
            dot_quantized(t, t->row + m, acc);
        else
            dot_float(t, t->row + m, acc);
        float *out = t->out + m * t->out_stride;
        for (uint32_t r = 0; r < count; r++) {
            float v = t->bias ? acc[r] + t->bias[t->panel * PANEL_ROWS + r] : acc[r];
            out[r] = t->add ? out[r] + v : v;
        }
    }
}

static void silu(const float *gate, const float *up, const struct act *out, uint32_t row,
                 uint32_t col, uint32_t count)
{
    float v[GROUP_COLS];
    for (uint32_t i = 0; i < count; i++)
        v[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    act_quantize_plain(v, out, row, col, count);
}

static const struct linear_kernel kernel = {.tile = tile, .silu = silu};

void linear_plain(const struct op_linear *op, uint32_t ith, uint32_t nth)
{
    linear_walk(op, ith, nth, &kernel);
}

void head_plain(const struct op_head *op, uint32_t ith, uint32_t nth)
{
    head_walk(op, ith, nth, &kernel);
}
