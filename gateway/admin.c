#include "gateway/admin.h"

#include "gateway/http_server.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { METRICS_BYTES_MAX = 4 << 20 };

struct admin {
    struct event_base *base;
    struct http_server *http;
    struct event *stop_event;
    int stop_fd;
    pthread_t thread;
    const struct metrics *registry;
    struct admin_probes probes;
    struct buffer body;
};

static void on_request(void *arg, struct http_exchange *x)
{
    struct admin *a = arg;
    struct span path = http_path(x);
    bool get = http_method(x) == HTTP_GET || http_method(x) == HTTP_HEAD;
    if (get && span_eq_str(path, "/health/live")) {
        http_reply(x, 200, "text/plain; charset=utf-8", SPAN_LIT("live\n"));
    } else if (get && span_eq_str(path, "/health/ready")) {
        bool ready = a->probes.ready(a->probes.arg);
        http_reply(x, ready ? 200 : 503, "text/plain; charset=utf-8",
                   ready ? SPAN_LIT("ready\n") : SPAN_LIT("no worker is ready, or draining\n"));
    } else if (get && span_eq_str(path, "/metrics")) {
        buffer_reset(&a->body);
        metrics_render(a->registry, &a->body);
        http_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", buffer_view(&a->body));
    } else {
        http_reply(x, get ? 404 : 405, "text/plain; charset=utf-8",
                   SPAN_LIT("known: GET /health/live, /health/ready, /metrics\n"));
    }
}

static void on_done(void *arg, struct http_exchange *x, bool complete)
{
    (void)arg, (void)x, (void)complete;
}

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    struct admin *a = arg;
    (void)fd, (void)what;
    (void)event_base_loopbreak(a->base);
}

static void *admin_thread(void *arg)
{
    struct admin *a = arg;
    (void)event_base_dispatch(a->base);
    return NULL;
}

static void free_all(struct admin *a)
{
    http_server_destroy(a->http);
    if (a->stop_event != NULL) event_free(a->stop_event);
    if (a->base != NULL) event_base_free(a->base);
    if (a->stop_fd >= 0) close(a->stop_fd);
    buffer_deinit(&a->body);
    free(a);
}

enum err admin_start(const char *address, const struct metrics *registry,
                     const struct admin_probes *probes, struct admin **out, struct errmsg *why)
{
    struct admin *a = calloc(1, sizeof *a);
    if (a == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for the admin thread");
    a->registry = registry;
    a->probes = *probes;
    buffer_init(&a->body, METRICS_BYTES_MAX);
    a->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a->base = event_base_new();
    a->stop_event = a->base != NULL ? event_new(a->base, a->stop_fd, EV_READ, on_stop, a) : NULL;
    if (a->stop_fd < 0 || a->stop_event == NULL || event_add(a->stop_event, NULL) != 0) {
        free_all(a);
        return errmsg_set(why, ERR_NOMEM, "no memory for the admin thread");
    }
    struct http_limits limits = http_limits_default;
    limits.connections_max = 64;
    limits.body_bytes_max = 4096;
    struct http_handlers handlers = {a, on_request, on_done};
    enum err err = http_server_create(a->base, address, false, &limits, &handlers, &a->http, why);
    if (err == OK && pthread_create(&a->thread, NULL, admin_thread, a) != 0)
        err = errmsg_set(why, ERR_NOMEM, "cannot start the admin thread");
    if (err != OK) {
        free_all(a);
        return err;
    }
    *out = a;
    return OK;
}

void admin_stop(struct admin *a)
{
    if (a == NULL) return;
    uint64_t one = 1;
    CHECK(write(a->stop_fd, &one, sizeof one) == sizeof one);
    (void)pthread_join(a->thread, NULL);
    free_all(a);
}
