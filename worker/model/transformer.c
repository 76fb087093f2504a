/* transformer.c - the forward pass of the dense decoder families (llama, qwen2, qwen3), written
 * once for every backend. Per layer: norm, q k v, rope and store, attention, o into the residual,
 * norm, gate and up, down into the residual. */
#include "worker/model/transformer.h"

#include "kernels/act.h"

#include <stdlib.h>

struct transformer {
    const struct model *model;
    struct backend *backend;
    struct transformer_options options;
    struct kv_layer *kv;          /* [layer_count] */
    float *rope;                  /* [context_max, rope_dim / 2, 2] */
    float *x;                     /* [rows_max, hidden] the residual stream */
    float *q;                     /* [rows_max, q_heads_max * head_dim] */
    float *k, *v;                 /* [rows_max, kv_heads_max * head_dim] */
    float *attn;                  /* [rows_max, q_heads_max * head_dim] */
    void *act_hidden[ACT_TYPES_]; /* input of q k v, gate up, head */
    void *act_attn;               /* input of o */
    void *act_ffn;                /* input of down */
    void *attn_scratch;
    float *logits; /* [logits_rows_max, vocab] */
};

size_t transformer_kv_block_bytes(const struct model *model, const struct backend *backend,
                                  enum kv_type type)
{
    size_t bytes = 0;
    for (uint32_t l = 0; l < model->layer_count; l++)
        bytes +=
            backend->ops->kv_block_bytes(backend, type, model->layers[l].kv_heads, model->head_dim);
    return bytes;
}

/* The input of down. In the first layers it holds a model's few massive activations (Sun et al.,
 * 2024), and an error made there goes through all the others: like the inputs of q, k and v, which
 * decide where attention looks, it is worth 16 bits. docs/performance.md has the measurements. */
static enum act_type down_input(const struct model *m, uint32_t layer)
{
    enum weight_type type = m->layers[layer].down.type;
    bool early = layer < (m->layer_count + 9) / 10;
    return early ? act_type_fine(type) : act_type_for(type);
}

/* gate and up are multiplied inside one op, so they must want the same form of input. */
static enum err check_layers(const struct model *m, struct errmsg *why)
{
    for (uint32_t l = 0; l < m->layer_count; l++)
        if (act_type_for(m->layers[l].gate.type) != act_type_for(m->layers[l].up.type))
            return errmsg_set(
                why, ERR_UNSUPPORTED,
                "layer %u: ffn_gate and ffn_up are of types that take different inputs (one "
                "quantized, one float); convert both to the same kind",
                l);
    return OK;
}

static bool alloc_all(struct transformer *t)
{
    const struct model *m = t->model;
    struct backend *b = t->backend;
    const struct backend_ops *ops = b->ops;
    size_t rows = t->options.limits.rows_max;
    size_t q_width = (size_t)m->q_heads_max * m->head_dim;
    size_t kv_width = (size_t)m->kv_heads_max * m->head_dim;
    uint32_t context = t->options.limits.context_max;

    t->x = ops->alloc(b, rows * m->hidden * sizeof(float));
    t->q = ops->alloc(b, rows * q_width * sizeof(float));
    t->k = ops->alloc(b, rows * kv_width * sizeof(float));
    t->v = ops->alloc(b, rows * kv_width * sizeof(float));
    t->attn = ops->alloc(b, rows * q_width * sizeof(float));
    size_t attn_bytes = 0, ffn_bytes = 0;
    for (int type = ACT_F32; type < ACT_TYPES_; type++) {
        size_t hidden = ops->act_bytes(b, (enum act_type)type, (uint32_t)rows, m->hidden);
        size_t wide = ops->act_bytes(b, (enum act_type)type, (uint32_t)rows, (uint32_t)q_width);
        size_t ffn = ops->act_bytes(b, (enum act_type)type, (uint32_t)rows, m->ffn_max);
        t->act_hidden[type] = ops->alloc(b, hidden);
        if (t->act_hidden[type] == NULL) return false;
        attn_bytes = wide > attn_bytes ? wide : attn_bytes;
        ffn_bytes = ffn > ffn_bytes ? ffn : ffn_bytes;
    }
    t->act_attn = ops->alloc(b, attn_bytes);
    t->act_ffn = ops->alloc(b, ffn_bytes);
    t->attn_scratch = ops->alloc(
        b, ops->attention_scratch_bytes(b, (uint32_t)rows, m->q_heads_max, m->head_dim, context));
    t->logits = ops->alloc(b, (size_t)t->options.logits_rows_max * m->vocab_count * sizeof(float));
    t->rope = ops->alloc(b, (size_t)context * m->rope_dim * sizeof(float));
    if (!t->x || !t->q || !t->k || !t->v || !t->attn || !t->act_attn || !t->act_ffn ||
        !t->attn_scratch || !t->logits || !t->rope)
        return false;
    for (uint32_t l = 0; l < m->layer_count; l++) {
        struct kv_layer *kv = &t->kv[l];
        kv->type = t->options.kv_type;
        kv->kv_heads = m->layers[l].kv_heads;
        kv->head_dim = m->head_dim;
        kv->block_bytes = ops->kv_block_bytes(b, kv->type, kv->kv_heads, kv->head_dim);
        kv->data = ops->alloc(b, kv->block_bytes * t->options.kv_blocks);
        if (kv->data == NULL) return false;
    }
    return true;
}

enum err transformer_create(const struct model *model, struct backend *backend,
                            const struct transformer_options *options, struct transformer **out,
                            struct errmsg *why)
{
    CHECK(options->limits.rows_max >= 1 && options->limits.rows_max <= STEP_ROWS_MAX);
    CHECK(options->logits_rows_max >= 1 && options->kv_blocks >= 1);
    enum err err = check_layers(model, why);
    if (err != OK) return err;
    struct transformer *t = calloc(1, sizeof *t);
    if (t != NULL) t->kv = calloc(model->layer_count, sizeof *t->kv);
    if (t == NULL || t->kv == NULL) {
        free(t);
        return errmsg_set(why, ERR_NOMEM, "no memory for a model of %u layers", model->layer_count);
    }
    t->model = model;
    t->backend = backend;
    t->options = *options;
    if (!alloc_all(t)) {
        transformer_destroy(t);
        size_t kv =
            transformer_kv_block_bytes(model, backend, options->kv_type) * options->kv_blocks;
        return errmsg_set(
            why, ERR_NOMEM,
            "no memory for %u KV blocks (%zu MiB) and scratch for %u tokens a step; lower "
            "--kv-memory or --step-tokens",
            options->kv_blocks, kv >> 20, options->limits.rows_max);
    }
    model_rope_table(model, options->limits.context_max, t->rope);
    *out = t;
    return OK;
}

void transformer_destroy(struct transformer *t)
{
    if (t == NULL) return;
    struct backend *b = t->backend;
    void *const all[] = {t->x,
                         t->q,
                         t->k,
                         t->v,
                         t->attn,
                         t->act_attn,
                         t->act_ffn,
                         t->act_hidden[0],
                         t->act_hidden[1],
                         t->attn_scratch,
                         t->logits,
                         t->rope};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i] != NULL) b->ops->release(b, all[i]);
    for (uint32_t l = 0; l < t->model->layer_count; l++)
        if (t->kv[l].data != NULL) b->ops->release(b, t->kv[l].data);
    free(t->kv);
    free(t);
}

static void enqueue(struct transformer *t, const struct op *op)
{
    t->backend->ops->enqueue(t->backend, op);
}

/* The normed residual in the form that weights of this type want. */
static struct act enqueue_norm(struct transformer *t, const float *weight, enum act_type type,
                               const uint32_t *x_rows, uint32_t rows)
{
    struct act out = {type, t->model->hidden, t->act_hidden[type]};
    struct op op = {.kind = OP_NORM,
                    .norm = {.x = t->x,
                             .x_rows = x_rows,
                             .weight = weight,
                             .eps = t->model->norm_eps,
                             .rows = rows,
                             .cols = t->model->hidden,
                             .out = out}};
    enqueue(t, &op);
    return out;
}

/* q, k and v share an input; where their types want it in different forms, each form is made once.
 */
static void enqueue_qkv(struct transformer *t, const struct model_layer *layer, uint32_t rows)
{
    const struct weight *weight[3] = {&layer->q, &layer->k, &layer->v};
    const float *bias[3] = {layer->q_bias, layer->k_bias, layer->v_bias};
    float *out[3] = {t->q, t->k, t->v};
    for (int type = ACT_F32; type < ACT_TYPES_; type++) {
        struct op op = {.kind = OP_LINEAR, .linear = {.rows = rows, .epilogue = LINEAR_STORE}};
        struct op_linear *linear = &op.linear;
        for (int i = 0; i < 3; i++) {
            if ((int)act_type_fine(weight[i]->type) != type) continue;
            uint32_t n = linear->weight_count++;
            linear->weight[n] = weight[i];
            linear->bias[n] = bias[i];
            linear->out[n] = out[i];
            linear->out_stride[n] = weight[i]->rows;
        }
        if (linear->weight_count == 0) continue;
        linear->in = enqueue_norm(t, layer->attn_norm, (enum act_type)type, NULL, rows);
        enqueue(t, &op);
    }
}

static void enqueue_attention(struct transformer *t, const struct step *step, uint32_t l)
{
    const struct model *m = t->model;
    const struct model_layer *layer = &m->layers[l];
    uint32_t q_width = layer->q_heads * m->head_dim, kv_width = layer->kv_heads * m->head_dim;
    struct op store = {.kind = OP_ROPE_STORE,
                       .rope_store = {.q = t->q,
                                      .k = t->k,
                                      .v = t->v,
                                      .q_stride = q_width,
                                      .kv_stride = kv_width,
                                      .q_norm = layer->q_norm,
                                      .k_norm = layer->k_norm,
                                      .norm_eps = m->norm_eps,
                                      .rope = t->rope,
                                      .rope_dim = m->rope_dim,
                                      .position = step->position,
                                      .slot = step->slot,
                                      .kv = t->kv[l],
                                      .rows = step->rows,
                                      .q_heads = layer->q_heads}};
    enqueue(t, &store);
    struct op attention = {.kind = OP_ATTENTION,
                           .attention = {.q = t->q,
                                         .q_stride = q_width,
                                         .out = t->attn,
                                         .kv = t->kv[l],
                                         .position = step->position,
                                         .row_sequence = step->row_sequence,
                                         .block_table = step->block_table,
                                         .block_table_stride = step->block_table_stride,
                                         .rows = step->rows,
                                         .q_heads = layer->q_heads,
                                         .scale = 1.0f / __builtin_sqrtf((float)m->head_dim),
                                         .scratch = t->attn_scratch}};
    enqueue(t, &attention);
}

/* out += in * weight^T, into the residual. */
static void enqueue_into_residual(struct transformer *t, struct act in, const struct weight *weight,
                                  uint32_t rows)
{
    struct op op = {.kind = OP_LINEAR,
                    .linear = {.in = in,
                               .weight = {weight},
                               .out = {t->x},
                               .out_stride = {t->model->hidden},
                               .weight_count = 1,
                               .rows = rows,
                               .epilogue = LINEAR_ADD}};
    enqueue(t, &op);
}

static void enqueue_layer(struct transformer *t, const struct step *step, uint32_t l)
{
    const struct model *m = t->model;
    const struct model_layer *layer = &m->layers[l];
    uint32_t rows = step->rows, q_width = layer->q_heads * m->head_dim;

    enqueue_qkv(t, layer, rows);
    enqueue_attention(t, step, l);
    struct act attn = {act_type_for(layer->o.type), q_width, t->act_attn};
    struct op quantize = {.kind = OP_QUANTIZE,
                          .quantize = {.x = t->attn, .rows = rows, .cols = q_width, .out = attn}};
    enqueue(t, &quantize);
    enqueue_into_residual(t, attn, &layer->o, rows);

    struct op gate_up = {.kind = OP_LINEAR,
                         .linear = {.in = enqueue_norm(t, layer->ffn_norm,
                                                       act_type_for(layer->gate.type), NULL, rows),
                                    .weight = {&layer->gate, &layer->up},
                                    .out_act = {down_input(m, l), layer->ffn, t->act_ffn},
                                    .weight_count = 2,
                                    .rows = rows,
                                    .epilogue = LINEAR_SILU_MUL}};
    enqueue(t, &gate_up);
    enqueue_into_residual(t, gate_up.linear.out_act, &layer->down, rows);
}

static void enqueue_copies(struct transformer *t, const struct step *step)
{
    if (step->copies == 0) return;
    for (uint32_t l = 0; l < t->model->layer_count; l++) {
        struct op op = {.kind = OP_COPY_BLOCKS,
                        .copy_blocks = {.data = t->kv[l].data,
                                        .block_bytes = t->kv[l].block_bytes,
                                        .pairs = step->copy_pairs,
                                        .count = step->copies}};
        enqueue(t, &op);
    }
}

enum err transformer_forward(struct transformer *t, struct step *step)
{
    const struct model *m = t->model;
    step_check(step, &t->options.limits, m->vocab_count, t->options.kv_blocks);
    CHECK(step->logits_rows <= t->options.logits_rows_max);
    step->logits = t->logits;
    enqueue_copies(t, step);
    if (step->rows == 0) return t->backend->ops->submit(t->backend);

    struct op embed = {.kind = OP_EMBED,
                       .embed = {.table = &m->embed,
                                 .tokens = step->tokens,
                                 .out = t->x,
                                 .rows = step->rows,
                                 .scale = m->embed_scale}};
    enqueue(t, &embed);
    for (uint32_t l = 0; l < m->layer_count; l++)
        enqueue_layer(t, step, l);
    if (step->logits_rows > 0) {
        struct act in = enqueue_norm(t, m->final_norm, act_type_for(m->head.type), step->logits_row,
                                     step->logits_rows);
        struct op head = {.kind = OP_HEAD,
                          .head = {.in = in,
                                   .weight = &m->head,
                                   .logits = t->logits,
                                   .logits_stride = m->vocab_count,
                                   .rows = step->logits_rows}};
        enqueue(t, &head);
    }
    return t->backend->ops->submit(t->backend);
}
