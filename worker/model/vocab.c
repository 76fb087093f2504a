#include "worker/model/vocab.h"

#include <stdlib.h>

/* An id of the metadata; TOKEN_NONE when the key is absent. */
static enum err get_id(const struct gguf *g, const char *key, uint32_t count, uint32_t *out,
                       struct errmsg *why)
{
    *out = TOKEN_NONE;
    if (!gguf_has(g, key)) return OK;
    enum err err = gguf_get_u32(g, key, out, why);
    if (err == OK && *out >= count) {
        if (*out == TOKEN_NONE) return OK; /* some writers store -1 for none */
        return errmsg_set(why, ERR_INVALID, "metadata key '%s' is %u; the vocabulary has %u tokens",
                          key, *out, count);
    }
    return err;
}

static enum err get_flag(const struct gguf *g, const char *key, bool when_absent, bool *out,
                         struct errmsg *why)
{
    *out = when_absent;
    return gguf_has(g, key) ? gguf_get_bool(g, key, out, why) : OK;
}

static enum err get_ids(const struct gguf *g, struct tokenizer_spec *spec, struct errmsg *why)
{
    uint32_t n = spec->token_count;
    bool spm = span_eq_str(spec->model, "llama");
    enum err err = get_id(g, "tokenizer.ggml.bos_token_id", n, &spec->bos, why);
    if (err == OK) err = get_id(g, "tokenizer.ggml.eos_token_id", n, &spec->eos, why);
    if (err == OK) err = get_id(g, "tokenizer.ggml.unknown_token_id", n, &spec->unk, why);
    if (err == OK) err = get_id(g, "tokenizer.ggml.padding_token_id", n, &spec->pad, why);
    if (err == OK) err = get_id(g, "tokenizer.ggml.eot_token_id", n, &spec->eot, why);
    if (err == OK) err = get_id(g, "tokenizer.ggml.eom_token_id", n, &spec->eom, why);
    /* the format's defaults: SentencePiece models begin with BOS and a blank unless they say
     * otherwise */
    if (err == OK) err = get_flag(g, "tokenizer.ggml.add_bos_token", spm, &spec->add_bos, why);
    if (err == OK) err = get_flag(g, "tokenizer.ggml.add_eos_token", false, &spec->add_eos, why);
    if (err == OK)
        err = get_flag(g, "tokenizer.ggml.add_space_prefix", spm, &spec->add_space_prefix, why);
    if (spec->bos == TOKEN_NONE) spec->add_bos = false;
    if (spec->eos == TOKEN_NONE) spec->add_eos = false;
    return err;
}

static enum err pack(const struct gguf *g, struct tokenizer_spec *spec, struct buffer *asset,
                     struct errmsg *why)
{
    enum err err = gguf_get_string(g, "tokenizer.ggml.model", &spec->model, why);
    if (err == OK && gguf_has(g, "tokenizer.ggml.pre"))
        err = gguf_get_string(g, "tokenizer.ggml.pre", &spec->pre, why);
    if (err == OK)
        err = gguf_get_string_array(g, "tokenizer.ggml.tokens", &spec->tokens, &spec->token_count,
                                    why);
    if (err == OK && gguf_has(g, "tokenizer.ggml.merges"))
        err = gguf_get_string_array(g, "tokenizer.ggml.merges", &spec->merges, &spec->merge_count,
                                    why);
    if (err == OK) err = get_ids(g, spec, why);
    if (err != OK) return err;
    float *scores = NULL;
    int32_t *types = NULL;
    size_t n = spec->token_count > 0 ? spec->token_count : 1;
    if (gguf_has(g, "tokenizer.ggml.scores")) {
        scores = malloc(n * sizeof *scores);
        err = scores == NULL
                  ? ERR_NOMEM
                  : gguf_get_f32_array(g, "tokenizer.ggml.scores", scores, spec->token_count, why);
    }
    if (err == OK && gguf_has(g, "tokenizer.ggml.token_type")) {
        types = malloc(n * sizeof *types);
        err = types == NULL ? ERR_NOMEM
                            : gguf_get_i32_array(g, "tokenizer.ggml.token_type", types,
                                                 spec->token_count, why);
    }
    spec->scores = scores;
    spec->types = types;
    if (err == ERR_NOMEM)
        errmsg_set(why, err, "no memory for a vocabulary of %u tokens", spec->token_count);
    if (err == OK) err = tokenizer_asset_pack(spec, asset, why);
    free(scores);
    free(types);
    return err;
}

enum err vocab_pack(const struct gguf *g, struct buffer *asset, struct errmsg *why)
{
    struct tokenizer_spec spec = {0};
    return pack(g, &spec, asset, why);
}

enum err vocab_load(const char *path, struct tokenizer **out, struct errmsg *why)
{
    struct gguf *g;
    struct buffer asset;
    buffer_init(&asset, TOKENIZER_ASSET_BYTES_MAX);
    enum err err = gguf_open(path, &g, why);
    if (err == OK) {
        err = vocab_pack(g, &asset, why);
        gguf_close(g);
    }
    if (err == OK) err = tokenizer_create(buffer_view(&asset), out, why);
    buffer_deinit(&asset);
    return err;
}

struct span vocab_chat_template(const struct gguf *g)
{
    struct span text = span_of(NULL, 0);
    struct errmsg why;
    if (!gguf_has(g, "tokenizer.chat_template") ||
        gguf_get_string(g, "tokenizer.chat_template", &text, &why) != OK)
        return span_of(NULL, 0);
    return text;
}
