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
