/* tokenizer.c - life and questions of a tokenizer; token vectors. */
#include "common/tokenizer_internal.h"

#include <stdlib.h>

enum err tokenizer_create(struct span asset, struct tokenizer **out, struct errmsg *why)
{
    struct tokenizer_spec spec;
    enum err err = asset__parse(asset, &spec, why);
    if (err != OK) return err;
    err = tokenizer__build(&spec, hash64_of(asset, 0), out, why);
    asset__free(&spec);
    return err;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (t == NULL) return;
    free(t->types);
    free(t->piece_bytes);
    free(t->piece_start);
    free(t->words);
    free(t->pairs);
    free(t->eog);
    trie__deinit(&t->trie);
    free(t);
}

uint32_t tokenizer_vocab_count(const struct tokenizer *t)
{
    return t->token_count;
}

uint32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

uint32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_add_bos(const struct tokenizer *t)
{
    return t->add_bos;
}

bool tokenizer_is_control(const struct tokenizer *t, uint32_t id)
{
    return id < t->token_count && (t->types[id] == TOKEN_CONTROL || t->types[id] == TOKEN_UNKNOWN);
}

const uint32_t *tokenizer_eog(const struct tokenizer *t, uint32_t *count)
{
    *count = t->eog_count;
    return t->eog;
}

uint32_t tokenizer_find(const struct tokenizer *t, struct span text)
{
    uint32_t id = trie__find(&t->trie, text);
    if (id != TOKEN_NONE) return id;
    const struct word_slot *slot =
        word_find(t, text.ptr, text.len, word_hash(text.ptr, text.len, t->seed));
    return slot ? slot->id & ~(uint32_t)WORD_WHOLE : TOKEN_NONE;
}

struct span tokenizer_piece(const struct tokenizer *t, uint32_t id)
{
    return id < t->token_count ? piece_of(t, id) : span_of(NULL, 0);
}

void token_vec_init(struct token_vec *v, size_t max)
{
    *v = (struct token_vec){.max = max};
}

void token_vec_deinit(struct token_vec *v)
{
    free(v->ids);
    *v = (struct token_vec){.max = v->max};
}

enum err token_vec_push(struct token_vec *v, uint32_t id)
{
    if (v->count == v->cap) {
        if (v->count >= v->max) return ERR_LIMIT;
        size_t cap = v->cap ? v->cap * 2 : 64;
        if (cap > v->max) cap = v->max;
        uint32_t *ids = realloc(v->ids, cap * sizeof *ids);
        if (ids == NULL) return ERR_NOMEM;
        v->ids = ids;
        v->cap = cap;
    }
    v->ids[v->count++] = id;
    return OK;
}
