/* queue.h - units that wait for a worker: first come, first served, a line for each model, bounded
 * in requests, tokens and bytes over all of them. A core: plain state, nothing allocated. What
 * comes back from a worker that died goes to the head of its line. Loop thread. */
#ifndef PENSTOCK_GATEWAY_QUEUE_H
#define PENSTOCK_GATEWAY_QUEUE_H

#include "gateway/request.h"
#include "gateway/served_model.h"

struct queue_limits {
    uint32_t units_max;
    uint64_t tokens_max; /* prompt tokens that wait */
    uint64_t bytes_max;  /* bodies of requests that wait */
};

struct queue_line {
    const struct served_model *model;
    struct unit *head, *tail;
};

struct queue {
    struct queue_line lines[MODELS_MAX];
    uint32_t line_count;
    uint32_t units;
    uint64_t tokens, bytes;
};

/* Whether all of r's prompts may wait. An empty queue takes any request that was let in. */
bool queue_admits(const struct queue *q, const struct queue_limits *limits,
                  const struct request *r);
void queue_push_back(struct queue *q, struct unit *u);
void queue_push_front(struct queue *q, struct unit *u);
void queue_take(struct queue *q, struct unit *u);
void queue_check(const struct queue *q); /* CHECKs links and counts */

#endif
