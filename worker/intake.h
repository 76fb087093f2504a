/* intake.h - a Request message turned into the engine's request: one block of memory, everything
 * copied. Link thread. The frame was validated by proto/wire.h; what only the model decides (ids
 * below the vocabulary) is checked here. */
#ifndef PENSTOCK_WORKER_INTAKE_H
#define PENSTOCK_WORKER_INTAKE_H

#include "proto/penstock.pb-c.h"
#include "worker/mailbox.h"

/* *out freed by free(). ERR_INVALID: a sentence without any of the request's text; ERR_NOMEM. */
enum err intake_request(const Penstock__Request *message, uint32_t owner, uint32_t vocab_count,
                        uint64_t now_ns, struct submitted **out, struct errmsg *why) MUST_CHECK;

#endif
