/* main.c - penstock-gateway: settings, loops that share nothing, and the admin thread. */
#include "common/config.h"
#include "common/log.h"
#include "gateway/admin.h"
#include "gateway/loop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings {
    const char *http, *admin, *workers, *cors_origin;
    uint32_t threads, queue_requests, queue_tokens, connections, request_timeout_ms,
        drain_timeout_ms, log_level;
    uint64_t queue_bytes, body_bytes;
};

struct gateway {
    struct settings set;
    struct metrics *registry;
    struct loop_metrics metrics;
    struct loop *loops[LOOPS_MAX];
    char addresses[LOOPS_MAX][256];
    pthread_t threads[LOOPS_MAX];
    uint32_t loop_count;
    struct admin *admin;
    _Atomic bool draining;
    _Atomic uint32_t running;
};

static enum config_result read_settings(struct settings *s, int argc, char **argv,
                                        struct errmsg *why)
{
    const struct config_item items[] = {
        {"http", CONFIG_STRING, &s->http, "127.0.0.1:8080", 0, 0, NULL, "",
         "HOST:PORT of the API."},
        {"admin", CONFIG_STRING, &s->admin, "127.0.0.1:8081", 0, 0, NULL, "",
         "HOST:PORT for /health/live, /health/ready and /metrics."},
        {"workers", CONFIG_STRING, &s->workers, "tcp://127.0.0.1:5570", 0, 0, NULL, "",
         "Where workers connect; with several threads the ports behind it are used too."},
        {"threads", CONFIG_U32, &s->threads, "1", 1, LOOPS_MAX, NULL, "",
         "Loops; each has its own listener, queue and worker socket."},
        {"max-queue-requests", CONFIG_U32, &s->queue_requests, "1024", 1, 1 << 20, NULL, "",
         "Requests that may wait in a loop; more get 429."},
        {"max-queue-tokens", CONFIG_U32, &s->queue_tokens, "1000000", 1, 1 << 30, NULL, "tokens",
         "Prompt tokens that may wait in a loop; more get 429."},
        {"max-queue-bytes", CONFIG_U64, &s->queue_bytes, "256M", 0, 0, NULL, "bytes",
         "Request bodies that may wait in a loop; more get 429."},
        {"max-body-bytes", CONFIG_U64, &s->body_bytes, "20M", 1024, 1 << 30, NULL, "bytes",
         "Longest request body; longer ones get 413."},
        {"max-connections", CONFIG_U32, &s->connections, "16384", 1, 1 << 20, NULL, "",
         "Client connections of a loop; further ones wait in the kernel."},
        {"cors-origin", CONFIG_STRING, &s->cors_origin, "", 0, 0, NULL, "",
         "Web origins that browsers may call from, separated by commas; * for any; empty: none."},
        {"request-timeout-ms", CONFIG_U32, &s->request_timeout_ms, "600000", 0, 86400000, NULL,
         "ms", "Longest life of a request; 0: without end."},
        {"drain-timeout-ms", CONFIG_U32, &s->drain_timeout_ms, "30000", 0, 3600000, NULL, "ms",
         "After SIGTERM: time for running requests to end."},
        {"log-level", CONFIG_CHOICE, &s->log_level, "info", 0, 0, "debug|info|warn|error", "",
         "Least level that is logged."},
    };
    const struct config config = {
        "penstock-gateway",
        "Serves the OpenAI API over HTTP, and gives requests to penstock-workers that connect to "
        "it.",
        "[options]",
        "Example:\n  penstock-gateway --http 127.0.0.1:8080 --workers tcp://127.0.0.1:5570\n",
        items,
        ARRAY_LEN(items),
        0};
    return config_parse(&config, argc, argv, NULL, NULL, why);
}

/* tcp://HOST:PORT with the port moved on by i. */
static enum err worker_address(const char *base, uint32_t i, char out[256], uint32_t *port,
                               struct errmsg *why)
{
    const char *colon = strrchr(base, ':');
    char *end = NULL;
    unsigned long first = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
    if (first == 0 || first + i > 65535 || *end != '\0')
        return errmsg_set(why, ERR_INVALID,
                          "--workers '%s': expected an address such as tcp://127.0.0.1:5570", base);
    *port = (uint32_t)first + i;
    (void)snprintf(out, 256, "%.*s:%u", (int)(colon - base), base, *port);
    return OK;
}

static enum err make_loops(struct gateway *g, struct errmsg *why)
{
    const struct settings *s = &g->set;
    struct loop_settings set = {.http_address = s->http,
                                .cors_origin = s->cors_origin,
                                .reuse_port = s->threads > 1,
                                .http = http_limits_default,
                                .queue = {s->queue_requests, s->queue_tokens, s->queue_bytes},
                                .request_timeout_ms = s->request_timeout_ms,
                                .drain_timeout_ms = s->drain_timeout_ms,
                                .metrics = &g->metrics};
    set.http.body_bytes_max = s->body_bytes;
    set.http.connections_max = s->connections;
    for (uint32_t i = 0; i < s->threads; i++) {
        enum err err = worker_address(s->workers, i, g->addresses[i], &set.ports[i], why);
        if (err != OK) return err;
    }
    set.port_count = s->threads > 1 ? s->threads : 0;
    for (uint32_t i = 0; i < s->threads; i++) {
        set.workers_address = g->addresses[i];
        enum err err = loop_create(&set, &g->loops[i], why);
        if (err != OK) return err;
        g->loop_count++;
    }
    return OK;
}

static bool probe_ready(void *arg)
{
    struct gateway *g = arg;
    return !atomic_load(&g->draining) && loop_metrics_ready(&g->metrics);
}

struct thread_arg {
    struct gateway *g;
    struct loop *loop;
};

static void *loop_thread(void *arg)
{
    struct thread_arg *t = arg;
    loop_run(t->loop);
    if (atomic_fetch_sub(&t->g->running, 1) == 1)
        (void)kill(getpid(), SIGUSR1); /* the last one wakes the main thread */
    return NULL;
}

/* SIGTERM and SIGINT drain; a second one ends at once. */
static void wait_for_end(struct gateway *g, const sigset_t *signals)
{
    while (atomic_load(&g->running) > 0) {
        int sig = 0;
        if (sigwait(signals, &sig) != 0 || (sig != SIGTERM && sig != SIGINT)) continue;
        log_info("ev=gateway.signal signal=%d", sig);
        atomic_store(&g->draining, true);
        for (uint32_t i = 0; i < g->loop_count; i++)
            loop_stop(g->loops[i]);
    }
}

static int run(struct gateway *g, const sigset_t *signals)
{
    static struct thread_arg args[LOOPS_MAX];
    uint32_t started = 0;
    atomic_store(&g->running, g->loop_count);
    for (; started < g->loop_count; started++) {
        args[started] = (struct thread_arg){g, g->loops[started]};
        if (pthread_create(&g->threads[started], NULL, loop_thread, &args[started]) != 0) break;
    }
    if (started < g->loop_count) {
        fprintf(stderr, "penstock-gateway: cannot start %u threads\n", g->loop_count);
        for (uint32_t i = 0; i < started; i++)
            loop_stop(g->loops[i]), loop_stop(g->loops[i]);
    } else {
        log_info("ev=gateway.start http=%s admin=%s workers=%s threads=%u", g->set.http,
                 g->set.admin, g->set.workers, g->loop_count);
        wait_for_end(g, signals);
    }
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(g->threads[i], NULL);
    log_info("ev=gateway.end");
    return started == g->loop_count ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct gateway g;
    struct errmsg why = {""};
    enum config_result result = read_settings(&g.set, argc, argv, &why);
    if (result == CONFIG_EXIT_OK) return 0;
    if (result == CONFIG_EXIT_BAD) {
        fprintf(stderr, "penstock-gateway: %s\n", why.text);
        return 2;
    }
    log_set_level((enum log_level)g.set.log_level);
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    g.registry = metrics_create();
    enum err err = g.registry != NULL ? OK : errmsg_set(&why, ERR_NOMEM, "no memory");
    if (err == OK) {
        loop_metrics_make(&g.metrics, g.registry);
        err = make_loops(&g, &why);
    }
    struct admin_probes probes = {&g, probe_ready};
    if (err == OK) err = admin_start(g.set.admin, g.registry, &probes, &g.admin, &why);
    if (err != OK) fprintf(stderr, "penstock-gateway: %s\n", why.text);
    int status = err == OK ? run(&g, &signals) : 1;
    admin_stop(g.admin);
    for (uint32_t i = 0; i < g.loop_count; i++)
        loop_destroy(g.loops[i]);
    metrics_destroy(g.registry);
    return status;
}
