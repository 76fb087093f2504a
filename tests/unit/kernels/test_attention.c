/* test_attention.c - attention over paged keys: each instruction set against float64; bit for bit
 * the same alone or in a batch, whole or in chunks, on one thread or several; unused slots may hold
 * NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/kv.h"

enum { SEQUENCES = 3, CONTEXT_MAX = 700, BLOCKS = SEQUENCES * (CONTEXT_MAX / 16 + 1), THREADS = 3 };

static uint64_t seed = 11;
static uint32_t dice(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}
static float uniform(void)
{
    return (float)dice(1 << 24) / (1 << 23) - 1.0f;
}
static void *block(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, (bytes + 63) / 64 * 64); /* NaN wherever nothing was written */
    return p;
}

/* Three sequences of CONTEXT_MAX tokens at most, their blocks shuffled. */
struct world {
    const struct cpu_ops *ops;
    struct kv_layer kv;
    uint32_t q_heads, window, lengths[SEQUENCES];
    uint32_t table[SEQUENCES * (CONTEXT_MAX / 16 + 1)];
    float *q; /* [SEQUENCES, CONTEXT_MAX, q_heads * head_dim]: q of any row, should it be asked */
};

static uint32_t slot_of(const struct world *w, uint32_t sequence, uint32_t position)
{
    return w->table[sequence * (CONTEXT_MAX / 16 + 1) + position / 16] * 16 + position % 16;
}

static void world_fill(struct world *w, float *row)
{
    size_t kv_width = (size_t)w->kv.kv_heads * w->kv.head_dim;
    float *rope = block(w->kv.head_dim * sizeof(float));
    for (uint32_t i = 0; i < w->kv.head_dim; i++)
        rope[i] = i % 2 == 0 ? 1.0f : 0.0f; /* no rotation */
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        for (uint32_t t = 0; t < w->lengths[s]; t++) {
            uint32_t position = 0, slot = slot_of(w, s, t);
            for (size_t i = 0; i < 2 * kv_width; i++)
                row[i] = uniform() * (dice(50) == 0 ? 4.0f : 1.0f);
            struct op_rope_store op = {
                .q = w->q,
                .k = row,
                .v = row + kv_width,
                .rope = rope,
                .rope_dim = w->kv.head_dim,
                .position = &position,
                .slot = &slot,
                .kv = w->kv,
                .rows = 1,
                .q_heads = w->kv.kv_heads,
                .q_stride = 0,
                .kv_stride = (uint32_t)kv_width,
            };
            cpu_ops_get(ISA_PLAIN)->rope_store(&op, 0, 1);
        }
    }
    free(rope);
}

static struct world world_make(const struct cpu_ops *ops, enum kv_type type, uint32_t kv_heads,
                               uint32_t group, uint32_t head_dim)
{
    struct world w = {.ops = ops, .q_heads = kv_heads * group};
    w.kv = (struct kv_layer){.type = type, .kv_heads = kv_heads, .head_dim = head_dim};
    w.kv.block_bytes = kv_block_bytes(type, kv_heads, head_dim);
    w.kv.data = block(w.kv.block_bytes * BLOCKS);
    const uint32_t lengths[SEQUENCES] = {CONTEXT_MAX, 257, 37};
    memcpy(w.lengths, lengths, sizeof lengths);
    for (uint32_t i = 0; i < BLOCKS; i++)
        w.table[i] = (i * 59 + 7) % BLOCKS;
    size_t q_count = (size_t)SEQUENCES * CONTEXT_MAX * w.q_heads * head_dim;
    w.q = block(q_count * sizeof(float));
    float *row = block(2 * (size_t)kv_heads * head_dim * sizeof(float));
    world_fill(&w, row);
    free(row);
    for (size_t i = 0; i < q_count; i++)
        w.q[i] = uniform() * 3;
    return w;
}
static void world_free(struct world *w)
{
    free(w->kv.data);
    free(w->q);
}

struct span_of_rows {
    uint32_t sequence, first, last; /* positions [first, last) */
};
/* out[rows, q_heads * head_dim] of the given rows, on `threads` threads */
static void attend(const struct world *w, const struct span_of_rows *spans, uint32_t span_count,
                   uint32_t threads, float *out)
{
    uint32_t rows = 0, width = w->q_heads * w->kv.head_dim, at = 0;
    for (uint32_t i = 0; i < span_count; i++)
        rows += spans[i].last - spans[i].first;
    uint32_t *position = block(rows * 4), *sequence = block(rows * 4);
    float *q = block((size_t)rows * (width + 8) * sizeof(float));
    for (uint32_t i = 0; i < span_count; i++) {
        for (uint32_t p = spans[i].first; p < spans[i].last; p++, at++) {
            position[at] = p;
            sequence[at] = spans[i].sequence;
            memcpy(q + (size_t)at * (width + 8),
                   w->q + ((size_t)spans[i].sequence * CONTEXT_MAX + p) * width,
                   width * sizeof(float));
        }
    }
    struct op_attention op = {
        .q = q,
        .q_stride = width + 8,
        .out = out,
        .kv = w->kv,
        .position = position,
        .row_sequence = sequence,
        .block_table = w->table,
        .block_table_stride = CONTEXT_MAX / 16 + 1,
        .rows = rows,
        .q_heads = w->q_heads,
        .window = w->window,
        .scale = 1.0f / sqrtf((float)w->kv.head_dim),
    };
    op.scratch =
        block(attention_scratch_bytes(rows, w->q_heads, w->kv.head_dim, CONTEXT_MAX, threads));
    for (uint32_t i = 0; i < threads; i++)
        w->ops->attention(&op, i, threads);
    if (w->ops->attention_needs_merge(&op))
        for (uint32_t i = 0; i < threads; i++)
            w->ops->attention_merge(&op, i, threads);
    free(op.scratch);
    free(position);
    free(sequence);
    free(q);
}

static void reference(const struct world *w, uint32_t sequence, uint32_t position, uint32_t head,
                      double *out)
{
    uint32_t dim = w->kv.head_dim, kv_head = head / (w->q_heads / w->kv.kv_heads);
    uint32_t begin = w->window && position >= w->window ? position - w->window + 1 : 0;
    const float *q = w->q + (((size_t)sequence * CONTEXT_MAX + position) * w->q_heads + head) * dim;
    double score[CONTEXT_MAX], max = -INFINITY, sum = 0;
    for (uint32_t t = begin; t <= position; t++) {
        uint32_t slot = slot_of(w, sequence, t);
        score[t] = 0;
        for (uint32_t d = 0; d < dim; d++)
            score[t] += (double)q[d] * (double)kv_get(&w->kv, slot / 16, 0, kv_head, slot % 16, d);
        score[t] /= sqrt(dim);
        max = fmax(max, score[t]);
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] = 0;
    for (uint32_t t = begin; t <= position; t++) {
        uint32_t slot = slot_of(w, sequence, t);
        double p = exp(score[t] - max);
        sum += p;
        for (uint32_t d = 0; d < dim; d++)
            out[d] += p * (double)kv_get(&w->kv, slot / 16, 1, kv_head, slot % 16, d);
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
}

static void check_rows(const struct world *w, const struct span_of_rows *spans, uint32_t count)
{
    uint32_t rows = 0, dim = w->kv.head_dim;
    for (uint32_t i = 0; i < count; i++)
        rows += spans[i].last - spans[i].first;
    float *out = block((size_t)rows * w->q_heads * dim * sizeof(float)), *at = out;
    attend(w, spans, count, 2, out);
    double want[256];
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t p = spans[i].first; p < spans[i].last; p++) {
            for (uint32_t h = 0; h < w->q_heads; h++, at += dim) {
                reference(w, spans[i].sequence, p, h, want);
                for (uint32_t d = 0; d < dim; d++)
                    assert_true(fabs((double)at[d] - want[d]) < 2e-5);
            }
        }
    }
    free(out);
}

static const struct {
    uint32_t kv_heads, group, head_dim, window;
} shapes[] = {{3, 3, 64, 0},   {2, 7, 128, 0},  {1, 1, 80, 0},
              {2, 4, 72, 100}, {1, 5, 96, 300}, {1, 2, 24, 16}};

static void matches_float64(void **state)
{
    (void)state;
    const struct span_of_rows decode[] = {{0, 699, 700}, {1, 256, 257}, {2, 0, 1}, {2, 36, 37}};
    const struct span_of_rows prefill[] = {{0, 250, 290}, {1, 0, 50}, {2, 30, 37}};
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            for (int type = KV_F16; type <= KV_F32; type++) {
                struct world w = world_make(ops, (enum kv_type)type, shapes[i].kv_heads,
                                            shapes[i].group, shapes[i].head_dim);
                w.window = shapes[i].window;
                check_rows(&w, decode, 4);
                check_rows(&w, prefill, 3);
                world_free(&w);
            }
        }
    }
}

/* Every row of sequences 0 and 1 in one call, against the same rows in pieces, alone, and on other
 * numbers of threads: the same bits. */
static void bits_do_not_depend_on_company(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL || isa == ISA_PLAIN) continue;
        for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct world w = world_make(ops, (enum kv_type)(i % 3), shapes[i].kv_heads,
                                        shapes[i].group, shapes[i].head_dim);
            w.window = shapes[i].window;
            size_t width = (size_t)w.q_heads * w.kv.head_dim;
            const struct span_of_rows whole[] = {{0, 0, 700}, {1, 0, 257}};
            float *all = block(957 * width * sizeof(float));
            float *some = block(957 * width * sizeof(float));
            attend(&w, whole, 2, 1, all);
            for (uint32_t threads = 2; threads <= THREADS; threads++) {
                attend(&w, whole, 2, threads, some);
                assert_memory_equal(all, some, 957 * width * sizeof(float));
            }
            for (uint32_t p = 0; p < 700;) {
                uint32_t take = 1 + dice(dice(2) ? 3 : 90);
                if (take > 700 - p) take = 700 - p;
                struct span_of_rows piece[] = {{1, p % 257, p % 257 + 1}, {0, p, p + take}};
                attend(&w, piece, 2, 1 + dice(THREADS), some);
                assert_memory_equal(some, all + (700 + p % 257) * width, width * sizeof(float));
                assert_memory_equal(some + width, all + p * width, take * width * sizeof(float));
                p += take;
            }
            free(all);
            free(some);
            world_free(&w);
        }
    }
}

/* A NaN in V of position 20 must reach the rows that see it and no other row. */
static void failed_token_stays_where_it_is_seen(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISA_COUNT_; isa++) {
        const struct cpu_ops *ops = cpu_ops_get((enum isa)isa);
        if (ops == NULL) continue;
        struct world w = world_make(ops, KV_F32, 1, 3, 64);
        float row[128], rope[64] = {0};
        for (uint32_t i = 0; i < 128; i++)
            row[i] = i < 64 ? 1.0f : NAN;
        uint32_t position = 0, slot = slot_of(&w, 2, 20);
        struct op_rope_store store = {.q = w.q,
                                      .k = row,
                                      .v = row + 64,
                                      .rope = rope,
                                      .rope_dim = 64,
                                      .position = &position,
                                      .slot = &slot,
                                      .kv = w.kv,
                                      .rows = 1,
                                      .q_heads = 1};
        ops->rope_store(&store, 0, 1);
        const struct span_of_rows rows[] = {{2, 0, 37}};
        float out[37 * 192];
        attend(&w, rows, 1, 1, out);
        for (uint32_t r = 0; r < 37; r++)
            for (uint32_t i = 0; i < 192; i++)
                assert_int_equal(!!isnan(out[r * 192 + i]), r >= 20);
        world_free(&w);
    }
}

static void blocks_are_whole_lines(void **state)
{
    (void)state;
    for (int type = KV_F16; type <= KV_F32; type++)
        for (uint32_t dim = 2; dim <= 256; dim += 2)
            assert_int_equal(kv_block_bytes((enum kv_type)type, 3, dim) % 64, 0);
    assert_int_equal(kv_block_bytes(KV_F16, 3, 64), 3 * 16 * 64 * 2 * 2);
}

static void copies_chains_of_blocks(void **state)
{
    (void)state;
    enum { BYTES = 192 };
    uint8_t data[5 * BYTES], before[5 * BYTES];
    for (uint32_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)dice(256);
    memcpy(before, data, sizeof data);
    const uint32_t pairs[] = {0, 3, 3, 4, 1, 1};
    struct op_copy_blocks op = {.data = data, .block_bytes = BYTES, .pairs = pairs, .count = 3};
    for (uint32_t i = 0; i < THREADS; i++)
        cpu_ops_get(ISA_PLAIN)->copy_blocks(&op, i, THREADS);
    assert_memory_equal(data, before, 3 * BYTES);
    assert_memory_equal(data + 3 * BYTES, before, BYTES);
    assert_memory_equal(data + 4 * BYTES, before, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_float64),
        cmocka_unit_test(bits_do_not_depend_on_company),
        cmocka_unit_test(failed_token_stays_where_it_is_seen),
        cmocka_unit_test(blocks_are_whole_lines),
        cmocka_unit_test(copies_chains_of_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
