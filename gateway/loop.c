#include "gateway/loop.h"

#include "common/clock.h"
#include "common/log.h"
#include "proto/wire.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { TICK_MS = 100, LAST_WORDS_MS = 500, STALL_MS = 700, SCRATCH_BYTES_MAX = 64 << 20 };

/* ---- metrics ---- */

static const uint32_t codes[CODES_COUNT] = {200, 400, 404, 405, 408, 413,
                                            415, 429, 499, 500, 503, 0};

void loop_metrics_make(struct loop_metrics *m, struct metrics *registry)
{
    static const double seconds[] = {.001, .0025, .005, .01, .025, .05, .1, .25,
                                     .5,   1,     2.5,  5,   10,   30,  60, 120};
    static const double short_times[] = {.001, .0025, .005, .01, .015, .02, .03,
                                         .05,  .075,  .1,   .15, .25,  .5,  1};
    static const char *const endpoints[2] = {"chat", "completions"};
    for (int e = 0; e < 2; e++)
        for (int c = 0; c < CODES_COUNT; c++) {
            char labels[64];
            if (codes[c] != 0)
                (void)snprintf(labels, sizeof labels, "endpoint=\"%s\",code=\"%u\"", endpoints[e],
                               codes[c]);
            else
                (void)snprintf(labels, sizeof labels, "endpoint=\"%s\",code=\"other\"",
                               endpoints[e]);
            m->requests[e][c] = metrics_counter(registry, "penstock_gateway_requests_total", labels,
                                                "Requests ended, by status; 499: the client left.");
        }
    m->ttft_s = metrics_histogram(registry, "penstock_gateway_time_to_first_token_seconds", NULL,
                                  "From the request's last byte to its first token.", seconds,
                                  ARRAY_LEN(seconds));
    m->tpot_s = metrics_histogram(registry, "penstock_gateway_time_per_output_token_seconds", NULL,
                                  "Mean time of a token after the first, by request.", short_times,
                                  ARRAY_LEN(short_times));
    m->queue_s = metrics_histogram(registry, "penstock_gateway_queue_seconds", NULL,
                                   "From the request's last byte to its dispatch.", seconds,
                                   ARRAY_LEN(seconds));
    m->request_s =
        metrics_histogram(registry, "penstock_gateway_request_duration_seconds", NULL,
                          "From the request's last byte to its end.", seconds, ARRAY_LEN(seconds));
    m->prompt_tokens = metrics_counter(registry, "penstock_gateway_prompt_tokens_total", NULL,
                                       "Prompt tokens of requests that ended.");
    m->cached_tokens = metrics_counter(registry, "penstock_gateway_cached_prompt_tokens_total",
                                       NULL, "Of those, tokens that workers had cached.");
    m->completion_tokens =
        metrics_counter(registry, "penstock_gateway_completion_tokens_total", NULL,
                        "Tokens generated, whatever became of the request.");
    m->disconnects = metrics_counter(registry, "penstock_gateway_client_disconnects_total", NULL,
                                     "Clients that left before the end.");
    m->rejected = metrics_counter(registry, "penstock_gateway_rejected_total", NULL,
                                  "Requests refused because the queue was full.");
    m->stale_frames = metrics_counter(registry, "penstock_gateway_stale_frames_total", NULL,
                                      "Frames of another epoch, incarnation or attempt, dropped.");
    m->malformed_frames = metrics_counter(registry, "penstock_gateway_malformed_frames_total", NULL,
                                          "Frames that were refused.");
    m->retries = metrics_counter(
        registry, "penstock_gateway_requeued_total", NULL,
        "Units that went back to the queue: a worker died, was full or lost a frame.");
    m->deaths = metrics_counter(registry, "penstock_gateway_worker_deaths_total", NULL,
                                "Workers whose lease ran out.");
    m->queue_depth = metrics_gauge(registry, "penstock_gateway_queue_depth", NULL,
                                   "Units that wait for a worker.");
    m->running = metrics_gauge(registry, "penstock_gateway_running_requests", NULL,
                               "Requests between their first byte and their last.");
    m->workers =
        metrics_gauge(registry, "penstock_gateway_workers_ready", NULL,
                      "Workers that are heard and whose model can be served, over all loops.");
    m->connections =
        metrics_gauge(registry, "penstock_gateway_connections", NULL, "Open client connections.");
}

bool loop_metrics_ready(const struct loop_metrics *m)
{
    return metric_value(m->workers) > 0;
}

static void show(struct metric *m, double *shown, double now)
{
    metric_add(m, now - *shown);
    *shown = now;
}

static void update_metrics(struct loop *l, uint64_t now_ns)
{
    struct loop_metrics *m = l->set.metrics;
    uint32_t ready = 0;
    for (uint32_t i = 0; i < l->dispatch.fleet.count; i++) {
        const struct worker *w = &l->dispatch.fleet.workers[i];
        ready += w->state == WORKER_LIVE && now_ns - w->last_heard_ns < SUSPECT_NS &&
                 served_model_ready(w->model) && w->model->broken[0] == '\0';
    }
    show(m->workers, &l->shown.workers, ready);
    show(m->queue_depth, &l->shown.queue_depth, l->dispatch.queue.units);
    show(m->running, &l->shown.running, l->request_count);
    show(m->connections, &l->shown.connections, http_server_connections(l->http));
    const struct dispatch_counts *c = &l->dispatch.counts;
    metric_add(m->stale_frames, (double)(c->stale - l->counted.stale));
    metric_add(m->retries, (double)(c->retries - l->counted.retries));
    metric_add(m->deaths, (double)(c->deaths - l->counted.deaths));
    l->counted = *c;
}

/* ---- events ---- */

void loop__dispatch(struct loop *l)
{
    uint64_t random;
    if (l->dispatch.queue.units > 0) {
        clock_random(&random, sizeof random);
        dispatch_run(&l->dispatch, clock_now_ns(), random);
    }
    loop__flush_submits(l);
}

void loop__again(struct loop *l)
{
    event_active(l->again_event, EV_TIMEOUT, 0);
}

static void on_transport(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    loop__workers_pump(arg);
}

static void on_prepared(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;
    (void)fd, (void)what;
    for (struct request *r; (r = prepare_take(l->prepare)) != NULL;)
        loop__on_prepared(l, r);
    loop__dispatch(l);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;
    (void)fd, (void)what;
    uint64_t now_ns = clock_now_ns();
    if (l->last_tick_ns != 0 && now_ns - l->last_tick_ns > STALL_MS * NS_PER_MS) {
        log_warn("ev=loop.stall ms=%llu",
                 (unsigned long long)((now_ns - l->last_tick_ns) / NS_PER_MS));
        fleet_forgive(&l->dispatch.fleet, now_ns);
    }
    l->last_tick_ns = now_ns;
    dispatch_tick(&l->dispatch, now_ns);
    loop__flush_submits(l);
    loop__worker_tick(l, now_ns);
    loop__request_tick(l, now_ns);
    loop__dispatch(l);
    loop__workers_pump(l); /* the transport's fd is edge-triggered */
    update_metrics(l, now_ns);
    if (!l->draining) return;
    if (l->request_count == 0 || (l->ending && now_ns >= l->drain_deadline_ns)) {
        (void)event_base_loopbreak(l->base);
    } else if (now_ns >= l->drain_deadline_ns) {
        loop__end_all(l);
        l->ending = true;
        l->drain_deadline_ns = now_ns + LAST_WORDS_MS * NS_PER_MS;
    }
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    struct loop *l = arg;
    uint64_t count;
    (void)what;
    (void)!read(fd, &count, sizeof count);
    if (l->draining) { /* asked twice: now */
        (void)event_base_loopbreak(l->base);
        return;
    }
    l->draining = true;
    l->drain_deadline_ns = clock_now_ns() + l->set.drain_timeout_ms * NS_PER_MS;
    log_info("ev=gateway.drain requests=%u timeout_ms=%u", l->request_count,
             l->set.drain_timeout_ms);
    http_server_drain(l->http);
}

/* ---- the loop ---- */

static struct event *add_event(struct loop *l, int fd, short what, event_callback_fn callback)
{
    struct event *e = event_new(l->base, fd, (short)(what | EV_PERSIST), callback, l);
    if (e != NULL && what != 0) (void)event_add(e, NULL);
    return e;
}

static enum err make_events(struct loop *l, struct errmsg *why)
{
    struct timeval tick = {0, TICK_MS * 1000};
    l->transport_event = add_event(l, transport_fd(l->transport), EV_READ, on_transport);
    l->prepare_event = add_event(l, prepare_fd(l->prepare), EV_READ, on_prepared);
    l->stop_event = add_event(l, l->stop_fd, EV_READ, on_stop);
    l->again_event = event_new(l->base, -1, 0, on_transport, l);
    l->tick_event = event_new(l->base, -1, EV_PERSIST, on_tick, l);
    if (!l->transport_event || !l->prepare_event || !l->stop_event || !l->again_event ||
        !l->tick_event)
        return errmsg_set(why, ERR_NOMEM, "no memory for the gateway's events");
    (void)event_add(l->tick_event, &tick);
    return OK;
}

static enum err open_all(struct loop *l, struct errmsg *why)
{
    struct event_config *config = event_config_new();
    if (config != NULL)
        (void)event_config_set_flag(config,
                                    EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
    l->base = config != NULL ? event_base_new_with_config(config) : NULL;
    if (config != NULL) event_config_free(config);
    l->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->prepare = prepare_create();
    l->budget = wire_budget_create();
    if (!l->base || l->stop_fd < 0 || !l->prepare || !l->budget)
        return errmsg_set(why, ERR_NOMEM, "no memory or threads for a gateway loop");
    struct http_handlers handlers = loop_http_handlers;
    handlers.arg = l;
    enum err err = transport_bind(l->set.workers_address, FRAME_BYTES_MAX, &l->transport, why);
    if (err == OK)
        err = http_server_create(l->base, l->set.http_address, l->set.reuse_port, &l->set.http,
                                 &handlers, &l->http, why);
    return err == OK ? make_events(l, why) : err;
}

enum err loop_create(const struct loop_settings *settings, struct loop **out, struct errmsg *why)
{
    struct loop *l = calloc(1, sizeof *l);
    if (l == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for a gateway loop");
    l->set = *settings;
    l->stop_fd = -1;
    while (l->incarnation == 0)
        clock_random(&l->incarnation, sizeof l->incarnation);
    buffer_init(&l->frame, FRAME_BYTES_MAX);
    buffer_init(&l->scratch, SCRATCH_BYTES_MAX);
    l->dispatch.limits = settings->queue;
    l->dispatch.actions =
        (struct dispatch_actions){l, loop__send, loop__cancel, loop__changed, loop__failed};
    enum err err = open_all(l, why);
    if (err != OK) {
        loop_destroy(l);
        return err;
    }
    *out = l;
    return OK;
}

void loop_destroy(struct loop *l)
{
    if (l == NULL) return;
    if (l->prepare != NULL) { /* first the threads that hold requests */
        struct prepare *p = l->prepare;
        l->prepare = NULL;
        prepare_destroy(p);
        for (struct request *r = l->requests; r != NULL; r = r->next)
            r->in_job = false;
    }
    http_server_destroy(l->http); /* ends every exchange, and so its request */
    while (l->requests != NULL) {
        struct request *r = l->requests;
        l->requests = r->next;
        dispatch_abandon(&l->dispatch, r);
        request_destroy(r);
    }
    if (l->transport != NULL) loop__flush_submits(l);
    struct event *const events[] = {l->transport_event, l->again_event, l->prepare_event,
                                    l->tick_event, l->stop_event};
    for (size_t i = 0; i < ARRAY_LEN(events); i++)
        if (events[i] != NULL) event_free(events[i]);
    transport_destroy(l->transport, 500);
    if (l->base != NULL) event_base_free(l->base);
    if (l->stop_fd >= 0) close(l->stop_fd);
    wire_budget_destroy(l->budget);
    served_models_deinit(&l->models);
    fleet_deinit(&l->dispatch.fleet);
    buffer_deinit(&l->frame);
    buffer_deinit(&l->scratch);
    free(l);
}

void loop_run(struct loop *l)
{
    loop__workers_pump(l);
    (void)event_base_dispatch(l->base);
}

void loop_stop(struct loop *l)
{
    uint64_t one = 1;
    (void)!write(l->stop_fd, &one, sizeof one);
}
