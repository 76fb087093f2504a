/* sequence.h - one choice of one request on its way: tokens known and computed, its blocks, its
 * place in line. known >= computed always; a step computes the difference. Owned by the engine;
 * everything is allocated at submit. */
#ifndef PENSTOCK_WORKER_ENGINE_SEQUENCE_H
#define PENSTOCK_WORKER_ENGINE_SEQUENCE_H

#include "worker/engine/kv_pool.h"
#include "worker/engine/sampler.h"

enum sequence_state { SEQUENCE_WAITING = 1, SEQUENCE_RUNNING, SEQUENCE_ENDED };

struct sequence {
    struct sequence *prev, *next; /* of the waiting line, or of the ended */
    enum sequence_state state;
    uint32_t owner, attempt, choice;
    uint64_t id;
    struct sampling_params params; /* arrays copied behind the struct */
    struct token_counts counts;
    uint32_t prompt_count, known, computed, token_cap;
    uint32_t *tokens;     /* [token_cap] prompt, then output */
    kv_block *blocks;     /* [block_cap] held */
    struct hash128 *keys; /* [block_cap] of each full block of known tokens */
    uint32_t block_count, key_count,
        published; /* published: blocks that need no publishing any more */
    struct hash128 root;
    uint64_t submitted_ns, admitted_ns, deadline_ns;
    uint32_t passed;        /* how often others were admitted before it while it stood first */
    uint32_t cached_tokens; /* at the first admission */
    bool admitted_once, reported;
    uint64_t admit_order; /* larger: later; the newest is preempted first */
    /* the step under way */
    uint32_t step_rows; /* tokens that it computes */
    bool wants_logits;
    kv_block copy_source; /* held until the copy is made; KV_BLOCK_NONE */
    /* the end */
    enum engine_finish finish;
    const char *error; /* static */
    uint32_t stop_id;
};

/* One of request's choices, by its place in the list of choices. NULL: no memory. */
struct sequence *sequence_create(const struct engine_request *request, uint32_t nth,
                                 struct hash128 root, uint64_t now_ns);
void sequence_destroy(struct sequence *s);
static inline uint32_t sequence_output_count(const struct sequence *s)
{
    return s->known - s->prompt_count;
}
/* Appends a generated token; keys and counts follow. */
void sequence_append(struct sequence *s, uint32_t token);
static inline uint32_t blocks_for(uint32_t tokens)
{
    return (tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}
/* Key of the content before block b. */
static inline struct hash128 sequence_parent_key(const struct sequence *s, uint32_t b)
{
    return b == 0 ? s->root : s->keys[b - 1];
}

#endif
