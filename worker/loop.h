/* loop.h - the engine thread: takes commands, steps the engine, reports to each gateway, and beats
 * the heart. The heartbeat comes from this loop and no other, so that a hung engine falls silent.
 * Owns nothing of the engine; one thread. */
#ifndef PENSTOCK_WORKER_LOOP_H
#define PENSTOCK_WORKER_LOOP_H

#include "common/metrics.h"
#include "worker/engine/engine.h"
#include "worker/mailbox.h"

enum { LOOP_HEARTBEAT_MS = 200 };

struct loop;

struct loop_options {
    struct engine *engine;
    struct mailbox *mailbox;
    struct metrics *metrics;
    uint64_t epoch;            /* of this boot, never 0 */
    uint32_t drain_timeout_ms; /* after COMMAND_DRAIN: what still runs then is cancelled */
};

struct loop *loop_create(const struct loop_options *options); /* NULL: no memory */
void loop_destroy(struct loop *l);
/* Runs on the calling thread until it has drained or was stopped. */
void loop_run(struct loop *l);
/* Any thread: nanoseconds (clock_now_ns) of the last turn; whether COMMAND_DRAIN was seen; whether
 * loop_run is over. */
uint64_t loop_last_turn_ns(const struct loop *l);
bool loop_draining(const struct loop *l);
bool loop_done(const struct loop *l);

#endif
