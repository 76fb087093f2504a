#include "worker/model/arch.h"

#include <stdio.h>
#include <stdlib.h>

static const struct arch archs[] = {
    {"llama", true, false, false},
    {"qwen2", false, true, false},
    {"qwen3", false, false, true},
};

/* Keys below "ARCH." that are read, or that say nothing about numbers. */
static const char *const known_keys[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "rope.dimension_count",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scale_linear",
    "vocab_size",
    "tensor_data_layout",
    "attention.causal",
    "attention.sliding_window",
    "expert_count",
    "expert_used_count",
};

static const char *key_of(const struct arch *a, const char *suffix, char out[128])
{
    (void)snprintf(out, 128, "%s.%s", a->name, suffix);
    return out;
}

static enum err find_arch(const struct gguf *g, const struct arch **out, struct errmsg *why)
{
    struct span name;
    enum err err = gguf_get_string(g, "general.architecture", &name, why);
    if (err != OK) return err;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        if (span_eq_str(name, archs[i].name)) {
            *out = &archs[i];
            return OK;
        }
    return errmsg_set(why, ERR_UNSUPPORTED,
                      "architecture '%.*s' is not known here; known: llama, qwen2, qwen3",
                      (int)(name.len < 64 ? name.len : 64), (const char *)name.ptr);
}

static enum err refuse_unknown_keys(const struct gguf *g, const struct arch *a, struct errmsg *why)
{
    size_t n = strlen(a->name);
    for (uint32_t i = 0; i < gguf_key_count(g); i++) {
        struct span key = gguf_key_at(g, i);
        if (key.len <= n || memcmp(key.ptr, a->name, n) != 0 || key.ptr[n] != '.') continue;
        struct span suffix = span_from(key, n + 1);
        bool known = false;
        for (size_t k = 0; k < ARRAY_LEN(known_keys) && !known; k++)
            known = span_eq_str(suffix, known_keys[k]);
        if (!known)
            return errmsg_set(
                why, ERR_UNSUPPORTED,
                "metadata key '%.*s' may change what the model computes and is not known here",
                (int)(key.len < 96 ? key.len : 96), (const char *)key.ptr);
    }
    static const char *const must_be_zero[] = {"attention.sliding_window", "expert_count",
                                               "expert_used_count"};
    for (size_t i = 0; i < ARRAY_LEN(must_be_zero); i++) {
        char key[128];
        uint32_t v;
        if (!gguf_has(g, key_of(a, must_be_zero[i], key))) continue;
        enum err err = gguf_get_u32(g, key, &v, why);
        if (err != OK) return err;
        if (v != 0)
            return errmsg_set(why, ERR_UNSUPPORTED,
                              "metadata key '%s' is %u, which changes what the model computes and "
                              "is not known here",
                              key, v);
    }
    char key[128];
    bool causal = true;
    if (gguf_has(g, key_of(a, "attention.causal", key))) {
        enum err err = gguf_get_bool(g, key, &causal, why);
        if (err != OK) return err;
    }
    return causal
               ? OK
               : errmsg_set(why, ERR_UNSUPPORTED,
                            "metadata key '%s' is false: this is no language model to decode", key);
}

/* A u32 in [1, max]. */
static enum err get_count(const struct gguf *g, const struct arch *a, const char *suffix,
                          uint32_t max, uint32_t *out, struct errmsg *why)
{
    char key[128];
    enum err err = gguf_get_u32(g, key_of(a, suffix, key), out, why);
    if (err == OK && (*out == 0 || *out > max))
        err = errmsg_set(why, ERR_INVALID, "metadata key '%s' is %u; expected 1 to %u", key, *out,
                         max);
    return err;
}

/* One number for all layers, or an array with one for each. */
static enum err get_per_layer(const struct gguf *g, const struct arch *a, const char *suffix,
                              uint32_t max, uint32_t layers, uint32_t *out, struct errmsg *why)
{
    char key[128];
    uint32_t n;
    struct errmsg ignored;
    if (gguf_array_count(g, key_of(a, suffix, key), &n, &ignored) != OK) {
        enum err err = get_count(g, a, suffix, max, &out[0], why);
        for (uint32_t l = 1; err == OK && l < layers; l++)
            out[l] = out[0];
        return err;
    }
    enum err err = gguf_get_i32_array(g, key, (int32_t *)out, layers, why);
    for (uint32_t l = 0; err == OK && l < layers; l++)
        if (out[l] == 0 || out[l] > max)
            err = errmsg_set(why, ERR_UNSUPPORTED,
                             "metadata key '%s' is %d for layer %u; expected 1 to %u", key,
                             (int32_t)out[l], l, max);
    return err;
}

static enum err read_shapes(const struct gguf *g, const struct arch *a, struct model *m,
                            struct errmsg *why)
{
    uint32_t values[MODEL_LAYERS_MAX];
    char key[128];
    enum err err =
        get_per_layer(g, a, "attention.head_count", MODEL_HEADS_MAX, m->layer_count, values, why);
    for (uint32_t l = 0; err == OK && l < m->layer_count; l++)
        m->layers[l].q_heads = m->layers[l].kv_heads = values[l];
    if (err == OK && gguf_has(g, key_of(a, "attention.head_count_kv", key)))
        err = get_per_layer(g, a, "attention.head_count_kv", MODEL_HEADS_MAX, m->layer_count,
                            values, why);
    for (uint32_t l = 0; err == OK && l < m->layer_count; l++)
        m->layers[l].kv_heads = values[l];
    if (err == OK)
        err = get_per_layer(g, a, "feed_forward_length", MODEL_WIDTH_MAX, m->layer_count, values,
                            why);
    for (uint32_t l = 0; err == OK && l < m->layer_count; l++) {
        struct model_layer *layer = &m->layers[l];
        layer->ffn = values[l];
        if (layer->q_heads % layer->kv_heads != 0)
            return errmsg_set(
                why, ERR_INVALID,
                "layer %u has %u query heads over %u key heads, which does not divide", l,
                layer->q_heads, layer->kv_heads);
        m->q_heads_max = layer->q_heads > m->q_heads_max ? layer->q_heads : m->q_heads_max;
        m->kv_heads_max = layer->kv_heads > m->kv_heads_max ? layer->kv_heads : m->kv_heads_max;
        m->ffn_max = layer->ffn > m->ffn_max ? layer->ffn : m->ffn_max;
    }
    return err;
}

static enum err read_head_dim(const struct gguf *g, const struct arch *a, struct model *m,
                              struct errmsg *why)
{
    char key[128];
    enum err err = OK;
    uint32_t value_dim;
    m->head_dim = m->hidden / m->layers[0].q_heads;
    if (gguf_has(g, key_of(a, "attention.key_length", key)))
        err = get_count(g, a, "attention.key_length", MODEL_HEAD_DIM_MAX, &m->head_dim, why);
    value_dim = m->head_dim;
    if (err == OK && gguf_has(g, key_of(a, "attention.value_length", key)))
        err = get_count(g, a, "attention.value_length", MODEL_HEAD_DIM_MAX, &value_dim, why);
    if (err != OK) return err;
    if (m->head_dim < 2 || m->head_dim > MODEL_HEAD_DIM_MAX || m->head_dim % 2 != 0 ||
        value_dim != m->head_dim)
        return errmsg_set(
            why, ERR_UNSUPPORTED,
            "heads of %u (keys) and %u (values); expected equal even numbers up to %d", m->head_dim,
            value_dim, MODEL_HEAD_DIM_MAX);
    m->rope_dim = m->head_dim;
    if (gguf_has(g, key_of(a, "rope.dimension_count", key)))
        err = get_count(g, a, "rope.dimension_count", m->head_dim, &m->rope_dim, why);
    if (err == OK && (m->rope_dim % 2 != 0 || (a->pairs_adjacent && m->rope_dim != m->head_dim)))
        err = errmsg_set(why, ERR_UNSUPPORTED,
                         "metadata key '%s' is %u with heads of %u, which is not known here", key,
                         m->rope_dim, m->head_dim);
    return err;
}

/* Linear scaling divides positions, so it divides each inverse frequency. llama3 scaling comes as a
 * tensor instead. */
static enum err read_rope_scaling(const struct gguf *g, const struct arch *a, float *factor,
                                  struct errmsg *why)
{
    char key[128];
    struct span type = SPAN_LIT("none");
    *factor = 1;
    if (gguf_has(g, key_of(a, "rope.scaling.type", key))) {
        enum err err = gguf_get_string(g, key, &type, why);
        if (err != OK) return err;
    }
    bool linear = span_eq_str(type, "linear");
    if (!linear && !span_eq_str(type, "none"))
        return errmsg_set(why, ERR_UNSUPPORTED,
                          "rope scaling '%.*s' is not known here; known: none, linear, and "
                          "llama3's as the tensor rope_freqs.weight",
                          (int)(type.len < 32 ? type.len : 32), (const char *)type.ptr);
    const char *name = gguf_has(g, key_of(a, "rope.scale_linear", key)) ? "rope.scale_linear"
                                                                        : "rope.scaling.factor";
    if ((linear || strcmp(name, "rope.scale_linear") == 0) && gguf_has(g, key_of(a, name, key))) {
        enum err err = gguf_get_f32(g, key, factor, why);
        if (err != OK) return err;
        if (!(*factor > 0))
            return errmsg_set(why, ERR_INVALID, "metadata key '%s' must be above 0", key);
    }
    return OK;
}

enum err arch_read(const struct gguf *g, struct model *m, const struct arch **out,
                   struct errmsg *why)
{
    const struct arch *a = NULL;
    char key[128];
    enum err err = find_arch(g, &a, why);
    if (err == OK) err = refuse_unknown_keys(g, a, why);
    if (err == OK) err = get_count(g, a, "block_count", MODEL_LAYERS_MAX, &m->layer_count, why);
    if (err == OK) err = get_count(g, a, "embedding_length", MODEL_WIDTH_MAX, &m->hidden, why);
    if (err == OK) err = get_count(g, a, "context_length", 1u << 24, &m->context_train, why);
    if (err != OK) return err;
    m->layers = calloc(m->layer_count, sizeof *m->layers);
    if (m->layers == NULL)
        return errmsg_set(why, ERR_NOMEM, "no memory for %u layers", m->layer_count);
    err = read_shapes(g, a, m, why);
    if (err == OK) err = read_head_dim(g, a, m, why);
    if (err == OK)
        err =
            gguf_get_f32(g, key_of(a, "attention.layer_norm_rms_epsilon", key), &m->norm_eps, why);
    m->rope_base = 10000;
    if (err == OK && gguf_has(g, key_of(a, "rope.freq_base", key)))
        err = gguf_get_f32(g, key, &m->rope_base, why);
    if (err == OK && !(m->rope_base > 1))
        err = errmsg_set(why, ERR_INVALID, "metadata key '%s' must be above 1", key);
    if (err == OK && !(m->norm_eps > 0 && m->norm_eps < 1))
        err = errmsg_set(why, ERR_INVALID, "the norm's epsilon must lie between 0 and 1");
    if (err == OK) err = read_rope_scaling(g, a, &m->rope_linear, why);
    if (err != OK) return err;
    m->embed_scale = 1;
    (void)snprintf(m->arch, sizeof m->arch, "%s", a->name);
    *out = a;
    return OK;
}
