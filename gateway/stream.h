/* stream.h - one choice's tokens made into text for a client: whole code points only, cut at a stop
 * string, holding back no more than what may still become one. A core: no socket, no clock. Each
 * token index is taken once. */
#ifndef PENSTOCK_GATEWAY_STREAM_H
#define PENSTOCK_GATEWAY_STREAM_H

#include "gateway/request.h"

enum stream_step {
    STREAM_MORE,  /* go on */
    STREAM_ENDED, /* a stop string was found: the rest is cut, and the worker may be told to stop */
    STREAM_GAP,   /* a token before this one is missing: the frame that held it was lost */
    STREAM_OLD,   /* had already */
    STREAM_NO_MEMORY,
};

/* Token number `index` of the choice. logprob: NULL unless asked for. */
enum stream_step stream_take(struct choice *c, const struct request_params *params, uint32_t index,
                             uint32_t id, const struct token_logprob *logprob);
/* The worker says that the choice is over: what was held back becomes certain. */
void stream_finish(struct choice *c, enum finish finish);
/* Text that is certain and not given out yet; stream_mark_sent moves on. */
struct span stream_ready(const struct choice *c);
/* Of the logprobs, those whose text is certain (or all, once finished): [c->logprob_sent,
 * returned). */
uint32_t stream_ready_logprobs(const struct choice *c);
void stream_mark_sent(struct choice *c);

#endif
