/* attention_plain.c - attention in plain C: the reference. One query after the other; no second
 * phase. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention.h"
#include "kernels/kv_layout.h"

struct query {
    const struct op_attention *op;
    const uint32_t *blocks; /* of its sequence */
    uint32_t kv_head;
    const float *q; /* [head_dim] */
    float *out;     /* [head_dim] */
    float max, sum; /* of what was seen so far */
};

static struct kv_head head_of(const struct query *query, uint32_t position)
{
    return kv_head_at(&query->op->kv, query->blocks[position / KV_BLOCK_TOKENS], query->kv_head);
}

/* Positions [begin, end) of one split into the running result. */
static void attend(struct query *query, uint32_t begin, uint32_t end)
{
    const struct kv_layer *kv = &query->op->kv;
    float p[ATTENTION_SPLIT_TOKENS], max = -INFINITY, sum = 0;
    for (uint32_t t = begin; t < end; t++) {
        struct kv_head h = head_of(query, t);
        float score = 0;
        for (uint32_t d = 0; d < kv->head_dim; d++)
            score += query->q[d] * kv_head_get(kv, &h, 0, t % KV_BLOCK_TOKENS, d);
        p[t - begin] = score * query->op->scale;
        max = p[t - begin] > max ? p[t - begin] : max;
    }
    for (uint32_t t = begin; t < end; t++) {
        p[t - begin] = expf(p[t - begin] - max);
        sum += p[t - begin];
    }
    float merged = max > query->max ? max : query->max;
    float old_part = expf(query->max - merged), new_part = expf(max - merged);
    for (uint32_t d = 0; d < kv->head_dim; d++) {
        float o = 0;
        for (uint32_t t = begin; t < end; t++) {
            struct kv_head h = head_of(query, t);
            o += p[t - begin] * kv_head_get(kv, &h, 1, t % KV_BLOCK_TOKENS, d);
        }
        query->out[d] = query->out[d] * old_part + o * new_part;
    }
    query->sum = query->sum * old_part + sum * new_part;
    query->max = merged;
}

void attention_plain(const struct op_attention *op, uint32_t ith, uint32_t nth)
{
    uint32_t dim = op->kv.head_dim, group = op->q_heads / op->kv.kv_heads;
    uint64_t units = (uint64_t)op->rows * op->q_heads, last = units * (ith + 1) / nth;
    for (uint64_t unit = units * ith / nth; unit < last; unit++) {
        uint32_t r = (uint32_t)(unit / op->q_heads), head = (uint32_t)(unit % op->q_heads);
        struct query query = {
            .op = op,
            .blocks = op->block_table + (size_t)op->row_sequence[r] * op->block_table_stride,
            .kv_head = head / group,
            .q = op->q + (size_t)r * op->q_stride + (size_t)head * dim,
            .out = op->out + unit * dim,
            .max = -INFINITY,
        };
        memset(query.out, 0, dim * sizeof(float));
        uint32_t end = op->position[r] + 1, at = attention_begin(op, op->position[r]);
        while (at < end) {
            uint32_t next = (at / ATTENTION_SPLIT_TOKENS + 1) * ATTENTION_SPLIT_TOKENS;
            if (next > end) next = end;
            attend(&query, at, next);
            at = next;
        }
        for (uint32_t d = 0; d < dim; d++)
            query.out[d] /= query.sum;
    }
}

bool attention_needs_merge_plain(const struct op_attention *op)
{
    (void)op;
    return false;
}

void attention_merge_plain(const struct op_attention *op, uint32_t ith, uint32_t nth)
{
    (void)op, (void)ith, (void)nth;
}
