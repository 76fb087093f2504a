#include "worker/engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what was seen ---- */

enum err token_counts_init(struct token_counts *c, uint32_t distinct_max)
{
    uint32_t slots = 16;
    while (slots < 2 * (uint64_t)distinct_max)
        slots *= 2;
    c->slots = calloc(slots, sizeof *c->slots);
    c->mask = slots - 1;
    return c->slots != NULL ? OK : ERR_NOMEM;
}

void token_counts_deinit(struct token_counts *c)
{
    free(c->slots);
    *c = (struct token_counts){0};
}

void token_counts_add(struct token_counts *c, uint32_t id, bool output)
{
    if (c->slots == NULL) return;
    uint32_t at = (id * 2654435761u) & c->mask;
    while (c->slots[at].id_plus_1 != 0 && c->slots[at].id_plus_1 != id + 1)
        at = (at + 1) & c->mask;
    c->slots[at].id_plus_1 = id + 1;
    c->slots[at].output += output;
}

bool sampler_needs_counts(const struct sampling_params *p)
{
    return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

uint64_t sampler_key(uint64_t seed, uint32_t choice, uint32_t position)
{
    uint64_t x = seed + UINT64_C(0x9E3779B97F4A7C15) * (((uint64_t)choice << 32 | position) + 1);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* ---- logits as the parameters want them ---- */

static void apply_bias(const struct sampler_row *row)
{
    const struct sampling_params *p = row->params;
    for (uint32_t i = 0; i < p->bias_count; i++)
        row->logits[p->bias_ids[i]] += p->bias[i];
    if (row->output_count >= p->min_tokens) return;
    for (uint32_t i = 0; i < row->eog_count; i++)
        if (row->eog_ids[i] < row->vocab) row->logits[row->eog_ids[i]] = -INFINITY;
    for (uint32_t i = 0; i < p->stop_id_count; i++)
        row->logits[p->stop_ids[i]] = -INFINITY;
}

static void apply_penalties(const struct sampler_row *row)
{
    const struct sampling_params *p = row->params;
    if (row->counts->slots == NULL) return;
    for (uint32_t i = 0; i <= row->counts->mask; i++) {
        const struct token_count *c = &row->counts->slots[i];
        if (c->id_plus_1 == 0) continue;
        float *x = &row->logits[c->id_plus_1 - 1];
        *x = *x > 0 ? *x / p->repetition_penalty : *x * p->repetition_penalty;
        if (c->output > 0) *x -= p->presence_penalty + p->frequency_penalty * (float)c->output;
    }
}

/* ---- logprobs, of the raw softmax ---- */

static void insert_top(struct engine_logprobs *out, uint32_t k, uint32_t id, float logprob)
{
    uint32_t at = out->top_count < k ? out->top_count++ : k - 1;
    while (at > 0 && out->top_logprobs[at - 1] < logprob) {
        out->top_ids[at] = out->top_ids[at - 1];
        out->top_logprobs[at] = out->top_logprobs[at - 1];
        at--;
    }
    out->top_ids[at] = id;
    out->top_logprobs[at] = logprob;
}

/* The k largest of the raw logits with their logprobs; log_sum is log of the softmax's denominator
 * plus the largest logit. */
static void fill_top(const float *logits, uint32_t n, uint32_t k, float log_sum,
                     struct engine_logprobs *out)
{
    out->top_count = 0;
    for (uint32_t i = 0; i < n && k > 0; i++) {
        float logprob = logits[i] - log_sum;
        if (out->top_count < k || logprob > out->top_logprobs[k - 1])
            insert_top(out, k, i, logprob);
    }
}

/* ---- the kept set ---- */

struct order {
    const float *logits;
};

static int by_logit(const void *a, const void *b, void *arg)
{
    const struct order *order = arg;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    float p = order->logits[x], q = order->logits[y];
    if (p != q) return p > q ? -1 : 1;
    return x < y ? -1 : 1; /* ties: the lower id first */
}

/* The logit of the k-th largest, exactly, by bisection on the order of float bits: no sort of a
 * whole vocabulary. */
static uint32_t ordered_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static float from_ordered(uint32_t u)
{
    u = u & 0x80000000u ? u & 0x7FFFFFFFu : ~u;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float kth_largest(const float *logits, uint32_t n, uint32_t k)
{
    uint32_t counts[256], prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        memset(counts, 0, sizeof counts);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t u = ordered_bits(logits[i]);
            if ((u & mask) == prefix) counts[(u >> shift) & 255]++;
        }
        uint32_t digit = 255;
        while (counts[digit] < k)
            k -= counts[digit--];
        prefix |= digit << shift;
        mask |= 255u << shift;
    }
    return from_ordered(prefix);
}

/* How many of the candidates, in falling order, top_p keeps: the fewest whose probabilities reach
 * it. total: their sum. */
static uint32_t cut_top_p(const float *logits, const uint32_t *ids, uint32_t n, float max,
                          float inv_t, float total, float top_p)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += expf((logits[ids[i]] - max) * inv_t);
        if (sum >= top_p * total) return i + 1;
    }
    return n;
}

/* What may be drawn: all that reach floor (count == UINT32_MAX), or ids[0..count) in falling order.
 */
struct kept {
    float floor;
    const uint32_t *ids;
    uint32_t count;
};

static struct kept keep(const struct sampler_row *row, const struct cpu_ops *ops, float max,
                        float inv_t)
{
    const struct sampling_params *p = row->params;
    struct kept kept = {-INFINITY, row->candidates, UINT32_MAX};
    bool use_k = p->top_k > 0 && p->top_k < row->vocab, use_p = p->top_p < 1;
    /* min_p: probability at least min_p times the best one's, i.e. a difference of logits */
    float min_p_floor = p->min_p > 0 ? max + logf(p->min_p) / inv_t : -INFINITY;
    if (!use_k && !use_p) {
        kept.floor = min_p_floor;
        return kept;
    }
    float k_floor = use_k ? kth_largest(row->logits, row->vocab, p->top_k) : -INFINITY;
    /* what lies 40 / inv_t below the best has no weight in float32: top_p never needs it */
    float floor = use_p && max - 40 / inv_t > k_floor ? max - 40 / inv_t : k_floor;
    uint32_t n =
        ops->row_above(row->logits, row->vocab, floor, row->candidates, SAMPLER_CANDIDATES_MAX);
    while (n >
           SAMPLER_CANDIDATES_MAX) { /* a flat row: the best SAMPLER_CANDIDATES_MAX stand for all */
        floor = kth_largest(row->logits, row->vocab, SAMPLER_CANDIDATES_MAX / 2);
        n = ops->row_above(row->logits, row->vocab, floor, row->candidates, SAMPLER_CANDIDATES_MAX);
        if (n > SAMPLER_CANDIDATES_MAX) n = SAMPLER_CANDIDATES_MAX; /* all alike: the lower ids */
    }
    struct order order = {row->logits};
    qsort_r(row->candidates, n, sizeof *row->candidates, by_logit, &order);
    if (use_k && n > p->top_k) n = p->top_k;
    if (use_p) {
        float total = 0;
        if (use_k) {
            for (uint32_t i = 0; i < n; i++)
                total += expf((row->logits[row->candidates[i]] - max) * inv_t);
        } else {
            total = ops->row_exp_sum(row->logits, row->vocab, max, inv_t);
        }
        n = cut_top_p(row->logits, row->candidates, n, max, inv_t, total, p->top_p);
    }
    while (n > 1 && row->logits[row->candidates[n - 1]] < min_p_floor)
        n--;
    kept.count = n;
    return kept;
}

/* Draws among few: the others are masked, and the same kernel runs over the same noise. */
static uint32_t draw(const struct sampler_row *row, const struct cpu_ops *ops,
                     const struct kept *kept, float max, float inv_t)
{
    uint64_t key = sampler_key(row->params->seed, row->choice, row->position);
    if (kept->count == UINT32_MAX) {
        /* noise lies in (-3.2, 22.9): what is 27 / inv_t below the best can never win */
        float floor = max - 27 / inv_t;
        return ops->row_gumbel_argmax(row->logits, row->vocab, inv_t,
                                      kept->floor > floor ? kept->floor : floor, key);
    }
    if (kept->count == 1) return kept->ids[0];
    float least = row->logits[kept->ids[kept->count - 1]];
    /* ids with the border's logit that did not make the cut must not be drawn */
    for (uint32_t i = 0, n = ops->row_above(row->logits, row->vocab, least, NULL, 0);
         i < row->vocab && n > kept->count; i++) {
        if (row->logits[i] != least || i <= kept->ids[kept->count - 1]) continue;
        row->logits[i] = -INFINITY;
        n--;
    }
    return ops->row_gumbel_argmax(row->logits, row->vocab, inv_t, least, key);
}

bool sampler_sample(const struct sampler_row *row, const struct cpu_ops *ops, uint32_t *token,
                    struct engine_logprobs *logprobs)
{
    const struct sampling_params *p = row->params;
    float max, log_sum = 0;
    uint32_t best;
    if (!ops->row_max(row->logits, row->vocab, &max, &best)) return false;
    const float *raw = row->logits;
    if (p->want_logprobs) {
        log_sum = max + logf(ops->row_exp_sum(row->logits, row->vocab, max, 1));
        fill_top(row->logits, row->vocab, p->top_logprobs, log_sum, logprobs);
    }
    bool changes =
        p->bias_count > 0 || row->output_count < p->min_tokens || row->counts->slots != NULL;
    if (changes) {
        if (p->want_logprobs) {
            memcpy(row->raw, row->logits, row->vocab * sizeof *row->raw);
            raw = row->raw;
        }
        apply_bias(row);
        apply_penalties(row);
        if (!ops->row_max(row->logits, row->vocab, &max, &best) || max == -INFINITY) return false;
    }
    *token = best;
    if (p->temperature > 0) {
        float inv_t = 1 / p->temperature;
        struct kept kept = keep(row, ops, max, inv_t);
        *token = draw(row, ops, &kept, max, inv_t);
    }
    if (p->want_logprobs) logprobs->logprob = raw[*token] - log_sum;
    return true;
}
