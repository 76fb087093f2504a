#include "worker/engine/scheduler.h"

#include <string.h>

/* ---- the waiting line ---- */

void scheduler_wait_back(struct scheduler *s, struct sequence *x)
{
    x->prev = s->waiting_tail;
    x->next = NULL;
    if (s->waiting_tail != NULL)
        s->waiting_tail->next = x;
    else
        s->waiting_head = x;
    s->waiting_tail = x;
    s->waiting_count++;
}

void scheduler_wait_front(struct scheduler *s, struct sequence *x)
{
    x->next = s->waiting_head;
    x->prev = NULL;
    if (s->waiting_head != NULL)
        s->waiting_head->prev = x;
    else
        s->waiting_tail = x;
    s->waiting_head = x;
    s->waiting_count++;
}

void scheduler_unwait(struct scheduler *s, struct sequence *x)
{
    if (x->prev != NULL)
        x->prev->next = x->next;
    else
        s->waiting_head = x->next;
    if (x->next != NULL)
        x->next->prev = x->prev;
    else
        s->waiting_tail = x->prev;
    x->prev = x->next = NULL;
    s->waiting_count--;
}

static void release_blocks(struct scheduler *s, struct sequence *x)
{
    while (x->block_count > 0)
        kv_pool_release(s->pool, x->blocks[--x->block_count]); /* tails are evicted before heads */
    x->computed = x->published = 0;
}

void scheduler_stop_running(struct scheduler *s, struct sequence *x)
{
    uint32_t i = 0;
    while (i < s->running_count && s->running[i] != x)
        i++;
    CHECK(i < s->running_count);
    memmove(&s->running[i], &s->running[i + 1], (s->running_count - i - 1) * sizeof *s->running);
    s->running_count--;
    release_blocks(s, x);
}

/* Recompute, not swap: what it has computed stays in the cache while memory lasts, and is found
 * again. */
static void preempt(struct scheduler *s, struct sequence *x)
{
    scheduler_stop_running(s, x);
    x->state = SEQUENCE_WAITING;
    scheduler_wait_front(s, x);
    s->preemptions++;
    s->holds_admission = true;
}

/* ---- admission ---- */

struct hits {
    uint32_t blocks;      /* whole blocks of the cache */
    uint32_t free_blocks; /* of those, how many nobody holds: taking them costs room */
    kv_block partial;     /* a block whose first tokens are ours too; KV_BLOCK_NONE */
    uint32_t partial_tokens;
};

/* A running sequence whose block b begins like ours, computed so far: its block may be copied
 * although it is not full. */
static void find_running_partial(const struct scheduler *s, const struct sequence *x, uint32_t b,
                                 uint32_t most, struct hits *h)
{
    for (uint32_t i = 0; i < s->running_count; i++) {
        const struct sequence *r = s->running[i];
        uint32_t start = b * KV_BLOCK_TOKENS;
        if (r->computed <= start || b >= r->block_count) continue;
        if (!hash128_eq(sequence_parent_key(r, b), sequence_parent_key(x, b))) continue;
        uint32_t run = 0, limit = r->computed - start < most ? r->computed - start : most;
        while (run < limit && run < KV_BLOCK_TOKENS &&
               r->tokens[start + run] == x->tokens[start + run])
            run++;
        if (run > h->partial_tokens) {
            h->partial_tokens = run;
            h->partial = r->blocks[b];
        }
    }
}

/* What the cache holds of x, leaving at least its last token to compute: its logits are wanted. */
static struct hits find_hits(const struct scheduler *s, struct sequence *x)
{
    struct hits h = {0, 0, KV_BLOCK_NONE, 0};
    if (!s->options->prefix_cache) return h;
    uint32_t usable = x->known - 1;
    while ((h.blocks + 1) * KV_BLOCK_TOKENS <= usable) {
        kv_block found = kv_pool_find(s->pool, sequence_parent_key(x, h.blocks), x->keys[h.blocks],
                                      x->tokens + (size_t)h.blocks * KV_BLOCK_TOKENS);
        if (found.v == KV_BLOCK_NONE.v) break;
        x->blocks[h.blocks++] = found; /* a note, not held yet: block_count stays */
        h.free_blocks += !kv_pool_held(s->pool, found);
    }
    uint32_t start = h.blocks * KV_BLOCK_TOKENS, rest = usable - start;
    if (rest == 0) return h;
    h.partial = kv_pool_find_partial(s->pool, sequence_parent_key(x, h.blocks), x->tokens + start,
                                     rest, &h.partial_tokens);
    find_running_partial(s, x, h.blocks, rest, &h);
    if (h.partial_tokens < PARTIAL_TOKENS_MIN) {
        h.partial = KV_BLOCK_NONE;
        h.partial_tokens = 0;
    }
    return h;
}

/* Somebody computes the very blocks that x lacks: waiting a step or two costs less than computing
 * them twice. */
static bool prefix_in_flight(const struct scheduler *s, const struct sequence *x, uint32_t blocks)
{
    if (!s->options->prefix_cache || blocks >= x->key_count ||
        (blocks + 1) * KV_BLOCK_TOKENS > x->known - 1)
        return false;
    for (uint32_t i = 0; i < s->running_count; i++) {
        const struct sequence *r = s->running[i];
        if (r->computed < (blocks + 1) * KV_BLOCK_TOKENS && r->computed + 1 < r->known &&
            blocks < r->key_count && hash128_eq(r->keys[blocks], x->keys[blocks]))
            return true;
    }
    return false;
}

enum admission { ADMITTED, NO_ROOM, LATER };

static enum admission admit(struct scheduler *s, struct step *step, struct sequence *x,
                            uint64_t now_ns)
{
    struct hits h = find_hits(s, x);
    if (prefix_in_flight(s, x, h.blocks)) return LATER;
    uint32_t fresh = blocks_for(x->known) - h.blocks;
    bool partial = h.partial.v != KV_BLOCK_NONE.v;
    uint32_t take = fresh + h.free_blocks + (partial && !kv_pool_held(s->pool, h.partial) ? 1 : 0);
    uint32_t margin = (uint32_t)((float)kv_pool_count(s->pool) * s->options->watermark);
    if (s->running_count == 0)
        margin = 0; /* alone it may take all: submit made sure that it fits */
    if (partial && take + margin > kv_pool_free_count(s->pool) &&
        s->running_count == 0) { /* the copy's source must not be in the way */
        partial = false;
        take = fresh + h.free_blocks;
    }
    if (take + margin > kv_pool_free_count(s->pool)) return NO_ROOM;
    /* hits are held before anything is acquired: acquiring could evict them */
    for (uint32_t b = 0; b < h.blocks; b++)
        kv_pool_retain(s->pool, x->blocks[b]);
    if (partial) kv_pool_retain(s->pool, h.partial);
    CHECK(kv_pool_acquire(s->pool, fresh, x->blocks + h.blocks) == OK);
    x->block_count = h.blocks + fresh;
    x->published = h.blocks;
    x->computed = h.blocks * KV_BLOCK_TOKENS;
    if (partial) {
        step->copy_pairs[2 * step->copies] = h.partial.v;
        step->copy_pairs[2 * step->copies + 1] = x->blocks[h.blocks].v;
        step->copies++;
        x->copy_source = h.partial;
        x->computed += h.partial_tokens;
    }
    if (!x->admitted_once)
        x->cached_tokens = x->computed < x->prompt_count ? x->computed : x->prompt_count;
    if (!x->admitted_once) x->admitted_ns = now_ns;
    x->admitted_once = true;
    x->admit_order = ++s->admissions;
    x->state = SEQUENCE_RUNNING;
    x->step_rows = 0;
    scheduler_unwait(s, x);
    s->running[s->running_count++] = x;
    return ADMITTED;
}

/* First come, first served; a head that finds no room may be passed by smaller ones, for a while.
 */
static void admit_waiting(struct scheduler *s, struct step *step, uint32_t budget, uint64_t now_ns)
{
    uint32_t looked = 0;
    struct sequence *blocked = NULL;
    if (s->holds_admission && s->running_count > 0) {
        uint32_t free = kv_pool_free_count(s->pool), count = kv_pool_count(s->pool);
        uint32_t margin = (uint32_t)((float)count * s->options->watermark * 2) + count / 16 + 1;
        if (free < margin) return;
    }
    s->holds_admission = false;
    for (struct sequence *x = s->waiting_head, *next;
         x != NULL && budget > 0 && looked < ADMIT_LOOK_MAX; x = next, looked++) {
        next = x->next;
        if (s->running_count == s->options->sequences_max) return;
        if (blocked != NULL && blocked->passed >= PASS_MAX) return;
        enum admission answer = admit(s, step, x, now_ns);
        if (answer == NO_ROOM && blocked == NULL) blocked = x;
        if (answer != ADMITTED) continue;
        if (blocked != NULL) blocked->passed++;
        uint32_t rest = x->known - x->computed;
        budget -= rest < budget ? rest : budget;
    }
}

/* ---- the step ---- */

static void plan_rows(struct scheduler *s, struct sequence *x, uint32_t rows)
{
    x->step_rows = rows;
    x->wants_logits = x->computed + rows == x->known;
    s->planned[s->planned_count++] = x;
}

/* Each running sequence with one token to compute; one that finds no block makes the newest give
 * way. */
static void plan_decodes(struct scheduler *s, uint32_t rows_max)
{
    for (uint32_t i = 0; i < s->running_count && s->decode_rows < rows_max;) {
        struct sequence *x = s->running[i];
        if (x->known - x->computed != 1) {
            i++;
            continue;
        }
        uint32_t need = blocks_for(x->known) - x->block_count;
        bool here = true;
        while (need > 0 && here &&
               kv_pool_acquire(s->pool, need, x->blocks + x->block_count) != OK) {
            struct sequence *victim = s->running[s->running_count - 1];
            here = victim != x;
            preempt(s, victim);
        }
        if (!here)
            continue; /* x itself was the newest: its place in the list is somebody else's, or the
                         end */
        x->block_count += need;
        plan_rows(s, x, 1);
        s->decode_rows++;
        i++;
    }
}

/* Prefills share the budget: the one with the least left first, so that short prompts do not wait
 * behind long ones; one that has waited for two seconds goes first. */
static void plan_prefills(struct scheduler *s, uint32_t budget, uint64_t now_ns)
{
    while (budget > 0) {
        struct sequence *best = NULL;
        for (uint32_t i = 0; i < s->running_count; i++) {
            struct sequence *x = s->running[i];
            if (x->step_rows > 0 || x->known - x->computed <= 1) continue;
            if (now_ns - x->submitted_ns > 2000000000u) {
                best = x;
                break;
            }
            if (best == NULL || x->known - x->computed < best->known - best->computed) best = x;
        }
        if (best == NULL) return;
        uint32_t rest = best->known - best->computed, rows = rest < budget ? rest : budget;
        plan_rows(s, best, rows);
        s->prefill_rows += rows;
        budget -= rows;
    }
}

/* A sequence that was just admitted with all but one token cached is a decode that plan_decodes did
 * not see. */
static void plan_late_decodes(struct scheduler *s, uint32_t rows_max)
{
    for (uint32_t i = 0; i < s->running_count && s->decode_rows + s->prefill_rows < rows_max; i++) {
        struct sequence *x = s->running[i];
        if (x->step_rows > 0 || x->known - x->computed != 1 ||
            x->block_count < blocks_for(x->known))
            continue;
        plan_rows(s, x, 1);
        s->decode_rows++;
    }
}

static void publish_full_blocks(struct scheduler *s, struct sequence *x)
{
    if (!s->options->prefix_cache) return;
    uint32_t full = (x->computed + x->step_rows) / KV_BLOCK_TOKENS;
    for (; x->published < full; x->published++) {
        uint32_t b = x->published;
        kv_pool_publish(s->pool, x->blocks[b], sequence_parent_key(x, b), x->keys[b],
                        x->tokens + (size_t)b * KV_BLOCK_TOKENS);
    }
}

static void fill_step(struct scheduler *s, struct step *step)
{
    for (uint32_t i = 0; i < s->planned_count; i++) {
        struct sequence *x = s->planned[i];
        uint32_t *table = step->block_table + (size_t)i * step->block_table_stride;
        for (uint32_t b = 0; b < x->block_count; b++)
            table[b] = x->blocks[b].v;
        for (uint32_t k = 0; k < x->step_rows; k++) {
            uint32_t row = step->rows++, position = x->computed + k;
            step->tokens[row] = x->tokens[position];
            step->position[row] = position;
            step->slot[row] = x->blocks[position / KV_BLOCK_TOKENS].v * KV_BLOCK_TOKENS +
                              position % KV_BLOCK_TOKENS;
            step->row_sequence[row] = i;
        }
        if (x->wants_logits) step->logits_row[step->logits_rows++] = step->rows - 1;
        publish_full_blocks(s, x);
    }
    step->sequences = s->planned_count;
}

void scheduler_plan(struct scheduler *s, struct step *step, uint64_t now_ns)
{
    const struct engine_options *o = s->options;
    step_clear(step);
    s->planned_count = s->decode_rows = s->prefill_rows = 0;
    for (uint32_t i = 0; i < s->running_count; i++)
        s->running[i]->step_rows = 0;
    s->steps++;
    if (o->preempt_every_steps > 0 && s->steps % o->preempt_every_steps == 0 &&
        s->running_count > 0)
        preempt(s, s->running[s->running_count - 1]);
    uint64_t before = s->preemptions;
    plan_decodes(s, o->step_tokens_max);
    uint32_t budget =
        o->chunk_tokens > 0
            ? o->chunk_tokens
            : cost_model_budget(&s->cost, s->decode_rows, o->step_tokens_max, o->tpot_target_ms);
    if (budget > o->step_tokens_max - s->decode_rows) budget = o->step_tokens_max - s->decode_rows;
    if (s->preemptions == before)
        admit_waiting(s, step, budget, now_ns); /* nobody comes in while others are put out */
    plan_prefills(s, budget, now_ns);
    plan_late_decodes(s, o->step_tokens_max);
    fill_step(s, step);
}

void scheduler_settle_copies(struct scheduler *s)
{
    for (uint32_t i = 0; i < s->running_count; i++) {
        struct sequence *x = s->running[i];
        if (x->copy_source.v == KV_BLOCK_NONE.v) continue;
        kv_pool_release(s->pool, x->copy_source);
        x->copy_source = KV_BLOCK_NONE;
    }
}
