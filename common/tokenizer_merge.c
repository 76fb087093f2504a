/* tokenizer_merge.c - byte pair encoding of one word: the adjacent pair of lowest rank merges
 * first, the leftmost among equals, until none is left. Short words are scanned for the lowest rank
 * again and again; long ones use a heap, O(n log n). Pure functions of the tables. */
#include "common/tokenizer_internal.h"

#include <stdlib.h>

size_t merge__symbols(const struct tokenizer *t, struct span word, uint32_t *symbols)
{
    size_t count = 0;
    if (t->family == FAMILY_BYTE_BPE) {
        for (size_t i = 0; i < word.len; i++) {
            symbols[count] = t->byte_ids[word.ptr[i]];
            count += symbols[count] != TOKEN_NONE;
        }
        return count;
    }
    for (size_t i = 0; i < word.len;) {
        uint32_t len, cp = unicode_decode(word.ptr + i, &len);
        const struct word_slot *slot =
            word_find(t, word.ptr + i, len, word_hash(word.ptr + i, len, t->seed));
        symbols[count++] = slot ? slot->id & ~(uint32_t)WORD_WHOLE : cp | (uint32_t)SYMBOL_RAW;
        i += len;
    }
    return count;
}

static size_t merge_small(const struct tokenizer *t, uint32_t *symbols, size_t count)
{
    uint32_t rank[MERGE_SMALL], id[MERGE_SMALL]; /* of the pair that begins here */
    for (size_t i = 0; i + 1 < count; i++) {
        const struct pair_slot *pair = pair_find(t, symbols[i], symbols[i + 1]);
        rank[i] = pair ? pair->rank : RANK_NONE;
        id[i] = pair ? pair->id : 0;
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == RANK_NONE) break;
        symbols[best] = id[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            symbols[i] = symbols[i + 1];
            rank[i - 1] = rank[i];
            id[i - 1] = id[i];
        }
        for (size_t i = best == 0 ? 0 : best - 1; i <= best && i + 1 < count; i++) {
            const struct pair_slot *pair = pair_find(t, symbols[i], symbols[i + 1]);
            rank[i] = pair ? pair->rank : RANK_NONE;
            id[i] = pair ? pair->id : 0;
        }
    }
    return count;
}

/* A long word: a doubly linked list of symbols in arrays, and a 4-ary heap of rank << 32 |
 * position. An entry is stale when its position's pair has another rank by now. */
struct long_word {
    const struct tokenizer *t;
    uint32_t *symbols, *next, *prev, *rank, *id; /* [count]; rank RANK_NONE: no pair, or gone */
    uint64_t *heap;
    size_t heap_count;
};

static void heap_push(struct long_word *w, uint64_t key)
{
    size_t i = w->heap_count++;
    while (i > 0 && w->heap[(i - 1) / 4] > key) {
        w->heap[i] = w->heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    w->heap[i] = key;
}

static uint64_t heap_pop(struct long_word *w)
{
    uint64_t top = w->heap[0], key = w->heap[--w->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 4 * i + 1, best = child;
        if (child >= w->heap_count) break;
        size_t end = child + 4 < w->heap_count ? child + 4 : w->heap_count;
        for (size_t k = child + 1; k < end; k++)
            if (w->heap[k] < w->heap[best]) best = k;
        if (w->heap[best] >= key) break;
        w->heap[i] = w->heap[best];
        i = best;
    }
    w->heap[i] = key;
    return top;
}

static void pair_update(struct long_word *w, uint32_t at)
{
    uint32_t next = w->next[at];
    const struct pair_slot *pair =
        next == UINT32_MAX ? NULL : pair_find(w->t, w->symbols[at], w->symbols[next]);
    uint32_t rank = pair ? pair->rank : RANK_NONE;
    w->id[at] = pair ? pair->id : 0;
    bool queued = rank == w->rank[at]; /* an entry of this rank and position waits already */
    w->rank[at] = rank;
    if (pair && !queued) heap_push(w, (uint64_t)rank << 32 | at);
}

static enum err scratch_reserve(struct merge_scratch *scratch, size_t count, struct long_word *w)
{
    if (count > scratch->cap) {
        free(scratch->memory);
        *scratch = (struct merge_scratch){0};
        /* four arrays of uint32_t; each merge pushes two and takes one: at most 2 * count in the
         * heap */
        scratch->memory = malloc(count * (4 * sizeof(uint32_t) + 2 * sizeof(uint64_t)));
        if (scratch->memory == NULL) return ERR_NOMEM;
        scratch->cap = count;
    }
    w->heap = (uint64_t *)(void *)scratch->memory;
    w->next = scratch->memory + 4 * count;
    w->prev = w->next + count;
    w->rank = w->prev + count;
    w->id = w->rank + count;
    return OK;
}

enum err merge__run(const struct tokenizer *t, uint32_t *symbols, size_t *count,
                    struct merge_scratch *scratch)
{
    if (*count <= MERGE_SMALL) {
        *count = merge_small(t, symbols, *count);
        return OK;
    }
    struct long_word w = {.t = t, .symbols = symbols};
    enum err err = scratch_reserve(scratch, *count, &w);
    if (err != OK) return err;
    uint32_t n = (uint32_t)*count;
    for (uint32_t i = 0; i < n; i++) {
        w.next[i] = i + 1 < n ? i + 1 : UINT32_MAX;
        w.prev[i] = i > 0 ? i - 1 : UINT32_MAX;
        w.rank[i] = RANK_NONE;
    }
    for (uint32_t i = 0; i < n; i++)
        pair_update(&w, i);
    while (w.heap_count > 0) {
        uint64_t key = heap_pop(&w);
        uint32_t at = (uint32_t)key, rank = (uint32_t)(key >> 32);
        if (w.rank[at] != rank) continue;
        uint32_t gone = w.next[at];
        symbols[at] = w.id[at];
        w.rank[at] = RANK_NONE; /* its entry is spent */
        w.rank[gone] = RANK_NONE;
        w.next[at] = w.next[gone];
        if (w.next[gone] != UINT32_MAX) w.prev[w.next[gone]] = at;
        pair_update(&w, at);
        if (w.prev[at] != UINT32_MAX) pair_update(&w, w.prev[at]);
    }
    size_t out = 0;
    for (uint32_t i = 0; i != UINT32_MAX; i = w.next[i])
        symbols[out++] = symbols[i];
    *count = out;
    return OK;
}

void merge__deinit(struct merge_scratch *scratch)
{
    free(scratch->memory);
    *scratch = (struct merge_scratch){0};
}
