/* act.h - activations as linears read them. ACT_Q8 and ACT_Q16: rows in tiles of 8; for each group
 * of 32 columns a tile holds the eight rows' int8 values side by side with their f32 scales and
 * scale * sum: see act.c. Pure. */
#ifndef PENSTOCK_KERNELS_ACT_H
#define PENSTOCK_KERNELS_ACT_H

#include "kernels/ops.h"

/* Room for rows x cols, 64-byte multiple. */
size_t act_bytes(enum act_type type, uint32_t rows, uint32_t cols);
/* Which form a weight wants, where nothing else is said. */
static inline enum act_type act_type_for(enum weight_type type)
{
    return type == WEIGHT_Q4 || type == WEIGHT_Q8 ? ACT_Q8 : ACT_F32;
}
/* The same for inputs where 8 bits cost too much accuracy. */
static inline enum act_type act_type_fine(enum weight_type type)
{
    return act_type_for(type) == ACT_Q8 ? ACT_Q16 : ACT_F32;
}
/* One value back, for tests and plain twins. */
float act_get(const struct act *a, uint32_t rows, uint32_t row, uint32_t col);

#endif
