/* report.h - engine results as frames: one Tokens message per gateway and step, Accepted, Reject,
 * Heartbeat, Drain. Engine thread. Owns the message structs it fills (sized once); frames come from
 * the mailbox. */
#ifndef PENSTOCK_WORKER_REPORT_H
#define PENSTOCK_WORKER_REPORT_H

#include "proto/penstock.pb-c.h"
#include "worker/engine/engine.h"
#include "worker/mailbox.h"

struct report;

/* incarnation: [MAILBOX_OWNERS_MAX] of each owner's gateway, 0 = none; borrowed, read at each call.
 * NULL: no memory. */
struct report *report_create(struct engine *engine, struct mailbox *mailbox, uint64_t epoch,
                             const uint64_t *incarnation);
void report_destroy(struct report *r);

/* Accepts are gathered, and posted by the flush: one message per gateway and turn. */
void report_accept(struct report *r, uint32_t owner, uint64_t id, uint32_t attempt);
void report_flush_accepts(struct report *r);
void report_reject(struct report *r, uint32_t owner, const struct engine_request *request,
                   Penstock__RejectReason reason, const char *message);
void report_results(struct report *r, const struct engine_result *results, uint32_t count);
void report_heartbeat(struct report *r, uint32_t owner, bool draining);
void report_drain(struct report *r, uint32_t owner);
void report_wake(struct report *r); /* wakes the link if anything was posted since the last call */

#endif
