#include "common/hash.h"

#include "common/err.h"

#include <pthread.h>
#include <stdio.h>
#define XXH_STATIC_LINKING_ONLY /* XXH3_state_t on the stack */
#include <xxhash.h>

struct hash128 hash128_of(struct span data)
{
    XXH128_hash_t h = XXH3_128bits(data.ptr, data.len);
    return (struct hash128){h.low64, h.high64};
}

uint64_t hash64_of(struct span data, uint64_t seed)
{
    return XXH3_64bits_withSeed(data.ptr, data.len, seed);
}

void hash128_hex(struct hash128 h, char out[33])
{
    (void)snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

static void feed(XXH3_state_t *state, uint8_t tag, const void *ptr, size_t len)
{
    uint8_t head[9];
    head[0] = tag;
    store_le64(head + 1, len);
    (void)XXH3_128bits_update(state, head, sizeof head);
    (void)XXH3_128bits_update(state, ptr, len);
}

static struct hash128 finish(XXH3_state_t *state)
{
    XXH128_hash_t h = XXH3_128bits_digest(state);
    return (struct hash128){h.low64, h.high64};
}

struct hash128 hash_block_root(struct span model_fingerprint, struct span kv_layout,
                               struct span tenant_salt)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    (void)XXH3_128bits_reset(&state);
    feed(&state, 'M', model_fingerprint.ptr, model_fingerprint.len);
    feed(&state, 'L', kv_layout.ptr, kv_layout.len);
    feed(&state, 'S', tenant_salt.ptr, tenant_salt.len);
    return finish(&state);
}

struct hash128 hash_block_next(struct hash128 parent, const uint32_t *tokens, uint32_t count)
{
    /* one flat message: 'P' parent, 'T' tokens; small enough for the fast path of XXH3 */
    uint8_t message[1 + 16 + 1 + 4 + 4 * 64];
    CHECK(count <= 64);
    message[0] = 'P';
    store_le64(message + 1, parent.lo);
    store_le64(message + 9, parent.hi);
    message[17] = 'T';
    store_le32(message + 18, count);
    memcpy(message + 22, tokens, (size_t)count * 4);
    return hash128_of(span_of(message, 22 + (size_t)count * 4));
}

static uint32_t crc_table[8][256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_init(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = (c >> 1) ^ (0x82F63B78u & (0u - (c & 1u)));
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++)
            crc_table[t][i] = (crc_table[t - 1][i] >> 8) ^ crc_table[0][crc_table[t - 1][i] & 255];
}

uint32_t crc32c_of(struct span data)
{
    (void)pthread_once(&crc_once, crc_init);
    uint32_t c = 0xFFFFFFFFu;
    const uint8_t *p = data.ptr;
    size_t n = data.len;
    for (; n >= 8; n -= 8, p += 8) { /* slicing by eight */
        uint64_t v = load_le64(p) ^ c;
        c = crc_table[7][v & 255] ^ crc_table[6][(v >> 8) & 255] ^ crc_table[5][(v >> 16) & 255] ^
            crc_table[4][(v >> 24) & 255] ^ crc_table[3][(v >> 32) & 255] ^
            crc_table[2][(v >> 40) & 255] ^ crc_table[1][(v >> 48) & 255] ^ crc_table[0][v >> 56];
    }
    for (; n > 0; n--, p++)
        c = (c >> 8) ^ crc_table[0][(c ^ *p) & 255];
    return ~c;
}
