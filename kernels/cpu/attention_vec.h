/* attention_vec.h - attention for a vector instruction set; included by attention_avx2.c and
 * attention_avx512.c, which also say how large the register tiles are.
 *
 * A tile is up to 24 queries (rows x heads of one group) of one KV head. For each split of 256
 * keys: scores of all queries with all keys they see, 16 keys of a block side by side; then for
 * each query the maximum, 2^(score - max) and their sum; then the weighted sum of V. Since a split
 * fits the L1 cache as scores, nothing is rescaled inside it. Splits are merged in order, at once
 * or, when they are spread over threads, after the barrier, by the same function.
 *
 * Bit for bit, a query's result depends on its own position only: a score is one running sum over
 * head_dim, a value one running sum over the visible keys in order, whatever shares the tile. Keys
 * that a query does not see never enter: their scores are masked, their V is not even multiplied
 * (0 * NaN), so that unused slots may hold anything. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/attention_work.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum {
    BLOCK_VECS = KV_BLOCK_TOKENS / VEC_LANES,
    FETCH_QUERIES_MAX = 8, /* a tile of so few waits for memory, not for the multipliers */
};

/* One tile of queries at one split. */
struct tile {
    const struct kv_layer *kv;
    uint32_t count;                         /* queries */
    const float *q[ATTENTION_TILE_QUERIES]; /* [head_dim], scaled */
    float *score[ATTENTION_TILE_QUERIES];   /* [256] */
    struct attention_partial *part[ATTENTION_TILE_QUERIES];
    uint32_t low[ATTENTION_TILE_QUERIES], high[ATTENTION_TILE_QUERIES]; /* keys, within the split */
    struct kv_head block[ATTENTION_SPLIT_BLOCKS];
    uint32_t first_block, last_block; /* those that are set */
};

/* ---- scores ---- */

VEC_INLINE vec load_kv(enum kv_type type, const uint8_t *part, size_t at)
{
    if (type == KV_F32) return vec_load((const float *)(const void *)part + at);
    if (type == KV_F16) return vec_load_f16((const uint16_t *)(const void *)part + at);
    return vec_load_i8((const int8_t *)part + at);
}

/* What is read `block` blocks into the split, when keys come first and values then; to be fetched
 * ahead. The hardware follows a stream for a page at most, and a block's head is half a page. */
static const uint8_t *key_ahead(const struct tile *t, uint32_t block)
{
    if (block <= t->last_block) return t->block[block].k;
    block = t->first_block + (block - t->last_block - 1);
    return t->block[block < t->last_block ? block : t->last_block].v;
}
static const uint8_t *value_ahead(const struct tile *t, uint32_t block)
{
    return t->block[block < t->last_block ? block + 1 : t->last_block].v;
}

/* `count` queries from `query` on, `vecs` vectors of keys from `first` on. */
VEC_INLINE void score_tile(enum kv_type type, const struct tile *t, uint32_t query, uint32_t count,
                           uint32_t first, uint32_t vecs)
{
    vec sum[16][8];
    const uint8_t *k[8], *ahead[8];
    const float *q[16];
    const size_t line = KV_BLOCK_TOKENS * kv_value_bytes(type); /* of one d */
    bool fetch = count <= FETCH_QUERIES_MAX && query == 0 && t->count <= FETCH_QUERIES_MAX;
    UNROLL
    for (uint32_t v = 0; v < vecs; v++) {
        ahead[v] = key_ahead(t, (first + vecs + v) / BLOCK_VECS);
        k[v] = t->block[(first + v) / BLOCK_VECS].k +
               (first + v) % BLOCK_VECS * VEC_LANES * kv_value_bytes(type);
    }
    UNROLL
    for (uint32_t i = 0; i < count; i++) {
        q[i] = t->q[query + i];
        UNROLL
        for (uint32_t v = 0; v < vecs; v++)
            sum[i][v] = vec_set(0);
    }
    for (uint32_t d = 0; d < t->kv->head_dim; d++) {
        vec key[8];
        if (fetch && d * line % 64 == 0) {
            UNROLL
            for (uint32_t v = 0; v < vecs; v += BLOCK_VECS)
                __builtin_prefetch(ahead[v] + d * line, 0, 2);
        }
        UNROLL
        for (uint32_t v = 0; v < vecs; v++)
            key[v] = load_kv(type, k[v], (size_t)d * KV_BLOCK_TOKENS);
        UNROLL
        for (uint32_t i = 0; i < count; i++) {
            vec qd = vec_set(q[i][d]);
            UNROLL
            for (uint32_t v = 0; v < vecs; v++)
                sum[i][v] = vec_fma(qd, key[v], sum[i][v]);
        }
    }
    UNROLL
    for (uint32_t v = 0; v < vecs; v++) {
        vec scale = vec_set(1);
        if (type == KV_Q8)
            scale = vec_load_f16(t->block[(first + v) / BLOCK_VECS].k_scale +
                                 (first + v) % BLOCK_VECS * VEC_LANES);
        UNROLL
        for (uint32_t i = 0; i < count; i++) {
            vec s = type == KV_Q8 ? vec_mul(sum[i][v], scale) : sum[i][v];
            vec_store(t->score[query + i] + (size_t)(first + v) * VEC_LANES, s);
        }
    }
}

/* vectors of keys [first, end), `vecs` at a time while they last */
VEC_INLINE void score_keys(enum kv_type type, const struct tile *t, uint32_t query, uint32_t count,
                           uint32_t first, uint32_t end, uint32_t vecs)
{
    for (; first + vecs <= end; first += vecs)
        score_tile(type, t, query, count, first, vecs);
    if (vecs > 2)
        for (; first + 2 <= end; first += 2)
            score_tile(type, t, query, count, first, 2);
    for (; first < end; first++)
        score_tile(type, t, query, count, first, 1);
}

VEC_INLINE void score_queries(enum kv_type type, const struct tile *t)
{
    uint32_t low = ATTENTION_SPLIT_TOKENS, high = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        low = t->low[i] < low ? t->low[i] : low;
        high = t->high[i] > high ? t->high[i] : high;
    }
    uint32_t first = low / VEC_LANES, end = (high + VEC_LANES - 1) / VEC_LANES, i = 0;
    for (; t->count - i >= SCORE_QUERIES; i += SCORE_QUERIES)
        score_keys(type, t, i, SCORE_QUERIES, first, end, 2);
    if (SCORE_QUERIES > 6 && t->count - i >= 6) {
        score_keys(type, t, i, 6, first, end, SCORE_VECS_6);
        i += 6;
    }
    switch (t->count - i) {
    case 5: score_keys(type, t, i++, 1, first, end, 8); /* fall through */
    case 4: score_keys(type, t, i, 4, first, end, SCORE_VECS_4); break;
    case 3: score_keys(type, t, i, 3, first, end, SCORE_VECS_4); break;
    case 2: score_keys(type, t, i, 2, first, end, 4); break;
    case 1: score_keys(type, t, i, 1, first, end, 8); break;
    }
}

/* ---- softmax ---- */

/* Scores of one query into 2^(score - max); for int8 times V's scale. */
VEC_INLINE void exponentiate(enum kv_type type, const struct tile *t, uint32_t query)
{
    float *score = t->score[query];
    uint32_t low = t->low[query], high = t->high[query];
    uint32_t first = low / VEC_LANES * VEC_LANES;
    for (uint32_t i = first; i < low; i++)
        score[i] = -INFINITY;
    uint32_t end = (high + VEC_LANES - 1) / VEC_LANES * VEC_LANES;
    for (uint32_t i = high; i < end; i++)
        score[i] = -INFINITY;
    vec max = vec_set(-INFINITY), sum = vec_set(0);
    for (uint32_t i = first; i < end; i += VEC_LANES)
        max = vec_max(max, vec_load(score + i));
    float top = vec_max_lane(max);
    for (uint32_t i = first; i < end; i += VEC_LANES) {
        vec p = vec_exp2(vec_sub(vec_load(score + i), vec_set(top)));
        sum = vec_add(sum, p);
        if (type == KV_Q8)
            p = vec_mul(p,
                        vec_load_f16(t->block[i / KV_BLOCK_TOKENS].v_scale + i % KV_BLOCK_TOKENS));
        vec_store(score + i, p);
    }
    t->part[query]->max = top;
    t->part[query]->sum = vec_sum(sum);
}

/* ---- values ---- */

/* Keys [low, high) into `vecs` vectors of the values from dimension `dim` on. */
VEC_INLINE void value_tile(enum kv_type type, const struct tile *t, uint32_t query, uint32_t count,
                           uint32_t low, uint32_t high, uint32_t dim, uint32_t vecs)
{
    vec sum[8][8];
    const float *p[8];
    uint32_t stride = kv_dim_padded(t->kv->head_dim);
    size_t row_bytes = stride * kv_value_bytes(type);
    bool fetch = dim == 0 && query == 0 && t->count <= FETCH_QUERIES_MAX;
    UNROLL
    for (uint32_t i = 0; i < count; i++) {
        p[i] = t->score[query + i];
        UNROLL
        for (uint32_t v = 0; v < vecs; v++)
            sum[i][v] = vec_load(t->part[query + i]->value + dim + v * VEC_LANES);
    }
    while (low < high) {
        const uint8_t *rows = t->block[low / KV_BLOCK_TOKENS].v;
        const uint8_t *ahead = value_ahead(t, low / KV_BLOCK_TOKENS);
        uint32_t end = (low / KV_BLOCK_TOKENS + 1) * KV_BLOCK_TOKENS;
        for (end = end < high ? end : high; low < end; low++) {
            size_t at = (size_t)(low % KV_BLOCK_TOKENS) * stride + dim;
            vec value[8];
            for (size_t b = 0; fetch && b < row_bytes; b += 64)
                __builtin_prefetch(ahead + low % KV_BLOCK_TOKENS * row_bytes + b, 0, 2);
            UNROLL
            for (uint32_t v = 0; v < vecs; v++)
                value[v] = load_kv(type, rows, at + v * VEC_LANES);
            UNROLL
            for (uint32_t i = 0; i < count; i++) {
                vec weight = vec_set(p[i][low]);
                UNROLL
                for (uint32_t v = 0; v < vecs; v++)
                    sum[i][v] = vec_fma(weight, value[v], sum[i][v]);
            }
        }
    }
    UNROLL
    for (uint32_t i = 0; i < count; i++) {
        UNROLL
        for (uint32_t v = 0; v < vecs; v++)
            vec_store(t->part[query + i]->value + dim + v * VEC_LANES, sum[i][v]);
    }
}

VEC_INLINE void value_dims(enum kv_type type, const struct tile *t, uint32_t query, uint32_t count,
                           uint32_t low, uint32_t high, uint32_t vecs)
{
    uint32_t dim = 0, dims = kv_dim_padded(t->kv->head_dim);
    for (; dim + vecs * VEC_LANES <= dims; dim += vecs * VEC_LANES)
        value_tile(type, t, query, count, low, high, dim, vecs);
    if (vecs > 2)
        for (; dim + 2 * VEC_LANES <= dims; dim += 2 * VEC_LANES)
            value_tile(type, t, query, count, low, high, dim, 2);
    for (; dim < dims; dim += VEC_LANES)
        value_tile(type, t, query, count, low, high, dim, 1);
}

static __attribute__((noinline)) void value_one(const struct tile *t, uint32_t query, uint32_t low,
                                                uint32_t high)
{
    if (low >= high) return;
    switch (t->kv->type) {
    case KV_F16: value_dims(KV_F16, t, query, 1, low, high, 8); break;
    case KV_Q8: value_dims(KV_Q8, t, query, 1, low, high, 8); break;
    case KV_F32: value_dims(KV_F32, t, query, 1, low, high, 8); break;
    }
}

/* Keys that all `count` queries see are taken together; those before and after, one by one. */
VEC_INLINE void value_queries(enum kv_type type, const struct tile *t, uint32_t query,
                              uint32_t count, uint32_t vecs)
{
    uint32_t low = 0, high = ATTENTION_SPLIT_TOKENS;
    for (uint32_t i = query; i < query + count; i++) {
        low = t->low[i] > low ? t->low[i] : low;
        high = t->high[i] < high ? t->high[i] : high;
    }
    if (high < low) high = low;
    for (uint32_t i = query; i < query + count; i++)
        value_one(t, i, t->low[i], low < t->high[i] ? low : t->high[i]);
    if (low < high) value_dims(type, t, query, count, low, high, vecs);
    for (uint32_t i = query; i < query + count; i++)
        value_one(t, i, high > t->low[i] ? high : t->low[i], t->high[i]);
}

VEC_INLINE void values(enum kv_type type, const struct tile *t)
{
    uint32_t i = 0;
    for (; t->count - i >= 6; i += 6)
        value_queries(type, t, i, 6, VALUE_VECS_6);
    switch (t->count - i) {
    case 5: value_one(t, i, t->low[i], t->high[i]), i++; /* fall through */
    case 4: value_queries(type, t, i, 4, VALUE_VECS_6); break;
    case 3: value_queries(type, t, i, 3, 4); break;
    case 2: value_queries(type, t, i, 2, 4); break;
    case 1: value_one(t, i, t->low[i], t->high[i]); break;
    }
}

VEC_INLINE void attend_as(enum kv_type type, const struct tile *t)
{
    score_queries(type, t);
    for (uint32_t i = 0; i < t->count; i++) {
        exponentiate(type, t, i);
        memset(t->part[i]->value, 0, kv_dim_padded(t->kv->head_dim) * sizeof(float));
    }
    values(type, t);
}

static void attend(const struct tile *t)
{
    switch (t->kv->type) {
    case KV_F32: attend_as(KV_F32, t); break;
    case KV_F16: attend_as(KV_F16, t); break;
    case KV_Q8: attend_as(KV_Q8, t); break;
    }
}

/* ---- splits ---- */

static float exp2_one(float x)
{
    return vec_first(vec_exp2(vec_set(x)));
}

/* The next split's result into what is merged so far. */
static void merge(struct attention_partial *into, const struct attention_partial *next,
                  uint32_t head_dim)
{
    float max = into->max > next->max ? into->max : next->max;
    float a = exp2_one(into->max - max), b = exp2_one(next->max - max);
    into->max = max;
    into->sum = into->sum * a + next->sum * b;
    for (uint32_t d = 0; d < kv_dim_padded(head_dim); d += VEC_LANES) {
        vec old = vec_mul(vec_load(into->value + d), vec_set(a));
        vec_store(into->value + d, vec_fma(vec_load(next->value + d), vec_set(b), old));
    }
}

static void finish(const struct op_attention *op, const struct attention_partial *part,
                   uint32_t row, uint32_t head)
{
    uint32_t dim = op->kv.head_dim, d = 0;
    float *out = op->out + ((size_t)row * op->q_heads + head) * dim, inverse = 1.0f / part->sum;
    for (; d + VEC_LANES <= dim; d += VEC_LANES)
        vec_store(out + d, vec_mul(vec_load(part->value + d), vec_set(inverse)));
    if (d < dim)
        vec_store_part(out + d, dim - d, vec_mul(vec_load(part->value + d), vec_set(inverse)));
}

/* Where a flat query index of an item stands. */
struct place {
    uint32_t row, head, begin, end; /* positions it sees */
};
static struct place place_of(const struct attention_item *item, uint32_t flat)
{
    struct place p;
    p.row = item->run_row + flat / item->group;
    p.head = item->kv_head * item->group + flat % item->group;
    p.end = item->op->position[p.row] + 1;
    p.begin = attention_begin(item->op, p.end - 1);
    return p;
}

/* q of the tile's queries, scaled for a softmax in powers of two. */
static void gather_q(const struct attention_item *item, uint32_t first, uint32_t last,
                     uint8_t *tile)
{
    const struct op_attention *op = item->op;
    uint32_t dim = op->kv.head_dim;
    vec scale = vec_set(op->scale * VEC_LOG2E);
    for (uint32_t flat = first; flat < last; flat++) {
        struct place p = place_of(item, flat);
        const float *from = op->q + (size_t)p.row * op->q_stride + (size_t)p.head * dim;
        float *to = attention_tile_q(tile, dim, flat - first);
        for (uint32_t d = 0; d < dim; d += VEC_LANES) {
            vec v = dim - d < VEC_LANES ? vec_load_part(from + d, dim - d, 0) : vec_load(from + d);
            vec_store(to + d, vec_mul(v, scale)); /* q's rows in a tile are padded */
        }
    }
}

/* The queries of [first, last) that see something of the split, as a tile. Positions ascend, so
 * they stand together; *skipped: how many come before them. */
static void tile_prepare(const struct attention_item *item, uint32_t first, uint32_t last,
                         uint32_t split, uint8_t *memory, struct tile *t, uint32_t *skipped)
{
    const struct op_attention *op = item->op;
    uint32_t dim = op->kv.head_dim, begin = split * ATTENTION_SPLIT_TOKENS;
    uint32_t end = begin + ATTENTION_SPLIT_TOKENS, low = end, high = begin;
    t->kv = &op->kv;
    t->count = 0;
    *skipped = 0;
    for (uint32_t flat = first; flat < last; flat++) {
        struct place p = place_of(item, flat);
        uint32_t from = p.begin > begin ? p.begin : begin, to = p.end < end ? p.end : end;
        if (from >= to) {
            if (t->count == 0) (*skipped)++;
            continue;
        }
        uint32_t i = t->count++;
        t->q[i] = attention_tile_q(memory, dim, flat - first);
        t->score[i] = attention_tile_scores(memory, dim, flat - first);
        t->part[i] = attention_tile_partial(memory, dim, 0, flat - first);
        t->low[i] = from - begin;
        t->high[i] = to - begin;
        low = from < low ? from : low;
        high = to > high ? to : high;
    }
    if (t->count == 0) return;
    for (uint32_t b = low / KV_BLOCK_TOKENS; b * KV_BLOCK_TOKENS < high; b++)
        t->block[b % ATTENTION_SPLIT_BLOCKS] = kv_head_at(&op->kv, item->blocks[b], item->kv_head);
    t->first_block = low / KV_BLOCK_TOKENS % ATTENTION_SPLIT_BLOCKS;
    t->last_block = (high - 1) / KV_BLOCK_TOKENS % ATTENTION_SPLIT_BLOCKS;
}

static void copy_part(struct attention_partial *to, const struct attention_partial *from,
                      uint32_t head_dim)
{
    memcpy(to, from, attention_partial_bytes(head_dim));
}

/* All splits of up to 24 queries, merged at once. */
static void tile_whole(const struct attention_item *item, uint32_t first, uint32_t last,
                       uint8_t *memory)
{
    uint32_t dim = item->op->kv.head_dim, skipped;
    for (uint32_t split = item->split_begin; split < item->split_end; split++) {
        struct tile t;
        tile_prepare(item, first, last, split, memory, &t, &skipped);
        if (t.count == 0) continue;
        attend(&t);
        for (uint32_t i = 0; i < t.count; i++) {
            struct place p = place_of(item, first + skipped + i);
            struct attention_partial *merged = attention_tile_partial(memory, dim, 1, skipped + i);
            if (split == p.begin / ATTENTION_SPLIT_TOKENS)
                copy_part(merged, t.part[i], dim);
            else
                merge(merged, t.part[i], dim);
        }
    }
    for (uint32_t flat = first; flat < last; flat++) {
        struct place p = place_of(item, flat);
        finish(item->op, attention_tile_partial(memory, dim, 1, flat - first), p.row, p.head);
    }
}

/* One split of up to 24 queries, kept for the merge. */
static void tile_split(const struct attention_item *item, uint32_t first, uint32_t last,
                       uint8_t *memory)
{
    struct tile t;
    uint32_t skipped;
    tile_prepare(item, first, last, item->split_begin, memory, &t, &skipped);
    for (uint32_t i = 0; i < t.count; i++) {
        struct place p = place_of(item, first + skipped + i);
        t.part[i] = attention_partial_at(&item->place, p.row, p.head, item->split_begin);
    }
    if (t.count != 0) attend(&t);
}

static void run_item(const struct attention_item *item, uint8_t *memory)
{
    for (uint32_t first = item->first; first < item->last; first += ATTENTION_TILE_QUERIES) {
        uint32_t last = item->last - first < ATTENTION_TILE_QUERIES
                            ? item->last
                            : first + ATTENTION_TILE_QUERIES;
        gather_q(item, first, last, memory);
        if (item->by_split)
            tile_split(item, first, last, memory);
        else
            tile_whole(item, first, last, memory);
    }
}

void VEC_NAME(attention)(const struct op_attention *op, uint32_t ith, uint32_t nth)
{
    attention_share(op, ith, nth, run_item);
}

void VEC_NAME(attention_merge)(const struct op_attention *op, uint32_t ith, uint32_t nth)
{
    struct attention_place place = attention_place_init(op, nth);
    uint32_t queries = op->rows * op->q_heads;
    uint32_t end = (uint32_t)((uint64_t)queries * (ith + 1) / nth);
    for (uint32_t i = (uint32_t)((uint64_t)queries * ith / nth); i < end; i++) {
        uint32_t row = i / op->q_heads, head = i % op->q_heads, last = op->position[row];
        uint32_t split = attention_begin(op, last) / ATTENTION_SPLIT_TOKENS;
        struct attention_partial *merged = attention_partial_at(&place, row, head, split);
        while (++split <= last / ATTENTION_SPLIT_TOKENS)
            merge(merged, attention_partial_at(&place, row, head, split), op->kv.head_dim);
        finish(op, merged, row, head);
    }
}

bool VEC_NAME(attention_needs_merge)(const struct op_attention *op)
{
    return attention_needs_merge(op);
}
