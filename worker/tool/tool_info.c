/* tool_info.c - `penstock-model info`: what a file is, what it needs, and whether it can be served.
 * Tensor data is not read, except samples for the fingerprint. */
#include "common/config.h"
#include "common/json.h"
#include "kernels/kv.h"
#include "worker/model/model.h"
#include "worker/model/repack.h"
#include "worker/model/vocab.h"
#include "worker/tool/tool.h"

#include <stdlib.h>

enum { TYPES_SHOWN_MAX = 64, OUT_BYTES_MAX = 64 << 20 };

struct type_count {
    uint32_t type, tensors;
    uint64_t bytes, values;
};

struct info {
    const char *path;
    bool json, list_tensors;
    struct gguf *g;
    struct model *m;             /* NULL when it is not supported */
    struct errmsg refusal;       /* why not */
    struct tokenizer *tokenizer; /* NULL when it is not supported */
    struct errmsg tokenizer_refusal;
    struct span chat_template;
    struct type_count types[TYPES_SHOWN_MAX]; /* largest first */
    uint32_t type_count;
    struct buffer out;
};

/* Text of the file, for a terminal: cut, without control characters. */
static void put_text(struct buffer *out, struct span text)
{
    for (size_t k = 0; k < text.len && k < 120; k++)
        buffer_add_byte(out, text.ptr[k] < 0x20 || text.ptr[k] == 0x7f ? '?' : text.ptr[k]);
}

static void put_size(struct buffer *out, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    uint32_t unit = 0;
    for (; v >= 1024 && unit + 1 < ARRAY_LEN(units); unit++)
        v /= 1024;
    buffer_printf(out, unit == 0 ? "%.0f %s" : "%.1f %s", v, units[unit]);
}

/* ---- gathering ---- */

static int by_bytes(const void *a, const void *b)
{
    const struct type_count *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void count_types(struct info *i)
{
    for (uint32_t k = 0; k < gguf_tensor_count(i->g); k++) {
        const struct gguf_tensor *t = gguf_tensor_at(i->g, k);
        uint32_t at = 0;
        while (at < i->type_count && i->types[at].type != t->type)
            at++;
        if (at == TYPES_SHOWN_MAX) continue;
        if (at == i->type_count) i->types[i->type_count++].type = t->type;
        i->types[at].tensors++;
        i->types[at].bytes += t->data.len;
        i->types[at].values += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    qsort(i->types, i->type_count, sizeof *i->types, by_bytes);
}

static enum err gather(struct info *i, struct errmsg *why)
{
    enum err err = gguf_open(i->path, &i->g, why);
    if (err != OK) return err;
    count_types(i);
    i->chat_template = vocab_chat_template(i->g);
    const struct model_options plan = {.plan_only = true};
    if (model_load(i->path, &plan, &i->m, &i->refusal) != OK) i->m = NULL;
    if (vocab_load(i->path, &i->tokenizer, &i->tokenizer_refusal) != OK) i->tokenizer = NULL;
    return OK;
}

static uint64_t kv_token_bytes(const struct model *m, enum kv_type type)
{
    uint64_t block = 0;
    for (uint32_t l = 0; l < m->layer_count; l++)
        block += kv_block_bytes(type, m->layers[l].kv_heads, m->head_dim);
    return block / KV_BLOCK_TOKENS;
}

static bool layers_alike(const struct model *m)
{
    for (uint32_t l = 1; l < m->layer_count; l++)
        if (m->layers[l].q_heads != m->layers[0].q_heads ||
            m->layers[l].kv_heads != m->layers[0].kv_heads || m->layers[l].ffn != m->layers[0].ffn)
            return false;
    return true;
}

/* ---- sentences ---- */

static void say_shape(struct info *i)
{
    const struct model *m = i->m;
    struct buffer *out = &i->out;
    buffer_printf(out, "Architecture %s: %u layers of width %u; ", m->arch, m->layer_count,
                  m->hidden);
    if (layers_alike(m))
        buffer_printf(out, "%u query heads over %u key heads of %u, feed-forward %u.\n",
                      m->layers[0].q_heads, m->layers[0].kv_heads, m->head_dim, m->layers[0].ffn);
    else
        buffer_printf(out,
                      "up to %u query heads over up to %u key heads of %u, feed-forward up to %u "
                      "(layers differ).\n",
                      m->q_heads_max, m->kv_heads_max, m->head_dim, m->ffn_max);
    buffer_printf(
        out, "Vocabulary of %u rows, %s. Trained for %u tokens of context, rotary base %g",
        m->vocab_count,
        m->tied ? "the embedding is the output head too" : "with an output head of its own",
        m->context_train, (double)m->rope_base);
    if (m->rope_linear != 1)
        buffer_printf(out, ", positions divided by %g", (double)m->rope_linear);
    buffer_add_str(out, gguf_tensor_find(i->g, "rope_freqs.weight") != NULL
                            ? ", frequencies scaled by a table.\n"
                            : ".\n");
}

static void say_tensors(struct info *i)
{
    uint64_t values = 0;
    for (uint32_t k = 0; k < i->type_count; k++)
        values += i->types[k].values;
    buffer_printf(&i->out, "%u tensors with %.1f million values:", gguf_tensor_count(i->g),
                  (double)values / 1e6);
    for (uint32_t k = 0; k < i->type_count; k++) {
        buffer_printf(&i->out, "%s %u of %s (", k > 0 ? "," : "", i->types[k].tensors,
                      gguf_type_name(i->types[k].type));
        put_size(&i->out, i->types[k].bytes);
        buffer_add_byte(&i->out, ')');
    }
    buffer_add_str(&i->out, i->type_count > 0 ? ".\n" : " none.\n");
}

static void say_token(struct info *i, const char *name, uint32_t id)
{
    if (id == TOKEN_NONE) return;
    buffer_printf(&i->out, ", %s %u (", name, id);
    put_text(&i->out, tokenizer_piece(i->tokenizer, id));
    buffer_add_byte(&i->out, ')');
}

static void say_vocabulary(struct info *i)
{
    struct buffer *out = &i->out;
    struct span model = SPAN_LIT("(none)"), pre = SPAN_LIT("default");
    struct errmsg ignored;
    if (i->tokenizer == NULL) {
        buffer_printf(out, "Tokenizer not supported: %s\n", i->tokenizer_refusal.text);
    } else {
        (void)!gguf_get_string(i->g, "tokenizer.ggml.model", &model, &ignored);
        (void)!gguf_get_string(i->g, "tokenizer.ggml.pre", &pre, &ignored);
        buffer_add_str(out, "Tokenizer ");
        put_text(out, model);
        buffer_add_str(out, " (");
        put_text(out, pre);
        buffer_printf(out, "): %u tokens", tokenizer_vocab_count(i->tokenizer));
        say_token(i, "BOS", tokenizer_bos(i->tokenizer));
        say_token(i, "EOS", tokenizer_eos(i->tokenizer));
        buffer_add_str(out, tokenizer_add_bos(i->tokenizer) ? "; raw prompts begin with BOS.\n"
                                                            : "; nothing is put before prompts.\n");
    }
    if (i->chat_template.len > 0)
        buffer_printf(out, "Chat template of %zu bytes.\n", i->chat_template.len);
    else
        buffer_add_str(out, "No chat template: /v1/chat/completions needs one.\n");
}

static void say_needs(struct info *i)
{
    const struct model *m = i->m;
    struct buffer *out = &i->out;
    uint64_t f16 = kv_token_bytes(m, KV_F16), q8 = kv_token_bytes(m, KV_Q8);
    char hex[33];
    buffer_add_str(out, "Memory: weights ");
    put_size(out, m->weight_bytes);
    buffer_add_str(out, ", of which a decode step reads ");
    put_size(out, m->decode_read_bytes);
    buffer_add_str(out, "; KV cache ");
    put_size(out, f16);
    buffer_add_str(out, " a token in F16 (");
    put_size(out, f16 * m->context_train);
    buffer_add_str(out, " for one full context), ");
    put_size(out, q8);
    buffer_add_str(out, " in 8 bits.\n");
    hash128_hex(m->fingerprint, hex);
    buffer_printf(out, "Fingerprint %s.\n", hex);
}

static void list_tensors(struct info *i)
{
    for (uint32_t k = 0; k < gguf_tensor_count(i->g); k++) {
        const struct gguf_tensor *t = gguf_tensor_at(i->g, k);
        buffer_printf(&i->out, "%-40.*s %-8s [", (int)t->name.len, (const char *)t->name.ptr,
                      gguf_type_name(t->type)); /* names have no control characters */
        for (uint32_t d = 0; d < t->dim_count; d++)
            buffer_printf(&i->out, "%s%llu", d > 0 ? ", " : "", (unsigned long long)t->dims[d]);
        buffer_add_str(&i->out, "] ");
        put_size(&i->out, t->data.len);
        buffer_add_byte(&i->out, '\n');
    }
}

static void say_all(struct info *i)
{
    struct span name = SPAN_LIT("(no name)");
    struct errmsg ignored;
    (void)!gguf_get_string(i->g, "general.name", &name, &ignored);
    buffer_printf(&i->out, "%s: ", i->path);
    put_text(&i->out, name);
    buffer_printf(&i->out, ", GGUF version %u, ", gguf_version(i->g));
    put_size(&i->out, gguf_file_bytes(i->g));
    buffer_add_str(&i->out, ".\n");
    if (i->m != NULL) say_shape(i);
    say_tensors(i);
    say_vocabulary(i);
    if (i->m != NULL) {
        say_needs(i);
        buffer_add_str(&i->out, "Supported.\n");
    } else {
        buffer_printf(&i->out, "Not supported: %s.\n", i->refusal.text);
    }
    if (i->list_tensors) list_tensors(i);
}

/* ---- JSON ---- */

static void json_key(struct buffer *out, const char *key)
{
    if (out->len > 0 && out->ptr[out->len - 1] != '{') buffer_add_byte(out, ',');
    buffer_printf(out, "\"%s\":", key);
}

static void json_number(struct buffer *out, const char *key, uint64_t v)
{
    json_key(out, key);
    buffer_printf(out, "%llu", (unsigned long long)v);
}

static void json_text(struct buffer *out, const char *key, struct span v)
{
    json_key(out, key);
    json_write_string(out, v);
}

static void json_flag(struct buffer *out, const char *key, bool v)
{
    json_key(out, key);
    buffer_add_str(out, v ? "true" : "false");
}

static void json_model(struct info *i)
{
    const struct model *m = i->m;
    struct buffer *out = &i->out;
    char hex[33];
    hash128_hex(m->fingerprint, hex);
    json_number(out, "layers", m->layer_count);
    json_number(out, "hidden", m->hidden);
    json_number(out, "head_dim", m->head_dim);
    json_number(out, "q_heads_max", m->q_heads_max);
    json_number(out, "kv_heads_max", m->kv_heads_max);
    json_number(out, "ffn_max", m->ffn_max);
    json_number(out, "vocab", m->vocab_count);
    json_number(out, "context_train", m->context_train);
    json_flag(out, "tied", m->tied);
    json_number(out, "weight_bytes", m->weight_bytes);
    json_number(out, "decode_read_bytes", m->decode_read_bytes);
    json_number(out, "kv_token_bytes_f16", kv_token_bytes(m, KV_F16));
    json_number(out, "kv_token_bytes_q8", kv_token_bytes(m, KV_Q8));
    json_text(out, "fingerprint", span_str(hex));
}

static void json_tensors(struct info *i)
{
    struct buffer *out = &i->out;
    json_key(out, "tensors");
    buffer_add_byte(out, '[');
    for (uint32_t k = 0; k < gguf_tensor_count(i->g); k++) {
        const struct gguf_tensor *t = gguf_tensor_at(i->g, k);
        buffer_add_str(out, k > 0 ? ",{" : "{");
        json_text(out, "name", t->name);
        json_text(out, "type", span_str(gguf_type_name(t->type)));
        json_number(out, "bytes", t->data.len);
        json_key(out, "dims");
        for (uint32_t d = 0; d < t->dim_count; d++)
            buffer_printf(out, "%c%llu", d > 0 ? ',' : '[', (unsigned long long)t->dims[d]);
        buffer_add_str(out, "]}");
    }
    buffer_add_byte(out, ']');
}

static void json_all(struct info *i)
{
    struct buffer *out = &i->out;
    struct span text;
    struct errmsg ignored;
    buffer_add_byte(out, '{');
    json_text(out, "path", span_str(i->path));
    json_number(out, "gguf_version", gguf_version(i->g));
    json_number(out, "file_bytes", gguf_file_bytes(i->g));
    if (gguf_get_string(i->g, "general.name", &text, &ignored) == OK) json_text(out, "name", text);
    if (gguf_get_string(i->g, "general.architecture", &text, &ignored) == OK)
        json_text(out, "architecture", text);
    json_flag(out, "supported", i->m != NULL);
    if (i->m != NULL)
        json_model(i);
    else
        json_text(out, "refusal", span_str(i->refusal.text));
    json_key(out, "types");
    buffer_add_byte(out, '{');
    for (uint32_t k = 0; k < i->type_count; k++) {
        json_key(out, gguf_type_name(i->types[k].type));
        buffer_add_byte(out, '{');
        json_number(out, "tensors", i->types[k].tensors);
        json_number(out, "bytes", i->types[k].bytes);
        buffer_add_byte(out, '}');
    }
    buffer_add_byte(out, '}');
    json_number(out, "chat_template_bytes", i->chat_template.len);
    if (i->tokenizer != NULL)
        json_number(out, "tokenizer_tokens", tokenizer_vocab_count(i->tokenizer));
    else
        json_text(out, "tokenizer_refusal", span_str(i->tokenizer_refusal.text));
    if (i->list_tensors) json_tensors(i);
    buffer_add_str(out, "}\n");
}

static enum err run(struct info *i, struct errmsg *why)
{
    buffer_init(&i->out, OUT_BYTES_MAX);
    enum err err = gather(i, why);
    if (err == OK) {
        if (i->json)
            json_all(i);
        else
            say_all(i);
        err = buffer_status(&i->out);
        if (err == OK)
            fwrite(i->out.ptr, 1, i->out.len, stdout);
        else
            errmsg_set(why, err, "%s: the description is too long", i->path);
    }
    buffer_deinit(&i->out);
    tokenizer_destroy(i->tokenizer);
    model_destroy(i->m);
    gguf_close(i->g);
    return err;
}

int tool_info(int argc, char **argv)
{
    struct info i = {0};
    const struct config_item items[] = {
        {"json", CONFIG_BOOL, &i.json, NULL, 0, 0, NULL, "", "One JSON object instead of text."},
        {"tensors", CONFIG_BOOL, &i.list_tensors, NULL, 0, 0, NULL, "",
         "List every tensor with its type and shape."},
    };
    const struct config config = {
        "penstock-model info",
        "Says what a model file is, how much memory it needs and whether it is supported; exits "
        "with 0 also where it is not, and with 1 when the file cannot be read.",
        "MODEL [options]",
        NULL,
        items,
        ARRAY_LEN(items),
        1};
    uint32_t given = 0;
    struct errmsg why;
    enum config_result result = config_parse(&config, argc, argv, &i.path, &given, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_RUN && given != 1) {
        errmsg_set(&why, ERR_INVALID, "MODEL is missing; see penstock-model info --help");
        result = CONFIG_EXIT_BAD;
    }
    if (result == CONFIG_EXIT_BAD || run(&i, &why) != OK) {
        fprintf(stderr, "penstock-model info: %s\n", why.text);
        return result == CONFIG_EXIT_BAD ? 2 : 1;
    }
    return 0;
}
