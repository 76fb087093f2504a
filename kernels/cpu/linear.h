/* linear.h - quantized and float linears, one set for each instruction set. Pure; any thread,
 * disjoint (ith, nth). A row's result does not depend on the other rows, the tile it falls in or
 * nth: the float operations of one output are the same sequence in every tile size. */
#ifndef PENSTOCK_KERNELS_CPU_LINEAR_H
#define PENSTOCK_KERNELS_CPU_LINEAR_H

#include "kernels/ops.h"

void linear_plain(const struct op_linear *op, uint32_t ith, uint32_t nth);
void linear_avx2(const struct op_linear *op, uint32_t ith, uint32_t nth);
void linear_avx512(const struct op_linear *op, uint32_t ith, uint32_t nth);
void head_plain(const struct op_head *op, uint32_t ith, uint32_t nth);
void head_avx2(const struct op_head *op, uint32_t ith, uint32_t nth);
void head_avx512(const struct op_head *op, uint32_t ith, uint32_t nth);

/* ---- between linear.c, which walks, and the kernels ---- */

/* One panel of one weight times up to 8 rows of one activation tile. */
struct linear_tile {
    const struct weight *weight;
    uint32_t panel;
    const struct act *in;
    uint32_t row, rows; /* row % 8 == 0, rows 1..8 */
    bool prefetch;      /* the panel comes from memory: fetch ahead */
    const float *bias;  /* of the whole weight, or NULL */
    float *out;         /* [rows, out_stride], at the panel's first column */
    size_t out_stride;
    bool add; /* out += */
};
struct linear_kernel {
    void (*tile)(const struct linear_tile *t);
    /* columns [col, col + count) of out's row = silu(gate) * up, in out's form; gate and up are 32
     * floats, whatever count is */
    void (*silu)(const float *gate, const float *up, const struct act *out, uint32_t row,
                 uint32_t col, uint32_t count);
};
void linear_walk(const struct op_linear *op, uint32_t ith, uint32_t nth,
                 const struct linear_kernel *kernel);
void head_walk(const struct op_head *op, uint32_t ith, uint32_t nth,
               const struct linear_kernel *kernel);

#endif
