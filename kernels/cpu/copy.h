/* copy.h - whole KV blocks copied: memcpy is as good on each instruction set. */
#ifndef PENSTOCK_KERNELS_CPU_COPY_H
#define PENSTOCK_KERNELS_CPU_COPY_H

#include "kernels/ops.h"

void copy_blocks_plain(const struct op_copy_blocks *op, uint32_t ith, uint32_t nth);

#endif
