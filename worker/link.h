/* link.h - the link thread: one connection to each gateway, sessions, assets; frames in, commands
 * to the engine thread, and its frames out. Owns the transports and what is not sent yet. Bounds:
 * LINK_BACKLOG frames a gateway - a gateway that takes nothing for so long is treated as gone;
 * MAILBOX_OWNERS_MAX gateways. A gateway answers each Heartbeat with a Welcome; silent for
 * LINK_GATEWAY_SILENT_MS it is gone: what it had is cancelled. */
#ifndef PENSTOCK_WORKER_LINK_H
#define PENSTOCK_WORKER_LINK_H

#include "common/hash.h"
#include "common/metrics.h"
#include "worker/mailbox.h"

enum { LINK_BACKLOG = 256, LINK_HELLO_MS = 250, LINK_GATEWAY_SILENT_MS = 3000 };

struct link;

struct link_options {
    const char *gateways; /* "tcp://a:5570,tcp://b:5570" */
    struct mailbox *mailbox;
    struct metrics *metrics;
    uint64_t epoch;
    /* what Hello says; all borrowed, must outlive the link */
    const char *worker_name, *model_id, *device;
    struct hash128 fingerprint;
    struct span tokenizer_asset, chat_template;
    uint32_t vocab_count, context_max, sequences_max, kv_blocks, submit_window;
    int64_t model_created;
};

/* ERR_INVALID: an address that cannot be used, named. Nothing is connected yet. */
enum err link_create(const struct link_options *options, struct link **out,
                     struct errmsg *why) MUST_CHECK;
void link_destroy(struct link *l);
/* Runs on the calling thread until link_stop; then what is queued is given linger_ms to go out. */
void link_run(struct link *l, uint32_t linger_ms);
void link_stop(struct link *l); /* any thread */
uint32_t
link_sessions(const struct link *l); /* any thread: gateways that have taken this worker in */

#endif
