/* attention_work.c - attention's work, cut by cost. Nothing here changes a result: the float
 * operations of a query depend on its own position only (attention_vec.h).
 *
 * Order of the items: run of rows of one sequence, KV head, split (if splits are work of their
 * own), query. A thread's range of cost is contiguous in it, so that a thread's queries share keys.
 *
 * Scratch: [threads] of { q, scores, two results of one tile }, then the partial results. */
#include "kernels/cpu/attention_work.h"

enum {
    QUERY_COST = 32, /* of a query itself, in keys */
};

size_t attention_tile_bytes(uint32_t head_dim)
{
    size_t floats = kv_dim_padded(head_dim) + ATTENTION_SPLIT_TOKENS;
    return ATTENTION_TILE_QUERIES *
           (floats * sizeof(float) + 2 * attention_partial_bytes(head_dim));
}

static uint32_t splits_of(uint32_t context)
{
    return (context + ATTENTION_SPLIT_TOKENS - 1) / ATTENTION_SPLIT_TOKENS;
}

size_t attention_scratch_bytes(uint32_t rows_max, uint32_t q_heads, uint32_t head_dim,
                               uint32_t context_max, uint32_t threads)
{
    size_t queries = (size_t)rows_max * q_heads;
    if (queries > ATTENTION_SPLIT_QUERIES_MAX) queries = ATTENTION_SPLIT_QUERIES_MAX;
    return threads * attention_tile_bytes(head_dim) +
           queries * splits_of(context_max) * attention_partial_bytes(head_dim);
}

static uint32_t context_of(const struct op_attention *op)
{
    uint32_t context = 0;
    for (uint32_t r = 0; r < op->rows; r++)
        context = op->position[r] + 1 > context ? op->position[r] + 1 : context;
    return context;
}

bool attention_needs_merge(const struct op_attention *op)
{
    if ((uint64_t)op->rows * op->q_heads > ATTENTION_SPLIT_QUERIES_MAX) return false;
    for (uint32_t r = 0; r < op->rows; r++) {
        uint32_t last = op->position[r], first = attention_begin(op, last);
        if (last / ATTENTION_SPLIT_TOKENS != first / ATTENTION_SPLIT_TOKENS) return true;
    }
    return false;
}

struct attention_place attention_place_init(const struct op_attention *op, uint32_t nth)
{
    return (struct attention_place){
        .begin = (uint8_t *)op->scratch + nth * attention_tile_bytes(op->kv.head_dim),
        .q_heads = op->q_heads,
        .splits = splits_of(context_of(op)),
        .bytes = attention_partial_bytes(op->kv.head_dim),
    };
}

/* Keys of row r within [begin, end), and what the query itself costs; 0 when it sees none. */
static uint64_t query_cost(const struct op_attention *op, uint32_t r, uint64_t begin, uint64_t end)
{
    uint64_t low = attention_begin(op, op->position[r]), high = (uint64_t)op->position[r] + 1;
    if (low < begin) low = begin;
    if (high > end) high = end;
    return low < high ? high - low + QUERY_COST : 0;
}

/* How the cost is spread: the range that is this thread's, and how far the walk has come. */
struct share {
    uint64_t at, begin, end;
};

/* Narrows item to the queries whose cost begins within this thread's range. */
static bool share_take(struct share *s, struct attention_item *item, uint32_t rows)
{
    uint64_t begin = (uint64_t)item->split_begin * ATTENTION_SPLIT_TOKENS;
    uint64_t end = (uint64_t)item->split_end * ATTENTION_SPLIT_TOKENS;
    item->first = item->last = 0;
    for (uint32_t i = 0; i < rows; i++) {
        uint64_t cost = query_cost(item->op, item->run_row + i, begin, end);
        if (cost == 0) continue;
        for (uint32_t g = 0; g < item->group; g++, s->at += cost) {
            if (s->at < s->begin || s->at >= s->end) continue;
            if (item->last == 0) item->first = i * item->group + g;
            item->last = i * item->group + g + 1;
        }
    }
    return item->last != 0;
}

static uint32_t run_rows(const struct op_attention *op, uint32_t row)
{
    uint32_t end = row + 1;
    while (end < op->rows && op->row_sequence[end] == op->row_sequence[row])
        end++;
    return end - row;
}

static uint64_t total_cost(const struct op_attention *op, bool by_split)
{
    uint64_t total = 0;
    for (uint32_t r = 0; r < op->rows; r++) {
        uint32_t last = op->position[r], first = attention_begin(op, last);
        total += query_cost(op, r, 0, UINT64_MAX);
        if (by_split)
            total += (uint64_t)QUERY_COST *
                     (last / ATTENTION_SPLIT_TOKENS - first / ATTENTION_SPLIT_TOKENS);
    }
    return total * op->q_heads;
}

void attention_share(const struct op_attention *op, uint32_t ith, uint32_t nth,
                     void (*fn)(const struct attention_item *item, uint8_t *tile))
{
    bool by_split = attention_needs_merge(op);
    struct attention_place place = attention_place_init(op, nth);
    uint64_t total = total_cost(op, by_split);
    struct share s = {0, total * ith / nth, total * (ith + 1) / nth};
    uint8_t *tile = (uint8_t *)op->scratch + ith * attention_tile_bytes(op->kv.head_dim);
    for (uint32_t row = 0, rows; row < op->rows && s.at < s.end; row += rows) {
        rows = run_rows(op, row);
        struct attention_item item = {
            .op = op,
            .blocks = op->block_table + (size_t)op->row_sequence[row] * op->block_table_stride,
            .group = op->q_heads / op->kv.kv_heads,
            .run_row = row,
            .by_split = by_split,
            .place = place,
        };
        uint32_t begin = attention_begin(op, op->position[row]) / ATTENTION_SPLIT_TOKENS;
        uint32_t end = op->position[row + rows - 1] / ATTENTION_SPLIT_TOKENS + 1;
        for (item.kv_head = 0; item.kv_head < op->kv.kv_heads; item.kv_head++) {
            for (uint32_t split = begin; split < end; split = item.split_end) {
                item.split_begin = split;
                item.split_end = by_split ? split + 1 : end;
                if (share_take(&s, &item, rows)) fn(&item, tile);
            }
        }
    }
}
