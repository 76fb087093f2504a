#include "worker/engine/step.h"

#include <stdlib.h>

enum err step_init(struct step *step, const struct step_limits *limits)
{
    CHECK(limits->rows_max > 0 && limits->rows_max <= STEP_ROWS_MAX && limits->sequences_max > 0 &&
          limits->context_max > 0);
    *step = (struct step){0};
    step->block_table_stride = (limits->context_max + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    size_t rows = limits->rows_max;
    step->tokens = calloc(rows, sizeof *step->tokens);
    step->position = calloc(rows, sizeof *step->position);
    step->slot = calloc(rows, sizeof *step->slot);
    step->row_sequence = calloc(rows, sizeof *step->row_sequence);
    step->logits_row = calloc(rows, sizeof *step->logits_row);
    step->block_table =
        calloc((size_t)limits->sequences_max * step->block_table_stride, sizeof *step->block_table);
    step->copy_pairs = calloc((size_t)limits->copies_max * 2 + 2, sizeof *step->copy_pairs);
    if (step->tokens && step->position && step->slot && step->row_sequence && step->logits_row &&
        step->block_table && step->copy_pairs)
        return OK;
    step_deinit(step);
    return ERR_NOMEM;
}

void step_deinit(struct step *step)
{
    free(step->tokens);
    free(step->position);
    free(step->slot);
    free(step->row_sequence);
    free(step->logits_row);
    free(step->block_table);
    free(step->copy_pairs);
    *step = (struct step){0};
}

void step_clear(struct step *step)
{
    step->rows = step->sequences = step->logits_rows = step->copies = 0;
    step->logits = NULL;
}

static void check_row(const struct step *step, uint32_t r, uint32_t vocab_count, uint32_t kv_blocks)
{
    uint32_t sequence = step->row_sequence[r], position = step->position[r];
    CHECK(step->tokens[r] < vocab_count);
    CHECK(sequence < step->sequences);
    CHECK(position < step->block_table_stride * KV_BLOCK_TOKENS);
    const uint32_t *table = step->block_table + (size_t)sequence * step->block_table_stride;
    uint32_t block = table[position / KV_BLOCK_TOKENS];
    CHECK(block < kv_blocks);
    CHECK(step->slot[r] == block * KV_BLOCK_TOKENS + position % KV_BLOCK_TOKENS);
    if (r == 0) return;
    bool same = step->row_sequence[r - 1] == sequence;
    CHECK(same ? position == step->position[r - 1] + 1 : sequence > step->row_sequence[r - 1]);
}

void step_check(const struct step *step, const struct step_limits *limits, uint32_t vocab_count,
                uint32_t kv_blocks)
{
    CHECK(step->rows <= limits->rows_max && step->sequences <= limits->sequences_max);
    CHECK(step->logits_rows <= step->rows && step->copies <= limits->copies_max);
    for (uint32_t r = 0; r < step->rows; r++)
        check_row(step, r, vocab_count, kv_blocks);
    for (uint32_t i = 0; i < step->logits_rows; i++) {
        CHECK(step->logits_row[i] < step->rows);
        CHECK(i == 0 || step->logits_row[i] > step->logits_row[i - 1]);
    }
    for (uint32_t i = 0; i < 2 * step->copies; i++)
        CHECK(step->copy_pairs[i] < kv_blocks);
}
