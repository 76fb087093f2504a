/* model.c - loads a GGUF file: shapes by arch.c, tensors checked and packed one after another, all
 * memory in one mapping. */
#include "worker/model/model.h"

#include "common/clock.h"
#include "worker/model/arch.h"
#include "worker/model/repack.h"
#include "worker/model/vocab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    MATRICES_A_LAYER = 7,
    VECTORS_A_LAYER = 7,
    ALIGN = 64,
    SAMPLE_BYTES = 4096,
    SAMPLE_STRIDES = 16
};

#define SHOW(s) (int)((s).len < 64 ? (s).len : 64), (const char *)(s).ptr

struct matrix {
    const struct gguf_tensor *t;
    struct weight *w;
    uint32_t head_dim; /* see repack_run */
};

struct vector {
    const struct gguf_tensor *t;
    const float **out;
};

/* What the loader keeps while it loads, and m->owned: the mapping. */
struct loading {
    const struct gguf *g;
    struct model *m;
    const struct model_options *options;
    const struct arch *arch;
    bool *used; /* [tensor_count]: which tensors were taken */
    struct matrix *matrices;
    uint32_t matrix_count;
    struct vector *vectors;
    uint32_t vector_count;
    uint64_t total_bytes;
};

struct mapping {
    void *ptr;
    size_t bytes, used;
};

/* ---- taking tensors by name and shape ---- */

static const struct gguf_tensor *take_tensor(struct loading *l, const char *name)
{
    const struct gguf_tensor *t = gguf_tensor_find(l->g, name);
    if (t != NULL) l->used[t - gguf_tensor_at(l->g, 0)] = true;
    return t;
}

static enum err want_shape(const struct gguf_tensor *t, uint64_t cols, uint64_t rows,
                           struct errmsg *why)
{
    if (t->dims[0] == cols && t->dims[1] == rows && t->dims[2] == 1 && t->dims[3] == 1) return OK;
    return errmsg_set(
        why, ERR_PROTO, "tensor '%.*s' is [%llu, %llu, %llu]; the metadata calls for [%llu, %llu]",
        SHOW(t->name), (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
        (unsigned long long)t->dims[2], (unsigned long long)cols, (unsigned long long)rows);
}

static enum err missing(const char *name, struct errmsg *why)
{
    return errmsg_set(why, ERR_PROTO, "tensor '%s' is missing", name);
}

static enum err add_matrix(struct loading *l, const char *name, uint32_t cols, uint32_t rows,
                           uint32_t head_dim, struct weight *w, struct errmsg *why)
{
    const struct gguf_tensor *t = take_tensor(l, name);
    if (t == NULL) return missing(name, why);
    enum err err = want_shape(t, cols, rows, why);
    if (err != OK) return err;
    repack_plan(t, l->options->reference, w);
    if (w->type == WEIGHT_NONE)
        return errmsg_set(why, ERR_UNSUPPORTED, "tensor '%s' is of type %s; supported types: %s",
                          name, gguf_type_name(t->type), repack_supported());
    if (weight_bytes(w->type, w->rows, w->cols, w->has_min) == 0)
        return errmsg_set(why, ERR_UNSUPPORTED,
                          "tensor '%s' of type %s has rows of %u values, which is not supported",
                          name, gguf_type_name(t->type), cols);
    l->matrices[l->matrix_count++] = (struct matrix){t, w, head_dim};
    l->total_bytes += t->data.len;
    return OK;
}

static enum err add_vector(struct loading *l, const char *name, uint32_t count, const float **out,
                           struct errmsg *why)
{
    const struct gguf_tensor *t = take_tensor(l, name);
    if (t == NULL) return missing(name, why);
    l->vectors[l->vector_count++] = (struct vector){t, out};
    return want_shape(t, count, 1, why);
}

static enum err add_layer(struct loading *l, uint32_t index, struct errmsg *why)
{
    struct model *m = l->m;
    struct model_layer *y = &m->layers[index];
    uint32_t hidden = m->hidden, q = y->q_heads * m->head_dim, kv = y->kv_heads * m->head_dim;
    uint32_t pairs = l->arch->pairs_adjacent ? m->head_dim : 0;
    const struct {
        const char *name;
        uint32_t cols, rows, head_dim;
        struct weight *w;
    } matrices[MATRICES_A_LAYER] = {
        {"attn_q", hidden, q, pairs, &y->q},       {"attn_k", hidden, kv, pairs, &y->k},
        {"attn_v", hidden, kv, 0, &y->v},          {"attn_output", q, hidden, 0, &y->o},
        {"ffn_gate", hidden, y->ffn, 0, &y->gate}, {"ffn_up", hidden, y->ffn, 0, &y->up},
        {"ffn_down", y->ffn, hidden, 0, &y->down},
    };
    const struct {
        const char *name;
        uint32_t count;
        const float **out;
        bool has;
    } vectors[VECTORS_A_LAYER] = {
        {"attn_norm.weight", hidden, &y->attn_norm, true},
        {"ffn_norm.weight", hidden, &y->ffn_norm, true},
        {"attn_q_norm.weight", m->head_dim, &y->q_norm, l->arch->qk_norm},
        {"attn_k_norm.weight", m->head_dim, &y->k_norm, l->arch->qk_norm},
        {"attn_q.bias", q, &y->q_bias, l->arch->qkv_bias},
        {"attn_k.bias", kv, &y->k_bias, l->arch->qkv_bias},
        {"attn_v.bias", kv, &y->v_bias, l->arch->qkv_bias},
    };
    char name[128];
    enum err err = OK;
    for (size_t i = 0; i < MATRICES_A_LAYER && err == OK; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.%s.weight", index, matrices[i].name);
        err = add_matrix(l, name, matrices[i].cols, matrices[i].rows, matrices[i].head_dim,
                         matrices[i].w, why);
    }
    for (size_t i = 0; i < VECTORS_A_LAYER && err == OK; i++) {
        (void)snprintf(name, sizeof name, "blk.%u.%s", index, vectors[i].name);
        if (vectors[i].has) err = add_vector(l, name, vectors[i].count, vectors[i].out, why);
    }
    return err;
}

/* Each id that the tokenizer can give needs a row; rows beyond them are padding. */
static enum err check_vocabulary(const struct loading *l, struct errmsg *why)
{
    uint32_t tokens;
    enum err err = gguf_array_count(l->g, "tokenizer.ggml.tokens", &tokens, why);
    if (err == OK && tokens > l->m->vocab_count)
        err = errmsg_set(why, ERR_PROTO,
                         "the tokenizer has %u tokens; tensor 'token_embd.weight' has %u rows",
                         tokens, l->m->vocab_count);
    return err;
}

static enum err add_all(struct loading *l, struct errmsg *why)
{
    struct model *m = l->m;
    const struct gguf_tensor *embed = gguf_tensor_find(l->g, "token_embd.weight");
    if (embed == NULL) return missing("token_embd.weight", why);
    if (embed->dims[1] == 0 || embed->dims[1] > TOKENIZER_VOCAB_MAX)
        return errmsg_set(
            why, ERR_LIMIT,
            "tensor 'token_embd.weight' has %llu rows; at most %d tokens are possible",
            (unsigned long long)embed->dims[1], TOKENIZER_VOCAB_MAX);
    m->vocab_count = (uint32_t)embed->dims[1];
    enum err err = check_vocabulary(l, why);
    if (err == OK)
        err = add_matrix(l, "token_embd.weight", m->hidden, m->vocab_count, 0, &m->embed, why);
    m->tied = gguf_tensor_find(l->g, "output.weight") == NULL;
    if (err == OK && !m->tied)
        err = add_matrix(l, "output.weight", m->hidden, m->vocab_count, 0, &m->head, why);
    if (err == OK) err = add_vector(l, "output_norm.weight", m->hidden, &m->final_norm, why);
    if (err == OK && gguf_tensor_find(l->g, "rope_freqs.weight") != NULL)
        err = add_vector(l, "rope_freqs.weight", m->rope_dim / 2, &m->rope_factors, why);
    for (uint32_t i = 0; i < m->layer_count && err == OK; i++)
        err = add_layer(l, i, why);
    for (uint32_t i = 0; i < gguf_tensor_count(l->g) && err == OK; i++)
        if (!l->used[i])
            err = errmsg_set(why, ERR_UNSUPPORTED,
                             "tensor '%.*s' is not part of architecture %s as known here, and "
                             "would change results",
                             SHOW(gguf_tensor_at(l->g, i)->name), l->arch->name);
    return err;
}

/* ---- memory, packing ---- */

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static void *carve(struct mapping *map, size_t bytes)
{
    void *ptr = (uint8_t *)map->ptr + map->used;
    map->used += aligned(bytes);
    CHECK(map->used <= map->bytes);
    return ptr;
}

static enum err map_memory(struct loading *l, struct errmsg *why)
{
    size_t bytes = 2 << 20; /* slack: kernels may prefetch beyond the end */
    for (uint32_t i = 0; i < l->matrix_count; i++) {
        const struct weight *w = l->matrices[i].w;
        bytes += aligned(weight_read_bytes(w));
    }
    for (uint32_t i = 0; i < l->vector_count; i++)
        bytes += aligned(l->vectors[i].t->dims[0] * sizeof(float));
    bytes = (bytes + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
    struct mapping *map = calloc(1, sizeof *map);
    void *ptr = map != NULL
                    ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                    : MAP_FAILED;
    if (ptr == MAP_FAILED) {
        free(map);
        return errmsg_set(why, ERR_NOMEM, "no memory for %zu MiB of weights", bytes >> 20);
    }
    (void)madvise(ptr, bytes, MADV_HUGEPAGE); /* half the TLB misses, a third more bandwidth */
    *map = (struct mapping){ptr, bytes, 0};
    l->m->owned = map;
    return OK;
}

static enum err pack_matrices(struct loading *l, struct pool *pool, struct errmsg *why)
{
    enum { PROGRESS_MS = 50 };
    uint64_t done = 0, shown_ms = 0;
    for (uint32_t i = 0; i < l->matrix_count; i++) {
        struct matrix *x = &l->matrices[i];
        x->w->data = carve(l->m->owned, weight_read_bytes(x->w));
        enum err err = repack_run(x->t, x->head_dim, x->w, pool, why);
        if (err != OK) return err;
        gguf_tensor_forget(l->g, x->t); /* its pages are in the packed weight now */
        done += x->t->data.len;
        uint64_t now_ms = clock_now_ns() / 1000000;
        if (l->options->progress == NULL ||
            (done < l->total_bytes && now_ms - shown_ms < PROGRESS_MS))
            continue;
        l->options->progress(l->options->progress_arg, done, l->total_bytes);
        shown_ms = now_ms;
    }
    return OK;
}

static enum err pack_all(struct loading *l, struct errmsg *why)
{
    for (uint32_t i = 0; i < l->vector_count; i++) {
        float *out = carve(l->m->owned, l->vectors[i].t->dims[0] * sizeof(float));
        enum err err = repack_vector(l->vectors[i].t, out, why);
        if (err != OK) return err;
        *l->vectors[i].out = out;
    }
    uint32_t threads = l->options->threads > 0 ? l->options->threads : 1;
    struct pool *pool = pool_create(threads, 0);
    if (pool == NULL)
        return errmsg_set(why, ERR_NOMEM, "no memory or threads (%u) to pack the weights", threads);
    enum err err = pack_matrices(l, pool, why);
    pool_destroy(pool);
    return err;
}

/* ---- fingerprint: what decides the numbers, and enough of each tensor's bytes to tell two
 * trainings apart ---- */

static void add_field(struct buffer *out, const void *ptr, size_t len)
{
    uint8_t size[8];
    store_le64(size, len);
    buffer_add(out, size, sizeof size);
    buffer_add(out, ptr, len);
}

static enum err make_fingerprint(struct loading *l, struct errmsg *why)
{
    struct model *m = l->m;
    struct buffer facts;
    buffer_init(&facts, 1u << 28);
    const uint32_t scalars[] = {m->layer_count, m->hidden,    m->head_dim, m->vocab_count,
                                m->rope_dim,    m->reference, m->tied};
    add_field(&facts, m->arch, strlen(m->arch));
    add_field(&facts, scalars, sizeof scalars);
    add_field(&facts, &m->norm_eps, sizeof m->norm_eps);
    add_field(&facts, &m->rope_base, sizeof m->rope_base);
    add_field(&facts, &m->rope_linear, sizeof m->rope_linear);
    for (uint32_t i = 0; i < gguf_tensor_count(l->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(l->g, i);
        add_field(&facts, t->name.ptr, t->name.len);
        add_field(&facts, t->dims, sizeof t->dims);
        add_field(&facts, &t->type, sizeof t->type);
        for (uint32_t k = 0; k < SAMPLE_STRIDES;
             k++) { /* evenly spread, the first and the last bytes among them */
            size_t n = t->data.len < SAMPLE_BYTES / SAMPLE_STRIDES ? t->data.len
                                                                   : SAMPLE_BYTES / SAMPLE_STRIDES;
            size_t at = (t->data.len - n) / (SAMPLE_STRIDES - 1) * k;
            if (k == SAMPLE_STRIDES - 1) at = t->data.len - n;
            add_field(&facts, t->data.ptr + at, n);
        }
    }
    enum err err = buffer_status(&facts);
    if (err == OK)
        m->fingerprint = hash128_of(buffer_view(&facts));
    else
        errmsg_set(why, err, "too many tensors to fingerprint");
    buffer_deinit(&facts);
    return err;
}

/* ---- the whole ---- */

static void count_read_bytes(struct model *m)
{
    m->decode_read_bytes = weight_read_bytes(&m->head);
    for (uint32_t i = 0; i < m->layer_count; i++) {
        const struct model_layer *y = &m->layers[i];
        const struct weight *all[] = {&y->q, &y->k, &y->v, &y->o, &y->gate, &y->up, &y->down};
        for (size_t k = 0; k < ARRAY_LEN(all); k++)
            m->decode_read_bytes += weight_read_bytes(all[k]);
    }
}

static enum err load_weights(struct loading *l, struct errmsg *why)
{
    struct model *m = l->m;
    l->used = calloc(gguf_tensor_count(l->g) + 1u, sizeof *l->used);
    l->matrices = calloc((size_t)m->layer_count * MATRICES_A_LAYER + 2, sizeof *l->matrices);
    l->vectors = calloc((size_t)m->layer_count * VECTORS_A_LAYER + 2, sizeof *l->vectors);
    enum err err = l->used != NULL && l->matrices != NULL && l->vectors != NULL
                       ? OK
                       : errmsg_set(why, ERR_NOMEM, "no memory for the tensor table");
    if (err == OK) err = add_all(l, why);
    if (err == OK) err = make_fingerprint(l, why);
    for (uint32_t i = 0; err == OK && i < l->matrix_count; i++)
        m->weight_bytes += weight_read_bytes(l->matrices[i].w);
    if (err == OK && !l->options->plan_only) {
        err = map_memory(l, why);
        if (err == OK) err = pack_all(l, why);
    }
    if (err == OK) {
        if (m->tied) m->head = m->embed;
        count_read_bytes(m);
    }
    free(l->used);
    free(l->matrices);
    free(l->vectors);
    return err;
}

static void set_name(const struct gguf *g, const char *path, struct model *m)
{
    struct span name;
    struct errmsg why;
    const char *slash = strrchr(path, '/');
    if (gguf_has(g, "general.name") && gguf_get_string(g, "general.name", &name, &why) == OK &&
        name.len > 0)
        (void)snprintf(m->name, sizeof m->name, "%.*s", (int)(name.len < 120 ? name.len : 120),
                       (const char *)name.ptr);
    else
        (void)snprintf(m->name, sizeof m->name, "%.120s", slash != NULL ? slash + 1 : path);
}

static enum err load(struct loading *l, const char *path, struct errmsg *why)
{
    struct model *m = l->m;
    enum err err = arch_read(l->g, m, &l->arch, why);
    if (err == OK) err = vocab_pack(l->g, &m->tokenizer_asset, why);
    if (err != OK) return err;
    buffer_add_span(&m->chat_template, vocab_chat_template(l->g));
    if (buffer_status(&m->chat_template) != OK)
        return errmsg_set(why, ERR_LIMIT, "the chat template is longer than %zu bytes",
                          m->chat_template.max);
    set_name(l->g, path, m);
    return l->options->vocab_only ? OK : load_weights(l, why);
}

/* Takes g. */
static enum err load_from(struct gguf *g, const char *path, const struct model_options *options,
                          struct model **out, struct errmsg *why)
{
    struct model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        gguf_close(g);
        return errmsg_set(why, ERR_NOMEM, "%.200s: no memory", path);
    }
    m->reference = options->reference;
    buffer_init(&m->tokenizer_asset, TOKENIZER_ASSET_BYTES_MAX);
    buffer_init(&m->chat_template, 1 << 20);
    struct loading l = {.g = g, .m = m, .options = options};
    struct errmsg inner = {""};
    enum err err = load(&l, path, &inner);
    gguf_close(g);
    if (err != OK) {
        bool named = strncmp(inner.text, path, strlen(path)) == 0;
        model_destroy(m);
        return named ? errmsg_set(why, err, "%s", inner.text)
                     : errmsg_set(why, err, "%.200s: %.300s", path, inner.text);
    }
    *out = m;
    return OK;
}

enum err model_load(const char *path, const struct model_options *options, struct model **out,
                    struct errmsg *why)
{
    struct gguf *g;
    enum err err = gguf_open(path, &g, why);
    return err != OK ? err : load_from(g, path, options, out, why);
}

enum err model_load_memory(struct span bytes, const struct model_options *options,
                           struct model **out, struct errmsg *why)
{
    struct gguf *g;
    enum err err = gguf_open_memory(bytes, &g, why);
    return err != OK ? err : load_from(g, "(memory)", options, out, why);
}

void model_destroy(struct model *m)
{
    if (m == NULL) return;
    struct mapping *map = m->owned;
    if (map != NULL) (void)munmap(map->ptr, map->bytes);
    free(map);
    free(m->layers);
    buffer_deinit(&m->tokenizer_asset);
    buffer_deinit(&m->chat_template);
    free(m);
}

void model_rope_table(const struct model *m, uint32_t context, float *out)
{
    uint32_t half = m->rope_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double frequency =
            pow((double)m->rope_base, -2.0 * i / m->rope_dim) / (double)m->rope_linear;
        if (m->rope_factors != NULL) frequency /= (double)m->rope_factors[i];
        for (uint32_t p = 0; p < context; p++) {
            out[((size_t)p * half + i) * 2] = (float)cos(p * frequency);
            out[((size_t)p * half + i) * 2 + 1] = (float)sin(p * frequency);
        }
    }
}
