/* model.h - a loaded model: what the architecture is (one table-driven description) and its packed
 * weights. Immutable after load, shared by threads. Memory: the packed weights, plus small tables;
 * the file is mapped only while loading. Per-layer shapes are allowed from the start (pruned
 * models): nothing outside may assume that layers are alike. */
#ifndef PENSTOCK_WORKER_MODEL_MODEL_H
#define PENSTOCK_WORKER_MODEL_MODEL_H

#include "common/buffer.h"
#include "common/hash.h"
#include "kernels/ops.h"

enum {
    MODEL_LAYERS_MAX = 512,
    MODEL_HEADS_MAX = 1024,
    MODEL_HEAD_DIM_MAX = 512,
    MODEL_WIDTH_MAX = 1 << 17
};

struct model_layer {
    uint32_t q_heads, kv_heads, ffn;   /* ffn: intermediate width */
    const float *attn_norm, *ffn_norm; /* [hidden] */
    const float *q_norm, *k_norm;      /* [head_dim], or NULL (qwen3 has them) */
    struct weight q, k, v, o; /* q [q_heads * head_dim, hidden] ..., o [hidden, q_heads * head_dim];
                                 rotary pairs half-split */
    const float *q_bias, *k_bias, *v_bias; /* or NULL (qwen2 has them) */
    struct weight gate, up, down;
};

struct model {
    char arch[32];  /* "llama", "qwen2", "qwen3" */
    char name[128]; /* general.name, or the file's name */
    uint32_t layer_count, hidden, head_dim, vocab_count;
    uint32_t context_train;                      /* context_length of the file */
    uint32_t kv_heads_max, q_heads_max, ffn_max; /* over layers */
    float norm_eps;
    float embed_scale; /* 1 for these families */
    uint32_t rope_dim;
    float rope_base;
    float rope_linear;          /* divides all inverse frequencies (linear scaling); 1: none */
    const float *rope_factors;  /* [rope_dim / 2] that divide the inverse frequencies (llama3
                                   scaling), or NULL */
    struct model_layer *layers; /* [layer_count] */
    struct weight embed;        /* [vocab, hidden] */
    struct weight head;         /* [vocab, hidden]; shares embed's data when tied */
    bool tied;
    const float *final_norm;    /* [hidden] */
    struct hash128 fingerprint; /* of metadata that changes numerics, tensor table and sampled
                                   weight bytes; and of `reference` */
    uint64_t weight_bytes;      /* packed, all of it */
    uint64_t
        decode_read_bytes; /* read by one decode step: layers and head, not the embedding table */
    bool reference;
    struct buffer tokenizer_asset; /* common/tokenizer.h */
    struct buffer chat_template;   /* empty when the file has none */
    void *owned;                   /* loader's bookkeeping */
};

struct model_options {
    bool reference; /* every matrix as float32, for the plain twins: slow and exact */
    uint32_t threads;
    /* Progress, at most some 20 times a second, or NULL. Called on the loading thread. */
    void (*progress)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_arg;
    bool vocab_only; /* architecture, tokenizer and template; no weights (penstock-model tokenize)
                      */
    bool plan_only;  /* everything is checked but the weights' values, sizes are filled in, nothing
                        is packed: data pointers stay NULL (penstock-model info) */
};

/* ERR_UNSUPPORTED names what is not known and changes numerics (architecture, rope type, tensor
 * type, an extra tensor such as a router or LoRA); ERR_PROTO names the tensor and both shapes. All
 * or nothing. */
enum err model_load(const char *path, const struct model_options *options, struct model **out,
                    struct errmsg *why) MUST_CHECK;
/* The same over a GGUF file in memory (tests, fuzzing). */
enum err model_load_memory(struct span bytes, const struct model_options *options,
                           struct model **out, struct errmsg *why) MUST_CHECK;
void model_destroy(struct model *m);

/* cos, sin table [context, rope_dim / 2, 2] in float32, computed in double. out: context * rope_dim
 * floats. */
void model_rope_table(const struct model *m, uint32_t context, float *out);

#endif
