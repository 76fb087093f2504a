/* tokenizer_encode.c - text to ids: special tokens cut the text into segments, the pre-tokenizer
 * cuts segments into words, words are looked up or merged. One encoder per call, on the stack:
 * calls share nothing that changes. */
#include "common/tokenizer_internal.h"

#include <stdlib.h>

struct encoder {
    const struct tokenizer *t;
    struct token_vec *out;
    struct merge_scratch scratch;
    uint32_t *symbols; /* of a long word */
    size_t symbol_cap;
    struct buffer segment; /* normalized text */
};

/* ---- words ---- */

/* A code point without a token: its bytes' tokens, else one unknown for the whole run. */
static enum err emit_raw(struct encoder *e, uint32_t cp, bool *unknown_before)
{
    uint8_t utf8[4];
    uint32_t n = unicode_encode(cp == ' ' ? BLANK_CP : cp, utf8);
    bool all = true;
    for (uint32_t i = 0; i < n; i++)
        all = all && e->t->byte_ids[utf8[i]] != TOKEN_NONE;
    if (!all) {
        bool again = *unknown_before;
        *unknown_before = true;
        return again || e->t->unk == TOKEN_NONE ? OK : token_vec_push(e->out, e->t->unk);
    }
    *unknown_before = false;
    enum err err = OK;
    for (uint32_t i = 0; i < n && err == OK; i++)
        err = token_vec_push(e->out, e->t->byte_ids[utf8[i]]);
    return err;
}

static enum err merge_word(struct encoder *e, struct span word)
{
    uint32_t small[MERGE_SMALL], *symbols = small;
    if (word.len > MERGE_SMALL) {
        if (word.len > e->symbol_cap) {
            free(e->symbols);
            e->symbols = malloc(word.len * sizeof *e->symbols);
            e->symbol_cap = e->symbols ? word.len : 0;
            if (e->symbols == NULL) return ERR_NOMEM;
        }
        symbols = e->symbols;
    }
    size_t count = merge__symbols(e->t, word, symbols);
    enum err err = merge__run(e->t, symbols, &count, &e->scratch);
    bool unknown_before = false;
    for (size_t i = 0; i < count && err == OK; i++) {
        if (symbols[i] & (uint32_t)SYMBOL_RAW) {
            err = emit_raw(e, symbols[i] & ~(uint32_t)SYMBOL_RAW, &unknown_before);
        } else {
            unknown_before = false;
            err = token_vec_push(e->out, symbols[i]);
        }
    }
    return err;
}

static inline enum err encode_word(struct encoder *e, const uint8_t *p, size_t len)
{
    const struct tokenizer *t = e->t;
    const struct word_slot *slot = word_find(t, p, len, word_hash(p, len, t->seed));
    if (slot != NULL && (t->words_first || (slot->id & (uint32_t)WORD_WHOLE)))
        return token_vec_push(e->out, slot->id & ~(uint32_t)WORD_WHOLE);
    return merge_word(e, span_of(p, len));
}

/* ---- segments ---- */

static enum err encode_bytes(struct encoder *e, struct span text)
{
    const struct tokenizer *t = e->t;
    if (t->nfc && !unicode_nfc_quick(t->unicode, text)) {
        buffer_reset(&e->segment);
        enum err err = unicode_nfc(t->unicode, text, &e->segment);
        if (err != OK) return err;
        text = buffer_view(&e->segment);
    }
    enum err err = OK;
    for (size_t at = 0; at < text.len && err == OK;) {
        size_t end = pre__next(t->unicode, t->pre, text.ptr, at, text.len);
        err = encode_word(e, text.ptr + at, end - at);
        at = end;
    }
    return err;
}

/* A blank in front, U+2581 as blanks. Where no piece reaches over the beginning of a blank run,
 * merges cannot either, and each blank run with what follows is a word by itself. */
static enum err encode_sentence(struct encoder *e, struct span text)
{
    struct buffer *seg = &e->segment;
    buffer_reset(seg);
    if (e->t->add_space_prefix) buffer_add_byte(seg, ' ');
    while (text.len > 0) {
        const uint8_t *blank = memmem(text.ptr, text.len, "\xE2\x96\x81", 3);
        size_t plain = blank ? (size_t)(blank - text.ptr) : text.len;
        buffer_add(seg, text.ptr, plain);
        if (blank) buffer_add_byte(seg, ' ');
        text = span_from(text, plain + (blank ? 3 : 0));
    }
    enum err err = buffer_status(seg);
    const uint8_t *p = seg->ptr;
    for (size_t at = 0; at < seg->len && err == OK;) {
        size_t end = seg->len;
        if (e->t->words_split) {
            end = at;
            while (end < seg->len && p[end] == ' ')
                end++;
            const uint8_t *blank = end < seg->len ? memchr(p + end, ' ', seg->len - end) : NULL;
            end = blank ? (size_t)(blank - p) : seg->len;
        }
        err = encode_word(e, p + at, end - at);
        at = end;
    }
    return err;
}

static enum err encode_segment(struct encoder *e, struct span text)
{
    if (text.len == 0) return OK;
    return e->t->family == FAMILY_BYTE_BPE ? encode_bytes(e, text) : encode_sentence(e, text);
}

/* ---- special tokens ---- */
struct trust {
    enum tokenize_mode mode;
    const struct trust_range *ranges;
    size_t count, at; /* ranges before at end at or before the offsets asked for */
};

/* How far from offset on the text is trusted without a gap (looked at up to enough bytes). Offsets
 * ascend. */
static size_t trusted_until(struct trust *trust, size_t offset, size_t enough)
{
    if (trust->mode == TOKENIZE_PLAIN) return offset;
    if (trust->mode == TOKENIZE_SPECIAL) return SIZE_MAX;
    while (trust->at < trust->count && trust->ranges[trust->at].end <= offset)
        trust->at++;
    size_t end = offset;
    for (size_t k = trust->at; k < trust->count && trust->ranges[k].start <= end; k++) {
        if (trust->ranges[k].end > end) end = trust->ranges[k].end;
        if (end - offset >= enough) break;
    }
    return end;
}

/* The next offset at or behind at where a special token may begin. */
static size_t next_candidate(const bool first[256], uint32_t first_count, struct span text,
                             size_t at)
{
    if (first_count == 0) return text.len;
    if (first_count == 1 && at < text.len) {
        uint8_t byte = 0;
        while (!first[byte])
            byte++;
        const uint8_t *found = memchr(text.ptr + at, byte, text.len - at);
        return found ? (size_t)(found - text.ptr) : text.len;
    }
    while (at < text.len && !first[text.ptr[at]])
        at++;
    return at;
}

static enum err encode_all(struct encoder *e, struct span text, struct trust *trust)
{
    const struct special_trie *trie = &e->t->trie;
    bool plain = trust->mode == TOKENIZE_PLAIN;
    const bool *first = plain ? trie->first_user : trie->first_any;
    uint32_t first_count = plain ? trie->first_user_count : trie->first_any_count;
    size_t segment = 0, at = 0;
    enum err err = OK;
    while (err == OK) {
        at = next_candidate(first, first_count, text, at);
        if (at >= text.len) return encode_segment(e, span_from(text, segment));
        size_t end, trusted = trusted_until(trust, at, trie->len_max);
        uint32_t id = trie__match(e->t, text, at, trusted, &end);
        if (id == TOKEN_NONE) {
            at++;
            continue;
        }
        err = encode_segment(e, span_of(text.ptr + segment, at - segment));
        if (err == OK) err = token_vec_push(e->out, id);
        segment = at = end;
    }
    return err;
}

enum err tokenizer_encode(const struct tokenizer *t, struct span text, enum tokenize_mode mode,
                          const struct trust_range *trusted, size_t trusted_count,
                          struct token_vec *out)
{
    if (text.len > UINT32_MAX / 4) return ERR_LIMIT; /* positions are 32-bit, NFC may triple */
    if (!unicode_utf8_valid(text)) return ERR_PROTO;
    struct encoder e = {.t = t, .out = out};
    buffer_init(&e.segment, 3 * text.len + 16);
    struct trust trust = {mode, trusted, trusted_count, 0};
    size_t before = out->count;
    enum err err = encode_all(&e, text, &trust);
    if (err != OK) out->count = before; /* all or nothing */
    buffer_deinit(&e.segment);
    merge__deinit(&e.scratch);
    free(e.symbols);
    return err;
}
