/* loop.h - one gateway loop: its own event base, HTTP listener, queue and worker socket; loops
 * share nothing but metrics. A shell: bytes in, dispatch's actions out. Owns every request between
 * its first byte and its last. */
#ifndef PENSTOCK_GATEWAY_LOOP_H
#define PENSTOCK_GATEWAY_LOOP_H

#include "common/metrics.h"
#include "common/transport.h"
#include "gateway/dispatch.h"
#include "gateway/http_server.h"
#include "gateway/prepare.h"
#include "gateway/served_model.h"

struct event;
struct wire_budget;

enum { LOOPS_MAX = 64, CODES_COUNT = 12 };

struct loop_metrics {                        /* shared by all loops: plain atomics */
    struct metric *requests[2][CODES_COUNT]; /* by endpoint and status */
    struct metric *ttft_s, *tpot_s, *queue_s, *request_s, *prompt_tokens, *cached_tokens,
        *completion_tokens, *disconnects, *rejected, *stale_frames, *malformed_frames, *retries,
        *deaths, *queue_depth, *running, *workers, *connections;
};

struct loop_settings {
    const char *http_address, *workers_address; /* of this loop */
    const char *cors_origin;                    /* "": no cross-origin headers */
    bool reuse_port;
    struct http_limits http;
    struct queue_limits queue;
    uint32_t request_timeout_ms, drain_timeout_ms;
    uint32_t ports[LOOPS_MAX], port_count; /* worker ports of the other loops, for Welcome */
    struct loop_metrics *metrics;
};

struct loop_gauges { /* what this loop last added to the shared gauges */
    double queue_depth, running, workers, connections;
};

struct loop {
    struct loop_settings set;
    uint64_t incarnation;
    struct event_base *base;
    struct http_server *http;
    struct transport *transport;
    struct event *transport_event, *again_event, *prepare_event, *tick_event, *stop_event;
    int stop_fd;
    struct prepare *prepare;
    struct wire_budget *budget;
    struct buffer frame, scratch;
    struct dispatch dispatch;
    struct served_models models;
    struct request *requests;
    uint32_t request_count;
    struct unit *pending[1024]; /* units to go out with this turn's Submits */
    uint32_t pending_count;
    struct loop_gauges shown;
    struct dispatch_counts counted; /* what of dispatch's counts the metrics have */
    bool draining, ending;          /* ending: all is told, and goes out */
    uint64_t drain_deadline_ns, last_tick_ns;
};

enum err loop_create(const struct loop_settings *settings, struct loop **out,
                     struct errmsg *why) MUST_CHECK;
void loop_destroy(struct loop *l);
void loop_run(struct loop *l);  /* until loop_stop, and then until drained */
void loop_stop(struct loop *l); /* any thread: drain, then end */
/* Any thread: good workers with servable models, as of the last tick. */
bool loop_metrics_ready(const struct loop_metrics *m);
void loop_metrics_make(struct loop_metrics *m, struct metrics *registry);

/* ---- inside: the parts of a loop ---- */
/* requests.c */
extern const struct http_handlers loop_http_handlers; /* arg is filled with the loop */
void loop__on_prepared(struct loop *l, struct request *r);
void loop__changed(void *arg, struct request *r);
void loop__failed(void *arg, struct request *r, const struct api_error *e);
void loop__end_all(struct loop *l); /* the drain's time is up: what still runs is told so */
void loop__request_tick(struct loop *l, uint64_t now_ns);
/* workers.c */
void loop__workers_pump(struct loop *l);
void loop__send(void *arg, struct worker *w, struct unit *u);
void loop__cancel(void *arg, struct worker *w, uint64_t id, uint32_t attempt);
void loop__flush_submits(struct loop *l);
void loop__worker_tick(struct loop *l, uint64_t now_ns);
void loop__again(struct loop *l); /* dispatches once this turn's callbacks are over */
/* Runs dispatch and sends: after anything that made room or work. */
void loop__dispatch(struct loop *l);
/* routes.c */
void loop__route(struct loop *l, struct http_exchange *x);
void loop__reply_error(struct http_exchange *x, const struct api_error *e);
void loop__start_request(struct loop *l, struct http_exchange *x, enum endpoint endpoint,
                         const char *request_id);

#endif
