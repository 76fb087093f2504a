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

/* A long word: a list of symbols in one array, and two queues of rank << 32 | position: the pairs
 * of the beginning, sorted once, and a 4-ary heap of those that merging makes. (One heap of
 * everything costs twice as much: its lower levels miss the cache at each step.) An entry is stale
 * when its position's pair has another rank by now. What a batch of merges of one rank makes waits
 * until the batch is through: of a megabyte of blanks half is stale by then and never sees the
 * heap. */
struct node {
    uint32_t symbol, next, prev; /* UINT32_MAX: none */
    uint32_t rank;               /* of the pair that begins here; RANK_NONE: none, or gone */
};
struct long_word {
    const struct tokenizer *t;
    struct node *nodes;
    uint64_t *sorted, *heap, *waiting;
    size_t sorted_count, sorted_at, heap_count, waiting_count, waiting_max;
    uint32_t batch_rank; /* waiting entries rank higher */
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

/* Sorts by rank; positions ascend already. Two passes of 11 bits: TOKENIZER_MERGES_MAX is 2^22.
 * tmp has room for count. */
static void sort_by_rank(uint64_t *keys, uint64_t *tmp, size_t count)
{
    _Static_assert(TOKENIZER_MERGES_MAX <= 1 << 22 && TOKENIZER_VOCAB_MAX <= 1 << 22, "two passes");
    for (uint32_t pass = 0; pass < 2; pass++) {
        uint32_t start[2049] = {0}, shift = 32 + 11 * pass;
        for (size_t i = 0; i < count; i++)
            start[(keys[i] >> shift & 2047) + 1]++;
        for (uint32_t d = 0; d < 2048; d++)
            start[d + 1] += start[d];
        for (size_t i = 0; i < count; i++)
            tmp[start[keys[i] >> shift & 2047]++] = keys[i];
        uint64_t *swap = keys;
        keys = tmp;
        tmp = swap;
    }
}

static void pair_update(struct long_word *w, uint32_t at)
{
    struct node *node = &w->nodes[at];
    const struct pair_slot *pair = node->next == UINT32_MAX
                                       ? NULL
                                       : pair_find(w->t, node->symbol, w->nodes[node->next].symbol);
    uint32_t rank = pair ? pair->rank : RANK_NONE;
    bool queued = rank == node->rank; /* an entry of this rank and position waits already */
    node->rank = rank;
    if (pair == NULL || queued) return;
    uint64_t key = (uint64_t)rank << 32 | at;
    if (rank > w->batch_rank && w->waiting_count < w->waiting_max)
        w->waiting[w->waiting_count++] = key;
    else
        heap_push(w, key);
}

static void waiting_flush(struct long_word *w)
{
    for (size_t i = 0; i < w->waiting_count; i++) {
        uint64_t key = w->waiting[i];
        if (w->nodes[(uint32_t)key].rank == (uint32_t)(key >> 32)) heap_push(w, key);
    }
    w->waiting_count = 0;
}

static enum err scratch_reserve(struct merge_scratch *scratch, size_t count, struct long_word *w)
{
    if (count > scratch->cap) {
        free(scratch->memory);
        *scratch = (struct merge_scratch){0};
        /* each merge takes one entry and pushes two: at most count more than there were merges */
        scratch->memory = malloc(count * (sizeof(struct node) + 4 * sizeof(uint64_t)));
        if (scratch->memory == NULL) return ERR_NOMEM;
        scratch->cap = count;
    }
    w->sorted = scratch->memory;
    w->heap = w->sorted + count; /* 2 * count */
    w->waiting = w->heap + 2 * count;
    w->waiting_max = count;
    w->nodes = (struct node *)(void *)(w->waiting + count);
    return OK;
}

static void long_word_init(struct long_word *w, const uint32_t *symbols, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct pair_slot *pair =
            i + 1 < n ? pair_find(w->t, symbols[i], symbols[i + 1]) : NULL;
        w->nodes[i] = (struct node){symbols[i], i + 1 < n ? i + 1 : UINT32_MAX,
                                    i > 0 ? i - 1 : UINT32_MAX, pair ? pair->rank : RANK_NONE};
        if (pair) w->sorted[w->sorted_count++] = (uint64_t)pair->rank << 32 | i;
    }
    sort_by_rank(w->sorted, w->heap, w->sorted_count);
}

/* Merges the pair that the entry names, unless it is stale. */
static void merge_entry(struct long_word *w, uint64_t key)
{
    uint32_t at = (uint32_t)key;
    struct node *node = &w->nodes[at];
    if (node->rank != (uint32_t)(key >> 32)) return;
    struct node *gone = &w->nodes[node->next];
    node->symbol = pair_find(w->t, node->symbol, gone->symbol)->id;
    node->rank = RANK_NONE; /* its entry is spent */
    gone->rank = RANK_NONE;
    node->next = gone->next;
    if (gone->next != UINT32_MAX) w->nodes[gone->next].prev = at;
    pair_update(w, at);
    if (node->prev != UINT32_MAX) pair_update(w, node->prev);
}

enum err merge__run(const struct tokenizer *t, uint32_t *symbols, size_t *count,
                    struct merge_scratch *scratch)
{
    if (*count <= MERGE_SMALL) {
        *count = merge_small(t, symbols, *count);
        return OK;
    }
    struct long_word w = {.t = t};
    enum err err = scratch_reserve(scratch, *count, &w);
    if (err != OK) return err;
    long_word_init(&w, symbols, (uint32_t)*count);
    for (;;) {
        uint64_t sorted = w.sorted_at < w.sorted_count ? w.sorted[w.sorted_at] : UINT64_MAX;
        uint64_t made = w.heap_count > 0 ? w.heap[0] : UINT64_MAX;
        uint64_t key = sorted < made ? sorted : made;
        if (w.waiting_count > 0 && key >> 32 > w.batch_rank) {
            waiting_flush(&w);
            continue;
        }
        if (key == UINT64_MAX) break;
        if (made < sorted)
            (void)heap_pop(&w);
        else
            w.sorted_at++;
        w.batch_rank = (uint32_t)(key >> 32);
        merge_entry(&w, key);
    }
    size_t out = 0;
    for (uint32_t i = 0; i != UINT32_MAX; i = w.nodes[i].next)
        symbols[out++] = w.nodes[i].symbol;
    *count = out;
    return OK;
}

void merge__deinit(struct merge_scratch *scratch)
{
    free(scratch->memory);
    *scratch = (struct merge_scratch){0};
}
