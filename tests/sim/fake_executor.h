/* fake_executor.h - a model that costs nothing and forgives nothing: logits are a hash of the
 * tokens that it finds in its own KV memory, read through the step's block tables. A wrong slot,
 * table, position, copy or a block shared by mistake changes tokens. */
#ifndef PENSTOCK_TESTS_SIM_FAKE_EXECUTOR_H
#define PENSTOCK_TESTS_SIM_FAKE_EXECUTOR_H

#include "worker/engine/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FAKE_VOCAB = 64 };

struct fake {
    uint32_t *kv; /* [blocks * 16] the token stored in each slot, plus 1; 0: never written */
    float *logits;
    struct step_limits limits;
    uint32_t kv_blocks;
    uint64_t rows_total, steps;
    uint32_t fail_at;   /* the step (1, 2, ...) that fails; 0: none */
    uint32_t nan_token; /* a row whose own token is this one gets a NaN; UINT32_MAX: none */
};

static inline uint64_t fake_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ (h >> 29);
}

/* Hash of everything from position 0 to this one, as the KV memory has it. */
static inline uint64_t fake_history(const struct fake *f, const uint32_t *table, uint32_t position)
{
    uint64_t h = 1;
    for (uint32_t p = 0; p <= position; p++) {
        uint32_t token = f->kv[table[p / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + p % KV_BLOCK_TOKENS];
        CHECK_MSG(token != 0, "position %u was never written", p);
        h = fake_mix(h, token);
    }
    return h;
}

static inline enum err fake_forward(void *arg, struct step *step)
{
    struct fake *f = arg;
    step_check(step, &f->limits, FAKE_VOCAB, f->kv_blocks);
    f->steps++;
    if (f->fail_at != 0 && f->steps == f->fail_at) return ERR_IO;
    for (uint32_t i = 0; i < step->copies; i++)
        memcpy(f->kv + step->copy_pairs[2 * i + 1] * KV_BLOCK_TOKENS,
               f->kv + step->copy_pairs[2 * i] * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS * sizeof *f->kv);
    for (uint32_t r = 0; r < step->rows; r++)
        f->kv[step->slot[r]] = step->tokens[r] + 1;
    f->rows_total += step->rows;
    for (uint32_t i = 0; i < step->logits_rows; i++) {
        uint32_t r = step->logits_row[i];
        const uint32_t *table =
            step->block_table + (size_t)step->row_sequence[r] * step->block_table_stride;
        uint64_t h = fake_history(f, table, step->position[r]);
        for (uint32_t v = 0; v < FAKE_VOCAB; v++) {
            h = fake_mix(h, v);
            f->logits[i * FAKE_VOCAB + v] = (float)(h >> 40) / (float)(1 << 22);
        }
        if (step->tokens[r] == f->nan_token) f->logits[i * FAKE_VOCAB + 3] = NAN;
    }
    step->logits = f->logits;
    return OK;
}

/* Blocks handed out again hold what they held: as real memory does. */
static inline void fake_init(struct fake *f, const struct engine_options *o)
{
    *f = (struct fake){.kv_blocks = o->kv_blocks, .nan_token = UINT32_MAX};
    f->limits = (struct step_limits){o->step_tokens_max, o->sequences_max, o->context_max,
                                     o->sequences_max};
    f->kv = calloc((size_t)o->kv_blocks * KV_BLOCK_TOKENS, sizeof *f->kv);
    f->logits = calloc((size_t)o->sequences_max * FAKE_VOCAB, sizeof *f->logits);
    CHECK(f->kv != NULL && f->logits != NULL);
}

static inline void fake_deinit(struct fake *f)
{
    free(f->kv);
    free(f->logits);
}

static uint64_t fake_now_ns;
static inline uint64_t fake_clock(void)
{
    return fake_now_ns += 1000000;
}

static inline struct sampling_params fake_params(uint32_t max_tokens)
{
    return (struct sampling_params){
        .max_tokens = max_tokens, .top_p = 1, .repetition_penalty = 1, .seed = 7};
}

#endif
