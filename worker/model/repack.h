/* repack.h - one GGUF tensor into one packed weight (kernels/weights.h), by several threads. Types
 * F32, F16, BF16 keep their precision; Q4_0 and Q4_1 become WEIGHT_Q4; Q5_0, Q5_1 and Q8_0 become
 * WEIGHT_Q8. Nothing is rounded: the packed weight holds the same numbers. Source: GGML block
 * layouts (golden/MODELS.md; ggml-common.h). */
#ifndef PENSTOCK_WORKER_MODEL_REPACK_H
#define PENSTOCK_WORKER_MODEL_REPACK_H

#include "kernels/pool.h"
#include "kernels/weights.h"
#include "worker/model/gguf.h"

/* What t becomes; WEIGHT_NONE for types that are not supported. as_f32: the reference path. */
void repack_plan(const struct gguf_tensor *t, bool as_f32,
                 struct weight *out); /* data stays NULL */
/* "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0" */
const char *repack_supported(void);

/* head_dim != 0: rows are stored with rotary pairs adjacent, and are put back to half-split order
 * within each head. w was planned from t and has its memory. ERR_PROTO: a scale that is not finite
 * (the sentence names tensor and row). */
enum err repack_run(const struct gguf_tensor *t, uint32_t head_dim, struct weight *w,
                    struct pool *pool, struct errmsg *why) MUST_CHECK;
/* A vector (norm, bias, factors) of F32, F16 or BF16 as floats; out[dims[0]]. ERR_UNSUPPORTED,
 * ERR_PROTO (not finite). */
enum err repack_vector(const struct gguf_tensor *t, float *out, struct errmsg *why) MUST_CHECK;

#endif
