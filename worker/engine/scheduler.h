/* scheduler.h - which tokens the next step computes. Each step gives each sequence n tokens so that
 * *computed* chases *known*: prefill, chunk, decode and resume are the same thing. Decodes go
 * first; prefill fills what the budget leaves. A core: state and functions, time as an argument,
 * nothing allocated after init. Internal to the engine. */
#ifndef PENSTOCK_WORKER_ENGINE_SCHEDULER_H
#define PENSTOCK_WORKER_ENGINE_SCHEDULER_H

#include "worker/engine/sequence.h"

enum {
    ADMIT_LOOK_MAX = 64,    /* waiting sequences looked at in a step */
    PASS_MAX = 32,          /* admissions that may pass a blocked head, then all wait for it */
    PARTIAL_TOKENS_MIN = 4, /* a shorter common run is not worth a block copy */
    CHUNK_TOKENS_MIN = 16,
    STEP_MS_MAX = 400, /* no step should take longer: heartbeats come from the engine loop */
};

struct cost_model { /* what steps cost here, smoothed from measurements; 0: not known yet */
    double decode_step_s;
    double prefill_token_s;
};

struct scheduler {
    struct kv_pool *pool;
    const struct engine_options *options;
    struct sequence **running; /* [sequences_max], in order of admission */
    uint32_t running_count;
    struct sequence *waiting_head, *waiting_tail;
    uint32_t waiting_count;
    uint64_t admissions, preemptions, steps;
    bool holds_admission; /* after a preemption, until a margin is free again */
    struct cost_model cost;
    /* the step under way */
    struct sequence **planned; /* [sequences_max] sequences with step_rows > 0, in row order */
    uint32_t planned_count;
    uint32_t decode_rows, prefill_rows;
};

void scheduler_wait_back(struct scheduler *s, struct sequence *x);
void scheduler_wait_front(struct scheduler *s, struct sequence *x);
void scheduler_unwait(struct scheduler *s, struct sequence *x);
void scheduler_stop_running(struct scheduler *s,
                            struct sequence *x); /* its blocks are released, tail first */

/* Fills `planned` and `step`: rows, block tables, copies, rows that want logits; publishes
 * (pending) the blocks that this step fills. */
void scheduler_plan(struct scheduler *s, struct step *step, uint64_t now_ns);
/* Releases what the copies held. After the executor ran, well or not. */
void scheduler_settle_copies(struct scheduler *s);
/* Learns from a step that took so long. */
void cost_model_learn(struct cost_model *c, uint32_t decode_rows, uint32_t prefill_rows,
                      double seconds);
/* Prefill tokens that a step with so many decode rows may take. */
uint32_t cost_model_budget(const struct cost_model *c, uint32_t decode_rows, uint32_t rows_max,
                           uint32_t tpot_target_ms);

#endif
