#include "worker/engine/sequence.h"

#include <stdlib.h>
#include <string.h>

static void extend_keys(struct sequence *s)
{
    while ((s->key_count + 1) * KV_BLOCK_TOKENS <= s->known) {
        uint32_t b = s->key_count;
        s->keys[b] = hash_block_next(sequence_parent_key(s, b),
                                     s->tokens + (size_t)b * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS);
        s->key_count++;
    }
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes > 0 ? bytes : 1);
    if (to != NULL && bytes > 0) memcpy(to, from, bytes);
    return to;
}

static bool copy_params(struct sequence *s, const struct sampling_params *from)
{
    s->params = *from;
    s->params.stop_ids = copy_of(from->stop_ids, from->stop_id_count * sizeof *from->stop_ids);
    s->params.bias_ids = copy_of(from->bias_ids, from->bias_count * sizeof *from->bias_ids);
    s->params.bias = copy_of(from->bias, from->bias_count * sizeof *from->bias);
    return s->params.stop_ids != NULL && s->params.bias_ids != NULL && s->params.bias != NULL;
}

struct sequence *sequence_create(const struct engine_request *request, uint32_t nth,
                                 struct hash128 root, uint64_t now_ns)
{
    struct sequence *s = calloc(1, sizeof *s);
    if (s == NULL) return NULL;
    s->state = SEQUENCE_WAITING;
    s->owner = request->owner;
    s->id = request->id;
    s->attempt = request->attempt;
    s->choice = request->choice_indexes != NULL ? request->choice_indexes[nth] : nth;
    s->root = root;
    s->submitted_ns = now_ns;
    s->deadline_ns = request->deadline_ns;
    s->copy_source = KV_BLOCK_NONE;
    s->stop_id = UINT32_MAX;
    s->token_cap = request->prompt_count + request->params.max_tokens;
    uint32_t block_cap = blocks_for(s->token_cap) + 1;
    s->tokens = malloc(s->token_cap * sizeof *s->tokens);
    s->blocks = malloc(block_cap * sizeof *s->blocks);
    s->keys = malloc(block_cap * sizeof *s->keys);
    bool good = copy_params(s, &request->params) && s->tokens != NULL && s->blocks != NULL &&
                s->keys != NULL;
    if (good && sampler_needs_counts(&s->params))
        good = token_counts_init(&s->counts, s->token_cap) == OK;
    if (!good) {
        sequence_destroy(s);
        return NULL;
    }
    s->prompt_count = s->known = request->prompt_count;
    memcpy(s->tokens, request->prompt, request->prompt_count * sizeof *s->tokens);
    for (uint32_t i = 0; i < request->prompt_count; i++)
        token_counts_add(&s->counts, s->tokens[i], false);
    extend_keys(s);
    for (uint32_t i = 0; i < request->output_count; i++)
        sequence_append(s, request->output[i]);
    return s;
}

void sequence_destroy(struct sequence *s)
{
    if (s == NULL) return;
    free((void *)(uintptr_t)s->params.stop_ids);
    free((void *)(uintptr_t)s->params.bias_ids);
    free((void *)(uintptr_t)s->params.bias);
    token_counts_deinit(&s->counts);
    free(s->tokens);
    free(s->blocks);
    free(s->keys);
    free(s);
}

void sequence_append(struct sequence *s, uint32_t token)
{
    CHECK(s->known < s->token_cap);
    s->tokens[s->known++] = token;
    token_counts_add(&s->counts, token, true);
    extend_keys(s);
}
