/* tokenizer_pairs.c - which two neighbours merge into what, and when. Byte-level vocabularies list
 * their merges in order; SentencePiece's follow from the pieces (every cut of a piece into two
 * symbols is a merge) with the scores as order. Both become one table. */
#include "common/tokenizer_internal.h"

#include <stdlib.h>

static enum err pairs_alloc(struct tokenizer *t, size_t count)
{
    size_t cap = 16;
    while (cap < 2 * count)
        cap *= 2;
    if (cap > UINT32_MAX / 2) return ERR_LIMIT;
    t->pairs = malloc(cap * sizeof *t->pairs);
    if (t->pairs == NULL) return ERR_NOMEM;
    t->pair_mask = (uint32_t)cap - 1;
    memset(t->pairs, 0xFF, cap * sizeof *t->pairs); /* rank RANK_NONE */
    return OK;
}

/* The first of equal pairs counts, as it has the lower rank. */
static void pairs_add(struct tokenizer *t, struct pair_slot pair)
{
    uint32_t i = pair_index(t, pair.left, pair.right);
    for (; t->pairs[i].rank != RANK_NONE; i = (i + 1) & t->pair_mask)
        if (t->pairs[i].left == pair.left && t->pairs[i].right == pair.right) return;
    t->pairs[i] = pair;
}

static uint32_t word_id(const struct tokenizer *t, const uint8_t *p, size_t len)
{
    const struct word_slot *slot = word_find(t, p, len, word_hash(p, len, t->seed));
    return slot ? slot->id & ~(uint32_t)WORD_WHOLE : TOKEN_NONE;
}

static enum err merge_refuse(uint32_t at, struct span merge, const char *what, struct errmsg *why)
{
    return errmsg_set(why, ERR_PROTO, "merges[%u] '%.*s': %s", at,
                      (int)(merge.len < 80 ? merge.len : 80), (const char *)merge.ptr, what);
}

static enum err pairs_from_merges(struct tokenizer *t, const struct tokenizer_spec *s,
                                  struct errmsg *why)
{
    enum err err = pairs_alloc(t, s->merge_count);
    uint8_t *bytes = malloc(2 * TOKENIZER_PIECE_MAX + 1);
    if (bytes == NULL) err = ERR_NOMEM;
    for (uint32_t i = 0; i < s->merge_count && err == OK; i++) {
        struct span merge = s->merges[i];
        const uint8_t *blank = merge.len > 2 ? memchr(merge.ptr + 1, ' ', merge.len - 2) : NULL;
        if (merge.len > 2 * TOKENIZER_PIECE_MAX + 1 || blank == NULL) {
            err = merge_refuse(i, merge, "expected two tokens with a blank between them", why);
            break;
        }
        size_t cut = (size_t)(blank - merge.ptr);
        size_t left = tokenizer__from_alphabet(span_of(merge.ptr, cut), bytes);
        size_t right = tokenizer__from_alphabet(span_from(merge, cut + 1), bytes + left);
        struct pair_slot pair = {word_id(t, bytes, left), word_id(t, bytes + left, right), i,
                                 word_id(t, bytes, left + right)};
        if (pair.left != TOKEN_NONE && pair.right != TOKEN_NONE && pair.id != TOKEN_NONE)
            pairs_add(t, pair);
        else if (trie__find(&t->trie, span_of(bytes, left + right)) == TOKEN_NONE)
            err = merge_refuse(i, merge, "a part or the whole is no token of the vocabulary", why);
    }
    free(bytes);
    return err;
}

/* ---- SentencePiece ---- */
struct scored {
    float score;
    uint32_t id;
};

static int scored_compare(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* rank[id]: 0 for the highest score; equal scores have equal ranks. */
static enum err ranks_from_scores(const struct tokenizer_spec *s, uint32_t *rank,
                                  struct errmsg *why)
{
    struct scored *order = malloc(s->token_count * sizeof *order);
    if (order == NULL) return ERR_NOMEM;
    for (uint32_t id = 0; id < s->token_count; id++) {
        if (s->scores[id] != s->scores[id]) {
            free(order);
            return errmsg_set(why, ERR_PROTO, "scores[%u]: not a number", id);
        }
        order[id] = (struct scored){s->scores[id], id};
    }
    qsort(order, s->token_count, sizeof *order, scored_compare);
    for (uint32_t i = 0, r = 0; i < s->token_count; i++) {
        if (i > 0 && order[i].score != order[i - 1].score) r++;
        rank[order[i].id] = r;
    }
    free(order);
    return OK;
}

/* A token, a single code point, or TOKEN_NONE. */
static uint32_t symbol_of(const struct tokenizer *t, const uint8_t *p, size_t len)
{
    uint32_t id = word_id(t, p, len), cp_len;
    if (id != TOKEN_NONE) return id;
    uint32_t cp = unicode_decode(p, &cp_len);
    return cp_len == len ? cp | (uint32_t)SYMBOL_RAW : TOKEN_NONE;
}

static void pairs_of_piece(struct tokenizer *t, uint32_t id, uint32_t rank)
{
    struct span piece = piece_of(t, id);
    for (size_t cut = 1; cut < piece.len; cut++) {
        if ((piece.ptr[cut] & 0xC0) == 0x80) continue;
        if (piece.ptr[cut] == ' ' && piece.ptr[cut - 1] != ' ') t->words_split = false;
        uint32_t left = symbol_of(t, piece.ptr, cut);
        uint32_t right = symbol_of(t, piece.ptr + cut, piece.len - cut);
        if (left != TOKEN_NONE && right != TOKEN_NONE)
            pairs_add(t, (struct pair_slot){left, right, rank, id});
    }
}

static enum err pairs_from_scores(struct tokenizer *t, const struct tokenizer_spec *s,
                                  struct errmsg *why)
{
    size_t cuts = 0;
    for (uint32_t id = 0; id < t->token_count; id++) {
        struct span piece = piece_of(t, id);
        if (t->types[id] != TOKEN_NORMAL) continue;
        if (piece.len > SPM_PIECE_MAX || !unicode_utf8_valid(piece))
            return errmsg_set(why, ERR_PROTO, "tokens[%u]: expected UTF-8 of at most %d bytes", id,
                              SPM_PIECE_MAX);
        for (size_t i = 1; i < piece.len; i++)
            cuts += (piece.ptr[i] & 0xC0) != 0x80;
    }
    enum err err = pairs_alloc(t, cuts);
    uint32_t *rank = malloc(t->token_count * sizeof *rank);
    if (rank == NULL && err == OK) err = ERR_NOMEM;
    if (err == OK) err = ranks_from_scores(s, rank, why);
    t->words_split = true;
    for (uint32_t id = 0; id < t->token_count && err == OK; id++) {
        struct span piece = piece_of(t, id);
        if (t->types[id] == TOKEN_NORMAL && word_id(t, piece.ptr, piece.len) == id)
            pairs_of_piece(t, id, rank[id]);
    }
    free(rank);
    return err;
}

/* Marks the words that merging would give back whole, so that encoding can take them at one look.
 * (Not all are: a token may be out of reach of the merges.) */
static enum err mark_whole_words(struct tokenizer *t)
{
    struct merge_scratch scratch = {0};
    uint32_t *symbols = malloc(TOKENIZER_PIECE_MAX * sizeof *symbols);
    enum err err = symbols ? OK : ERR_NOMEM;
    for (uint32_t i = 0; i <= t->word_mask && err == OK; i++) {
        struct word_slot *slot = &t->words[i];
        if (slot->id == TOKEN_NONE) continue;
        struct span piece = piece_of(t, slot->id);
        if (t->family == FAMILY_SENTENCEPIECE && !unicode_utf8_valid(piece)) continue;
        size_t count = merge__symbols(t, piece, symbols);
        if (count == 0) continue;
        err = merge__run(t, symbols, &count, &scratch);
        if (err == OK && count == 1 && symbols[0] == slot->id) slot->id |= (uint32_t)WORD_WHOLE;
    }
    merge__deinit(&scratch);
    free(symbols);
    return err;
}

enum err tokenizer__build_pairs(struct tokenizer *t, const struct tokenizer_spec *spec,
                                struct errmsg *why)
{
    enum err err = t->family == FAMILY_BYTE_BPE ? pairs_from_merges(t, spec, why)
                                                : pairs_from_scores(t, spec, why);
    return err == OK ? mark_whole_words(t) : err;
}
