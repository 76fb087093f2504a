/* admin.h - the worker's probes and metrics: GET /health/live, /health/ready, /metrics on a thread
 * and port of their own. Owns its thread and socket. A scrape reads atomics only: it can neither
 * wait for the engine nor slow it down. Bound: one connection at a time, 4 KiB of request, one
 * second for it. */
#ifndef PENSTOCK_WORKER_ADMIN_H
#define PENSTOCK_WORKER_ADMIN_H

#include "common/metrics.h"

struct admin;

struct admin_probes {
    void *arg;
    bool (*live)(void *arg);  /* the engine loop turns */
    bool (*ready)(void *arg); /* a gateway has taken this worker in, and it is not draining */
};

/* address: "127.0.0.1:8082". metrics and probes must outlive it. ERR_INVALID, ERR_IO: the sentence
 * names the address. */
enum err admin_start(const char *address, const struct metrics *metrics,
                     const struct admin_probes *probes, struct admin **out,
                     struct errmsg *why) MUST_CHECK;
void admin_stop(struct admin *admin);

#endif
