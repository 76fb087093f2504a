/* engine.h - the engine of one worker: requests in, tokens out, one step at a time.
 * Owns the scheduler (scheduler.h), the KV pool and prefix cache (kv_pool.h, prefix_cache.h),
 * sequences and the sampler (sampler.h); runs steps on an executor, which is the transformer in
 * production and a fake in tests. A core: time is an argument, no fd, thread or random source
 * inside. Engine thread only. Bounds: engine_options; nothing is allocated after creation except by
 * submit (a request's own tokens), and nothing at all in a step (guard: no_alloc.h). */
#ifndef PENSTOCK_WORKER_ENGINE_ENGINE_H
#define PENSTOCK_WORKER_ENGINE_ENGINE_H

#include "common/err.h"
#include "common/hash.h"
#include "worker/engine/step.h"

struct engine;
struct cpu_ops;
struct pool;

enum {
    ENGINE_STOP_IDS_MAX = 64,
    ENGINE_LOGIT_BIAS_MAX = 1024,
    ENGINE_LOGPROBS_MAX = 20,
    ENGINE_CHOICES_MAX = 16,
    ENGINE_SALT_BYTES_MAX = 32
};

/* DESIGN 5: a token is a pure function of (model, prompt, these, seed, choice, position). Order of
 * application: logit_bias and min_tokens mask, penalties (repetition over prompt and output;
 * presence and frequency over output), temperature, top_k, top_p, min_p (both on the softmax after
 * temperature; kept set renormalized), draw. */
struct sampling_params {
    uint32_t max_tokens, min_tokens;
    float temperature;        /* 0: greedy */
    float top_p;              /* (0, 1] */
    uint32_t top_k;           /* 0: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 1: off */
    float presence_penalty, frequency_penalty;
    uint64_t seed;
    bool ignore_eos;
    bool want_logprobs;
    uint32_t
        top_logprobs; /* <= ENGINE_LOGPROBS_MAX; natural log of the softmax of the raw logits */
    const uint32_t *stop_ids;
    uint32_t stop_id_count; /* copied by submit */
    const uint32_t *bias_ids;
    const float *bias;
    uint32_t bias_count; /* copied by submit */
};

struct engine_request {
    uint32_t owner; /* which gateway: chosen by the link, given back in results */
    uint64_t id;
    uint32_t attempt;
    const uint32_t *prompt;
    uint32_t prompt_count; /* copied by submit; > 0 */
    const uint32_t *output;
    uint32_t output_count; /* already generated elsewhere (one choice): continue behind them */
    struct sampling_params params;
    uint8_t salt[ENGINE_SALT_BYTES_MAX];
    uint32_t salt_bytes;
    uint32_t choice_count;          /* 1..ENGINE_CHOICES_MAX */
    const uint32_t *choice_indexes; /* [choice_count] or NULL: 0..n-1; part of the random key */
    uint64_t deadline_ns;           /* 0: none */
};

enum engine_finish { ENGINE_RUNNING, ENGINE_STOP, ENGINE_LENGTH, ENGINE_CANCELLED, ENGINE_ERROR };

struct engine_result { /* what one step did for one choice of one request; borrowed until the next
                          call into the engine */
    uint32_t owner;
    uint64_t id;
    uint32_t attempt, choice;
    uint32_t first_index; /* of ids[0] among the output tokens */
    const uint32_t *ids;
    uint32_t id_count;
    const struct engine_logprobs *logprobs; /* [id_count] or NULL */
    enum engine_finish finish;
    uint32_t
        stop_id; /* with ENGINE_STOP: the token that ended it, not among ids; UINT32_MAX: none */
    uint32_t cached_tokens; /* with the first result of a choice */
    uint64_t prompt_ns;     /* with the first result: admission to first token */
    bool first;             /* the first result of this choice */
    const char *error;      /* with ENGINE_ERROR */
};
struct engine_logprobs {
    float logprob;
    uint32_t top_count;
    uint32_t top_ids[ENGINE_LOGPROBS_MAX];
    float top_logprobs[ENGINE_LOGPROBS_MAX];
};

struct engine_executor { /* how a step is computed */
    void *arg;
    enum err (*forward)(void *arg, struct step *step); /* as transformer_forward */
    uint32_t vocab_count;
};

struct engine_options {
    uint32_t sequences_max; /* running at once (choices count each) */
    uint32_t waiting_max;   /* requests not yet admitted */
    uint32_t context_max;
    uint32_t kv_blocks;
    uint32_t step_tokens_max; /* rows a step at most, <= STEP_ROWS_MAX */
    uint32_t chunk_tokens;    /* prefill tokens a step; 0: chosen from measured step cost and
                                 tpot_target_ms */
    uint32_t tpot_target_ms;  /* while streams decode, a step with prefill should not take longer
                                 than this */
    float watermark;          /* share of blocks kept free when admitting, 0..0.5 */
    bool prefix_cache;
    uint32_t preempt_every_steps; /* tests: force a preemption each N steps; 0: never */
    struct hash128
        block_root_model;  /* model fingerprint; with the KV layout it roots the block keys */
    const char *kv_layout; /* "cpu-f16-v1" */
    const uint32_t *eog_ids;
    uint32_t eog_count;            /* the model's own end tokens, ascending; copied */
    const struct cpu_ops *cpu_ops; /* sampling kernels */
    struct pool *pool; /* rows of a step are sampled in parallel on it; NULL: on the caller */
};

/* ERR_INVALID names the option and its range. */
enum err engine_create(const struct engine_options *options, const struct engine_executor *executor,
                       struct engine **out, struct errmsg *why) MUST_CHECK;
void engine_destroy(struct engine *e);

/* ERR_FULL: waiting_max; ERR_LIMIT: can never fit (context or pool), the sentence holds both
 * numbers; ERR_INVALID: a parameter; ERR_EXISTS: (owner, id, attempt) is here already (fine for a
 * repeated Submit). An older attempt of the id is cancelled first. */
enum err engine_submit(struct engine *e, const struct engine_request *request, uint64_t now_ns,
                       struct errmsg *why) MUST_CHECK;
/* Legal in every state; frees at once. Its one terminal result (ENGINE_CANCELLED) comes with the
 * next step's results. ERR_NOT_FOUND: no such request (fine). */
enum err engine_cancel(struct engine *e, uint32_t owner, uint64_t id, uint32_t attempt);
/* All of an owner: its gateway is gone. No results are given for them. */
void engine_cancel_owner(struct engine *e, uint32_t owner);

bool engine_has_work(const struct engine *e); /* a step would compute or report something */
/* Schedules, computes, samples, emits. results borrowed until the next call. A failing executor
 * fails the step's sequences with ENGINE_ERROR and unpublishes their blocks; the engine lives on.
 * now_ns: the start of the step; clock: read after it, for the cost model (a function so that tests
 * decide). */
enum err engine_step(struct engine *e, uint64_t now_ns, uint64_t (*clock)(void),
                     const struct engine_result **results, uint32_t *result_count) MUST_CHECK;

struct engine_load {
    uint32_t running, waiting;                                 /* sequences, requests */
    uint32_t kv_blocks_used, kv_blocks_free, kv_blocks_cached; /* free ones include cached */
    uint64_t prefill_tokens_pending;
    float prefill_tokens_per_s, decode_step_s; /* measured, smoothed */
    uint64_t steps, preemptions, tokens_out, prompt_tokens, cached_tokens;
    uint32_t last_step_rows, last_step_sequences;
};
void engine_load_get(const struct engine *e, struct engine_load *out);
/* Every invariant of pool, cache, sequences and queues; CHECKs. For tests, and at idle in debug. */
void engine_check(const struct engine *e);

#endif
