/* bench_linear.c - GMAC/s and GB/s of linears, next to what a plain read of the same bytes gets.
 *
 *   bench_linear [isa [seconds per figure]]     isa: best (default), plain, avx2, avx512-vnni
 *
 * "copies" of each matrix lie one after another and are walked in turn, so that together they are
 * larger than the last-level cache, as the layers of a model are. The compute pool's barrier
 * follows each copy, as it does each op of a step. Best of several rounds; the read is measured in
 * the same rounds. */
#include <immintrin.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/act.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/pool.h"
#include "kernels/weights.h"

enum { THREADS_MAX = 2, ROUNDS = 5, ROWS_BENCH_MAX = 512 };

static const struct cpu_ops *ops;
static double figure_seconds = 0.05;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(1);
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

struct shape {
    const char *name;
    enum weight_type type;
    uint32_t rows, cols, copies;
    bool has_min, silu;
};

struct job {
    const struct shape *shape;
    struct weight *weights; /* [copies] or [2 * copies] */
    struct act in, out_act;
    float *out;
    struct pool *pool;
    uint32_t rows, threads, repeats;
    atomic_ullong sink;
    void (*work)(struct job *job, uint32_t copy, uint32_t ith);
};

static void work_linear(struct job *job, uint32_t copy, uint32_t ith)
{
    struct op_linear op = {.in = job->in, .rows = job->rows, .weight_count = 1};
    op.weight[0] = &job->weights[copy];
    op.out[0] = job->out;
    op.out_stride[0] = job->shape->rows;
    if (job->shape->silu) {
        op.weight_count = 2;
        op.epilogue = LINEAR_SILU_MUL;
        op.weight[0] = &job->weights[2 * copy];
        op.weight[1] = &job->weights[2 * copy + 1];
        op.out_act = job->out_act;
    }
    ops->linear(&op, ith, job->threads);
}

__attribute__((target("avx2"))) static void work_read(struct job *job, uint32_t copy, uint32_t ith)
{
    uint32_t each = job->shape->silu ? 2 : 1;
    __m256i sum = _mm256_setzero_si256();
    for (uint32_t i = 0; i < each; i++) {
        const struct weight *w = &job->weights[copy * each + i];
        size_t lines = weight_read_bytes(w) / 64;
        size_t begin = lines * ith / job->threads, end = lines * (ith + 1) / job->threads;
        for (size_t at = begin; at < end; at++) {
            const __m256i *p = (const void *)((const char *)w->data + 64 * at);
            _mm_prefetch((const char *)p + 4096, _MM_HINT_T0);
            sum = _mm256_xor_si256(sum, _mm256_xor_si256(p[0], p[1]));
        }
    }
    atomic_fetch_xor(&job->sink, (unsigned long long)_mm256_extract_epi64(sum, 0));
}

static void walk(void *arg, uint32_t ith, uint32_t nth)
{
    struct job *job = arg;
    (void)nth;
    for (uint32_t i = 0; i < job->repeats; i++)
        for (uint32_t copy = 0; copy < job->shape->copies; copy++) {
            job->work(job, copy, ith);
            pool_barrier(job->pool, ith);
        }
}

/* Seconds of one walk over all copies. */
static double job_run(struct job *job)
{
    double start = now();
    pool_run(job->pool, walk, job);
    return (now() - start) / job->repeats;
}

static double best_of(struct job *job, void (*work)(struct job *, uint32_t, uint32_t))
{
    double best = 1e9;
    job->work = work;
    job->repeats = 1;
    double once = job_run(job);
    job->repeats = once < figure_seconds ? 1 + (uint32_t)(figure_seconds / once) : 1;
    for (int i = 0; i < (once < 1 ? ROUNDS : 1); i++) {
        double seconds = job_run(job);
        if (seconds < best) best = seconds;
    }
    return best;
}

static void fill(struct job *job)
{
    const struct shape *s = job->shape;
    uint32_t count = s->copies * (s->silu ? 2 : 1);
    size_t bytes = weight_bytes(s->type, s->rows, s->cols, s->has_min);
    uint8_t *data = memory(bytes * count + 8192);
    job->weights = calloc(count, sizeof(*job->weights));
    if (!job->weights) exit(1);
    uint8_t zero = s->type == WEIGHT_Q4 ? 8 : 128;
    for (uint32_t i = 0; i < count; i++) {
        job->weights[i] = (struct weight){.type = s->type,
                                          .rows = s->rows,
                                          .cols = s->cols,
                                          .has_min = s->has_min,
                                          .zero = zero,
                                          .data = data + i * bytes};
        memset(job->weights[i].data, 0x1b, bytes); /* scales of 0x1b1b: small positive halves */
    }
    job->in.data = memory(act_bytes(job->in.type, ROWS_BENCH_MAX, s->cols));
    job->out_act = (struct act){.type = job->in.type, .cols = s->rows};
    job->out_act.data = memory(act_bytes(job->in.type, ROWS_BENCH_MAX, s->rows));
    job->out = memory((size_t)ROWS_BENCH_MAX * s->rows * sizeof(float));
    float *x = memory((size_t)ROWS_BENCH_MAX * s->cols * sizeof(float));
    for (size_t i = 0; i < (size_t)ROWS_BENCH_MAX * s->cols; i++)
        x[i] = (float)(i % 97) - 40;
    struct op_quantize op = {.x = x, .rows = ROWS_BENCH_MAX, .cols = s->cols, .out = job->in};
    ops->quantize(&op, 0, 1);
    munmap(x, (size_t)ROWS_BENCH_MAX * s->cols * sizeof(float));
}

static void drop(struct job *job)
{
    const struct shape *s = job->shape;
    uint32_t count = s->copies * (s->silu ? 2 : 1);
    munmap(job->weights[0].data, weight_bytes(s->type, s->rows, s->cols, s->has_min) * count);
    munmap(job->in.data, act_bytes(job->in.type, ROWS_BENCH_MAX, s->cols));
    munmap(job->out_act.data, act_bytes(job->in.type, ROWS_BENCH_MAX, s->rows));
    munmap(job->out, (size_t)ROWS_BENCH_MAX * s->rows * sizeof(float));
    free(job->weights);
}

static void bench_shape(const struct shape *s)
{
    static const uint32_t rows[] = {1, 4, 8, 16, 32, 64, 512};
    struct job job = {.shape = s};
    job.in.type = act_type_for(s->type);
    job.in.cols = s->cols;
    fill(&job);
    double each = s->silu ? 2 : 1;
    double bytes = each * s->copies * (double)weight_bytes(s->type, s->rows, s->cols, s->has_min);
    double macs = each * s->copies * (double)s->rows * s->cols;
    printf("%-26s %5u x %-5u %6.1f MB\n", s->name, s->rows, s->cols, bytes / 1e6);
    for (job.threads = 1; job.threads <= THREADS_MAX; job.threads++) {
        job.pool = pool_create(job.threads, 0);
        if (!job.pool) exit(1);
        double read = bytes / best_of(&job, work_read) / 1e9;
        printf("  threads %u  read %5.1f GB/s\n   ", job.threads, read);
        for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            job.rows = rows[i];
            double seconds = best_of(&job, work_linear);
            if (rows[i] == 1)
                printf(" rows 1: %5.1f GB/s = %3.0f%%, %.1f us each;", bytes / seconds / 1e9,
                       100 * bytes / seconds / 1e9 / read, 1e6 * seconds / s->copies);
            printf(" %u: %.0f", rows[i], macs * rows[i] / seconds / 1e9);
            fflush(stdout);
        }
        printf(" GMAC/s\n");
        pool_destroy(job.pool);
    }
    drop(&job);
}

int main(int argc, char **argv)
{
    static const struct shape shapes[] = {
        {"q4 2048x2048", WEIGHT_Q4, 2048, 2048, 128, false, false},
        {"q4 8192x2048", WEIGHT_Q4, 8192, 2048, 32, false, false},
        {"q4 4096x4096", WEIGHT_Q4, 4096, 4096, 32, false, false},
        {"q4+min 4096x4096", WEIGHT_Q4, 4096, 4096, 32, true, false},
        {"q8 4096x4096", WEIGHT_Q8, 4096, 4096, 16, false, false},
        {"q4 SmolLM2 q, o", WEIGHT_Q4, 576, 576, 300, false, false},
        {"q4 SmolLM2 kv", WEIGHT_Q4, 192, 576, 900, false, false},
        {"q4 SmolLM2 gate, up", WEIGHT_Q4, 1536, 576, 60, false, true},
        {"q4 SmolLM2 down", WEIGHT_Q4, 576, 1536, 120, false, false},
        {"q8 SmolLM2 down", WEIGHT_Q8, 576, 1536, 60, false, false},
        {"q8 SmolLM2 head", WEIGHT_Q8, 49152, 576, 4, false, false},
        {"f16 2048x2048", WEIGHT_F16, 2048, 2048, 16, false, false},
        {"bf16 2048x2048", WEIGHT_BF16, 2048, 2048, 16, false, false},
    };
    ops = cpu_ops_get(isa_best());
    for (int isa = 0; argc > 1 && isa < ISA_COUNT_; isa++)
        if (strcmp(argv[1], isa_name((enum isa)isa)) == 0) ops = cpu_ops_get((enum isa)isa);
    if (argc > 2) figure_seconds = atof(argv[2]);
    if (!ops) return 1;
    printf("isa %s\n", isa_name(ops->isa));
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (argc <= 3 || strstr(shapes[i].name, argv[3])) bench_shape(&shapes[i]);
    return 0;
}
