/* backend.h - where ops run: memory, weights and an ordered queue of ops, like a CUDA stream.
 * The forward pass (worker/model/transformer.c) enqueues the ops of a step; submit runs them. One
 * engine thread owns a backend. enqueue and submit never allocate. The CPU backend records ops into
 * a fixed list and walks it with all threads of its pool, a barrier between ops; a CUDA backend
 * launches or replays a graph. */
#ifndef PENSTOCK_WORKER_BACKEND_BACKEND_H
#define PENSTOCK_WORKER_BACKEND_BACKEND_H

#include "common/err.h"
#include "kernels/ops.h"

struct backend;
struct cpu_ops;
struct pool;

struct backend_ops {
    const char *name; /* "cpu" */
    void (*destroy)(struct backend *b);
    /* Memory that ops can use, 64-byte aligned, zeroed; freed with the backend or by release. NULL:
     * not enough. */
    void *(*alloc)(struct backend *b, size_t bytes);
    void (*release)(struct backend *b, void *ptr);
    void (*enqueue)(struct backend *b, const struct op *op); /* copied; CHECKs the list's bound */
    /* Runs what is enqueued and returns when results may be read by the host. ERR_IO: the device
     * failed. */
    enum err (*submit)(struct backend *b);
    /* Layouts that are the backend's own: bytes of one KV block of one layer, of rows x cols
     * activations, and of the scratch of op_attention for up to rows_max rows of contexts up to
     * context_max. */
    size_t (*kv_block_bytes)(const struct backend *b, enum kv_type type, uint32_t kv_heads,
                             uint32_t head_dim);
    size_t (*act_bytes)(const struct backend *b, enum act_type type, uint32_t rows, uint32_t cols);
    size_t (*attention_scratch_bytes)(const struct backend *b, uint32_t rows_max, uint32_t q_heads,
                                      uint32_t head_dim, uint32_t context_max);
    void (*describe)(const struct backend *b, char *out,
                     size_t out_bytes); /* "cpu avx512-vnni, 2 threads" */
};

struct backend { /* first member of each backend's own struct */
    const struct backend_ops *ops;
};

/* isa: enum isa of kernels/isa.h, or -1 for the best. ERR_UNSUPPORTED: not on this machine. */
enum err backend_cpu_create(uint32_t threads, int isa, struct backend **out,
                            struct errmsg *why) MUST_CHECK;
/* The CPU backend's parts, for the sampler and benches. */
const struct cpu_ops *backend_cpu_ops(const struct backend *b);
struct pool *backend_cpu_pool(const struct backend *b);

#endif
