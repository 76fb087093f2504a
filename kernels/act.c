/* act.c - the layout of activations.
 *
 * ACT_F32: float [rows, cols].
 * ACT_Q8: rows in tiles of 8, columns in groups of 32, [tile][group] of struct act_tile_group:
 *
 *   row 0: 32 x int8 | ... | row 7 | 8 x f32 scale | 8 x f32 scale * sum | 8 x int32 -sum
 *   0                  32          256             288                   320             352 bytes
 *
 * ACT_Q16: [tile][group][2] of it. A value is round(x * 127 * 128 / amax) = 128 * high + low, with
 * high in the first and low, -64..63, in the second: a kernel shifts the first's integer dot
 * product left by 7 and goes on with the second.
 *
 * A kernel walks the groups of one tile in sequence: rows a whole row apart would collide in the
 * cache's sets whenever cols is a multiple of 4096. Rows that the last tile lacks are never read.
 */
#include "kernels/act.h"
#include "kernels/layout.h"

size_t act_bytes(enum act_type type, uint32_t rows, uint32_t cols)
{
    size_t bytes = type == ACT_F32
                       ? (size_t)rows * cols * sizeof(float)
                       : (size_t)((rows + ACT_TILE_ROWS - 1) / ACT_TILE_ROWS) *
                             (cols / GROUP_COLS) * act_planes(type) * sizeof(struct act_tile_group);
    return (bytes + 63) / 64 * 64;
}

float act_get(const struct act *a, uint32_t rows, uint32_t row, uint32_t col)
{
    if (row >= rows || col >= a->cols) return 0;
    if (a->type == ACT_F32) return ((const float *)a->data)[(size_t)row * a->cols + col];
    const struct act_tile_group *t = act_tile(a, row, col / GROUP_COLS);
    uint32_t r = row % ACT_TILE_ROWS;
    int32_t value = t->q[r][col % GROUP_COLS];
    if (a->type == ACT_Q16) value = value * (1 << ACT_LOW_BITS) + t[1].q[r][col % GROUP_COLS];
    return (float)value * t->scale[r];
}
