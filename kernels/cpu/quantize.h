/* quantize.h - float32 rows into the form that the next linear wants. Pure; any thread, disjoint
 * ranges. The values are the same on every instruction set: scale = amax / 127 (ACT_Q16: / 16256)
 * of each group of 32 columns, q = x * (127 / amax) to nearest even. A group with NaN or Inf gets
 * scale NaN: its output row becomes NaN, no other does. */
#ifndef PENSTOCK_KERNELS_CPU_QUANTIZE_H
#define PENSTOCK_KERNELS_CPU_QUANTIZE_H

#include "kernels/act.h"

/* Columns [col, col + count) of one row; x[0] is column col. ACT_Q8 and Q16: col and count are
 * multiples of 32. ACT_F32: a copy. */
void act_quantize_plain(const float *x, const struct act *out, uint32_t row, uint32_t col,
                        uint32_t count);
void act_quantize_avx2(const float *x, const struct act *out, uint32_t row, uint32_t col,
                       uint32_t count);
void act_quantize_avx512(const float *x, const struct act *out, uint32_t row, uint32_t col,
                         uint32_t count);

/* The op: thread ith's share. */
void quantize_plain(const struct op_quantize *op, uint32_t ith, uint32_t nth);
void quantize_avx2(const struct op_quantize *op, uint32_t ith, uint32_t nth);
void quantize_avx512(const struct op_quantize *op, uint32_t ith, uint32_t nth);

/* Shares the op's blocks of columns out; quantize_* above are this with their own row function. */
void quantize_walk(const struct op_quantize *op, uint32_t ith, uint32_t nth,
                   void (*row_fn)(const float *x, const struct act *out, uint32_t row, uint32_t col,
                                  uint32_t count));

#endif
