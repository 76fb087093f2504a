/* tokenizer_internal.h - what the tokenizer's files share: the built tables and how to look into
 * them. Not for other modules. */
#ifndef PENSTOCK_COMMON_TOKENIZER_INTERNAL_H
#define PENSTOCK_COMMON_TOKENIZER_INTERNAL_H

#include "common/tokenizer.h"
#include "common/unicode.h"

enum tokenizer_family {
    FAMILY_BYTE_BPE,     /* symbols are bytes, merges have ranks */
    FAMILY_SENTENCEPIECE /* symbols are code points, ranks come from scores, bytes as a last resort
                          */
};
enum pre_kind { PRE_GPT2, PRE_SMOLLM, PRE_LLAMA3, PRE_QWEN2 };

enum {
    TOKENIZER_MERGES_MAX = 1 << 22,
    SPM_PIECE_MAX = 512,    /* bytes; every split of a piece is looked up while building */
    SYMBOL_RAW = INT32_MIN, /* bit 31: the symbol is a code point without a token */
    WORD_WHOLE = INT32_MIN, /* bit 31 of a word slot's id: merging its symbols gives this token */
    BLANK_CP = 0x2581,      /* SentencePiece's blank; ' ' in our tables */
};
#define RANK_NONE UINT32_MAX

struct word_slot {
    uint32_t tag; /* other bits of the hash than those of the index */
    uint32_t id;  /* with WORD_WHOLE; TOKEN_NONE = free */
};
struct pair_slot { /* left next to right gives id */
    uint32_t left, right;
    uint32_t rank; /* lower merges first; RANK_NONE = free */
    uint32_t id;
};
struct trie_node {
    uint32_t child, sibling; /* 0 = none; node 0 is the root */
    uint32_t id;             /* the token that ends here, or TOKEN_NONE */
    uint8_t byte;
};
/* The tokens that are found in the text before anything else. */
struct special_trie {
    struct trie_node *nodes;
    uint32_t node_count, node_cap;
    uint32_t len_max;     /* bytes of the longest */
    bool first_any[256];  /* some token begins with the byte */
    bool first_user[256]; /* some user-defined token does */
    uint32_t first_any_count, first_user_count;
};

struct tokenizer {
    enum tokenizer_family family;
    enum pre_kind pre;
    const struct unicode_tables *unicode;
    bool nfc;         /* text is normalized first */
    bool words_first; /* a pre-token in the vocabulary is taken whole, without merges */
    bool words_split; /* SentencePiece: no piece has a blank behind another character, so that
                         blanks begin new words */
    bool add_bos, add_eos, add_space_prefix;
    uint32_t token_count;
    uint32_t bos, eos, unk, pad, eot, eom;
    uint8_t *types;         /* [token_count] enum token_type */
    uint8_t *piece_bytes;   /* all pieces, end to end */
    uint32_t *piece_start;  /* [token_count + 1] */
    uint32_t byte_ids[256]; /* the token of one byte, or TOKEN_NONE */
    uint64_t seed; /* of the hashes: from the asset's content, so that nobody aims at them */
    struct word_slot *words;
    uint32_t word_mask;
    struct pair_slot *pairs;
    uint32_t pair_mask;
    struct special_trie trie;
    uint32_t *eog;
    uint32_t eog_count;
};

/* ---- tokenizer_asset.c ---- */
/* Reads an asset into *spec, whose arrays are allocated (asset__free) and whose spans point into
 * asset. */
enum err asset__parse(struct span asset, struct tokenizer_spec *spec, struct errmsg *why);
void asset__free(struct tokenizer_spec *spec);

/* ---- tokenizer_build.c, tokenizer_pairs.c ---- */
enum err tokenizer__build(const struct tokenizer_spec *spec, uint64_t seed, struct tokenizer **out,
                          struct errmsg *why);
enum err tokenizer__build_pairs(struct tokenizer *t, const struct tokenizer_spec *spec,
                                struct errmsg *why);
/* GPT-2's printable alphabet back to bytes; text outside of it is copied. out has room for
 * text.len. */
size_t tokenizer__from_alphabet(struct span text, uint8_t *out);

/* ---- tokenizer_trie.c ---- */
enum err trie__init(struct special_trie *trie);
enum err trie__add(struct special_trie *trie, struct span text, uint32_t id, bool user_defined);
void trie__deinit(struct special_trie *trie);
uint32_t trie__find(const struct special_trie *trie, struct span text);
/* The longest token that begins at text[at] and may stand there: a user-defined one anywhere,
 * another one where it ends at or before control_end. TOKEN_NONE, or its id and *end. */
uint32_t trie__match(const struct tokenizer *t, struct span text, size_t at, size_t control_end,
                     size_t *end);

/* ---- tokenizer_pre.c ---- */
/* End of the pre-token that begins at text[at]; at < len. */
size_t pre__next(const struct unicode_tables *u, enum pre_kind kind, const uint8_t *text, size_t at,
                 size_t len);
/* By the GGUF name. ERR_UNSUPPORTED names it and those that there are. */
enum err pre__by_name(struct span name, enum pre_kind *out, struct errmsg *why);

/* ---- tokenizer_merge.c ---- */
struct merge_scratch { /* grows to the longest word; one thread */
    uint64_t *memory;
    size_t cap; /* in symbols */
};
enum { MERGE_SMALL = 40 }; /* up to so many symbols merge on the stack */
/* Merges symbols[0..*count) in place. ERR_NOMEM. */
enum err merge__run(const struct tokenizer *t, uint32_t *symbols, size_t *count,
                    struct merge_scratch *scratch);
void merge__deinit(struct merge_scratch *scratch);
/* Splits a word into symbols[word.len]; returns their count. Bytes without a token are left out in
 * byte-level families. */
size_t merge__symbols(const struct tokenizer *t, struct span word, uint32_t *symbols);

/* ---- lookups ---- */
static inline uint64_t mix64(uint64_t a, uint64_t b)
{
    unsigned __int128 m = (unsigned __int128)a * b;
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t word_hash(const uint8_t *p, size_t len, uint64_t seed)
{
    uint64_t a = 0, b = 0;
    if (len >= 8) {
        if (len > 16) return hash64_of(span_of(p, len), seed);
        a = load_le64(p);
        b = load_le64(p + len - 8);
    } else if (len >= 4) {
        a = load_le32(p);
        b = load_le32(p + len - 4);
    } else if (len > 0) {
        a = (uint64_t)p[0] << 16 | (uint64_t)p[len / 2] << 8 | p[len - 1];
    }
    return mix64(mix64(a ^ seed, b ^ 0x9E3779B97F4A7C15ull) ^ len, 0xD6E8FEB86659FD93ull);
}

static inline struct span piece_of(const struct tokenizer *t, uint32_t id)
{
    return span_of(t->piece_bytes + t->piece_start[id],
                   t->piece_start[id + 1] - t->piece_start[id]);
}

/* The slot of an ordinary token spelt so, or NULL. */
static inline const struct word_slot *word_find(const struct tokenizer *t, const uint8_t *p,
                                                size_t len, uint64_t hash)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    for (uint32_t i = (uint32_t)hash & t->word_mask;; i = (i + 1) & t->word_mask) {
        const struct word_slot *slot = &t->words[i];
        if (slot->id == TOKEN_NONE) return NULL;
        if (slot->tag != tag) continue;
        struct span piece = piece_of(t, slot->id & ~(uint32_t)WORD_WHOLE);
        if (piece.len == len && memcmp(piece.ptr, p, len) == 0) return slot;
    }
}

static inline uint32_t pair_index(const struct tokenizer *t, uint32_t left, uint32_t right)
{
    return (uint32_t)mix64(((uint64_t)left << 32 | right) ^ t->seed, 0x9E3779B97F4A7C15ull) &
           t->pair_mask;
}

static inline const struct pair_slot *pair_find(const struct tokenizer *t, uint32_t left,
                                                uint32_t right)
{
    for (uint32_t i = pair_index(t, left, right);; i = (i + 1) & t->pair_mask) {
        const struct pair_slot *slot = &t->pairs[i];
        if (slot->rank == RANK_NONE) return NULL;
        if (slot->left == left && slot->right == right) return slot;
    }
}

#endif
