/* transformer.h - the one forward pass: a model on a backend, with its KV cache and scratch. Names
 * ops, never a device. Engine thread. All memory is allocated at creation; a forward pass allocates
 * nothing. */
#ifndef PENSTOCK_WORKER_MODEL_TRANSFORMER_H
#define PENSTOCK_WORKER_MODEL_TRANSFORMER_H

#include "worker/backend/backend.h"
#include "worker/engine/step.h"
#include "worker/model/model.h"

struct transformer;

struct transformer_options {
    struct step_limits limits;
    uint32_t logits_rows_max; /* rows that may want logits in one step */
    enum kv_type kv_type;
    uint32_t kv_blocks; /* of KV_BLOCK_TOKENS tokens, all layers */
};

/* model and backend must outlive it. ERR_NOMEM says how much was wanted. */
enum err transformer_create(const struct model *model, struct backend *backend,
                            const struct transformer_options *options, struct transformer **out,
                            struct errmsg *why) MUST_CHECK;
void transformer_destroy(struct transformer *t);
/* Computes the step: K and V of all rows are stored, step->logits points to [logits_rows,
 * vocab_count] floats. */
enum err transformer_forward(struct transformer *t, struct step *step) MUST_CHECK;
/* Bytes of one KV block over all layers: for sizing the pool. */
size_t transformer_kv_block_bytes(const struct model *model, const struct backend *backend,
                                  enum kv_type type);
#endif
