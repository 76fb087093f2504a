/* ops.h - the one list of operations that the forward pass is made of, the same for every backend.
 * Each op is one plain struct of parameters (pointers in the backend's memory, shapes, strides) and
 * is *enqueued*: the backend runs enqueued ops in order when the step is submitted
 * (worker/backend/backend.h). An op never allocates. Contract of every op: the result of a row is
 * independent of which other rows are in the batch, of the number of threads and of how a prompt
 * was cut into chunks (fixed reduction order along the contracted dimension, no atomics on floats).
 * Shapes are [rows, cols], row-major, unless said otherwise. "rows" = tokens of this step (1 to
 * STEP_ROWS_MAX). */
#ifndef PENSTOCK_KERNELS_OPS_H
#define PENSTOCK_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KV_BLOCK_TOKENS = 16,
    STEP_ROWS_MAX = 2048, /* tokens computed by one step */
    ATTENTION_SPLIT_TOKENS =
        256, /* keys per partial result; fixed, so that results do not depend on threads or batch */
    LINEAR_WEIGHTS_MAX = 3, /* matrices that share an input: q, k, v */
};

/* ---- weights ---- */
enum weight_type {
    WEIGHT_NONE = 0,
    WEIGHT_F32, /* [rows, cols] in 16-row panels, float32 */
    WEIGHT_F16,
    WEIGHT_BF16,
    WEIGHT_Q4, /* groups of 32 columns: 4-bit q, f16 scale, and f16 minimum where has_min: w = q *
                  scale + min */
    WEIGHT_Q8, /* the same with 8-bit unsigned q */
};
/* A matrix [rows, cols] repacked once at load; kernels/weights.h packs and reads it. Without
 * has_min the minimum of each group is -zero * scale (zero: 8 for Q4_0, 16 for Q5_0, 128 for Q8_0).
 * cols % 32 == 0 for Q4 and Q8. */
struct weight {
    enum weight_type type;
    uint32_t rows, cols;
    bool has_min;
    uint8_t zero;
    void *data; /* 64-byte aligned; weight_bytes() of them */
};

/* ---- activations, as the next linear wants them ---- */
enum act_type {
    ACT_F32, /* float [rows, cols]: for WEIGHT_F32, F16, BF16 */
    ACT_Q8,  /* int8 in groups of 32 with f32 scale, packed by kernels/act.h for WEIGHT_Q4 and Q8 */
    ACT_Q16, /* the same with 15 bits in two int8 planes: where 8 bits cost too much accuracy */
    ACT_TYPES_,
};
struct act {
    enum act_type type;
    uint32_t cols;
    void *data; /* act_bytes(type, rows, cols) of them, 64-byte aligned */
};

/* ---- the operations ---- */

/* out[r, :] = table[tokens[r], :] * scale */
struct op_embed {
    const struct weight *table; /* [vocab, cols] */
    const uint32_t *tokens;     /* [rows] < vocab, checked by whoever made the step */
    float *out;                 /* [rows, cols] */
    uint32_t rows;
    float scale; /* 1, or what the family wants */
};

/* RMS norm: out = x / sqrt(mean(x^2) + eps) * weight, written in the form that the next linear
 * wants. The residual stream x itself stays. x_rows: NULL, or [rows] indexes into x (the rows that
 * want logits). */
struct op_norm {
    const float *x; /* [*, cols] */
    const uint32_t *x_rows;
    const float *weight; /* [cols] */
    float eps;
    uint32_t rows, cols;
    struct act out;
};

enum linear_epilogue {
    LINEAR_STORE,    /* out[i] = in * w[i]^T (+ bias[i]) */
    LINEAR_ADD,      /* out[i] += ...: into the residual stream */
    LINEAR_SILU_MUL, /* two weights: out_act = silu(in * w[0]^T) * (in * w[1]^T), quantized or not
                        as out_act says */
};
/* Up to three matrices that share one input. */
struct op_linear {
    struct act in;                                   /* [rows, cols] */
    const struct weight *weight[LINEAR_WEIGHTS_MAX]; /* each [out_cols_i, cols] */
    const float *bias[LINEAR_WEIGHTS_MAX];           /* [out_cols_i] or NULL */
    float *out[LINEAR_WEIGHTS_MAX];          /* [rows, out_stride_i]; unused with SILU_MUL */
    uint32_t out_stride[LINEAR_WEIGHTS_MAX]; /* floats between rows */
    struct act out_act;                      /* SILU_MUL: [rows, weight[0]->rows] */
    uint32_t weight_count;
    uint32_t rows;
    enum linear_epilogue epilogue;
};

/* f32 [rows, cols] -> the form that the next linear wants (attention's output before o). */
struct op_quantize {
    const float *x;
    uint32_t rows, cols;
    struct act out;
};

enum kv_type {
    KV_F16,
    KV_Q8,  /* int8 with one f16 scale for each token, KV head and side (K, V); scales live inside
               the block */
    KV_F32, /* the reference path */
};
/* The cache of one layer: [kv_blocks] blocks of kv_block_bytes(type, kv_heads, head_dim); layout
 * inside a block is the backend's (kernels/kv.h). */
struct kv_layer {
    uint8_t *data;
    enum kv_type type;
    uint32_t kv_heads, head_dim;
    size_t block_bytes;
};

/* Optional per-head RMS norm of q and k (qwen3), rotation of q and k (half-split pairs i, i +
 * head_dim/2: arch llama's permuted rows are put back at load), then K and V of each row into the
 * row's slot. q is rewritten in place. */
struct op_rope_store {
    float *q;     /* [rows, q_stride]; q_heads * head_dim used */
    float *k, *v; /* [rows, kv_stride]; kv_heads * head_dim used; k is rewritten */
    uint32_t q_stride, kv_stride;
    const float *q_norm, *k_norm; /* [head_dim] or NULL */
    float norm_eps;
    const float *rope;        /* [context_max, rope_dim / 2, 2]: cos, sin of position */
    uint32_t rope_dim;        /* <= head_dim, even; elements beyond it pass through */
    const uint32_t *position; /* [rows] */
    const uint32_t *slot;     /* [rows]: block * KV_BLOCK_TOKENS + offset */
    struct kv_layer kv;
    uint32_t rows, q_heads;
};

/* Causal attention over paged keys: row r of sequence s sees positions 0..position[r] (within
 * window, if not 0). Softmax in float32; keys are taken in order, in pieces of
 * ATTENTION_SPLIT_TOKENS counted from position 0, merged in order. Each KV head is read once for
 * its whole group of query heads and for all rows of a sequence that stand together. */
struct op_attention {
    const float *q; /* [rows, q_stride] */
    uint32_t q_stride;
    float *out; /* [rows, q_heads * head_dim] */
    struct kv_layer kv;
    const uint32_t *position;     /* [rows] */
    const uint32_t *row_sequence; /* [rows]: index into block_table; rows of a sequence are
                                     adjacent, positions ascending */
    const uint32_t *block_table;  /* [sequences, block_table_stride] block indexes */
    uint32_t block_table_stride;
    uint32_t rows, q_heads;
    uint32_t window; /* 0: all */
    float scale;     /* 1/sqrt(head_dim) */
    void *scratch;   /* attention_scratch_bytes(...) */
};

/* logits of the rows in act (already normed): [rows, vocab]. A linear, with the head's own
 * partition. */
struct op_head {
    struct act in;
    const struct weight *weight; /* [vocab, cols] */
    float *logits;               /* [rows, logits_stride] */
    uint32_t logits_stride;
    uint32_t rows;
};

/* Copies whole blocks in every layer, before anything else of the step: copy-on-write of partial
 * prefix blocks. */
struct op_copy_blocks {
    uint8_t *data; /* of one layer */
    size_t block_bytes;
    const uint32_t *pairs; /* [count, 2]: from, to */
    uint32_t count;
};

enum op_kind {
    OP_EMBED = 1,
    OP_NORM,
    OP_LINEAR,
    OP_QUANTIZE,
    OP_ROPE_STORE,
    OP_ATTENTION,
    OP_HEAD,
    OP_COPY_BLOCKS
};
struct op {
    enum op_kind kind;
    union {
        struct op_embed embed;
        struct op_norm norm;
        struct op_linear linear;
        struct op_quantize quantize;
        struct op_rope_store rope_store;
        struct op_attention attention;
        struct op_head head;
        struct op_copy_blocks copy_blocks;
    };
};

#endif
