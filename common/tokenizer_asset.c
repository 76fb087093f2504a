/* tokenizer_asset.c - the asset's bytes, written and read. Little-endian:
 *   "PSTKNZ" u16 version | u8 flags | string model, pre | u32 bos eos unk pad eot eom
 *   | u32 token_count merge_count | u8 types[] | f32 scores[] (by flag) | string tokens[], merges[]
 * string = length as LEB128 (at most 3 bytes), then bytes. Nothing may follow. */
#include "common/tokenizer_internal.h"

#include <stdlib.h>

static const char MAGIC[6] = {'P', 'S', 'T', 'K', 'N', 'Z'};
enum { ASSET_VERSION = 1 };
enum { FLAG_ADD_BOS = 1, FLAG_ADD_EOS = 2, FLAG_SPACE_PREFIX = 4, FLAG_SCORES = 8, FLAGS_ALL = 15 };

static void put_u32(struct buffer *out, uint32_t v)
{
    uint8_t le[4];
    store_le32(le, v);
    buffer_add(out, le, 4);
}

static void put_string(struct buffer *out, struct span s)
{
    size_t n = s.len;
    for (; n >= 0x80; n >>= 7)
        buffer_add_byte(out, (uint8_t)(n | 0x80));
    buffer_add_byte(out, (uint8_t)n);
    buffer_add_span(out, s);
}

static void asset_write(const struct tokenizer_spec *s, struct buffer *out)
{
    const uint32_t numbers[] = {s->bos, s->eos, s->unk,         s->pad,
                                s->eot, s->eom, s->token_count, s->merge_count};
    buffer_add(out, MAGIC, sizeof MAGIC);
    buffer_add(out, (uint8_t[2]){ASSET_VERSION, 0}, 2);
    buffer_add_byte(out,
                    (uint8_t)((s->add_bos ? FLAG_ADD_BOS : 0) | (s->add_eos ? FLAG_ADD_EOS : 0) |
                              (s->add_space_prefix ? FLAG_SPACE_PREFIX : 0) |
                              (s->scores ? FLAG_SCORES : 0)));
    put_string(out, s->model);
    put_string(out, s->pre);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        put_u32(out, numbers[i]);
    for (uint32_t i = 0; i < s->token_count; i++)
        buffer_add_byte(out, (uint8_t)(s->types ? s->types[i] : TOKEN_NORMAL));
    if (s->scores) buffer_add(out, s->scores, s->token_count * sizeof(float));
    for (uint32_t i = 0; i < s->token_count; i++)
        put_string(out, s->tokens[i]);
    for (uint32_t i = 0; i < s->merge_count; i++)
        put_string(out, s->merges[i]);
}

enum err tokenizer_asset_pack(const struct tokenizer_spec *spec, struct buffer *out,
                              struct errmsg *why)
{
    struct tokenizer *t;
    enum err err = tokenizer__build(spec, 0, &t, why); /* whatever create refuses is refused here */
    if (err != OK) return err;
    tokenizer_destroy(t);
    size_t before = out->len;
    asset_write(spec, out);
    err = buffer_status(out);
    if (err == OK && out->len - before > TOKENIZER_ASSET_BYTES_MAX) err = ERR_LIMIT;
    if (err == OK) return OK;
    out->len = before;
    return errmsg_set(why, err, "tokenizer asset: larger than %zu bytes",
                      out->max < TOKENIZER_ASSET_BYTES_MAX ? out->max
                                                           : (size_t)TOKENIZER_ASSET_BYTES_MAX);
}

/* ---- reading ---- */
struct reader {
    struct span rest;
    bool failed; /* sticky: something was cut off or too long */
};

static struct span take(struct reader *r, size_t n)
{
    if (n > r->rest.len) {
        r->failed = true;
        n = r->rest.len;
    }
    struct span got = span_of(r->rest.ptr, n);
    r->rest = span_from(r->rest, n);
    return got;
}

static uint32_t take_u32(struct reader *r)
{
    struct span s = take(r, 4);
    return s.len == 4 ? load_le32(s.ptr) : 0;
}

static struct span take_string(struct reader *r, size_t max)
{
    size_t len = 0;
    for (uint32_t shift = 0;; shift += 7) {
        struct span byte = take(r, 1);
        if (byte.len == 0 || shift > 14) {
            r->failed = true;
            return span_of(NULL, 0);
        }
        len |= (size_t)(byte.ptr[0] & 0x7F) << shift;
        if (byte.ptr[0] < 0x80) break;
    }
    if (len > max) r->failed = true;
    return take(r, len);
}

void asset__free(struct tokenizer_spec *spec)
{
    free((void *)(uintptr_t)spec->tokens);
    free((void *)(uintptr_t)spec->merges);
    free((void *)(uintptr_t)spec->types);
    free((void *)(uintptr_t)spec->scores);
    *spec = (struct tokenizer_spec){0};
}

static enum err asset_read_head(struct reader *r, struct tokenizer_spec *s, uint8_t *flags,
                                struct errmsg *why)
{
    struct span magic = take(r, sizeof MAGIC), version = take(r, 2), flag = take(r, 1);
    if (!span_eq(magic, span_of(MAGIC, sizeof MAGIC)))
        return errmsg_set(why, ERR_PROTO, "tokenizer asset: the magic bytes are missing");
    if (version.len != 2 || load_le16(version.ptr) != ASSET_VERSION)
        return errmsg_set(why, ERR_UNSUPPORTED,
                          "tokenizer asset: version %u, this program reads %d",
                          version.len == 2 ? load_le16(version.ptr) : 0u, ASSET_VERSION);
    *flags = flag.len == 1 ? flag.ptr[0] : 0;
    s->add_bos = *flags & FLAG_ADD_BOS;
    s->add_eos = *flags & FLAG_ADD_EOS;
    s->add_space_prefix = *flags & FLAG_SPACE_PREFIX;
    s->model = take_string(r, 64);
    s->pre = take_string(r, 64);
    uint32_t *const numbers[] = {&s->bos, &s->eos, &s->unk,         &s->pad,
                                 &s->eot, &s->eom, &s->token_count, &s->merge_count};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        *numbers[i] = take_u32(r);
    if (r->failed || (*flags & ~FLAGS_ALL) != 0)
        return errmsg_set(why, ERR_PROTO, "tokenizer asset: its head is cut off or malformed");
    if (s->token_count > TOKENIZER_VOCAB_MAX || s->merge_count > TOKENIZER_MERGES_MAX)
        return errmsg_set(why, ERR_LIMIT, "tokenizer asset: %u tokens and %u merges, over %d or %d",
                          s->token_count, s->merge_count, TOKENIZER_VOCAB_MAX,
                          TOKENIZER_MERGES_MAX);
    /* before anything is allocated: each string has one byte at least, each token two */
    if (s->token_count > r->rest.len / 2 || s->merge_count > r->rest.len)
        return errmsg_set(why, ERR_PROTO, "tokenizer asset: cut off before its last token");
    return OK;
}

enum err asset__parse(struct span asset, struct tokenizer_spec *spec, struct errmsg *why)
{
    struct tokenizer_spec s = {0};
    struct reader r = {.rest = asset};
    uint8_t flags = 0;
    if (asset.len > TOKENIZER_ASSET_BYTES_MAX)
        return errmsg_set(why, ERR_LIMIT, "tokenizer asset: %zu bytes, over %d", asset.len,
                          TOKENIZER_ASSET_BYTES_MAX);
    enum err err = asset_read_head(&r, &s, &flags, why);
    if (err != OK) return err;
    struct span *tokens = malloc((s.token_count + 1) * sizeof *tokens);
    struct span *merges = malloc((s.merge_count + 1) * sizeof *merges);
    int32_t *types = malloc((s.token_count + 1) * sizeof *types);
    float *scores = flags & FLAG_SCORES ? malloc((s.token_count + 1) * sizeof *scores) : NULL;
    s.tokens = tokens;
    s.merges = merges;
    s.types = types;
    s.scores = scores;
    if (!tokens || !merges || !types || ((flags & FLAG_SCORES) && !scores)) {
        err = errmsg_set(why, ERR_NOMEM, "tokenizer asset: out of memory");
        goto fail;
    }
    struct span type_bytes = take(&r, s.token_count);
    for (size_t i = 0; i < type_bytes.len; i++)
        types[i] = type_bytes.ptr[i];
    if (scores) {
        struct span score_bytes = take(&r, s.token_count * sizeof(float));
        if (!r.failed && score_bytes.len > 0) memcpy(scores, score_bytes.ptr, score_bytes.len);
    }
    for (uint32_t i = 0; i < s.token_count && !r.failed; i++)
        tokens[i] = take_string(&r, TOKENIZER_PIECE_MAX);
    for (uint32_t i = 0; i < s.merge_count && !r.failed; i++)
        merges[i] = take_string(&r, 2 * TOKENIZER_PIECE_MAX + 1);
    if (r.failed || r.rest.len > 0) {
        err = errmsg_set(why, ERR_PROTO, "tokenizer asset: %s",
                         r.failed ? "cut off, or a token or merge is too long"
                                  : "bytes follow the last merge");
        goto fail;
    }
    *spec = s;
    return OK;
fail:
    asset__free(&s);
    return err;
}
