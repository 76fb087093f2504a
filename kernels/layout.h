/* layout.h - where things lie inside packed weights and activations. Private to kernels: weights.c
 * and act.c draw the pictures, the linear and quantize kernels read and write by these. */
#ifndef PENSTOCK_KERNELS_LAYOUT_H
#define PENSTOCK_KERNELS_LAYOUT_H

#include "kernels/ops.h"
#include "kernels/weights.h"

enum { ACT_TILE_ROWS = 8 };

/* One tile of rows of one group of columns; [tile][group]. ACT_Q16 has two of them for a group:
 * the value is 128 * the first's q + the second's, and the first's scale and sums are of that. */
struct act_tile_group {
    int8_t q[ACT_TILE_ROWS][GROUP_COLS]; /* -127..127; the second: -64..63 */
    float scale[ACT_TILE_ROWS];          /* amax / 127 (/ 128); NaN: the group holds NaN or Inf */
    float scaled_sum[ACT_TILE_ROWS];     /* scale * sum of values, what a weight's minimum wants */
    int32_t minus_sum[ACT_TILE_ROWS];    /* -sum of values, what a weight's zero wants */
};
enum { ACT_LOW_BITS = 7 };  /* of a value of ACT_Q16 in the second plane */
#define ACT_AMAX_MIN 1e-34f /* a group of smaller values is zero */

/* struct act_tile_group for each group of columns */
static inline size_t act_planes(enum act_type type)
{
    return type == ACT_Q16 ? 2 : 1;
}
static inline struct act_tile_group *act_tile(const struct act *a, uint32_t row, uint32_t group)
{
    size_t groups = a->cols / GROUP_COLS;
    return (struct act_tile_group *)a->data +
           ((size_t)(row / ACT_TILE_ROWS) * groups + group) * act_planes(a->type);
}
/* What amax is divided by: the largest value. */
static inline float act_steps(enum act_type type)
{
    return type == ACT_Q16 ? 127.0f * (1 << ACT_LOW_BITS) : 127.0f;
}

/* Q4 and Q8: groups lie in pairs that share a 64-byte line of scales, so that every line of q is
 * aligned. */
static inline size_t group_q_bytes(enum weight_type type)
{
    return (size_t)PANEL_ROWS * GROUP_COLS / (type == WEIGHT_Q4 ? 2 : 1);
}
static inline size_t pair_head_bytes(bool has_min)
{
    return has_min ? 128 : 64;
}
static inline size_t pair_bytes(enum weight_type type, bool has_min)
{
    return pair_head_bytes(has_min) + 2 * group_q_bytes(type);
}
static inline size_t float_bytes(enum weight_type type)
{
    return type == WEIGHT_F32 ? 4 : 2;
}
static inline size_t panel_bytes(enum weight_type type, uint32_t cols, bool has_min)
{
    if (type != WEIGHT_Q4 && type != WEIGHT_Q8)
        return ((size_t)cols * PANEL_ROWS * float_bytes(type) + 63) / 64 * 64;
    size_t groups = cols / GROUP_COLS;
    return (groups + 1) / 2 * pair_head_bytes(has_min) + groups * group_q_bytes(type);
}
static inline uint8_t *weight_panel(const struct weight *w, uint32_t panel)
{
    return (uint8_t *)w->data + panel * panel_bytes(w->type, w->cols, w->has_min);
}

#endif
