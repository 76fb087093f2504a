/* gguf_fixture.h - small models written into memory for the tests of worker/model: any
 * architecture, any type, with one thing wrong where a test asks for it. */
#ifndef PENSTOCK_TESTS_GGUF_FIXTURE_H
#define PENSTOCK_TESTS_GGUF_FIXTURE_H

#include "kernels/weights.h"
#include "worker/model/gguf_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIX_HIDDEN = 64,
    FIX_LAYERS = 2,
    FIX_HEADS = 2,
    FIX_KV_HEADS = 1,
    FIX_HEAD_DIM = 32,
    FIX_FFN = 96,
    FIX_VOCAB = 40, /* rows; the tokenizer has 8 fewer */
};

struct fixture {
    const char *arch; /* NULL: llama */
    uint32_t type;    /* of matrices; 0 is F32 */
    uint32_t vector_type;
    uint32_t tokens;       /* of the tokenizer; 0: FIX_VOCAB - 8 */
    bool head, rope_freqs; /* these tensors are there */
    const char *omit;      /* a tensor that is left out */
    const char *extra;     /* a tensor more, [64] */
    const char *wider;     /* a tensor whose last dimension is one larger */
    const char *odd;       /* a tensor of odd_type */
    uint32_t odd_type;
    const char *poison; /* a tensor whose last block has a scale (or value) of NaN */
    uint32_t seed;
    const char *omit_key;
    void (*more_keys)(struct gguf_writer *w);
};

static inline uint32_t fix_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Random blocks with scales around 0.01, floats within 0.1. */
static inline void fix_fill(uint32_t type, uint64_t bytes, uint32_t *state, uint8_t *p)
{
    uint32_t values, block;
    if (!gguf_type_block(type, &values, &block)) abort();
    for (uint64_t at = 0; at < bytes; at += block) {
        float v = ((float)(fix_random(state) & 0xffff) / 65536 - 0.5f) * 0.2f;
        uint16_t scale = f32_to_f16(0.005f + (v < 0 ? -v : v) * 0.1f);
        for (uint32_t i = 0; i < block; i++)
            p[at + i] = (uint8_t)fix_random(state);
        if (type == GGML_F32)
            memcpy(p + at, &v, 4);
        else if (type == GGML_F16)
            store_le16(p + at, f32_to_f16(v));
        else if (type == GGML_BF16)
            store_le16(p + at, (uint16_t)(0x3c00 + (fix_random(state) & 0x80ff)));
        else
            store_le16(p + at, scale);
        if (type == GGML_Q4_1 || type == GGML_Q5_1) store_le16(p + at + 2, f32_to_f16(v));
    }
}

struct fix_tensor {
    char name[64];
    uint32_t type;
    uint64_t bytes;
};
struct fix_list {
    struct fix_tensor t[64];
    uint32_t count;
};

static inline void fix_add(const struct fixture *f, struct gguf_writer *w, struct fix_list *list,
                           const char *name, uint32_t cols, uint32_t rows)
{
    if (f->omit != NULL && strcmp(f->omit, name) == 0) return;
    struct fix_tensor *t = &list->t[list->count++];
    uint64_t dims[2] = {cols, rows};
    uint32_t dim_count = rows > 0 ? 2 : 1;
    if (f->wider != NULL && strcmp(f->wider, name) == 0) dims[dim_count - 1]++;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->type = rows > 0 ? f->type : f->vector_type;
    if (f->odd != NULL && strcmp(f->odd, name) == 0) t->type = f->odd_type;
    t->bytes = gguf_writer_tensor(w, name, t->type, dims, dim_count);
}

static inline void fix_add_layer(const struct fixture *f, struct gguf_writer *w,
                                 struct fix_list *list, uint32_t layer)
{
    const char *arch = f->arch != NULL ? f->arch : "llama";
    bool bias = strcmp(arch, "qwen2") == 0, norm = strcmp(arch, "qwen3") == 0;
    const uint32_t q = FIX_HEADS * FIX_HEAD_DIM, kv = FIX_KV_HEADS * FIX_HEAD_DIM;
    const struct {
        const char *name;
        uint32_t cols, rows;
        bool has;
    } all[] = {
        {"attn_norm.weight", FIX_HIDDEN, 0, true},
        {"ffn_norm.weight", FIX_HIDDEN, 0, true},
        {"attn_q.weight", FIX_HIDDEN, q, true},
        {"attn_k.weight", FIX_HIDDEN, kv, true},
        {"attn_v.weight", FIX_HIDDEN, kv, true},
        {"attn_output.weight", q, FIX_HIDDEN, true},
        {"ffn_gate.weight", FIX_HIDDEN, FIX_FFN, true},
        {"ffn_up.weight", FIX_HIDDEN, FIX_FFN, true},
        {"ffn_down.weight", FIX_FFN, FIX_HIDDEN, true},
        {"attn_q.bias", q, 0, bias},
        {"attn_k.bias", kv, 0, bias},
        {"attn_v.bias", kv, 0, bias},
        {"attn_q_norm.weight", FIX_HEAD_DIM, 0, norm},
        {"attn_k_norm.weight", FIX_HEAD_DIM, 0, norm},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", layer, all[i].name);
        if (all[i].has) fix_add(f, w, list, name, all[i].cols, all[i].rows);
    }
}

static inline void fix_keys(const struct fixture *f, struct gguf_writer *w)
{
    const char *arch = f->arch != NULL ? f->arch : "llama";
    const struct {
        const char *name;
        uint32_t v;
    } all[] = {
        {"block_count", FIX_LAYERS},         {"context_length", 256},
        {"embedding_length", FIX_HIDDEN},    {"feed_forward_length", FIX_FFN},
        {"attention.head_count", FIX_HEADS}, {"attention.head_count_kv", FIX_KV_HEADS},
        {"rope.dimension_count", 32},
    };
    char key[64];
    gguf_writer_string(w, "general.architecture", span_str(arch));
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (f->omit_key != NULL && strcmp(f->omit_key, all[i].name) == 0) continue;
        snprintf(key, sizeof key, "%s.%s", arch, all[i].name);
        gguf_writer_u32(w, key, all[i].v);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_writer_f32(w, key, 1e-5f);
    struct span tokens[FIX_VOCAB * 2];
    static char texts[FIX_VOCAB * 2][16];
    uint32_t count = f->tokens > 0 ? f->tokens : FIX_VOCAB - 8;
    for (uint32_t i = 0; i < count; i++) {
        /* t, 1, t1, t2, ... */
        snprintf(texts[i], sizeof texts[i], "%s%.0u", i == 1 ? "1" : "t", i > 1 ? i - 1 : 0);
        tokens[i] = span_str(texts[i]);
    }
    struct span merge = SPAN_LIT("t 1");
    gguf_writer_string(w, "tokenizer.ggml.model", SPAN_LIT("gpt2"));
    gguf_writer_strings(w, "tokenizer.ggml.tokens", tokens, count);
    gguf_writer_strings(w, "tokenizer.ggml.merges", &merge, 1);
    gguf_writer_string(w, "tokenizer.chat_template", SPAN_LIT("{{ messages }}"));
    if (f->more_keys != NULL) f->more_keys(w);
}

/* The whole file. Freed by the caller with buffer_deinit. */
static inline void fix_build(const struct fixture *f, struct buffer *out)
{
    struct gguf_writer w;
    struct fix_list list = {.count = 0};
    uint32_t state = f->seed + 1;
    gguf_writer_init(&w);
    buffer_init(out, 1 << 26);
    fix_keys(f, &w);
    fix_add(f, &w, &list, "token_embd.weight", FIX_HIDDEN, FIX_VOCAB);
    for (uint32_t i = 0; i < FIX_LAYERS; i++)
        fix_add_layer(f, &w, &list, i);
    fix_add(f, &w, &list, "output_norm.weight", FIX_HIDDEN, 0);
    if (f->head) fix_add(f, &w, &list, "output.weight", FIX_HIDDEN, FIX_VOCAB);
    if (f->rope_freqs) fix_add(f, &w, &list, "rope_freqs.weight", FIX_HEAD_DIM / 2, 0);
    if (f->extra != NULL) fix_add(f, &w, &list, f->extra, FIX_HIDDEN, 0);
    if (gguf_writer_finish(&w, out) != OK) abort();
    gguf_writer_deinit(&w);
    for (uint32_t i = 0; i < list.count; i++) {
        uint64_t padded = (list.t[i].bytes + 31) / 32 * 32;
        uint32_t values, block;
        if (buffer_reserve(out, padded) != OK) abort();
        memset(out->ptr + out->len, 0, padded);
        uint8_t *p = out->ptr + out->len;
        fix_fill(list.t[i].type, list.t[i].bytes, &state, p);
        if (!gguf_type_block(list.t[i].type, &values, &block)) abort();
        if (f->poison != NULL && strcmp(f->poison, list.t[i].name) == 0)
            memset(p + list.t[i].bytes - block, 0xff, block == 4 ? 4 : 2);
        out->len += padded;
    }
}

#endif
