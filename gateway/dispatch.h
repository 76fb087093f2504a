/* dispatch.h - the batcher, and what happens when workers fail: which unit goes where and
 * when. A core: events and `now` go in, actions come out through struct dispatch_actions (the shell
 * sends bytes, the simulator counts). Loop thread. Requests wait here, not in workers: bound late,
 * they lose nothing when a worker dies. A unit whose worker died goes back to the queue's head with
 * its tokens and resumes at the exact next one; one that was with two workers when they died is
 * poison. Bounds: struct queue_limits; over them a request is refused with 429. */
#ifndef PENSTOCK_GATEWAY_DISPATCH_H
#define PENSTOCK_GATEWAY_DISPATCH_H

#include "gateway/fleet.h"
#include "gateway/queue.h"
#include "gateway/stream.h"

struct dispatch_actions {
    void *arg;
    void (*send)(void *arg, struct worker *w, struct unit *u); /* add to the worker's next Submit */
    void (*cancel)(void *arg, struct worker *w, uint64_t id, uint32_t attempt);
    void (*changed)(void *arg, struct request *r); /* there may be something to write */
    void (*failed)(void *arg, struct request *r,
                   const struct api_error *e); /* over: dispatch has let go of it */
};

struct dispatch_counts {
    uint64_t stale; /* of another attempt, or from a worker that does not have the unit */
    uint64_t gaps, retries, deaths, quarantined, dispatched;
};

struct dispatch {
    struct fleet fleet;
    struct queue queue;
    struct queue_limits limits;
    struct dispatch_actions actions;
    double completions_per_s; /* smoothed, for Retry-After */
    uint64_t last_completion_ns;
    struct dispatch_counts counts;
};

struct token_event { /* what a worker's Tokens message says of one choice */
    uint64_t id;
    uint32_t attempt, choice, first_index, id_count;
    const uint8_t *ids;                   /* little-endian words */
    const struct token_logprob *logprobs; /* [id_count] or NULL */
    enum finish finish;
    bool cancelled;
    uint32_t cached_tokens;
    const char *error; /* FINISH_FAILED */
};

/* ERR_FULL: *error is the 429; the request has no units and stays the caller's. */
enum err dispatch_enqueue(struct dispatch *d, struct request *r, uint64_t now_ns,
                          struct api_error *error) MUST_CHECK;
/* Gives what waits to workers with room. random: for ties. */
void dispatch_run(struct dispatch *d, uint64_t now_ns, uint64_t random);
void dispatch_on_accepted(struct dispatch *d, struct worker *w, uint64_t id, uint32_t attempt);
/* The worker will not take it. too_long, bad: for good (with its sentence); else later or
 * elsewhere. */
void dispatch_on_rejected(struct dispatch *d, struct worker *w, uint64_t id, uint32_t attempt,
                          bool too_long, bool bad, const char *message, uint64_t now_ns);
void dispatch_on_tokens(struct dispatch *d, struct worker *w, const struct token_event *e,
                        uint64_t now_ns);
/* The worker is gone (died) or left in order: its units go back to the queue's head, and it is
 * forgotten. */
void dispatch_drop_worker(struct dispatch *d, struct worker *w, bool died, uint64_t now_ns);
/* Nobody wants the request any more: queued units leave, sent ones are cancelled. */
void dispatch_abandon(struct dispatch *d, struct request *r);
/* Leases, and Submits that were never acknowledged. Every 100 ms or so. */
void dispatch_tick(struct dispatch *d, uint64_t now_ns);
uint32_t dispatch_good_workers(const struct dispatch *d, const struct served_model *m,
                               uint64_t now_ns); /* m NULL: of any model */
void dispatch_check(const struct dispatch *d);

#endif
