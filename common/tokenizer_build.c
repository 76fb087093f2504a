/* tokenizer_build.c - from what a model file says to the tables that encoding uses. */
#include "common/tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* GPT-2 prints bytes as code points: the printable ones of Latin-1 as themselves, the 68 others as
 * U+0100 and on, in order. */
static uint32_t alphabet_byte(uint32_t cp)
{
    static const uint8_t first_others = 34; /* 00..20 and 7f */
    if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xAC) || (cp >= 0xAE && cp <= 0xFF))
        return cp;
    if (cp < 0x100 || cp >= 0x100 + 68) return UINT32_MAX;
    uint32_t n = cp - 0x100;
    if (n < 33) return n;
    if (n < first_others) return 0x7F;
    return n == 67 ? 0xAD : 0x80 + (n - first_others); /* 80..a0, then ad */
}

size_t tokenizer__from_alphabet(struct span text, uint8_t *out)
{
    size_t n = 0;
    bool valid = unicode_utf8_valid(text);
    for (size_t i = 0; valid && i < text.len;) {
        uint32_t len, byte = alphabet_byte(unicode_decode(text.ptr + i, &len));
        i += len;
        valid = byte != UINT32_MAX;
        out[n++] = (uint8_t)byte;
    }
    if (valid) return n;
    if (text.len > 0) memcpy(out, text.ptr, text.len);
    return text.len;
}

/* SentencePiece: U+2581 is a blank. */
static size_t from_blanks(struct span text, uint8_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len;) {
        if (text.len - i >= 3 && memcmp(text.ptr + i, "\xE2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = text.ptr[i++];
        }
    }
    return n;
}

/* "<0x0A>" */
static bool byte_token(struct span text, uint8_t *byte)
{
    unsigned value;
    char copy[7] = {0}, back[7];
    if (text.len != 6) return false;
    memcpy(copy, text.ptr, 6);
    if (sscanf(copy, "<0x%2X>", &value) != 1) return false;
    (void)snprintf(back, sizeof back, "<0x%02X>", value & 255);
    if (memcmp(copy, back, 6) != 0) return false;
    *byte = (uint8_t)value;
    return true;
}

static enum err build_pieces(struct tokenizer *t, const struct tokenizer_spec *s,
                             struct errmsg *why)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < s->token_count; i++) {
        if (s->tokens[i].len > TOKENIZER_PIECE_MAX)
            return errmsg_set(why, ERR_LIMIT, "tokens[%u]: %zu bytes, over %d", i, s->tokens[i].len,
                              TOKENIZER_PIECE_MAX);
        bytes += s->tokens[i].len;
    }
    if (bytes > TOKENIZER_ASSET_BYTES_MAX)
        return errmsg_set(why, ERR_LIMIT, "tokens: %zu bytes in all, over %d", bytes,
                          TOKENIZER_ASSET_BYTES_MAX);
    t->types = malloc(s->token_count);
    t->piece_start = malloc((s->token_count + 1) * sizeof *t->piece_start);
    t->piece_bytes = malloc(bytes + 1);
    if (!t->types || !t->piece_start || !t->piece_bytes) return ERR_NOMEM;
    uint32_t at = 0;
    for (uint32_t i = 0; i < s->token_count; i++) {
        int32_t type = s->types ? s->types[i] : TOKEN_NORMAL;
        struct span text = s->tokens[i];
        uint8_t *out = t->piece_bytes + at;
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return errmsg_set(why, ERR_PROTO, "token_type[%u]: %d, expected 1 to 6", i, type);
        t->types[i] = (uint8_t)type;
        t->piece_start[i] = at;
        if (type == TOKEN_BYTE) {
            if (!byte_token(text, out))
                return errmsg_set(why, ERR_PROTO, "tokens[%u]: a byte token is spelt <0xNN>", i);
            at++;
        } else if (t->family == FAMILY_BYTE_BPE && type == TOKEN_NORMAL) {
            at += (uint32_t)tokenizer__from_alphabet(text, out);
        } else if (t->family == FAMILY_SENTENCEPIECE) {
            at += (uint32_t)from_blanks(text, out);
        } else if (text.len > 0) {
            memcpy(out, text.ptr, text.len);
            at += (uint32_t)text.len;
        }
    }
    t->piece_start[s->token_count] = at;
    return OK;
}

/* Ordinary tokens by their bytes; the first of equals. Control tokens are left out: no merge and no
 * look-up can make one from text. */
static enum err build_words(struct tokenizer *t)
{
    uint32_t cap = 16;
    while (cap < 2 * t->token_count)
        cap *= 2;
    t->words = malloc(cap * sizeof *t->words);
    if (t->words == NULL) return ERR_NOMEM;
    memset(t->words, 0xFF, cap * sizeof *t->words);
    t->word_mask = cap - 1;
    for (uint32_t id = 0; id < t->token_count; id++) {
        struct span piece = piece_of(t, id);
        if ((t->types[id] != TOKEN_NORMAL && t->types[id] != TOKEN_USER_DEFINED) || piece.len == 0)
            continue;
        uint64_t hash = word_hash(piece.ptr, piece.len, t->seed);
        if (word_find(t, piece.ptr, piece.len, hash) != NULL) continue;
        uint32_t i = (uint32_t)hash & t->word_mask;
        while (t->words[i].id != TOKEN_NONE)
            i = (i + 1) & t->word_mask;
        t->words[i] = (struct word_slot){(uint32_t)(hash >> 32), id};
    }
    for (uint32_t b = 0; b < 256; b++)
        t->byte_ids[b] = TOKEN_NONE;
    for (uint32_t id = t->token_count; id-- > 0;) {
        struct span piece = piece_of(t, id);
        uint8_t wanted = t->family == FAMILY_BYTE_BPE ? TOKEN_NORMAL : TOKEN_BYTE;
        if (piece.len == 1 && t->types[id] == wanted) t->byte_ids[piece.ptr[0]] = id;
    }
    return OK;
}

static enum err build_specials(struct tokenizer *t)
{
    enum err err = trie__init(&t->trie);
    for (uint32_t id = 0; id < t->token_count && err == OK; id++) {
        struct span piece = piece_of(t, id);
        uint8_t type = t->types[id];
        if (type != TOKEN_CONTROL && type != TOKEN_USER_DEFINED && type != TOKEN_UNKNOWN) continue;
        if (unicode_utf8_valid(piece)) /* others cannot occur in text */
            err = trie__add(&t->trie, piece, id, type == TOKEN_USER_DEFINED);
    }
    return err;
}

static bool ends_turn(const struct tokenizer *t, uint32_t id)
{
    static const char *const names[] = {"<|im_end|>",      "<|eot_id|>",    "<|eom_id|>",
                                        "<|end|>",         "<end_of_turn>", "<|endoftext|>",
                                        "<|end_of_text|>", "</s>"};
    if (id == t->eos || id == t->eot || id == t->eom) return true;
    for (size_t i = 0; t->types[id] == TOKEN_CONTROL && i < ARRAY_LEN(names); i++)
        if (span_eq_str(piece_of(t, id), names[i])) return true;
    return false;
}

static enum err build_eog(struct tokenizer *t)
{
    for (uint32_t id = 0; id < t->token_count; id++)
        t->eog_count += ends_turn(t, id);
    t->eog = malloc((t->eog_count + 1) * sizeof *t->eog);
    if (t->eog == NULL) return ERR_NOMEM;
    for (uint32_t id = 0, n = 0; id < t->token_count; id++)
        if (ends_turn(t, id)) t->eog[n++] = id;
    return OK;
}

static enum err build_head(struct tokenizer *t, const struct tokenizer_spec *s, struct errmsg *why)
{
    const struct {
        const char *name;
        uint32_t id;
    } ids[] = {{"bos", s->bos},     {"eos", s->eos}, {"unknown", s->unk},
               {"padding", s->pad}, {"eot", s->eot}, {"eom", s->eom}};
    if (s->token_count == 0 || s->token_count > TOKENIZER_VOCAB_MAX)
        return errmsg_set(why, s->token_count ? ERR_LIMIT : ERR_PROTO,
                          "tokens: %u, expected 1 to %d", s->token_count, TOKENIZER_VOCAB_MAX);
    if (s->merge_count > TOKENIZER_MERGES_MAX)
        return errmsg_set(why, ERR_LIMIT, "merges: %u, over %d", s->merge_count,
                          TOKENIZER_MERGES_MAX);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (ids[i].id != TOKEN_NONE && ids[i].id >= s->token_count)
            return errmsg_set(why, ERR_PROTO, "%s_token_id: %u, but there are %u tokens",
                              ids[i].name, ids[i].id, s->token_count);
    if (s->pre.len > 64)
        return errmsg_set(why, ERR_LIMIT, "pre: a name of %zu bytes, over 64", s->pre.len);
    t->token_count = s->token_count;
    t->bos = s->bos;
    t->eos = s->eos;
    t->unk = s->unk;
    t->pad = s->pad;
    t->eot = s->eot;
    t->eom = s->eom;
    t->add_bos = s->add_bos;
    t->add_eos = s->add_eos;
    t->add_space_prefix = s->add_space_prefix;
    if (span_eq_str(s->model, "llama")) {
        t->family = FAMILY_SENTENCEPIECE;
        return s->scores ? OK
                         : errmsg_set(why, ERR_PROTO, "scores: missing, model 'llama' needs them");
    }
    if (!span_eq_str(s->model, "gpt2"))
        return errmsg_set(
            why, ERR_UNSUPPORTED,
            "tokenizer model '%.*s' is not known; there are gpt2 (byte-level BPE) and "
            "llama (SentencePiece BPE)",
            (int)(s->model.len < 64 ? s->model.len : 64), (const char *)s->model.ptr);
    enum err err = pre__by_name(s->pre, &t->pre, why);
    t->nfc = t->pre == PRE_QWEN2;
    t->words_first = t->pre == PRE_LLAMA3;
    return err;
}

enum err tokenizer__build(const struct tokenizer_spec *spec, uint64_t seed, struct tokenizer **out,
                          struct errmsg *why)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL) return errmsg_set(why, ERR_NOMEM, "tokenizer: out of memory");
    if (why) why->text[0] = 0;
    t->seed = seed | 1;
    t->unicode = unicode_tables();
    enum err err = t->unicode ? build_head(t, spec, why) : ERR_NOMEM;
    if (err == OK) err = build_pieces(t, spec, why);
    if (err == OK) err = build_words(t);
    if (err == OK) err = build_specials(t);
    if (err == OK) err = tokenizer__build_pairs(t, spec, why);
    if (err == OK) err = build_eog(t);
    if (err == OK) {
        *out = t;
        return OK;
    }
    tokenizer_destroy(t);
    if (why && why->text[0] == 0) return errmsg_set(why, err, "tokenizer: out of memory");
    return err;
}
