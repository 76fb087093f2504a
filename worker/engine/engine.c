#include "worker/engine/engine.h"

#include "common/no_alloc.h"
#include "kernels/pool.h"
#include "worker/engine/scheduler.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample_job { /* one row that wants a token */
    struct sequence *x;
    float *logits;
    uint32_t token;
    bool good;
    struct engine_logprobs logprobs;
};

struct engine {
    struct engine_options options;
    struct engine_executor executor;
    uint32_t *eog_ids;
    struct kv_pool *pool;
    struct scheduler scheduler;
    struct step step;
    struct step_limits limits;
    struct sequence *ended; /* reported in the next step's results, then freed */
    struct sequence
        *graveyard; /* reported; freed when the next call begins, since results borrow from them */
    struct sample_job *jobs; /* [sequences_max] */
    uint32_t job_count;
    _Atomic uint32_t next_job;
    uint32_t *candidates;          /* [threads, SAMPLER_CANDIDATES_MAX] */
    float *raw;                    /* [threads, vocab] */
    struct engine_result *results; /* [result_cap] */
    uint32_t result_count, result_cap;
    uint64_t tokens_out, prompt_tokens, cached_tokens;
    uint32_t last_rows, last_sequences;
};

/* ---- creation ---- */

static enum err check_options(const struct engine_options *o, struct errmsg *why)
{
    const struct {
        const char *name;
        uint64_t value, min, max;
    } rows[] = {
        {"sequences_max", o->sequences_max, 1, 65536},
        {"waiting_max", o->waiting_max, 1, 65536},
        {"context_max", o->context_max, 1, 1u << 24},
        {"kv_blocks", o->kv_blocks, 1, 1u << 28},
        {"step_tokens_max", o->step_tokens_max, o->sequences_max, STEP_ROWS_MAX},
        {"chunk_tokens", o->chunk_tokens, 0, o->step_tokens_max},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].value < rows[i].min || rows[i].value > rows[i].max)
            return errmsg_set(why, ERR_INVALID, "%s is %llu; expected %llu to %llu", rows[i].name,
                              (unsigned long long)rows[i].value, (unsigned long long)rows[i].min,
                              (unsigned long long)rows[i].max);
    if (!(o->watermark >= 0 && o->watermark <= 0.5f))
        return errmsg_set(why, ERR_INVALID, "watermark must lie between 0 and 0.5");
    return OK;
}

static bool alloc_all(struct engine *e)
{
    const struct engine_options *o = &e->options;
    uint32_t threads = o->pool != NULL ? pool_threads(o->pool) : 1;
    e->result_cap = 2 * o->sequences_max + o->waiting_max + ENGINE_CHOICES_MAX;
    e->eog_ids = calloc(o->eog_count + 1u, sizeof *e->eog_ids);
    e->pool = kv_pool_create(o->kv_blocks);
    e->scheduler.running = calloc(o->sequences_max, sizeof(struct sequence *));
    e->scheduler.planned = calloc(o->sequences_max, sizeof(struct sequence *));
    e->jobs = calloc(o->sequences_max, sizeof *e->jobs);
    e->candidates = calloc((size_t)threads * SAMPLER_CANDIDATES_MAX, sizeof *e->candidates);
    e->raw = calloc((size_t)threads * e->executor.vocab_count, sizeof *e->raw);
    e->results = calloc(e->result_cap, sizeof *e->results);
    return e->eog_ids && e->pool && e->scheduler.running && e->scheduler.planned && e->jobs &&
           e->candidates && e->raw && e->results;
}

enum err engine_create(const struct engine_options *options, const struct engine_executor *executor,
                       struct engine **out, struct errmsg *why)
{
    enum err err = check_options(options, why);
    if (err != OK) return err;
    struct engine *e = calloc(1, sizeof *e);
    if (e == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for the engine");
    e->options = *options;
    e->executor = *executor;
    e->limits = (struct step_limits){options->step_tokens_max, options->sequences_max,
                                     options->context_max, options->sequences_max};
    if (!alloc_all(e) || step_init(&e->step, &e->limits) != OK) {
        engine_destroy(e);
        return errmsg_set(why, ERR_NOMEM,
                          "no memory for an engine of %u sequences and %u KV blocks",
                          options->sequences_max, options->kv_blocks);
    }
    if (options->eog_count > 0)
        memcpy(e->eog_ids, options->eog_ids, options->eog_count * sizeof *e->eog_ids);
    e->options.eog_ids = e->eog_ids;
    e->scheduler.pool = e->pool;
    e->scheduler.options = &e->options;
    *out = e;
    return OK;
}

static void destroy_list(struct sequence **list)
{
    while (*list != NULL) {
        struct sequence *x = *list;
        *list = x->next;
        sequence_destroy(x);
    }
}

void engine_destroy(struct engine *e)
{
    if (e == NULL) return;
    for (uint32_t i = 0; i < e->scheduler.running_count; i++)
        sequence_destroy(e->scheduler.running[i]);
    destroy_list(&e->scheduler.waiting_head);
    destroy_list(&e->ended);
    destroy_list(&e->graveyard);
    if (e->step.tokens != NULL) step_deinit(&e->step);
    kv_pool_destroy(e->pool);
    free(e->scheduler.running);
    free(e->scheduler.planned);
    free(e->eog_ids);
    free(e->jobs);
    free(e->candidates);
    free(e->raw);
    free(e->results);
    free(e);
}

/* ---- requests ---- */

static enum err check_request(const struct engine *e, const struct engine_request *r,
                              struct errmsg *why)
{
    const struct sampling_params *p = &r->params;
    if (r->prompt_count == 0) return errmsg_set(why, ERR_INVALID, "a prompt without tokens");
    if (p->max_tokens == 0) return errmsg_set(why, ERR_INVALID, "max_tokens is 0");
    if (r->choice_count < 1 || r->choice_count > ENGINE_CHOICES_MAX)
        return errmsg_set(why, ERR_INVALID, "%u choices; 1 to %d are possible", r->choice_count,
                          ENGINE_CHOICES_MAX);
    if (r->output_count > 0 && (r->choice_count != 1 || r->output_count >= p->max_tokens))
        return errmsg_set(why, ERR_INVALID,
                          "%u tokens of output to go on from, with %u choices and max_tokens %u",
                          r->output_count, r->choice_count, p->max_tokens);
    if (p->top_logprobs > ENGINE_LOGPROBS_MAX || p->stop_id_count > ENGINE_STOP_IDS_MAX ||
        p->bias_count > ENGINE_LOGIT_BIAS_MAX || r->salt_bytes > ENGINE_SALT_BYTES_MAX)
        return errmsg_set(why, ERR_INVALID,
                          "too many logprobs, stop ids, biases, or too long a salt");
    if (!(p->temperature >= 0) || !(p->top_p > 0 && p->top_p <= 1) ||
        !(p->min_p >= 0 && p->min_p <= 1) || !(p->repetition_penalty > 0))
        return errmsg_set(why, ERR_INVALID, "a sampling parameter is out of its range");
    uint64_t total = (uint64_t)r->prompt_count + p->max_tokens;
    if (total > e->options.context_max)
        return errmsg_set(why, ERR_LIMIT,
                          "%u prompt tokens and %u to generate do not fit the context of %u",
                          r->prompt_count, p->max_tokens, e->options.context_max);
    if ((total + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS > e->options.kv_blocks)
        return errmsg_set(
            why, ERR_LIMIT,
            "%u prompt tokens and %u to generate do not fit the KV cache of %u tokens",
            r->prompt_count, p->max_tokens, e->options.kv_blocks * KV_BLOCK_TOKENS);
    return OK;
}

/* Calls visit for every sequence that waits or runs; visit may end it. */
static void each_sequence(struct engine *e,
                          bool (*visit)(struct engine *e, struct sequence *x, const void *arg),
                          const void *arg)
{
    for (struct sequence *x = e->scheduler.waiting_head, *next; x != NULL; x = next) {
        next = x->next;
        (void)visit(e, x, arg);
    }
    for (uint32_t i = 0; i < e->scheduler.running_count;)
        if (!visit(e, e->scheduler.running[i], arg))
            i++; /* an ended one leaves its place to the next */
}

struct ref {
    uint32_t owner;
    uint64_t id;
    uint32_t attempt;
    uint32_t found;
    bool older; /* match attempts below this one */
};

/* Frees what it holds, at once; its terminal result comes with the next step. */
static void end_sequence(struct engine *e, struct sequence *x, enum engine_finish finish,
                         const char *error)
{
    if (x->state == SEQUENCE_RUNNING)
        scheduler_stop_running(&e->scheduler, x);
    else
        scheduler_unwait(&e->scheduler, x);
    x->state = SEQUENCE_ENDED;
    x->finish = finish;
    x->error = error;
    x->prev = NULL;
    x->next = e->ended;
    e->ended = x;
}

static bool cancel_match(struct engine *e, struct sequence *x, const void *arg)
{
    struct ref *r = (struct ref *)(uintptr_t)arg;
    bool match = x->owner == r->owner && x->id == r->id &&
                 (r->older ? x->attempt < r->attempt : x->attempt == r->attempt);
    if (!match) return false;
    r->found++;
    end_sequence(e, x, ENGINE_CANCELLED, NULL);
    return true;
}

static bool count_match(struct engine *e, struct sequence *x, const void *arg)
{
    struct ref *r = (struct ref *)(uintptr_t)arg;
    (void)e;
    if (x->owner == r->owner && x->id == r->id && x->attempt == r->attempt) r->found++;
    return false;
}

static struct hash128 root_of(const struct engine *e, const struct engine_request *r)
{
    return hash_block_root(
        span_of(&e->options.block_root_model, sizeof e->options.block_root_model),
        span_str(e->options.kv_layout), span_of(r->salt, r->salt_bytes));
}

enum err engine_submit(struct engine *e, const struct engine_request *request, uint64_t now_ns,
                       struct errmsg *why)
{
    destroy_list(&e->graveyard);
    enum err err = check_request(e, request, why);
    if (err != OK) return err;
    struct ref same = {request->owner, request->id, request->attempt, 0, false};
    each_sequence(e, count_match, &same);
    if (same.found > 0) return errmsg_set(why, ERR_EXISTS, "the request is here already");
    struct ref older = {request->owner, request->id, request->attempt, 0, true};
    each_sequence(e, cancel_match, &older);
    uint32_t taken = e->scheduler.running_count + e->scheduler.waiting_count;
    if (taken + request->choice_count > e->options.sequences_max + e->options.waiting_max)
        return errmsg_set(why, ERR_FULL, "%u sequences are running or waiting; %u are taken", taken,
                          e->options.sequences_max + e->options.waiting_max);
    struct sequence *made[ENGINE_CHOICES_MAX];
    struct hash128 root = root_of(e, request);
    for (uint32_t i = 0; i < request->choice_count; i++) {
        made[i] = sequence_create(request, i, root, now_ns);
        if (made[i] != NULL) continue;
        while (i > 0)
            sequence_destroy(made[--i]);
        return errmsg_set(why, ERR_NOMEM, "no memory for a request of %u tokens",
                          request->prompt_count);
    }
    for (uint32_t i = 0; i < request->choice_count; i++)
        scheduler_wait_back(&e->scheduler, made[i]);
    return OK;
}

enum err engine_cancel(struct engine *e, uint32_t owner, uint64_t id, uint32_t attempt)
{
    destroy_list(&e->graveyard);
    struct ref r = {owner, id, attempt, 0, false};
    each_sequence(e, cancel_match, &r);
    return r.found > 0 ? OK : ERR_NOT_FOUND;
}

static bool cancel_of_owner(struct engine *e, struct sequence *x, const void *arg)
{
    if (x->owner != *(const uint32_t *)arg) return false;
    end_sequence(e, x, ENGINE_CANCELLED, NULL);
    return true;
}

void engine_cancel_owner(struct engine *e, uint32_t owner)
{
    destroy_list(&e->graveyard);
    each_sequence(e, cancel_of_owner, &owner);
    for (struct sequence **at = &e->ended; *at != NULL;) { /* nobody is there to be told */
        struct sequence *x = *at;
        if (x->owner != owner) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        sequence_destroy(x);
    }
}

bool engine_has_work(const struct engine *e)
{
    return e->scheduler.running_count > 0 || e->scheduler.waiting_head != NULL || e->ended != NULL;
}

/* ---- results ---- */

static struct engine_result *add_result(struct engine *e, struct sequence *x)
{
    CHECK(e->result_count < e->result_cap);
    struct engine_result *r = &e->results[e->result_count++];
    *r = (struct engine_result){.owner = x->owner,
                                .id = x->id,
                                .attempt = x->attempt,
                                .choice = x->choice,
                                .stop_id = UINT32_MAX};
    r->first_index = sequence_output_count(x);
    r->finish = x->state == SEQUENCE_ENDED ? x->finish : ENGINE_RUNNING;
    r->error = x->error;
    r->stop_id = x->stop_id;
    return r;
}

static void set_first(struct engine *e, struct sequence *x, struct engine_result *r,
                      uint64_t now_ns)
{
    if (x->reported) return;
    x->reported = true;
    r->first = true;
    r->cached_tokens = x->cached_tokens;
    r->prompt_ns = x->admitted_once && now_ns > x->admitted_ns ? now_ns - x->admitted_ns : 0;
    e->prompt_tokens += x->prompt_count;
    e->cached_tokens += x->cached_tokens;
}

/* Those that ended before this step (cancelled, out of time), and those that end in it. Ended in
 * this step: with_token. */
static void report_ended(struct engine *e)
{
    while (e->ended != NULL && e->result_count + e->options.sequences_max < e->result_cap) { /* the step needs room too */
        struct sequence *x = e->ended;
        e->ended = x->next;
        (void)add_result(e, x);
        x->next = e->graveyard;
        e->graveyard = x;
    }
}

static bool end_overdue(struct engine *e, struct sequence *x, const void *arg)
{
    uint64_t now_ns = *(const uint64_t *)arg;
    if (x->deadline_ns == 0 || now_ns < x->deadline_ns) return false;
    end_sequence(e, x, ENGINE_CANCELLED, "deadline");
    return true;
}

/* ---- sampling ---- */

static void sample_share(void *arg, uint32_t ith, uint32_t nth)
{
    struct engine *e = arg;
    (void)nth;
    for (;;) {
        uint32_t i = atomic_fetch_add_explicit(&e->next_job, 1, memory_order_relaxed);
        if (i >= e->job_count) return;
        struct sample_job *job = &e->jobs[i];
        struct sequence *x = job->x;
        struct sampler_row row = {.logits = job->logits,
                                  .vocab = e->executor.vocab_count,
                                  .params = &x->params,
                                  .counts = &x->counts,
                                  .eog_ids = e->options.eog_ids,
                                  .eog_count = e->options.eog_count,
                                  .output_count = sequence_output_count(x),
                                  .choice = x->choice,
                                  .position = x->known,
                                  .candidates =
                                      e->candidates + (size_t)ith * SAMPLER_CANDIDATES_MAX,
                                  .raw = e->raw + (size_t)ith * e->executor.vocab_count};
        job->good = sampler_sample(&row, e->options.cpu_ops, &job->token, &job->logprobs);
    }
}

static void sample_all(struct engine *e)
{
    e->job_count = 0;
    for (uint32_t i = 0; i < e->scheduler.planned_count; i++) {
        struct sequence *x = e->scheduler.planned[i];
        if (!x->wants_logits) continue;
        struct sample_job *job = &e->jobs[e->job_count];
        job->x = x;
        job->logits = e->step.logits + (size_t)e->job_count * e->executor.vocab_count;
        e->job_count++;
    }
    atomic_store_explicit(&e->next_job, 0, memory_order_relaxed);
    if (e->job_count > 1 && e->options.pool != NULL)
        pool_run(e->options.pool, sample_share, e);
    else if (e->job_count > 0)
        sample_share(e, 0, 1);
}

/* ---- commit ---- */

static bool contains(const uint32_t *ids, uint32_t n, uint32_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

static bool ends_generation(const struct engine *e, const struct sequence *x, uint32_t token)
{
    const struct sampling_params *p = &x->params;
    if (!p->ignore_eos && contains(e->options.eog_ids, e->options.eog_count, token)) return true;
    return contains(p->stop_ids, p->stop_id_count, token);
}

/* Ends x within this step, with its own result (which end_sequence would leave to the next). */
static void finish_now(struct engine *e, struct sequence *x, enum engine_finish finish,
                       const char *error)
{
    end_sequence(e, x, finish, error);
    e->ended = x->next;
    x->next = e->graveyard;
    e->graveyard = x;
}

static void commit_token(struct engine *e, struct sample_job *job, uint64_t now_ns)
{
    struct sequence *x = job->x;
    if (!job->good) {
        finish_now(e, x, ENGINE_ERROR, "the model computed a value that is not a number");
        (void)add_result(e, x);
        return;
    }
    if (ends_generation(e, x, job->token)) {
        x->stop_id = job->token;
        finish_now(e, x, ENGINE_STOP, NULL);
        set_first(e, x, add_result(e, x), now_ns);
        return;
    }
    uint32_t index = sequence_output_count(x);
    sequence_append(x, job->token);
    e->tokens_out++;
    bool full = index + 1 >= x->params.max_tokens || x->known >= e->options.context_max;
    if (full) finish_now(e, x, ENGINE_LENGTH, NULL);
    struct engine_result *r = add_result(e, x);
    r->first_index = index;
    r->ids = &x->tokens[x->prompt_count + index];
    r->id_count = 1;
    r->logprobs = x->params.want_logprobs ? &job->logprobs : NULL;
    set_first(e, x, r, now_ns);
}

static void commit(struct engine *e, uint64_t now_ns)
{
    for (uint32_t i = 0; i < e->scheduler.planned_count; i++)
        e->scheduler.planned[i]->computed += e->scheduler.planned[i]->step_rows;
    /* rows that failed give their blocks back first: what they computed is published to nobody */
    for (uint32_t i = 0; i < e->job_count; i++)
        if (!e->jobs[i].good) commit_token(e, &e->jobs[i], now_ns);
    kv_pool_settle(e->pool, true);
    for (uint32_t i = 0; i < e->job_count; i++)
        if (e->jobs[i].good) commit_token(e, &e->jobs[i], now_ns);
}

static void fail_step(struct engine *e)
{
    kv_pool_settle(e->pool, false);
    for (uint32_t i = 0; i < e->scheduler.planned_count; i++) {
        struct sequence *x = e->scheduler.planned[i];
        finish_now(e, x, ENGINE_ERROR, "the device failed to compute the step");
        (void)add_result(e, x);
    }
}

static enum err step_guarded(struct engine *e, uint64_t now_ns, uint64_t (*clock)(void))
{
    each_sequence(e, end_overdue, &now_ns);
    report_ended(e);
    scheduler_plan(&e->scheduler, &e->step, now_ns);
    if (e->step.rows == 0 && e->step.copies == 0) return OK;
    e->last_rows = e->step.rows;
    e->last_sequences = e->step.sequences;
    enum err err = e->executor.forward(e->executor.arg, &e->step);
    scheduler_settle_copies(&e->scheduler);
    if (err != OK) {
        fail_step(e);
        return OK;
    }
    sample_all(e);
    uint64_t end_ns = clock();
    cost_model_learn(&e->scheduler.cost, e->scheduler.decode_rows, e->scheduler.prefill_rows,
                     end_ns > now_ns ? (double)(end_ns - now_ns) / 1e9 : 0);
    commit(e, end_ns);
    return OK;
}

enum err engine_step(struct engine *e, uint64_t now_ns, uint64_t (*clock)(void),
                     const struct engine_result **results, uint32_t *result_count)
{
    destroy_list(&e->graveyard);
    e->result_count = 0;
    no_alloc_begin("engine step");
    enum err err = step_guarded(e, now_ns, clock);
    no_alloc_end();
    *results = e->results;
    *result_count = e->result_count;
    return err;
}

/* ---- what one sees ---- */

void engine_load_get(const struct engine *e, struct engine_load *out)
{
    const struct scheduler *s = &e->scheduler;
    *out = (struct engine_load){.running = s->running_count, .waiting = s->waiting_count};
    out->kv_blocks_free = kv_pool_free_count(e->pool);
    out->kv_blocks_used = kv_pool_count(e->pool) - out->kv_blocks_free;
    out->kv_blocks_cached = kv_pool_cached_count(e->pool);
    for (uint32_t i = 0; i < s->running_count; i++) {
        uint32_t rest = s->running[i]->known - s->running[i]->computed;
        if (rest > 1) out->prefill_tokens_pending += rest;
    }
    for (const struct sequence *x = s->waiting_head; x != NULL; x = x->next)
        out->prefill_tokens_pending += x->known - x->computed;
    out->prefill_tokens_per_s =
        s->cost.prefill_token_s > 0 ? (float)(1 / s->cost.prefill_token_s) : 0;
    out->decode_step_s = (float)s->cost.decode_step_s;
    out->steps = s->steps;
    out->preemptions = s->preemptions;
    out->tokens_out = e->tokens_out;
    out->prompt_tokens = e->prompt_tokens;
    out->cached_tokens = e->cached_tokens;
    out->last_step_rows = e->last_rows;
    out->last_step_sequences = e->last_sequences;
}

static void check_sequence(const struct engine *e, const struct sequence *x, uint32_t *holders)
{
    CHECK(x->computed < x->known && x->known <= x->token_cap &&
          x->key_count == x->known / KV_BLOCK_TOKENS);
    CHECK(x->block_count <= blocks_for(x->token_cap));
    CHECK(x->computed <= x->block_count * KV_BLOCK_TOKENS);
    CHECK(x->copy_source.v == KV_BLOCK_NONE.v);
    CHECK(x->state == SEQUENCE_RUNNING || (x->block_count == 0 && x->computed == 0));
    for (uint32_t b = 0; b < x->block_count; b++) {
        CHECK(x->blocks[b].v < e->options.kv_blocks);
        holders[x->blocks[b].v]++;
    }
}

void engine_check(const struct engine *e)
{
    const struct scheduler *s = &e->scheduler;
    uint32_t *holders = calloc(e->options.kv_blocks, sizeof *holders), waiting = 0;
    CHECK(holders != NULL);
    CHECK(s->running_count <= e->options.sequences_max);
    for (uint32_t i = 0; i < s->running_count; i++) {
        CHECK(s->running[i]->state == SEQUENCE_RUNNING);
        check_sequence(e, s->running[i], holders);
    }
    for (const struct sequence *x = s->waiting_head; x != NULL; x = x->next, waiting++) {
        CHECK(x->state == SEQUENCE_WAITING && waiting < s->waiting_count);
        check_sequence(e, x, holders);
    }
    CHECK(waiting == s->waiting_count);
    kv_pool_check(e->pool, holders);
    free(holders);
}
