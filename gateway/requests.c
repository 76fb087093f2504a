/* requests.c - a request's life in a loop: prepared, queued, streamed or answered, ended once,
 * whatever happens. */
#include "gateway/loop.h"

#include "common/clock.h"
#include "common/log.h"
#include "gateway/api_params.h"
#include "gateway/api_prompt.h"
#include "gateway/reply.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PING_MS = 10000,            /* a comment keeps idle connections open */
    SYNC_BODY_BYTES = 64 << 10, /* larger ones are prepared on a thread */
    BEHIND_BYTES = 256 << 10,   /* a reader that far behind gets its deltas merged later */
};

static void link_request(struct loop *l, struct request *r)
{
    r->prev = NULL;
    r->next = l->requests;
    if (r->next != NULL) r->next->prev = r;
    l->requests = r;
    l->request_count++;
}

static void unlink_request(struct loop *l, struct request *r)
{
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        l->requests = r->next;
    if (r->next != NULL) r->next->prev = r->prev;
    l->request_count--;
}

/* ---- the end ---- */

/* When the first unit went to a worker; 0: none did. *attempts (may be NULL): the most of a unit.
 */
static uint64_t first_sent_ns(const struct request *r, uint32_t *attempts)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < r->unit_count; i++) {
        const struct unit *u = r->unit_list[i];
        if (attempts != NULL && u->attempt > *attempts) *attempts = u->attempt;
        if (u->first_sent_ns != 0 && (first == 0 || u->first_sent_ns < first))
            first = u->first_sent_ns;
    }
    return first;
}

static void count_end(struct loop *l, struct request *r, uint32_t status, uint64_t now_ns)
{
    struct loop_metrics *m = l->set.metrics;
    static const uint32_t known[CODES_COUNT] = {200, 400, 404, 405, 408, 413,
                                                415, 429, 499, 500, 503, 0};
    uint32_t c = 0;
    while (c < CODES_COUNT - 1 && known[c] != status)
        c++;
    metric_add(m->requests[r->endpoint][c], 1);
    metric_observe(m->request_s, (double)(now_ns - r->received_ns) / 1e9);
    uint64_t sent_ns = first_sent_ns(r, NULL);
    if (sent_ns > r->received_ns)
        metric_observe(m->queue_s, (double)(sent_ns - r->received_ns) / 1e9);
    metric_add(m->prompt_tokens, (double)r->prompt_tokens);
    metric_add(m->cached_tokens, (double)r->cached_tokens);
    metric_add(m->completion_tokens, (double)r->completion_tokens);
    if (status == 499) metric_add(m->disconnects, 1);
    if (r->first_token_ns == 0) return;
    metric_observe(m->ttft_s, (double)(r->first_token_ns - r->received_ns) / 1e9);
    uint64_t longest = 0;
    for (uint32_t i = 0; i < r->choice_count; i++)
        longest = r->choices[i].id_count > longest ? r->choices[i].id_count : longest;
    if (longest > 1)
        metric_observe(m->tpot_s, (double)(r->last_token_ns - r->first_token_ns) / 1e9 /
                                      (double)(longest - 1));
}

/* Times of what happened, by whichever path it ended; never text. */
static void log_end(const struct request *r, uint32_t status, uint64_t now_ns)
{
    uint32_t attempts = 0;
    uint64_t first_sent = first_sent_ns(r, &attempts);
    log_info("ev=request.done id=%s endpoint=%s model=%s status=%u stream=%d choices=%u "
             "attempts=%u prompt_tokens=%llu cached_tokens=%llu "
             "completion_tokens=%llu queue_us=%llu ttft_us=%llu total_us=%llu",
             r->request_id, r->endpoint == ENDPOINT_CHAT ? "chat" : "completions",
             r->model != NULL ? r->model->name : "-", status, r->params.stream, r->choice_count,
             attempts, (unsigned long long)r->prompt_tokens, (unsigned long long)r->cached_tokens,
             (unsigned long long)r->completion_tokens,
             (unsigned long long)(first_sent > r->received_ns ? (first_sent - r->received_ns) / 1000
                                                              : 0),
             (unsigned long long)(r->first_token_ns > r->received_ns
                                      ? (r->first_token_ns - r->received_ns) / 1000
                                      : 0),
             (unsigned long long)((now_ns - r->received_ns) / 1000));
}

/* The only place where a request's end is counted. */
static void end_request(struct loop *l, struct request *r, uint32_t status)
{
    uint64_t now_ns = clock_now_ns();
    reply_count_usage(r);
    count_end(l, r, status, now_ns);
    log_end(r, status, now_ns);
    unlink_request(l, r);
    if (r->model != NULL) r->model->holders--;
    request_destroy(r);
}

/* The exchange is over. What a thread works on may not be looked at: it ends when it comes back. */
static void on_done(void *arg, struct http_exchange *x, bool complete)
{
    struct loop *l = arg;
    struct request *r = http_user(x);
    if (r == NULL) return; /* an answer that needed no request */
    r->x = NULL;
    if (r->in_job) return;
    dispatch_abandon(&l->dispatch, r);
    loop__again(l); /* there may be room now */
    end_request(l, r, r->failed ? r->error.status : complete ? 200 : 499);
}

static void on_request(void *arg, struct http_exchange *x)
{
    loop__route(arg, x);
}

const struct http_handlers loop_http_handlers = {NULL, on_request, on_done};

/* ---- failing ---- */

static void add_headers(struct request *r)
{
    char ms[32];
    int n = snprintf(ms, sizeof ms, "%llu",
                     (unsigned long long)((clock_now_ns() - r->received_ns) / NS_PER_MS));
    http_reply_header(r->x, "openai-processing-ms", span_of(ms, (size_t)n));
}

void loop__failed(void *arg, struct request *r, const struct api_error *e)
{
    struct loop *l = arg;
    r->failed = true;
    r->error = *e;
    if (r->x == NULL) return;
    if (!http_stream_begun(r->x)) {
        add_headers(r);
        loop__reply_error(r->x, e);
        return;
    }
    buffer_reset(&l->scratch);
    for (uint32_t i = 0; i < r->choice_count; i++) /* what came before the fault is the client's */
        if (stream_ready(&r->choices[i]).len > 0) {
            reply_roles(r, &l->scratch);
            reply_delta(r, i, &l->scratch);
        }
    reply_error_event(e, &l->scratch);
    http_stream_write(r->x, buffer_view(&l->scratch));
    http_stream_end(r->x, false); /* no [DONE]: naive clients would take it for success */
}

static void fail(struct loop *l, struct request *r, uint32_t status, const char *code,
                 const char *text)
{
    struct api_error e;
    (void)api_error_set(&e, status, code, NULL, "%s", text);
    if (status == 503) e.retry_after_s = 1;
    if (status == 408) e.should_retry = 0; /* clients would, and it would take as long again */
    dispatch_abandon(&l->dispatch, r);
    loop__failed(l, r, &e);
}

/* ---- tokens to the client ---- */

static void begin_stream(struct request *r)
{
    add_headers(r);
    http_reply_header(r->x, "Cache-Control", SPAN_LIT("no-cache"));
    http_reply_header(r->x, "X-Accel-Buffering", SPAN_LIT("no"));
    http_stream_begin(r->x, 200, "text/event-stream; charset=utf-8");
    r->last_write_ns = clock_now_ns();
}

static void write_stream(struct loop *l, struct request *r)
{
    bool over = r->choices_open == 0;
    if (!http_stream_begun(r->x)) begin_stream(r);
    if (!over && http_stream_queued(r->x) > BEHIND_BYTES) return;
    buffer_reset(&l->scratch);
    reply_roles(r, &l->scratch);
    for (uint32_t i = 0; i < r->choice_count; i++)
        reply_delta(r, i, &l->scratch);
    if (over) reply_end(r, &l->scratch);
    if (l->scratch.len == 0) return;
    if (buffer_status(&l->scratch) != OK) {
        fail(l, r, 500, NULL, "The answer grew too large.");
        return;
    }
    http_stream_write(r->x, buffer_view(&l->scratch));
    r->last_write_ns = clock_now_ns();
    if (over) http_stream_end(r->x, false);
}

static void write_whole(struct loop *l, struct request *r)
{
    buffer_reset(&l->scratch);
    reply_whole(r, &l->scratch);
    if (buffer_status(&l->scratch) != OK) {
        fail(l, r, 500, NULL, "The answer grew too large.");
        return;
    }
    add_headers(r);
    http_reply(r->x, 200, "application/json", buffer_view(&l->scratch));
}

void loop__changed(void *arg, struct request *r)
{
    struct loop *l = arg;
    if (r->x == NULL || r->failed) return;
    if (r->params.stream)
        write_stream(l, r);
    else if (r->choices_open == 0)
        write_whole(l, r);
}

void loop__end_all(struct loop *l)
{
    for (struct request *r = l->requests, *next; r != NULL; r = next) {
        next = r->next;
        if (r->in_job) continue; /* a thread writes to it */
        if (r->x != NULL && !r->failed && (r->choice_count == 0 || r->choices_open > 0))
            fail(l, r, 503, "shutting_down", "The server is shutting down. Please try again.");
    }
}

void loop__request_tick(struct loop *l, uint64_t now_ns)
{
    for (struct request *r = l->requests, *next; r != NULL; r = next) {
        next = r->next;
        if (r->in_job) continue; /* a thread writes to it */
        if (r->x == NULL || r->failed || r->choices_open == 0) continue;
        if (r->deadline_ns != 0 && now_ns >= r->deadline_ns) {
            fail(l, r, 408, "timeout", "The request did not finish before its deadline.");
            continue;
        }
        uint64_t quiet_since =
            r->last_write_ns > r->received_ns ? r->last_write_ns : r->received_ns;
        if (!r->params.stream || now_ns - quiet_since < PING_MS * NS_PER_MS) continue;
        if (!http_stream_begun(r->x)) begin_stream(r);
        http_stream_write(r->x, SPAN_LIT(": ping\n\n"));
        r->last_write_ns = now_ns;
    }
}

/* ---- the beginning: parse; find the model; make the prompt; queue ---- */

static void run_parse(struct request *r)
{
    struct errmsg why;
    if (json_parse(r->body, NULL, &r->json, &why) != OK) {
        (void)api_error_set(&r->error, 400, NULL, NULL,
                            "We could not parse the JSON body of your request: %.300s", why.text);
        r->failed = true;
    } else if (api_params_parse(r, &r->error) != OK) {
        r->failed = true;
    }
}

static void run_prompt(struct request *r)
{
    r->failed = api_prompt_make(r, r->model, &r->error) != OK;
    json_destroy(r->json);
    free(r->body_copy);
    r->json = NULL;
    r->body_copy = NULL;
}

static bool set_model(struct loop *l, struct request *r)
{
    struct served_model *m = served_model_find(&l->models, r->model_name);
    if (m == NULL) {
        (void)api_error_set(&r->error, 404, "model_not_found", "model",
                            "The model '%.128s' does not exist or you do not have access to it.",
                            r->model_name);
    } else if (m->broken[0] != '\0') {
        (void)api_error_set(&r->error, 500, NULL, "model", "The model '%.128s' cannot be used: %s",
                            m->name, m->broken);
    } else if (!served_model_ready(m)) {
        (void)api_error_set(&r->error, 503, "no_capacity", NULL,
                            "The model '%.128s' is being made ready. Please try again shortly.",
                            m->name);
        r->error.retry_after_s = 1;
    } else if (!fleet_serves(&l->dispatch.fleet, m)) {
        (void)api_error_set(&r->error, 503, "no_capacity", NULL,
                            "No worker serves '%.128s' at the moment. Please try again shortly.",
                            m->name);
        r->error.retry_after_s = 2;
    } else {
        r->model = m;
        m->holders++;
        return true;
    }
    return false;
}

static void queue_request(struct loop *l, struct request *r)
{
    uint64_t now_ns = clock_now_ns();
    struct api_error error;
    if (!r->params.has_seed) clock_random(&r->params.seed, sizeof r->params.seed);
    if (l->set.request_timeout_ms > 0)
        r->deadline_ns = r->received_ns + l->set.request_timeout_ms * NS_PER_MS;
    if (request_make_choices(r, r->model->tokenizer) != OK) {
        fail(l, r, 500, NULL, "Out of memory.");
        return;
    }
    reply_prepare(r);
    if (dispatch_enqueue(&l->dispatch, r, now_ns, &error) != OK) {
        if (error.status == 429) metric_add(l->set.metrics->rejected, 1);
        loop__failed(l, r, &error);
    }
}

/* Where it stands is seen from what it has. Large bodies do their two long parts on a thread each
 * time. */
static void advance(struct loop *l, struct request *r)
{
    bool large = r->body.len > SYNC_BODY_BYTES;
    void (*run)(struct request *) = NULL;
    if (r->failed) {
        struct api_error e = r->error;
        loop__failed(l, r, &e);
        return;
    }
    if (r->model_name[0] == '\0') {
        run = run_parse;
    } else if (r->prompt_count == 0) {
        if (!set_model(l, r)) {
            struct api_error e = r->error;
            loop__failed(l, r, &e);
            return;
        }
        run = run_prompt;
    } else {
        queue_request(l, r);
        return;
    }
    if (!large) {
        run(r);
        advance(l, r);
    } else if (!prepare_start(l->prepare, r, run)) {
        fail(l, r, 503, "no_capacity",
             "Too many large requests at once. Please try again shortly.");
    }
}

void loop__on_prepared(struct loop *l, struct request *r)
{
    if (r->x == NULL)
        end_request(l, r, 499); /* the client left meanwhile */
    else
        advance(l, r);
}

static void set_ids(struct request *r, const char *request_id)
{
    uint64_t random[2];
    clock_random(random, sizeof random);
    (void)snprintf(r->public_id, sizeof r->public_id, "%s-%016llx%08x",
                   r->endpoint == ENDPOINT_CHAT ? "chatcmpl" : "cmpl",
                   (unsigned long long)random[0], (unsigned)random[1]);
    (void)snprintf(r->request_id, sizeof r->request_id, "%s", request_id);
}

/* Read at once it is borrowed; a thread gets a copy, for it may outlive the exchange. */
static bool take_body(struct request *r)
{
    struct span body = http_body(r->x);
    r->body = body;
    if (body.len <= SYNC_BODY_BYTES) return true;
    r->body_copy = malloc(body.len);
    if (r->body_copy == NULL) return false;
    memcpy(r->body_copy, body.ptr, body.len);
    r->body.ptr = r->body_copy;
    return true;
}

void loop__start_request(struct loop *l, struct http_exchange *x, enum endpoint endpoint,
                         const char *request_id)
{
    struct request *r = request_create(x, endpoint);
    if (r == NULL || !take_body(r)) {
        request_destroy(r);
        struct api_error e;
        (void)api_error_set(&e, 503, "no_capacity", NULL,
                            "Out of memory. Please try again shortly.");
        loop__reply_error(x, &e);
        return;
    }
    r->received_ns = http_received_ns(x);
    r->created_s = clock_wall_s();
    set_ids(r, request_id);
    http_set_user(x, r);
    link_request(l, r);
    advance(l, r);
    loop__dispatch(l);
}
