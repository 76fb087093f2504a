/* cpu.c - the CPU backend: ops are recorded in a list and walked by all threads of the pool, a
 * barrier between ops. Owns: the pool, the list, every allocation made through it. Engine thread.
 * Bound: OPS_MAX ops a submit.
 *
 * On two cores a barrier costs as much as a small op. An op that only prepares a linear's input
 * (norm, quantize) is, for few rows, done by every thread for itself into memory of its own, and
 * the linear that follows reads it there: no barrier. */
#include "worker/backend/backend.h"

#include "kernels/act.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/kv.h"
#include "kernels/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    OPS_MAX = 512 * 10 + 64,      /* MODEL_LAYERS_MAX layers of some nine ops */
    REPLICATE_VALUES_MAX = 16384, /* rows * cols that each thread prepares for itself */
    ALLOC_MAX = 8192,
    HUGE_BYTES = 2 << 20,
};

struct allocation {
    void *ptr;
    size_t bytes;
};

struct cpu {
    struct backend base;
    const struct cpu_ops *ops;
    struct pool *pool;
    struct op *list;
    uint32_t count;
    uint8_t *replica; /* [threads] private activations */
    size_t replica_bytes;
    struct allocation *allocations;
    uint32_t allocation_count;
};

static void cpu_destroy(struct backend *b)
{
    struct cpu *cpu = (struct cpu *)b;
    for (uint32_t i = 0; i < cpu->allocation_count; i++)
        (void)munmap(cpu->allocations[i].ptr, cpu->allocations[i].bytes);
    pool_destroy(cpu->pool);
    free(cpu->allocations);
    free(cpu->replica);
    free(cpu->list);
    free(cpu);
}

/* Anonymous pages are zero and come when they are first touched; huge ones halve the cost of TLB
 * misses. */
static void *cpu_alloc(struct backend *b, size_t bytes)
{
    struct cpu *cpu = (struct cpu *)b;
    if (cpu->allocation_count == ALLOC_MAX || bytes > SIZE_MAX - HUGE_BYTES) return NULL;
    size_t whole = (bytes + 4095) & ~(size_t)4095;
    if (whole == 0) whole = 4096;
    if (whole >= HUGE_BYTES) whole = (whole + HUGE_BYTES - 1) & ~(size_t)(HUGE_BYTES - 1);
    void *ptr = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED) return NULL;
    if (whole >= HUGE_BYTES) {
        (void)madvise(ptr, whole, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
        /* all of it now: a page that first comes in the middle of a step costs that step, and
         * memory that is not to be had is better missed at the start */
        (void)madvise(ptr, whole, MADV_POPULATE_WRITE);
#endif
    }
    cpu->allocations[cpu->allocation_count++] = (struct allocation){ptr, whole};
    return ptr;
}

static void cpu_release(struct backend *b, void *ptr)
{
    struct cpu *cpu = (struct cpu *)b;
    for (uint32_t i = 0; ptr != NULL && i < cpu->allocation_count; i++) {
        if (cpu->allocations[i].ptr != ptr) continue;
        (void)munmap(ptr, cpu->allocations[i].bytes);
        cpu->allocations[i] = cpu->allocations[--cpu->allocation_count];
        return;
    }
    CHECK(ptr == NULL);
}

static void cpu_enqueue(struct backend *b, const struct op *op)
{
    struct cpu *cpu = (struct cpu *)b;
    CHECK(cpu->count < OPS_MAX);
    cpu->list[cpu->count++] = *op;
}

static bool replicates(const struct cpu *cpu, const struct op *op)
{
    uint32_t rows = op->kind == OP_NORM ? op->norm.rows : op->quantize.rows;
    uint32_t cols = op->kind == OP_NORM ? op->norm.cols : op->quantize.cols;
    const struct act *out = op->kind == OP_NORM ? &op->norm.out : &op->quantize.out;
    return (uint64_t)rows * cols <= REPLICATE_VALUES_MAX && rows < 8 * pool_threads(cpu->pool) &&
           act_bytes(out->type, rows, cols) <= cpu->replica_bytes;
}

/* What a thread keeps while it walks the list: which activations it holds a copy of. */
struct walk {
    uint32_t ith, nth;
    const void *shared; /* NULL: none */
    void *own;
};

/* The op that prepares an input, done whole by this thread for itself. */
static void prepare_own(const struct cpu *cpu, const struct op *op, struct walk *w)
{
    w->own = cpu->replica + w->ith * cpu->replica_bytes;
    if (op->kind == OP_NORM) {
        struct op_norm norm = op->norm;
        w->shared = norm.out.data;
        norm.out.data = w->own;
        cpu->ops->norm(&norm, 0, 1);
    } else {
        struct op_quantize quantize = op->quantize;
        w->shared = quantize.out.data;
        quantize.out.data = w->own;
        cpu->ops->quantize(&quantize, 0, 1);
    }
}

static void run_linear(const struct cpu *cpu, const struct op *op, const struct walk *w)
{
    if (op->kind == OP_LINEAR) {
        struct op_linear linear = op->linear;
        if (linear.in.data == w->shared) linear.in.data = w->own;
        cpu->ops->linear(&linear, w->ith, w->nth);
    } else {
        struct op_head head = op->head;
        if (head.in.data == w->shared) head.in.data = w->own;
        cpu->ops->head(&head, w->ith, w->nth);
    }
}

static void walk_ops(void *arg, uint32_t ith, uint32_t nth)
{
    struct cpu *cpu = arg;
    struct walk w = {ith, nth, NULL, NULL};
    for (uint32_t i = 0; i < cpu->count; i++) {
        const struct op *op = &cpu->list[i];
        switch (op->kind) {
        case OP_NORM:
        case OP_QUANTIZE:
            if (replicates(cpu, op)) {
                prepare_own(cpu, op, &w);
                continue; /* no barrier: nobody else reads it */
            }
            w.shared = NULL;
            if (op->kind == OP_NORM)
                cpu->ops->norm(&op->norm, ith, nth);
            else
                cpu->ops->quantize(&op->quantize, ith, nth);
            break;
        case OP_LINEAR:
        case OP_HEAD: run_linear(cpu, op, &w); break;
        case OP_EMBED: cpu->ops->embed(&op->embed, ith, nth); break;
        case OP_ROPE_STORE: cpu->ops->rope_store(&op->rope_store, ith, nth); break;
        case OP_ATTENTION:
            cpu->ops->attention(&op->attention, ith, nth);
            if (cpu->ops->attention_needs_merge(&op->attention)) {
                pool_barrier(cpu->pool, ith);
                cpu->ops->attention_merge(&op->attention, ith, nth);
            }
            break;
        case OP_COPY_BLOCKS: cpu->ops->copy_blocks(&op->copy_blocks, ith, nth); break;
        }
        if (i + 1 < cpu->count) pool_barrier(cpu->pool, ith);
    }
}

static enum err cpu_submit(struct backend *b)
{
    struct cpu *cpu = (struct cpu *)b;
    pool_run(cpu->pool, walk_ops, cpu);
    cpu->count = 0;
    return OK;
}

static void cpu_describe(const struct backend *b, char *out, size_t out_bytes)
{
    const struct cpu *cpu = (const struct cpu *)b;
    uint32_t threads = pool_threads(cpu->pool);
    (void)snprintf(out, out_bytes, "cpu %s, %u thread%s", isa_name(cpu->ops->isa), threads,
                   threads == 1 ? "" : "s");
}

static size_t cpu_kv_block_bytes(const struct backend *b, enum kv_type type, uint32_t kv_heads,
                                 uint32_t head_dim)
{
    (void)b;
    return kv_block_bytes(type, kv_heads, head_dim);
}

static size_t cpu_act_bytes(const struct backend *b, enum act_type type, uint32_t rows,
                            uint32_t cols)
{
    (void)b;
    return act_bytes(type, rows, cols);
}

static size_t cpu_attention_scratch_bytes(const struct backend *b, uint32_t rows_max,
                                          uint32_t q_heads, uint32_t head_dim, uint32_t context_max)
{
    const struct cpu *cpu = (const struct cpu *)b;
    return attention_scratch_bytes(rows_max, q_heads, head_dim, context_max,
                                   pool_threads(cpu->pool));
}

static const struct backend_ops cpu_backend_ops = {
    .name = "cpu",
    .destroy = cpu_destroy,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .enqueue = cpu_enqueue,
    .submit = cpu_submit,
    .kv_block_bytes = cpu_kv_block_bytes,
    .act_bytes = cpu_act_bytes,
    .attention_scratch_bytes = cpu_attention_scratch_bytes,
    .describe = cpu_describe,
};

enum err backend_cpu_create(uint32_t threads, int isa, struct backend **out, struct errmsg *why)
{
    enum isa chosen = isa < 0 ? isa_best() : (enum isa)isa;
    const struct cpu_ops *ops = chosen < ISA_COUNT_ ? cpu_ops_get(chosen) : NULL;
    if (ops == NULL)
        return errmsg_set(why, ERR_UNSUPPORTED,
                          "instruction set %s is not to be had on this machine (best: %s)",
                          isa_name(chosen), isa_name(isa_best()));
    if (threads == 0 || threads > POOL_THREADS_MAX)
        return errmsg_set(why, ERR_INVALID, "%u threads asked for; 1 to %d are possible", threads,
                          POOL_THREADS_MAX);
    struct cpu *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL) goto nomem;
    cpu->base.ops = &cpu_backend_ops;
    cpu->ops = ops;
    cpu->replica_bytes =
        (act_bytes(ACT_F32, 1, REPLICATE_VALUES_MAX) + act_bytes(ACT_Q16, 8, REPLICATE_VALUES_MAX)) &
        ~(size_t)63;
    cpu->list = calloc(OPS_MAX, sizeof *cpu->list);
    cpu->allocations = calloc(ALLOC_MAX, sizeof *cpu->allocations);
    cpu->replica = aligned_alloc(64, threads * cpu->replica_bytes);
    cpu->pool = pool_create(threads, 0);
    if (cpu->list == NULL || cpu->allocations == NULL || cpu->replica == NULL ||
        cpu->pool == NULL) {
        if (cpu->pool != NULL) pool_destroy(cpu->pool);
        free(cpu->list);
        free(cpu->allocations);
        free(cpu->replica);
        free(cpu);
        goto nomem;
    }
    *out = &cpu->base;
    return OK;
nomem:
    return errmsg_set(why, ERR_NOMEM, "no memory or threads for a CPU backend of %u threads",
                      threads);
}

const struct cpu_ops *backend_cpu_ops(const struct backend *b)
{
    return b->ops == &cpu_backend_ops ? ((const struct cpu *)b)->ops : NULL;
}

struct pool *backend_cpu_pool(const struct backend *b)
{
    return b->ops == &cpu_backend_ops ? ((const struct cpu *)b)->pool : NULL;
}
