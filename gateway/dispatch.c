#include "gateway/dispatch.h"

#include "gateway/router.h"

enum { POISON_DEATHS = 2, RETRY_AFTER_MAX_S = 60, CLOSED_MS = 50 };
#define UNACCEPTED_NS UINT64_C(2000000000)

/* From the rate at which units ended lately: how long until there is room. */
static uint32_t retry_after_s(const struct dispatch *d)
{
    double rate = d->completions_per_s > 0.1 ? d->completions_per_s : 0.1;
    double s = d->queue.units / rate / 4; /* room comes before all of the queue is gone */
    return s < 1 ? 1 : s > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : (uint32_t)s;
}

enum err dispatch_enqueue(struct dispatch *d, struct request *r, uint64_t now_ns,
                          struct api_error *error)
{
    if (!queue_admits(&d->queue, &d->limits, r)) {
        (void)api_error_set(error, 429, "rate_limit_exceeded", NULL,
                            "The server is busy: %u requests wait already. Please try again later.",
                            d->queue.units);
        error->retry_after_s = retry_after_s(d);
        error->should_retry = 1;
        return ERR_FULL;
    }
    for (uint32_t p = 0; p < r->prompt_count; p++) {
        uint32_t choices[REQUEST_CHOICES_MAX];
        for (uint32_t i = 0; i < r->params.n; i++)
            choices[i] = p * r->params.n + i;
        struct unit *u = request_add_unit(r, p, choices, r->params.n);
        if (u == NULL) {
            dispatch_abandon(d, r);
            (void)api_error_set(error, 500, NULL, NULL, "Out of memory.");
            return ERR_FULL;
        }
        u->queued_ns = now_ns;
        queue_push_back(&d->queue, u);
    }
    return OK;
}

/* ---- the batcher ---- */

/* Gives what waits in one line, in order. A unit that finds no room now holds back those behind it;
 * one that no worker here could ever take (the roomy one died) holds back nobody. */
static void run_line(struct dispatch *d, struct queue_line *line, uint64_t now_ns, uint64_t random)
{
    for (struct unit *u = line->head, *next; u != NULL; u = next) {
        next = u->next;
        struct route route = router_pick(&d->fleet, u, now_ns, random++);
        if (route.worker == NULL && route.possible) return;
        if (route.worker == NULL) continue;
        queue_take(&d->queue, u);
        fleet_charge(&d->fleet, route.worker, u, route.cached_tokens);
        router_remember(route.worker, &u->request->prompts[u->prompt]);
        u->accepted = u->started = false;
        u->sent_ns = now_ns;
        if (u->first_sent_ns == 0) u->first_sent_ns = now_ns;
        d->counts.dispatched++;
        d->actions.send(d->actions.arg, route.worker, u);
    }
}

void dispatch_run(struct dispatch *d, uint64_t now_ns, uint64_t random)
{
    for (uint32_t i = 0; i < d->queue.line_count; i++)
        run_line(d, &d->queue.lines[i], now_ns, random + i);
}

/* ---- what becomes of a unit ---- */

/* NULL and not counted: what was cancelled or cut, whose last frames were on the way. */
static struct unit *find_unit(struct dispatch *d, const struct worker *w, uint64_t id,
                              uint32_t attempt)
{
    struct unit *u = fleet_find_unit(&d->fleet, id);
    if (u == NULL || (u->worker == w && u->attempt == attempt)) return u;
    d->counts.stale++;
    return NULL;
}

static void fail_request(struct dispatch *d, struct request *r, const struct api_error *e)
{
    dispatch_abandon(d, r);
    d->actions.failed(d->actions.arg, r, e);
}

/* Back to the queue's head. Choices that have tokens go on from them, each as a unit of its own. */
static void requeue(struct dispatch *d, struct unit *u, uint64_t now_ns)
{
    struct request *r = u->request;
    uint32_t open[REQUEST_CHOICES_MAX], count = 0;
    bool any_tokens = false;
    for (uint32_t i = 0; i < u->choice_count; i++) {
        const struct choice *c = &r->choices[u->choices[i]];
        if (c->finish != FINISH_RUNNING) continue;
        open[count++] = u->choices[i];
        any_tokens = any_tokens || c->id_count > 0;
    }
    d->counts.retries++;
    for (uint32_t i = count; any_tokens && i-- > 1;) {
        struct unit *more = request_add_unit(r, u->prompt, &open[i], 1);
        if (more == NULL) {
            struct api_error e;
            (void)api_error_set(&e, 500, NULL, NULL, "Out of memory.");
            fail_request(d, r, &e);
            return;
        }
        more->attempt = u->attempt + 1;
        more->deaths = u->deaths;
        more->queued_ns = now_ns;
        queue_push_front(&d->queue, more);
    }
    if (any_tokens && count > 1) count = 1;
    memcpy(u->choices, open, count * sizeof *open);
    u->choice_count = u->open_choices = count;
    u->attempt++;
    u->cut = false;
    u->queued_ns = now_ns;
    queue_push_front(&d->queue, u);
}

static void unit_over(struct dispatch *d, struct unit *u, uint64_t now_ns)
{
    if (u->cut) d->actions.cancel(d->actions.arg, u->worker, u->id, u->attempt);
    fleet_discharge(&d->fleet, u);
    double gap_s = (double)(now_ns - d->last_completion_ns) / 1e9;
    if (d->last_completion_ns != 0 && gap_s > 0) {
        double weight = gap_s < 1 ? gap_s : 1; /* about a second's memory */
        d->completions_per_s += weight * (1 / gap_s - d->completions_per_s);
    }
    d->last_completion_ns = now_ns;
}

void dispatch_on_accepted(struct dispatch *d, struct worker *w, uint64_t id, uint32_t attempt)
{
    struct unit *u = find_unit(d, w, id, attempt);
    if (u != NULL) u->accepted = true;
}

void dispatch_on_rejected(struct dispatch *d, struct worker *w, uint64_t id, uint32_t attempt,
                          bool too_long, bool bad, const char *message, uint64_t now_ns)
{
    struct unit *u = find_unit(d, w, id, attempt);
    if (u == NULL) return;
    struct request *r = u->request;
    fleet_discharge(&d->fleet, u);
    if (too_long || bad) {
        struct api_error e;
        if (too_long)
            (void)api_error_set(&e, 400, "context_length_exceeded",
                                r->endpoint == ENDPOINT_CHAT ? "messages" : "prompt",
                                "The request does not fit the model's memory: %.300s", message);
        else
            (void)api_error_set(&e, 500, NULL, NULL, "The worker refused the request: %.300s",
                                message);
        fail_request(d, r, &e);
        return;
    }
    w->closed_until_ns =
        now_ns + CLOSED_MS * UINT64_C(1000000); /* its own report says more, soon */
    requeue(d, u, now_ns);
}

static struct choice *choice_of(struct unit *u, uint32_t within)
{
    for (uint32_t i = 0; i < u->choice_count; i++)
        if (u->request->choices[u->choices[i]].within == within)
            return &u->request->choices[u->choices[i]];
    return NULL;
}

/* A frame was lost on the way: cancel, and go on elsewhere from the last token that came. */
static void on_gap(struct dispatch *d, struct worker *w, struct unit *u, uint64_t now_ns)
{
    d->counts.gaps++;
    d->actions.cancel(d->actions.arg, w, u->id, u->attempt);
    fleet_discharge(&d->fleet, u);
    requeue(d, u, now_ns);
}

static void choice_over(struct dispatch *d, struct unit *u, const struct choice *c, uint64_t now_ns)
{
    u->request->choices_open--;
    fleet_choice_over(&d->fleet, u, c);
    if (u->open_choices == 0) unit_over(d, u, now_ns);
}

static void on_failed_choice(struct dispatch *d, struct unit *u, const struct token_event *e,
                             uint64_t now_ns)
{
    struct request *r = u->request;
    if (e->cancelled &&
        e->error ==
            NULL) { /* we did not cancel it, or it would not be here: the worker gave it up */
        fleet_discharge(&d->fleet, u);
        requeue(d, u, now_ns);
        return;
    }
    struct api_error error;
    bool deadline = e->cancelled;
    (void)api_error_set(&error, deadline ? 408 : 500, deadline ? "timeout" : "generation_failed",
                        NULL, "%s",
                        deadline ? "The request did not finish before its deadline."
                                 : "The model could not compute this request.");
    if (deadline) error.should_retry = 0;
    fail_request(d, r, &error);
}

void dispatch_on_tokens(struct dispatch *d, struct worker *w, const struct token_event *e,
                        uint64_t now_ns)
{
    struct unit *u = find_unit(d, w, e->id, e->attempt);
    struct choice *c = u != NULL ? choice_of(u, e->choice) : NULL;
    if (c == NULL || c->finish != FINISH_RUNNING) return;
    struct request *r = u->request;
    u->accepted = true;
    if (!u->started) {
        fleet_started(u);
        if (r->first_token_ns == 0) r->first_token_ns = now_ns;
    }
    if (c->id_count == 0 && e->id_count > 0) c->cached_tokens = e->cached_tokens;
    for (uint32_t i = 0; i < e->id_count; i++) {
        enum stream_step step =
            stream_take(c, &r->params, e->first_index + i, load_le32(e->ids + 4 * (size_t)i),
                        e->logprobs != NULL ? &e->logprobs[i] : NULL);
        if (step == STREAM_GAP) {
            on_gap(d, w, u, now_ns);
            return;
        }
        if (step == STREAM_NO_MEMORY) {
            struct api_error error;
            (void)api_error_set(&error, 500, NULL, NULL, "The answer grew too large.");
            fail_request(d, r, &error);
            return;
        }
        if (step != STREAM_ENDED) continue;
        /* a stop string: the worker need not go on with this choice; it is told so once the unit's
         * other choices are over too */
        r->last_token_ns = now_ns;
        u->cut = u->cut || e->finish == FINISH_RUNNING;
        choice_over(d, u, c, now_ns);
        d->actions.changed(d->actions.arg, r);
        return;
    }
    r->last_token_ns = now_ns;
    if (e->finish == FINISH_FAILED) {
        on_failed_choice(d, u, e, now_ns);
        return;
    }
    if (e->finish != FINISH_RUNNING) {
        if (e->first_index + e->id_count >
            c->id_count) { /* the end came before the tokens that lead to it */
            on_gap(d, w, u, now_ns);
            return;
        }
        stream_finish(c, e->finish);
        choice_over(d, u, c, now_ns);
    }
    d->actions.changed(d->actions.arg, r);
}

void dispatch_drop_worker(struct dispatch *d, struct worker *w, bool died, uint64_t now_ns)
{
    if (died) d->counts.deaths++;
    while (w->units != NULL) {
        struct unit *u = w->units;
        fleet_discharge(&d->fleet, u);
        u->deaths += died;
        if (u->deaths < POISON_DEATHS) {
            requeue(d, u, now_ns);
            continue;
        }
        struct api_error e;
        d->counts.quarantined++;
        (void)api_error_set(
            &e, 500, "request_quarantined", NULL,
            "Workers failed twice while they computed this request; it was given up.");
        e.should_retry = 0;
        fail_request(d, u->request, &e);
    }
    fleet_remove(&d->fleet, w);
}

void dispatch_abandon(struct dispatch *d, struct request *r)
{
    for (uint32_t i = 0; i < r->unit_count; i++) {
        struct unit *u = r->unit_list[i];
        if (u->queued) queue_take(&d->queue, u);
        if (u->worker == NULL) continue;
        d->actions.cancel(d->actions.arg, u->worker, u->id, u->attempt);
        fleet_discharge(&d->fleet, u);
    }
}

void dispatch_tick(struct dispatch *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i < d->fleet.count; i++) {
        struct worker *w = &d->fleet.workers[i];
        if (w->state == WORKER_NONE) continue;
        if (worker_dead(w, now_ns)) {
            dispatch_drop_worker(d, w, true, now_ns);
            continue;
        }
        for (struct unit *u = w->units; u != NULL; u = u->next) {
            if (u->accepted || now_ns - u->sent_ns < UNACCEPTED_NS) continue;
            u->sent_ns = now_ns; /* the same id and attempt: a worker that has it says so again */
            d->actions.send(d->actions.arg, w, u);
        }
    }
}

uint32_t dispatch_good_workers(const struct dispatch *d, const struct served_model *m,
                               uint64_t now_ns)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->fleet.count; i++)
        n += worker_good(&d->fleet.workers[i], now_ns) &&
             (m == NULL || d->fleet.workers[i].model == m);
    return n;
}

void dispatch_check(const struct dispatch *d)
{
    queue_check(&d->queue);
    fleet_check(&d->fleet);
}
