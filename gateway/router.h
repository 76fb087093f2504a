/* router.h - which worker gets a unit: the one with the least cost in seconds. One formula, no
 * modes: (prompt - cached) / prefill speed + what it must prefill before / prefill speed + its
 * streams' share of a step + a price on a full KV cache. Ties go by a random number of the
 * caller's. A core. `cached` is what was sent there lately, until workers report blocks. */
#ifndef PENSTOCK_GATEWAY_ROUTER_H
#define PENSTOCK_GATEWAY_ROUTER_H

#include "gateway/fleet.h"

struct route {
    struct worker *worker; /* NULL: nobody has room now */
    bool possible;         /* some worker could take it, if not now */
    uint32_t cached_tokens;
    double cost_s;
};

/* Among the good workers of the unit's model that have room. */
struct route router_pick(struct fleet *f, const struct unit *u, uint64_t now_ns, uint64_t random);
/* Prompt tokens that w has probably cached, from what was sent there. */
uint32_t router_cached(const struct worker *w, const struct prompt *p);
/* Remembers that the prompt goes to w. */
void router_remember(struct worker *w, const struct prompt *p);

#endif
