/* norm.h - RMS norm of rows into the form that the next linear wants. Pure; any thread, disjoint
 * rows. */
#ifndef PENSTOCK_KERNELS_CPU_NORM_H
#define PENSTOCK_KERNELS_CPU_NORM_H

#include "kernels/ops.h"

enum { NORM_CHUNK_COLS = 1024 }; /* normed at a time, a multiple of 32: stays in the L1 cache */

void norm_plain(const struct op_norm *op, uint32_t ith, uint32_t nth);
void norm_avx2(const struct op_norm *op, uint32_t ith, uint32_t nth);
void norm_avx512(const struct op_norm *op, uint32_t ith, uint32_t nth);

#endif
