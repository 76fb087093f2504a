/* copy_plain.c - copies of whole blocks. Each thread copies the same slice of every pair, so that a
 * block which is the target of one pair and the source of a later one needs no barrier. */
#include "kernels/cpu/copy.h"

#include <string.h>

void copy_blocks_plain(const struct op_copy_blocks *op, uint32_t ith, uint32_t nth)
{
    size_t lines = (op->block_bytes + 63) / 64;
    size_t begin = lines * ith / nth * 64, end = lines * (ith + 1) / nth * 64;
    if (end > op->block_bytes) end = op->block_bytes;
    for (uint32_t i = 0; i < op->count; i++) {
        const uint8_t *from = op->data + op->pairs[2 * i] * op->block_bytes;
        uint8_t *to = op->data + op->pairs[2 * i + 1] * op->block_bytes;
        if (from != to) memcpy(to + begin, from + begin, end - begin);
    }
}
