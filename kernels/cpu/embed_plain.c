/* embed_plain.c - rows of the embedding table, shared out by rows. */
#include "kernels/cpu/embed.h"

#include "kernels/weights.h"

void embed_plain(const struct op_embed *op, uint32_t ith, uint32_t nth)
{
    uint32_t cols = op->table->cols;
    uint32_t end = (uint32_t)((uint64_t)op->rows * (ith + 1) / nth);
    for (uint32_t r = (uint32_t)((uint64_t)op->rows * ith / nth); r < end; r++) {
        float *out = op->out + (size_t)r * cols;
        weight_get_row(op->table, op->tokens[r], out);
        if (op->scale == 1.0f) continue;
        for (uint32_t c = 0; c < cols; c++)
            out[c] *= op->scale;
    }
}
