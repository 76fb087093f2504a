/* sampler.h - one row of logits to one token. A pure function of (logits, parameters, token
 * history, seed, choice, position): no state between tokens but the counts of what was generated.
 * Order: logit_bias and the min_tokens mask, penalties, temperature, top_k, top_p, min_p, draw by
 * the Gumbel trick (argmax of logit / T + noise(key, token)): a draft that draws with the same
 * noise lands on the same token as often as can be.
 * Sources: Gumbel-max (Maddison et al. 2014); Philox (Salmon et al. 2011) in kernels/cpu/cpu_ops.h.
 * Any thread, disjoint rows. */
#ifndef PENSTOCK_WORKER_ENGINE_SAMPLER_H
#define PENSTOCK_WORKER_ENGINE_SAMPLER_H

#include "kernels/cpu/cpu_ops.h"
#include "worker/engine/engine.h"

/* Tokens seen in prompt and output, with their counts: open addressing, sized once for the most
 * that can be seen. */
struct token_counts {
    struct token_count *slots; /* NULL: no penalty needs them */
    uint32_t mask;
};
struct token_count {
    uint32_t id_plus_1; /* 0: empty */
    uint32_t output;    /* times in the output */
};
enum err token_counts_init(struct token_counts *c, uint32_t distinct_max) MUST_CHECK;
void token_counts_deinit(struct token_counts *c);
void token_counts_add(struct token_counts *c, uint32_t id, bool output);

struct sampler_row {
    float *logits; /* [vocab], changed in place */
    uint32_t vocab;
    const struct sampling_params *params;
    const struct token_counts *counts;
    const uint32_t *eog_ids;
    uint32_t eog_count;
    uint32_t output_count; /* tokens generated so far: index of the one to come */
    uint32_t choice;
    uint32_t position;    /* absolute, of the token to come */
    uint32_t *candidates; /* scratch, [SAMPLER_CANDIDATES_MAX] */
    float *raw; /* scratch, [vocab]: the logits as they came, where logprobs and changes meet */
};
enum { SAMPLER_CANDIDATES_MAX = 1 << 16 };

/* False: the row holds a NaN or an infinity, and must fail. logprobs: filled when params ask for
 * them, else untouched. */
bool sampler_sample(const struct sampler_row *row, const struct cpu_ops *ops, uint32_t *token,
                    struct engine_logprobs *logprobs);
/* The key of the noise: a mix of (seed, choice, position) by the finalizer of SplitMix64. */
uint64_t sampler_key(uint64_t seed, uint32_t choice, uint32_t position);
/* Whether these parameters need token_counts. */
bool sampler_needs_counts(const struct sampling_params *params);

#endif
