/* hash.h - the hashes that travel: XXH3-128 for content and block keys, CRC-32C for frames. Pure;
 * any thread. */
#ifndef PENSTOCK_COMMON_HASH_H
#define PENSTOCK_COMMON_HASH_H

#include "common/span.h"

struct hash128 {
    uint64_t lo;
    uint64_t hi;
};

struct hash128 hash128_of(struct span data);
uint64_t hash64_of(struct span data, uint64_t seed);
static inline bool hash128_eq(struct hash128 a, struct hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}
/* 32 lower-case hex digits and a NUL. */
void hash128_hex(struct hash128 h, char out[33]);

/* Key of a prefix block (DESIGN 8): key_0 = root of (model, layout, salt); key_i = H(key_{i-1},
 * tokens of block i). Fields are tagged and length-prefixed, so no two different inputs give the
 * same bytes. */
struct hash128 hash_block_root(struct span model_fingerprint, struct span kv_layout,
                               struct span tenant_salt);
struct hash128 hash_block_next(struct hash128 parent, const uint32_t *tokens, uint32_t count);

/* CRC-32C (Castagnoli, reflected, RFC 3720): crc32c_of("123456789") = 0xE3069283. */
uint32_t crc32c_of(struct span data);

#endif
