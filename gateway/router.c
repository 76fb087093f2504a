#include "gateway/router.h"

enum { BLOCK_TOKENS = 16 };
static const double prefill_unknown = 1000, step_unknown_s = 0.05, kv_price_s = 0.5;

static uint64_t next_key(uint64_t key, const uint32_t *tokens)
{
    return hash64_of(span_of(tokens, BLOCK_TOKENS * sizeof *tokens), key);
}

uint32_t router_cached(const struct worker *w, const struct prompt *p)
{
    uint64_t key = 1;
    uint32_t cached = 0;
    if (w->prefixes == NULL) return 0;
    while (cached + BLOCK_TOKENS < p->count) { /* the last token is always computed */
        key = next_key(key, p->ids + cached);
        if (w->prefixes[key % PREFIX_SLOTS] != key) break;
        cached += BLOCK_TOKENS;
    }
    return cached;
}

void router_remember(struct worker *w, const struct prompt *p)
{
    uint64_t key = 1;
    if (w->prefixes == NULL) return;
    for (uint32_t at = 0; at + BLOCK_TOKENS <= p->count; at += BLOCK_TOKENS) {
        key = next_key(key, p->ids + at);
        w->prefixes[key % PREFIX_SLOTS] = key;
    }
}

static double cost_of(const struct worker *w, const struct unit *u, uint32_t cached)
{
    double speed = w->report.prefill_tokens_per_s > 0 ? (double)w->report.prefill_tokens_per_s
                                                      : prefill_unknown;
    double step = w->report.decode_step_s > 0 ? (double)w->report.decode_step_s : step_unknown_s;
    double blocks = w->facts.kv_blocks, used = blocks > 0 ? w->report.kv_blocks_used / blocks : 0;
    double fill = (double)w->choice_count / w->facts.sequences_max;
    uint32_t prompt = u->request->prompts[u->prompt].count;
    return (prompt - cached) / speed + (double)w->prefill_tokens / speed + step * fill +
           (used > 0.8 ? kv_price_s * (used - 0.8) / 0.2 : 0);
}

struct route router_pick(struct fleet *f, const struct unit *u, uint64_t now_ns, uint64_t random)
{
    struct route best = {NULL, false, 0, 0};
    const struct request *r = u->request;
    const struct prompt *prompt = &r->prompts[u->prompt];
    uint64_t ties = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        struct worker *w = &f->workers[i];
        if (w->state != WORKER_LIVE || w->model != r->model ||
            prompt->count + r->params.max_tokens > w->facts.context_max)
            continue;
        best.possible = true;
        if (!worker_good(w, now_ns) || !worker_has_room(f, w, u)) continue;
        uint32_t cached = router_cached(w, prompt);
        double cost = cost_of(w, u, cached);
        bool tie = best.worker != NULL && cost == best.cost_s;
        ties = tie ? ties + 1 : 0;
        if (best.worker == NULL || cost < best.cost_s || (tie && random % (ties + 1) == ties))
            best = (struct route){w, true, cached, cost};
    }
    return best;
}
