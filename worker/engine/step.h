/* step.h - one step, flat: the same bytes for each backend, for each rank, and for a test that
 * wants to replay it. The scheduler fills it, the transformer computes logits for the rows that
 * want them, the sampler picks tokens. All arrays are allocated once, for the maxima. Engine
 * thread. */
#ifndef PENSTOCK_WORKER_ENGINE_STEP_H
#define PENSTOCK_WORKER_ENGINE_STEP_H

#include "common/err.h"
#include "kernels/ops.h"

struct step_limits {
    uint32_t rows_max;      /* tokens a step, <= STEP_ROWS_MAX */
    uint32_t sequences_max; /* running sequences */
    uint32_t context_max;   /* tokens of one sequence */
    uint32_t copies_max;    /* block copies a step */
};

struct step {
    uint32_t rows;      /* tokens to compute, rows of a sequence adjacent, positions ascending */
    uint32_t *tokens;   /* [rows] */
    uint32_t *position; /* [rows] */
    uint32_t *slot;     /* [rows] block * KV_BLOCK_TOKENS + offset */
    uint32_t *row_sequence; /* [rows] index into the block table */
    uint32_t sequences;
    uint32_t *block_table;       /* [sequences, block_table_stride] */
    uint32_t block_table_stride; /* blocks of context_max */
    uint32_t logits_rows;
    uint32_t *logits_row; /* [logits_rows] row whose logits are wanted, ascending */
    float *logits; /* [logits_rows, vocab], filled by the transformer; owned by it, valid until the
                      next step */
    uint32_t copies;
    uint32_t *copy_pairs; /* [copies, 2] from, to: done before all else */
};

enum err step_init(struct step *step, const struct step_limits *limits) MUST_CHECK;
void step_deinit(struct step *step);
void step_clear(struct step *step); /* counts to zero */
/* CHECKs every index against the limits, the vocabulary and the number of blocks: a wrong step must
 * not reach a kernel. */
void step_check(const struct step *step, const struct step_limits *limits, uint32_t vocab_count,
                uint32_t kv_blocks);

#endif
