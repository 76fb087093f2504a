/* reply.h - what a client reads: whole answers, and server-sent events, in OpenAI's shapes. Pure
 * writers into a buffer. Events are `data: {json}` and a blank line, never id:, event: or retry:
 * (clients break on them). */
#ifndef PENSTOCK_GATEWAY_REPLY_H
#define PENSTOCK_GATEWAY_REPLY_H

#include "gateway/request.h"
#include "gateway/served_model.h"

/* Fills r->chunk_head: what all events of this request begin with. */
void reply_prepare(struct request *r);
/* The first event of each choice of a chat, in order 0..n-1 (clients use the index as a list
 * position). */
void reply_roles(struct request *r, struct buffer *out);
/* Everything of choice i that is certain and not sent: a delta, and at its end the event with
 * finish_reason. */
void reply_delta(struct request *r, uint32_t i, struct buffer *out);
/* After the last choice: the usage event where it was asked for, and [DONE]. */
void reply_end(struct request *r, struct buffer *out);
/* In a stream that has begun: the error as an event. No finish_reason and no [DONE] follow it. */
void reply_error_event(const struct api_error *e, struct buffer *out);
/* The whole answer to a request that does not stream. */
void reply_whole(struct request *r, struct buffer *out);
/* GET /v1/models: one model's object. */
void reply_model(const struct served_model *m, struct buffer *out);
/* Counts prompt, completion and cached tokens of r into its fields. */
void reply_count_usage(struct request *r);

#endif
