#include "gateway/fleet.h"

#include <stdio.h>
#include <stdlib.h>

enum { OUTPUT_UNKNOWN = 256, BLOCK_TOKENS = 16 };

struct worker *fleet_find(struct fleet *f, const struct transport_peer *peer)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->workers[i].state != WORKER_NONE &&
            memcmp(&f->workers[i].peer, peer, sizeof *peer) == 0)
            return &f->workers[i];
    return NULL;
}

struct worker *fleet_join(struct fleet *f, const struct transport_peer *peer,
                          const struct worker_facts *facts, struct served_model *model,
                          uint64_t now_ns, bool *returned)
{
    struct worker *w = fleet_find(f, peer);
    *returned = w != NULL && w->facts.epoch == facts->epoch;
    if (*returned) {
        w->last_heard_ns = now_ns;
        return w;
    }
    CHECK(w == NULL); /* the caller removed a peer that changed its epoch */
    for (uint32_t i = 0; i < WORKERS_MAX && w == NULL; i++)
        if (f->workers[i].state == WORKER_NONE) {
            w = &f->workers[i];
            if (i >= f->count) f->count = i + 1;
        }
    if (w == NULL) return NULL;
    *w = (struct worker){.state = WORKER_LIVE,
                         .peer = *peer,
                         .facts = *facts,
                         .model = model,
                         .last_heard_ns = now_ns};
    w->prefixes =
        calloc(PREFIX_SLOTS,
               sizeof *w->prefixes); /* without it nothing counts as cached, and all goes on */
    return w;
}

void fleet_remove(struct fleet *f, struct worker *w)
{
    CHECK(w->units == NULL);
    free(w->prefixes);
    *w = (struct worker){0};
    while (f->count > 0 && f->workers[f->count - 1].state == WORKER_NONE)
        f->count--;
}

bool worker_good(const struct worker *w, uint64_t now_ns)
{
    return w->state == WORKER_LIVE && now_ns - w->last_heard_ns < SUSPECT_NS &&
           now_ns >= w->closed_until_ns;
}

bool fleet_serves(const struct fleet *f, const struct served_model *m)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->workers[i].state != WORKER_NONE && f->workers[i].model == m) return true;
    return false;
}

bool worker_dead(const struct worker *w, uint64_t now_ns)
{
    return w->state != WORKER_NONE && now_ns - w->last_heard_ns >= DEAD_NS;
}

void fleet_forgive(struct fleet *f, uint64_t now_ns)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->workers[i].state != WORKER_NONE) f->workers[i].last_heard_ns = now_ns;
}

/* Choices end where the model ends them, seldom at max_tokens: what they will hold is guessed from
 * those that ended lately. A worker that runs out preempts, and nothing is lost but time. */
static uint64_t tokens_of(const struct fleet *f, const struct unit *u)
{
    const struct request *r = u->request;
    uint64_t expected = f->output_mean > 0 ? (uint64_t)f->output_mean + 1 : OUTPUT_UNKNOWN;
    uint64_t tokens = r->prompts[u->prompt].count;
    for (uint32_t i = 0; i < u->choice_count; i++) {
        const struct choice *c = &r->choices[u->choices[i]];
        uint64_t most = c->id_count + expected;
        tokens += most < r->params.max_tokens ? most : r->params.max_tokens;
    }
    return tokens;
}

static struct unit **bucket_of(const struct fleet *f, uint64_t id)
{
    return (struct unit **)(uintptr_t)&f->sent[id % SENT_BUCKETS]; /* ids are dealt in a row */
}

struct unit *fleet_find_unit(const struct fleet *f, uint64_t id)
{
    struct unit *u = *bucket_of(f, id);
    while (u != NULL && u->id != id)
        u = u->same_bucket;
    return u;
}

void fleet_charge(struct fleet *f, struct worker *w, struct unit *u, uint32_t cached_tokens)
{
    CHECK(u->worker == NULL && !u->queued);
    uint32_t prompt = u->request->prompts[u->prompt].count;
    u->worker = w;
    u->charged_prefill = prompt > cached_tokens ? prompt - cached_tokens : 1;
    u->charged_tokens = tokens_of(f, u);
    w->prefill_tokens += u->charged_prefill;
    w->kv_tokens += u->charged_tokens;
    w->choice_count += u->open_choices;
    w->unit_count++;
    u->prev = NULL;
    u->next = w->units;
    if (u->next != NULL) u->next->prev = u;
    w->units = u;
    struct unit **bucket = bucket_of(f, u->id);
    u->same_bucket = *bucket;
    *bucket = u;
}

void fleet_started(struct unit *u)
{
    u->started = true;
    u->worker->prefill_tokens -= u->charged_prefill;
    u->charged_prefill = 0;
}

void fleet_choice_over(struct fleet *f, struct unit *u, const struct choice *c)
{
    CHECK(u->worker != NULL && u->open_choices > 0);
    u->open_choices--;
    u->worker->choice_count--;
    f->output_mean =
        f->output_mean > 0 ? f->output_mean + (c->id_count - f->output_mean) / 64 : c->id_count + 1;
}

void fleet_discharge(struct fleet *f, struct unit *u)
{
    struct worker *w = u->worker;
    CHECK(w != NULL);
    w->prefill_tokens -= u->charged_prefill;
    w->kv_tokens -= u->charged_tokens;
    w->choice_count -= u->open_choices;
    w->unit_count--;
    u->charged_prefill = 0;
    u->charged_tokens = 0;
    if (u->prev != NULL)
        u->prev->next = u->next;
    else
        w->units = u->next;
    if (u->next != NULL) u->next->prev = u->prev;
    u->prev = u->next = NULL;
    u->worker = NULL;
    struct unit **at = bucket_of(f, u->id);
    while (*at != u)
        at = &(*at)->same_bucket;
    *at = u->same_bucket;
    u->same_bucket = NULL;
}

bool worker_has_room(const struct fleet *f, const struct worker *w, const struct unit *u)
{
    const struct request *r = u->request;
    if (r->prompts[u->prompt].count + r->params.max_tokens > w->facts.context_max) return false;
    if (w->unit_count >= w->facts.submit_window) return false;
    if (w->choice_count == 0) return true; /* an idle worker takes anything that it can ever take */
    if (w->choice_count + u->open_choices > w->facts.sequences_max + LOOKAHEAD_SEQUENCES)
        return false;
    double ahead = PREFILL_AHEAD_S * (double)w->report.prefill_tokens_per_s;
    if ((double)w->prefill_tokens > (ahead > PREFILL_AHEAD_TOKENS ? ahead : PREFILL_AHEAD_TOKENS))
        return false;
    return w->kv_tokens + tokens_of(f, u) <= (uint64_t)w->facts.kv_blocks * BLOCK_TOKENS;
}

void fleet_check(const struct fleet *f)
{
    for (uint32_t i = 0; i < WORKERS_MAX; i++) {
        const struct worker *w = &f->workers[i];
        uint32_t units = 0, choices = 0;
        uint64_t prefill = 0, tokens = 0;
        CHECK(i < f->count || w->state == WORKER_NONE);
        for (const struct unit *u = w->units; u != NULL; u = u->next, units++) {
            CHECK(u->worker == w && !u->queued && (u->next == NULL || u->next->prev == u));
            CHECK(fleet_find_unit(f, u->id) == u);
            choices += u->open_choices;
            prefill += u->charged_prefill;
            tokens += u->charged_tokens;
        }
        CHECK(units == w->unit_count && choices == w->choice_count &&
              prefill == w->prefill_tokens && tokens == w->kv_tokens);
    }
}

void fleet_deinit(struct fleet *f)
{
    for (uint32_t i = 0; i < WORKERS_MAX; i++)
        free(f->workers[i].prefixes);
    *f = (struct fleet){0};
}
