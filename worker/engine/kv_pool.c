#include "worker/engine/kv_pool.h"

#include <stdlib.h>
#include <string.h>

enum content { CONTENT_NONE, CONTENT_PENDING, CONTENT_SETTLED };

struct block {
    uint32_t references;
    uint32_t prev, next;                 /* of the free list; NIL at its ends */
    uint32_t key_next;                   /* chain of the table by key */
    uint32_t sibling_prev, sibling_next; /* chain of the table by parent key */
    enum content content;
    struct hash128 parent_key, key;
    uint32_t tokens[KV_BLOCK_TOKENS];
};

#define NIL UINT32_MAX

struct kv_pool {
    uint32_t count, free_count, cached_count;
    uint32_t free_head, free_tail; /* head: reused next */
    uint32_t mask;                 /* of both tables */
    uint32_t *by_key, *by_parent;
    uint32_t *pending;
    uint32_t pending_count;
    struct block *blocks;
};

struct kv_pool *kv_pool_create(uint32_t block_count)
{
    CHECK(block_count > 0 && block_count < NIL / 2);
    struct kv_pool *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    uint32_t slots = 16;
    while (slots < block_count)
        slots *= 2;
    p->count = p->free_count = block_count;
    p->mask = slots - 1;
    p->blocks = calloc(block_count, sizeof *p->blocks);
    p->by_key = malloc(slots * sizeof *p->by_key);
    p->by_parent = malloc(slots * sizeof *p->by_parent);
    p->pending = malloc(block_count * sizeof *p->pending);
    if (!p->blocks || !p->by_key || !p->by_parent || !p->pending) {
        kv_pool_destroy(p);
        return NULL;
    }
    memset(p->by_key, 0xFF, slots * sizeof *p->by_key);
    memset(p->by_parent, 0xFF, slots * sizeof *p->by_parent);
    for (uint32_t i = 0; i < block_count; i++) {
        p->blocks[i].prev = i > 0 ? i - 1 : NIL;
        p->blocks[i].next = i + 1 < block_count ? i + 1 : NIL;
    }
    p->free_tail = block_count - 1;
    return p;
}

void kv_pool_destroy(struct kv_pool *p)
{
    if (p == NULL) return;
    free(p->blocks);
    free(p->by_key);
    free(p->by_parent);
    free(p->pending);
    free(p);
}

/* ---- the free list ---- */

static void unlink_free(struct kv_pool *p, uint32_t i)
{
    struct block *b = &p->blocks[i];
    if (b->prev != NIL)
        p->blocks[b->prev].next = b->next;
    else
        p->free_head = b->next;
    if (b->next != NIL)
        p->blocks[b->next].prev = b->prev;
    else
        p->free_tail = b->prev;
    b->prev = b->next = NIL;
    p->free_count--;
}

static void append_free(struct kv_pool *p, uint32_t i)
{
    struct block *b = &p->blocks[i];
    b->prev = p->free_tail;
    b->next = NIL;
    if (p->free_tail != NIL)
        p->blocks[p->free_tail].next = i;
    else
        p->free_head = i;
    p->free_tail = i;
    p->free_count++;
}

/* Blocks without content are of no use to anybody: reused first. */
static void prepend_free(struct kv_pool *p, uint32_t i)
{
    struct block *b = &p->blocks[i];
    b->next = p->free_head;
    b->prev = NIL;
    if (p->free_head != NIL)
        p->blocks[p->free_head].prev = i;
    else
        p->free_tail = i;
    p->free_head = i;
    p->free_count++;
}

/* ---- names ---- */

static uint32_t key_slot(const struct kv_pool *p, struct hash128 key)
{
    return (uint32_t)key.lo & p->mask;
}

static uint32_t parent_slot(const struct kv_pool *p, struct hash128 key)
{
    return (uint32_t)(key.hi >> 7) & p->mask;
}

static void forget_content(struct kv_pool *p, uint32_t i)
{
    struct block *b = &p->blocks[i];
    if (b->content == CONTENT_NONE) return;
    uint32_t *at = &p->by_key[key_slot(p, b->key)];
    while (*at != i)
        at = &p->blocks[*at].key_next;
    *at = b->key_next;
    if (b->sibling_prev != NIL)
        p->blocks[b->sibling_prev].sibling_next = b->sibling_next;
    else
        p->by_parent[parent_slot(p, b->parent_key)] = b->sibling_next;
    if (b->sibling_next != NIL) p->blocks[b->sibling_next].sibling_prev = b->sibling_prev;
    b->content = CONTENT_NONE;
    p->cached_count--;
}

/* Any block under this key with this content, pending ones too. */
static uint32_t lookup(const struct kv_pool *p, struct hash128 parent_key, struct hash128 key,
                       const uint32_t *tokens)
{
    for (uint32_t i = p->by_key[key_slot(p, key)]; i != NIL; i = p->blocks[i].key_next) {
        const struct block *b = &p->blocks[i];
        /* equal hashes are no identity: the parent and the tokens themselves are compared */
        if (hash128_eq(b->key, key) && hash128_eq(b->parent_key, parent_key) &&
            memcmp(b->tokens, tokens, sizeof b->tokens) == 0)
            return i;
    }
    return NIL;
}

void kv_pool_publish(struct kv_pool *p, kv_block block, struct hash128 parent_key,
                     struct hash128 key, const uint32_t tokens[KV_BLOCK_TOKENS])
{
    struct block *b = &p->blocks[block.v];
    CHECK(block.v < p->count && b->references > 0 && b->content == CONTENT_NONE);
    if (lookup(p, parent_key, key, tokens) != NIL) return;
    b->content = CONTENT_PENDING;
    b->parent_key = parent_key;
    b->key = key;
    memcpy(b->tokens, tokens, sizeof b->tokens);
    uint32_t *head = &p->by_key[key_slot(p, key)];
    b->key_next = *head;
    *head = block.v;
    head = &p->by_parent[parent_slot(p, parent_key)];
    b->sibling_prev = NIL;
    b->sibling_next = *head;
    if (*head != NIL) p->blocks[*head].sibling_prev = block.v;
    *head = block.v;
    p->pending[p->pending_count++] = block.v;
    p->cached_count++;
}

void kv_pool_settle(struct kv_pool *p, bool good)
{
    for (uint32_t k = 0; k < p->pending_count; k++) {
        uint32_t i = p->pending[k];
        if (p->blocks[i].content != CONTENT_PENDING) continue; /* forgotten meanwhile */
        if (good)
            p->blocks[i].content = CONTENT_SETTLED;
        else
            forget_content(p, i);
    }
    p->pending_count = 0;
}

kv_block kv_pool_find(const struct kv_pool *p, struct hash128 parent_key, struct hash128 key,
                      const uint32_t tokens[KV_BLOCK_TOKENS])
{
    uint32_t i = lookup(p, parent_key, key, tokens);
    return i != NIL && p->blocks[i].content == CONTENT_SETTLED ? (kv_block){i} : KV_BLOCK_NONE;
}

bool kv_pool_pending(const struct kv_pool *p, struct hash128 key)
{
    for (uint32_t i = p->by_key[key_slot(p, key)]; i != NIL; i = p->blocks[i].key_next)
        if (hash128_eq(p->blocks[i].key, key) && p->blocks[i].content == CONTENT_PENDING)
            return true;
    return false;
}

kv_block kv_pool_find_partial(const struct kv_pool *p, struct hash128 parent_key,
                              const uint32_t *tokens, uint32_t count, uint32_t *common)
{
    uint32_t best = NIL, best_run = 0, seen = 0;
    for (uint32_t i = p->by_parent[parent_slot(p, parent_key)]; i != NIL && seen < KV_SIBLINGS_MAX;
         i = p->blocks[i].sibling_next) {
        const struct block *b = &p->blocks[i];
        seen++;
        if (b->content != CONTENT_SETTLED || !hash128_eq(b->parent_key, parent_key)) continue;
        uint32_t run = 0;
        while (run < count && run < KV_BLOCK_TOKENS && b->tokens[run] == tokens[run])
            run++;
        if (run > best_run) {
            best_run = run;
            best = i;
        }
    }
    *common = best_run;
    return (kv_block){best};
}

/* ---- holding ---- */

enum err kv_pool_acquire(struct kv_pool *p, uint32_t n, kv_block *out)
{
    if (n > p->free_count) return ERR_FULL;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = p->free_head;
        unlink_free(p, i);
        forget_content(p, i);
        p->blocks[i].references = 1;
        out[k] = (kv_block){i};
    }
    return OK;
}

void kv_pool_retain(struct kv_pool *p, kv_block block)
{
    CHECK(block.v < p->count);
    struct block *b = &p->blocks[block.v];
    if (b->references++ == 0) unlink_free(p, block.v);
}

void kv_pool_release(struct kv_pool *p, kv_block block)
{
    CHECK(block.v < p->count);
    struct block *b = &p->blocks[block.v];
    CHECK(b->references > 0);
    if (--b->references > 0) return;
    if (b->content == CONTENT_PENDING)
        forget_content(p, block.v); /* its step is not over: nobody may find it */
    if (b->content == CONTENT_NONE)
        prepend_free(p, block.v);
    else
        append_free(p, block.v);
}

bool kv_pool_held(const struct kv_pool *p, kv_block block)
{
    return p->blocks[block.v].references > 0;
}

uint32_t kv_pool_count(const struct kv_pool *p)
{
    return p->count;
}
uint32_t kv_pool_free_count(const struct kv_pool *p)
{
    return p->free_count;
}
uint32_t kv_pool_cached_count(const struct kv_pool *p)
{
    return p->cached_count;
}

static void check_names(const struct kv_pool *p)
{
    uint32_t by_key = 0, by_parent = 0;
    for (uint32_t slot = 0; slot <= p->mask; slot++) {
        for (uint32_t i = p->by_key[slot]; i != NIL; i = p->blocks[i].key_next, by_key++)
            CHECK(p->blocks[i].content != CONTENT_NONE && key_slot(p, p->blocks[i].key) == slot &&
                  by_key <= p->count);
        for (uint32_t i = p->by_parent[slot]; i != NIL; i = p->blocks[i].sibling_next, by_parent++)
            CHECK(p->blocks[i].content != CONTENT_NONE &&
                  parent_slot(p, p->blocks[i].parent_key) == slot && by_parent <= p->count);
    }
    CHECK(by_key == p->cached_count && by_parent == p->cached_count);
}

void kv_pool_check(const struct kv_pool *p, const uint32_t *holders)
{
    uint32_t in_list = 0, held = 0, cached = 0, before = NIL;
    for (uint32_t i = p->free_head; i != NIL; i = p->blocks[i].next, in_list++) {
        CHECK(in_list < p->count && p->blocks[i].references == 0 && p->blocks[i].prev == before);
        CHECK(p->blocks[i].content != CONTENT_PENDING);
        before = i;
    }
    CHECK(before == p->free_tail);
    for (uint32_t i = 0; i < p->count; i++) {
        held += p->blocks[i].references > 0;
        cached += p->blocks[i].content != CONTENT_NONE;
        if (holders != NULL)
            CHECK_MSG(holders[i] == p->blocks[i].references, "block %u: %u holders, %u references",
                      i, holders[i], p->blocks[i].references);
    }
    CHECK(in_list == p->free_count && held + p->free_count == p->count &&
          cached == p->cached_count);
    check_names(p);
}
