/* fleet.h - which workers there are, how they do, and what each has been given. A core: plain
 * state; events and now in, answers out. Load is counted at dispatch in one function (fleet_charge)
 * and given back exactly once in another (fleet_discharge). A worker is leased: heard within
 * SUSPECT_NS it is good; then suspect (no new work); after DEAD_NS it is dead. Bound: WORKERS_MAX.
 * Loop thread. */
#ifndef PENSTOCK_GATEWAY_FLEET_H
#define PENSTOCK_GATEWAY_FLEET_H

#include "common/hash.h"
#include "common/transport.h"
#include "gateway/request.h"

enum {
    WORKERS_MAX = 256,
    PREFIX_SLOTS = 8192,
    LOOKAHEAD_SEQUENCES =
        4, /* given beyond what runs, so that none waits for a message to travel */
    PREFILL_AHEAD_TOKENS = 4096, /* and at least so many prompt tokens, or */
    SENT_BUCKETS = 4096,
};
#define PREFILL_AHEAD_S                                                                            \
    2.0 /* what the worker prefills in this time; what is bound late is bound best */
#define SUSPECT_NS UINT64_C(1000000000)
#define DEAD_NS UINT64_C(2000000000)

enum worker_state { WORKER_NONE, WORKER_LIVE, WORKER_DRAINING };

struct worker_facts { /* from its Hello */
    char name[256];
    uint64_t epoch;
    uint32_t context_max, sequences_max, kv_blocks, submit_window;
};

struct worker_report { /* from its last Tokens or Heartbeat */
    uint32_t running, waiting, kv_blocks_used, kv_blocks_free;
    float prefill_tokens_per_s, decode_step_s;
    uint64_t steps;
};

struct worker {
    enum worker_state state;
    struct transport_peer peer;
    struct worker_facts facts;
    struct served_model *model;
    struct worker_report report;
    uint64_t last_heard_ns, closed_until_ns; /* closed: it said that it is full */
    struct unit *units;                      /* given to it and not over */
    uint32_t unit_count, choice_count;
    uint64_t prefill_tokens; /* prompt tokens given and not yet known to be computed */
    uint64_t kv_tokens;      /* tokens that what it has will probably come to hold */
    uint64_t *prefixes;      /* [PREFIX_SLOTS] keys of prompt prefixes that were sent here lately */
};

struct fleet {
    struct worker workers[WORKERS_MAX];
    uint32_t count;                  /* slots in use are below it */
    struct unit *sent[SENT_BUCKETS]; /* units that workers have, by id */
    double output_mean;              /* tokens of choices that ended lately; 0: none has */
};

struct worker *fleet_find(struct fleet *f, const struct transport_peer *peer);
/* A new worker, or the same one again (same peer and epoch). NULL: no room. *returned: it was
 * known. */
struct worker *fleet_join(struct fleet *f, const struct transport_peer *peer,
                          const struct worker_facts *facts, struct served_model *model,
                          uint64_t now_ns, bool *returned);
/* Forgets a worker; its units must have been taken off before. */
void fleet_remove(struct fleet *f, struct worker *w);
bool worker_good(const struct worker *w, uint64_t now_ns); /* live, heard lately, not closed */
bool fleet_serves(const struct fleet *f,
                  const struct served_model *m); /* some worker does, in whatever state */
bool worker_dead(const struct worker *w, uint64_t now_ns);

/* Nobody listened for a while (this process was stopped): that is no worker's silence. */
void fleet_forgive(struct fleet *f, uint64_t now_ns);

void fleet_charge(struct fleet *f, struct worker *w, struct unit *u, uint32_t cached_tokens);
void fleet_started(struct unit *u); /* its first token came: the prefill is done */
void fleet_choice_over(struct fleet *f, struct unit *u, const struct choice *c);
void fleet_discharge(struct fleet *f, struct unit *u);
/* A unit that some worker has; NULL: none has it (any more). */
struct unit *fleet_find_unit(const struct fleet *f, uint64_t id);
/* Whether u may be given to w now: sequences, window, context, prefill and KV. */
bool worker_has_room(const struct fleet *f, const struct worker *w, const struct unit *u);
/* CHECKs that counts equal the sums over units. */
void fleet_check(const struct fleet *f);
void fleet_deinit(struct fleet *f);

#endif
