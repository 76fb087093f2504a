#include "gateway/request.h"

#include <stdlib.h>

enum { CHOICE_TEXT_BYTES_MAX = 32 << 20, CHUNK_HEAD_BYTES_MAX = 4096 };

struct request *request_create(struct http_exchange *x, enum endpoint endpoint)
{
    struct request *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    arena_init(&r->arena, REQUEST_ARENA_BYTES_MAX);
    buffer_init(&r->chunk_head, CHUNK_HEAD_BYTES_MAX);
    r->x = x;
    r->endpoint = endpoint;
    return r;
}

void request_destroy(struct request *r)
{
    if (r == NULL) return;
    CHECK(!r->in_job);
    for (uint32_t i = 0; i < r->choice_count; i++) {
        buffer_deinit(&r->choices[i].text);
        free(r->choices[i].ids);
        free(r->choices[i].logprobs);
    }
    for (uint32_t i = 0; i < r->unit_count; i++)
        free(r->unit_list[i]);
    free(r->unit_list);
    buffer_deinit(&r->chunk_head);
    json_destroy(r->json);
    free(r->body_copy);
    arena_deinit(&r->arena);
    free(r);
}

/* The choice's text begins with its prompt's. */
static enum err echo_prompt(const struct request *r, struct choice *c,
                            const struct tokenizer *tokenizer)
{
    const struct prompt *p = &r->prompts[c->prompt];
    struct detokenizer d;
    detokenizer_init(&d, tokenizer, !r->params.keep_special_tokens, false);
    for (uint32_t i = 0; i < p->count; i++)
        detokenizer_push(&d, p->ids[i], &c->text);
    detokenizer_flush(&d, &c->text);
    c->text_from = c->held_from = c->text.len;
    return buffer_status(&c->text) == OK ? OK : ERR_NOMEM;
}

enum err request_make_choices(struct request *r, const struct tokenizer *tokenizer)
{
    uint32_t count = r->prompt_count * r->params.n;
    r->choices = arena_calloc(&r->arena, count, sizeof *r->choices);
    if (r->choices == NULL) return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        struct choice *c = &r->choices[i];
        c->prompt = i / r->params.n;
        c->within = i % r->params.n;
        buffer_init(&c->text, CHOICE_TEXT_BYTES_MAX);
        detokenizer_init(&c->detok, tokenizer, !r->params.keep_special_tokens, true);
    }
    r->choice_count = r->choices_open = count;
    if (r->params.echo)
        for (uint32_t i = 0; i < count; i++)
            if (echo_prompt(r, &r->choices[i], tokenizer) != OK) return ERR_NOMEM;
    return OK;
}

struct unit *request_add_unit(struct request *r, uint32_t prompt, const uint32_t *choices,
                              uint32_t count)
{
    static _Thread_local uint64_t next_id;
    if (r->unit_count == r->unit_cap) {
        uint32_t cap = r->unit_cap ? 2 * r->unit_cap : 4;
        struct unit **list = realloc(r->unit_list, cap * sizeof *list);
        if (list == NULL) return NULL;
        r->unit_list = list;
        r->unit_cap = cap;
    }
    struct unit *u = calloc(1, sizeof *u);
    if (u == NULL) return NULL;
    u->request = r;
    u->id = ++next_id; /* unique within the loop, which is a gateway incarnation of its own */
    u->attempt = 1;
    u->prompt = prompt;
    memcpy(u->choices, choices, count * sizeof *choices);
    u->choice_count = u->open_choices = count;
    r->unit_list[r->unit_count++] = u;
    return u;
}
