/* kv_pool.h - the blocks of the KV cache: who holds them, what they contain, which is reused next.
 * A block is *held* (references > 0) or free; free blocks stand in one LRU list and may still carry
 * content under a key: that is the prefix cache. Reuse takes the least recently freed; content goes
 * only then. A core: no allocation after create. Identity of content is (parent block content,
 * exact tokens), found by a 128-bit chained key and compared on a hit. Two-stage publishing:
 * content is *pending* from the step that writes it until that step has completed, and is found by
 * others only then; a failed step unpublishes. Engine thread only. */
#ifndef PENSTOCK_WORKER_ENGINE_KV_POOL_H
#define PENSTOCK_WORKER_ENGINE_KV_POOL_H

#include "common/err.h"
#include "common/hash.h"
#include "kernels/ops.h"

#include <stdbool.h>

typedef struct {
    uint32_t v;
} kv_block; /* an index, not a count, not bytes */

#define KV_BLOCK_NONE ((kv_block){UINT32_MAX})

struct kv_pool;

struct kv_pool *kv_pool_create(uint32_t block_count); /* NULL: no memory */
void kv_pool_destroy(struct kv_pool *pool);

/* Fills out[0..n) with held blocks without content, all or nothing. ERR_FULL: none were taken. */
enum err kv_pool_acquire(struct kv_pool *pool, uint32_t n, kv_block *out) MUST_CHECK;
/* One more holder of a block, which may be free: then it leaves the free list. */
void kv_pool_retain(struct kv_pool *pool, kv_block block);
/* One holder less; at zero it becomes free, as the most recently used. Release a sequence's blocks
 * from its tail to its head, so that tails are evicted before the heads that others may share. */
void kv_pool_release(struct kv_pool *pool, kv_block block);
bool kv_pool_held(const struct kv_pool *pool, kv_block block);

/* Names the content of a held, full block: `tokens` behind the content under parent_key. Pending
 * until kv_pool_settle. Does nothing if other blocks carry the same content already (this one stays
 * unnamed: tables only grow, ids never change under a sequence). */
void kv_pool_publish(struct kv_pool *pool, kv_block block, struct hash128 parent_key,
                     struct hash128 key, const uint32_t tokens[KV_BLOCK_TOKENS]);
/* The step that wrote all pending blocks is over: they may be found (good), or lose their names. */
void kv_pool_settle(struct kv_pool *pool, bool good);

/* The settled block with this content; KV_BLOCK_NONE. Not retained. */
kv_block kv_pool_find(const struct kv_pool *pool, struct hash128 parent_key, struct hash128 key,
                      const uint32_t tokens[KV_BLOCK_TOKENS]);
/* Whether content under this key is pending: somebody computes it in the step under way. */
bool kv_pool_pending(const struct kv_pool *pool, struct hash128 key);
/* Of the settled blocks behind parent_key the one that shares the longest run of first tokens with
 * tokens[0..count); *common gets the run's length. KV_BLOCK_NONE if it is zero. Looks at no more
 * than KV_SIBLINGS_MAX siblings. */
kv_block kv_pool_find_partial(const struct kv_pool *pool, struct hash128 parent_key,
                              const uint32_t *tokens, uint32_t count, uint32_t *common);
enum { KV_SIBLINGS_MAX = 16 };

uint32_t kv_pool_count(const struct kv_pool *pool);
uint32_t kv_pool_free_count(const struct kv_pool *pool);   /* cached content included */
uint32_t kv_pool_cached_count(const struct kv_pool *pool); /* blocks with content, held or free */
/* The invariant, executable: free + held == count; lists, tables and references agree. holders[b]:
 * references that the caller knows of block b, or NULL. CHECKs. */
void kv_pool_check(const struct kv_pool *pool, const uint32_t *holders);

#endif
