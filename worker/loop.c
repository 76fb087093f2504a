#include "worker/loop.h"

#include "common/clock.h"
#include "common/log.h"
#include "proto/penstock.pb-c.h"
#include "proto/wire.h"
#include "worker/report.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { COMMANDS_A_TURN = 256 };

struct loop_metrics {
    struct metric *steps, *tokens, *prompt_tokens, *cached_tokens, *preemptions, *running, *waiting,
        *blocks_used, *blocks_free, *step_s, *prefill_rate, *failed_steps;
    struct metric *step_seconds;
};

struct loop {
    struct loop_options options;
    uint64_t incarnation[MAILBOX_OWNERS_MAX]; /* 0: no session */
    struct report *report;
    struct loop_metrics metrics;
    struct engine_load last;
    uint64_t next_heartbeat_ns, drain_deadline_ns;
    bool stopped;
    _Atomic uint64_t last_turn_ns;
    _Atomic bool draining, done;
};

static void make_metrics(struct loop *l)
{
    static const double step_bounds[] = {.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5};
    struct metrics *m = l->options.metrics;
    struct loop_metrics *x = &l->metrics;
    x->steps = metrics_counter(m, "penstock_worker_steps_total", NULL, "Steps computed.");
    x->failed_steps = metrics_counter(m, "penstock_worker_failed_steps_total", NULL,
                                      "Steps that the device failed.");
    x->tokens =
        metrics_counter(m, "penstock_worker_output_tokens_total", NULL, "Tokens generated.");
    x->prompt_tokens = metrics_counter(m, "penstock_worker_prompt_tokens_total", NULL,
                                       "Prompt tokens of admitted requests.");
    x->cached_tokens = metrics_counter(m, "penstock_worker_cached_prompt_tokens_total", NULL,
                                       "Prompt tokens that came from the prefix cache.");
    x->preemptions = metrics_counter(m, "penstock_worker_preemptions_total", NULL,
                                     "Sequences put back for lack of KV blocks.");
    x->running = metrics_gauge(m, "penstock_worker_running_sequences", NULL,
                               "Sequences that are being computed.");
    x->waiting = metrics_gauge(m, "penstock_worker_waiting_requests", NULL,
                               "Requests taken and not yet admitted.");
    x->blocks_used =
        metrics_gauge(m, "penstock_worker_kv_blocks_used", NULL, "KV blocks held by sequences.");
    x->blocks_free = metrics_gauge(m, "penstock_worker_kv_blocks_free", NULL,
                                   "KV blocks free, cached content included.");
    x->step_s = metrics_gauge(m, "penstock_worker_decode_step_seconds", NULL,
                              "Time of a decode step, smoothed.");
    x->prefill_rate = metrics_gauge(m, "penstock_worker_prefill_tokens_per_second", NULL,
                                    "Prefill speed, smoothed.");
    x->step_seconds = metrics_histogram(m, "penstock_worker_step_seconds", NULL, "Time of a step.",
                                        step_bounds, ARRAY_LEN(step_bounds));
}

static void update_metrics(struct loop *l)
{
    struct engine_load now;
    engine_load_get(l->options.engine, &now);
    const struct engine_load *old = &l->last;
    struct loop_metrics *x = &l->metrics;
    metric_add(x->steps, (double)(now.steps - old->steps));
    metric_add(x->tokens, (double)(now.tokens_out - old->tokens_out));
    metric_add(x->prompt_tokens, (double)(now.prompt_tokens - old->prompt_tokens));
    metric_add(x->cached_tokens, (double)(now.cached_tokens - old->cached_tokens));
    metric_add(x->preemptions, (double)(now.preemptions - old->preemptions));
    metric_set(x->running, now.running);
    metric_set(x->waiting, now.waiting);
    metric_set(x->blocks_used, now.kv_blocks_used);
    metric_set(x->blocks_free, now.kv_blocks_free);
    metric_set(x->step_s, (double)now.decode_step_s);
    metric_set(x->prefill_rate, (double)now.prefill_tokens_per_s);
    l->last = now;
}

struct loop *loop_create(const struct loop_options *options)
{
    struct loop *l = calloc(1, sizeof *l);
    if (l == NULL) return NULL;
    l->options = *options;
    l->report = report_create(options->engine, options->mailbox, options->epoch, l->incarnation);
    if (l->report == NULL) {
        free(l);
        return NULL;
    }
    make_metrics(l);
    atomic_store(&l->last_turn_ns, clock_now_ns());
    return l;
}

void loop_destroy(struct loop *l)
{
    if (l == NULL) return;
    report_destroy(l->report);
    free(l);
}

static void submit(struct loop *l, const struct command *c, uint64_t now_ns)
{
    const struct engine_request *request = &c->request->request;
    struct errmsg why = {""};
    enum err err;
    if (c->incarnation != l->incarnation[c->owner]) {
        free(c->request); /* of a gateway that is gone: nobody waits for an answer */
        return;
    }
    if (atomic_load(&l->draining)) {
        report_reject(l->report, c->owner, request, PENSTOCK__REJECT_REASON__REJECT_DRAINING,
                      "the worker is draining");
        free(c->request);
        return;
    }
    err = engine_submit(l->options.engine, request, now_ns, &why);
    if (err == OK || err == ERR_EXISTS) {
        report_accept(l->report, c->owner, request->id, request->attempt);
    } else {
        Penstock__RejectReason reason = err == ERR_FULL ? PENSTOCK__REJECT_REASON__REJECT_FULL
                                        : err == ERR_LIMIT
                                            ? PENSTOCK__REJECT_REASON__REJECT_TOO_LONG
                                            : PENSTOCK__REJECT_REASON__REJECT_BAD_REQUEST;
        if (err == ERR_NOMEM) reason = PENSTOCK__REJECT_REASON__REJECT_FULL;
        report_reject(l->report, c->owner, request, reason, why.text);
    }
    free(c->request);
}

static void start_drain(struct loop *l, uint64_t now_ns)
{
    if (atomic_exchange(&l->draining, true)) return;
    l->drain_deadline_ns = now_ns + l->options.drain_timeout_ms * NS_PER_MS;
    log_info("ev=worker.drain running=%u waiting=%u timeout_ms=%u", l->last.running,
             l->last.waiting, l->options.drain_timeout_ms);
    for (uint32_t owner = 0; owner < MAILBOX_OWNERS_MAX; owner++)
        if (l->incarnation[owner] != 0) report_drain(l->report, owner);
}

static void handle(struct loop *l, const struct command *c, uint64_t now_ns)
{
    switch (c->kind) {
    case COMMAND_SUBMIT: submit(l, c, now_ns); break;
    case COMMAND_CANCEL:
        if (c->incarnation == l->incarnation[c->owner])
            (void)engine_cancel(l->options.engine, c->owner, c->id, c->attempt);
        break;
    case COMMAND_SESSION:
    case COMMAND_SESSION_LOST:
        engine_cancel_owner(l->options.engine, c->owner);
        l->incarnation[c->owner] = c->kind == COMMAND_SESSION ? c->incarnation : 0;
        if (c->kind == COMMAND_SESSION)
            report_heartbeat(l->report, c->owner, atomic_load(&l->draining));
        break;
    case COMMAND_DRAIN: start_drain(l, now_ns); break;
    case COMMAND_STOP: l->stopped = true; break;
    }
}

static void take_commands(struct loop *l)
{
    struct command c;
    uint64_t now_ns = clock_now_ns();
    for (uint32_t n = 0; n < COMMANDS_A_TURN && mailbox_take_command(l->options.mailbox, &c); n++)
        handle(l, &c, now_ns);
    report_flush_accepts(l->report);
}

static void step(struct loop *l)
{
    const struct engine_result *results;
    uint32_t count = 0;
    uint64_t start = clock_now_ns();
    enum err err = engine_step(l->options.engine, start, clock_now_ns, &results, &count);
    if (err != OK) {
        metric_add(l->metrics.failed_steps, 1);
        log_error("ev=engine.step_failed err=%s", err_name(err));
        return;
    }
    metric_observe(l->metrics.step_seconds, (double)(clock_now_ns() - start) / 1e9);
    report_results(l->report, results, count);
    update_metrics(l);
}

static void beat(struct loop *l, uint64_t now_ns)
{
    if (now_ns < l->next_heartbeat_ns) return;
    l->next_heartbeat_ns = now_ns + LOOP_HEARTBEAT_MS * NS_PER_MS;
    update_metrics(l); /* what ends without a step shows too */
    for (uint32_t owner = 0; owner < MAILBOX_OWNERS_MAX; owner++)
        if (l->incarnation[owner] != 0)
            report_heartbeat(l->report, owner, atomic_load(&l->draining));
}

/* Draining: over when nothing runs; what outlives the grace is cancelled and its gateways take it
 * elsewhere. */
static bool drained(struct loop *l, uint64_t now_ns)
{
    if (!atomic_load(&l->draining)) return false;
    if (!engine_has_work(l->options.engine)) return true;
    if (now_ns < l->drain_deadline_ns) return false;
    log_warn("ev=worker.drain_timeout running=%u waiting=%u", l->last.running, l->last.waiting);
    return true;
}

void loop_run(struct loop *l)
{
    while (!l->stopped) {
        take_commands(l);
        bool work = engine_has_work(l->options.engine);
        if (work) step(l);
        uint64_t now_ns = clock_now_ns();
        atomic_store_explicit(&l->last_turn_ns, now_ns, memory_order_relaxed);
        beat(l, now_ns);
        report_wake(l->report);
        if (drained(l, now_ns)) break;
        if (!work) {
            int wait_ms = (int)((l->next_heartbeat_ns - now_ns) / NS_PER_MS) + 1;
            mailbox_wait_command(l->options.mailbox, wait_ms);
        }
    }
    report_wake(l->report);
    atomic_store(&l->done, true);
}

uint64_t loop_last_turn_ns(const struct loop *l)
{
    return atomic_load_explicit(&l->last_turn_ns, memory_order_relaxed);
}

bool loop_draining(const struct loop *l)
{
    return atomic_load(&l->draining);
}

bool loop_done(const struct loop *l)
{
    return atomic_load(&l->done);
}
