/* embed.h - rows of the embedding table, out of the packed layout. The same for each instruction
 * set: a step gathers few rows. */
#ifndef PENSTOCK_KERNELS_CPU_EMBED_H
#define PENSTOCK_KERNELS_CPU_EMBED_H

#include "kernels/ops.h"

void embed_plain(const struct op_embed *op, uint32_t ith, uint32_t nth);

#endif
