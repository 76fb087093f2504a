/* bench_attention.c - speed of attention and of the row kernels around it, on one thread and on
 * two. bench_attention [isa number] [milliseconds per line] */
#include "kernels/cpu/cpu_ops.h"
#include "kernels/kv.h"
#include "kernels/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static void *block(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL) exit(1);
    memset(p, 0, (bytes + 63) / 64 * 64);
    return p;
}
static float *noise(size_t n)
{
    static uint64_t seed = 1;
    float *x = block(n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(seed >> 40) / (1 << 23) - 1.0f;
    }
    return x;
}

static uint64_t per_line_ns = 150000000;

struct job {
    const struct cpu_ops *ops;
    struct pool *pool;
    struct op_attention attention;
    struct op_rope_store rope;
};

static void run_attention(void *arg, uint32_t ith, uint32_t nth)
{
    struct job *job = arg;
    job->ops->attention(&job->attention, ith, nth);
    if (!job->ops->attention_needs_merge(&job->attention)) return;
    pool_barrier(job->pool, ith);
    job->ops->attention_merge(&job->attention, ith, nth);
}
static void run_rope(void *arg, uint32_t ith, uint32_t nth)
{
    struct job *job = arg;
    job->ops->rope_store(&job->rope, ith, nth);
}

/* The best of as many runs as fit the time, in ns. */
static double best_ns(struct job *job, void (*fn)(void *, uint32_t, uint32_t))
{
    uint64_t begin = now_ns(), best = UINT64_MAX;
    do {
        uint64_t at = now_ns();
        pool_run(job->pool, fn, job);
        uint64_t took = now_ns() - at;
        best = took < best ? took : best;
    } while (now_ns() - begin < per_line_ns);
    return (double)best;
}

struct shape {
    const char *name;
    uint32_t sequences, rows, context, kv_heads, group, head_dim; /* rows of each, at its end */
    enum kv_type type;
};

static void bench_shape(const struct cpu_ops *ops, const struct shape *s, uint32_t threads)
{
    uint32_t blocks = (s->context + 15) / 16, rows = s->sequences * s->rows;
    uint32_t q_heads = s->kv_heads * s->group, width = q_heads * s->head_dim;
    uint32_t kv_width = s->kv_heads * s->head_dim, all = s->sequences * s->context;
    struct kv_layer kv = {.type = s->type, .kv_heads = s->kv_heads, .head_dim = s->head_dim};
    kv.block_bytes = kv_block_bytes(s->type, s->kv_heads, s->head_dim);
    kv.data = block(kv.block_bytes * blocks * s->sequences);
    uint32_t *table = block(blocks * s->sequences * 4), *slot = block(all * 4);
    uint32_t *position = block(all * 4), *sequence = block(rows * 4), *zero = block(all * 4);
    for (uint32_t i = 0; i < blocks * s->sequences; i++)
        table[i] = i;
    for (uint32_t i = 0; i < all; i++)
        slot[i] = i / s->context * blocks * 16 + i % s->context;
    float *k = noise((size_t)all * kv_width), *v = noise((size_t)all * kv_width);
    float *rope = noise(s->head_dim), *q = noise((size_t)(all > rows ? all : rows) * width);
    struct job job = {.ops = ops, .pool = pool_create(threads, 0)};
    if (job.pool == NULL) exit(1);
    job.rope = (struct op_rope_store){
        .q = q,
        .k = k,
        .v = v,
        .q_stride = width,
        .kv_stride = kv_width,
        .rope = rope,
        .rope_dim = s->head_dim,
        .position = zero,
        .slot = slot,
        .kv = kv,
        .rows = all,
        .q_heads = q_heads,
    };
    double rope_ns = best_ns(&job, run_rope);
    for (uint32_t i = 0; i < rows; i++) {
        sequence[i] = i / s->rows;
        position[i] = s->context - s->rows + i % s->rows;
    }
    free(q);
    q = noise((size_t)rows * width);
    job.attention = (struct op_attention){
        .q = q,
        .q_stride = width,
        .out = block((size_t)rows * width * 4),
        .kv = kv,
        .position = position,
        .row_sequence = sequence,
        .block_table = table,
        .block_table_stride = blocks,
        .rows = rows,
        .q_heads = q_heads,
        .scale = 0.1f,
        .scratch = block(attention_scratch_bytes(rows, q_heads, s->head_dim, s->context, threads)),
    };
    double ns = best_ns(&job, run_attention), keys = 0;
    for (uint32_t i = 0; i < rows; i++)
        keys += position[i] + 1;
    double flop = keys * width * 4, bytes = (double)kv.block_bytes / 16 * s->context * s->sequences;
    printf("%-34s %u thread%s %9.1f us  %6.1f GFLOP/s  %6.1f GB/s of KV  rope_store %5.0f ns/row\n",
           s->name, threads, threads == 1 ? " " : "s", ns * 1e-3, flop / ns, bytes / ns,
           rope_ns / all);
    free(job.attention.scratch);
    free(job.attention.out);
    free(kv.data), free(table), free(slot), free(position), free(sequence), free(zero);
    free(k), free(v), free(rope), free(q);
    pool_destroy(job.pool);
}

static void bench_sampling(const struct cpu_ops *ops)
{
    enum { VOCAB = 49152, TIMES = 50 };
    float *logits = noise(VOCAB), max = 0, sum = 0;
    uint32_t index = 0, *above = block(VOCAB * 4);
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] *= 3;
    uint64_t best[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    for (uint32_t i = 0; i < TIMES; i++) {
        uint64_t t[5] = {now_ns()};
        (void)ops->row_max(logits, VOCAB, &max, &index);
        t[1] = now_ns();
        sum += ops->row_exp_sum(logits, VOCAB, max, 1);
        t[2] = now_ns();
        index += ops->row_gumbel_argmax(logits, VOCAB, 1, -100, i);
        t[3] = now_ns();
        index += ops->row_above(logits, VOCAB, 2.99f, above, VOCAB);
        t[4] = now_ns();
        for (uint32_t j = 0; j < 4; j++)
            best[j] = t[j + 1] - t[j] < best[j] ? t[j + 1] - t[j] : best[j];
    }
    printf("row of %d logits: max %.1f us, exp_sum %.1f us, gumbel_argmax %.1f us, above %.1f us "
           "(check %.3g %u)\n",
           VOCAB, (double)best[0] * 1e-3, (double)best[1] * 1e-3, (double)best[2] * 1e-3,
           (double)best[3] * 1e-3, (double)sum, index);
    free(logits);
    free(above);
}

int main(int argc, char **argv)
{
    enum isa isa = argc > 1 ? (enum isa)atoi(argv[1]) : isa_best();
    if (argc > 2) per_line_ns = (uint64_t)atoi(argv[2]) * 1000000u;
    const struct cpu_ops *ops = isa < ISA_COUNT_ ? cpu_ops_get(isa) : NULL;
    if (ops == NULL) {
        fprintf(stderr, "bench_attention: instruction set %d is not to be had here\n", (int)isa);
        return 1;
    }
    static const struct shape shapes[] = {
        {"prefill 512, 3x3 heads of 64", 1, 512, 512, 3, 3, 64, KV_F16},
        {"prefill 512, 3x3 heads of 64, q8", 1, 512, 512, 3, 3, 64, KV_Q8},
        {"prefill 512 at 4096, 3x3 of 64", 1, 512, 4096, 3, 3, 64, KV_F16},
        {"prefill 512, 8x4 heads of 128", 1, 512, 512, 8, 4, 128, KV_F16},
        {"decode at 128, 3x3 heads of 64", 1, 1, 128, 3, 3, 64, KV_F16},
        {"decode at 512, 3x3 heads of 64", 1, 1, 512, 3, 3, 64, KV_F16},
        {"decode at 4096, 3x3 heads of 64", 1, 1, 4096, 3, 3, 64, KV_F16},
        {"decode 16 at 2048, 3x3 of 64", 16, 1, 2048, 3, 3, 64, KV_F16},
        {"decode 16 at 2048, 8x4 of 128", 16, 1, 2048, 8, 4, 128, KV_F16},
        {"decode 16 at 2048, 8x4 of 128, q8", 16, 1, 2048, 8, 4, 128, KV_Q8},
        {"verify 5 rows at 1024, 8x4 of 128", 1, 5, 1024, 8, 4, 128, KV_F16},
    };
    printf("%s\n", isa_name(isa));
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            bench_shape(ops, &shapes[i], threads);
    bench_sampling(ops);
    return 0;
}
