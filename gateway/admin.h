/* admin.h - the gateway's probes and metrics: GET /health/live, /health/ready, /metrics on a thread
 * and port of their own, so that they answer however busy the loops are. Owns its thread; reads
 * atomics only. */
#ifndef PENSTOCK_GATEWAY_ADMIN_H
#define PENSTOCK_GATEWAY_ADMIN_H

#include "common/metrics.h"

struct admin;

struct admin_probes {
    void *arg;
    bool (*ready)(void *arg); /* requests would be served: a worker is ready, and the gateway is not
                                 draining */
};

/* ERR_INVALID, ERR_IO: the sentence names the address. registry and probes must outlive it. */
enum err admin_start(const char *address, const struct metrics *registry,
                     const struct admin_probes *probes, struct admin **out,
                     struct errmsg *why) MUST_CHECK;
void admin_stop(struct admin *a);

#endif
