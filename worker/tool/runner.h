/* runner.h - what the numeric subcommands share: a model on a backend, run without scheduler or
 * sampler. Sequence s owns a fixed run of KV blocks; nothing is shared or cached. Main thread. */
#ifndef PENSTOCK_WORKER_TOOL_RUNNER_H
#define PENSTOCK_WORKER_TOOL_RUNNER_H

#include "common/config.h"
#include "worker/model/transformer.h"

struct runner_options {
    const char *path;
    bool reference;   /* plain float32 twins, float32 KV */
    uint32_t threads; /* 0: as many as the machine has */
    uint32_t isa;     /* index into RUNNER_ISA_CHOICES */
    uint32_t kv;      /* index into RUNNER_KV_CHOICES */
    uint32_t sequences;
    uint32_t context;  /* tokens of each */
    uint32_t rows_max; /* tokens a step */
    bool progress;     /* show loading on a terminal's stderr */
};
#define RUNNER_ISA_CHOICES "auto|plain|avx2|avx512"
#define RUNNER_KV_CHOICES "f16|q8|f32"

struct runner {
    struct model *model;
    struct backend *backend;
    struct transformer *transformer;
    struct step step;
    uint32_t *length; /* [sequences] tokens in the cache */
    struct runner_options options;
    uint32_t blocks_each;
};

/* All or nothing; runner_close frees. */
enum err runner_open(const struct runner_options *options, struct runner *r,
                     struct errmsg *why) MUST_CHECK;
void runner_close(struct runner *r);
void runner_reset(struct runner *r); /* all sequences empty */
/* ERR_INVALID names the first id that is not below the vocabulary's size, or a sequence that would
 * outgrow its context. */
enum err runner_check(const struct runner *r, uint32_t sequence, const uint32_t *ids,
                      uint32_t count, struct errmsg *why) MUST_CHECK;
/* Appends rows to the step under construction: count <= rows_max in all. want_all: logits of each
 * row, else of the last. */
void runner_add(struct runner *r, uint32_t sequence, const uint32_t *ids, uint32_t count,
                bool want_all, bool want_last);
/* Computes what was added; logits of the wanted rows, in order, borrowed until the next run. */
enum err runner_run(struct runner *r, const float **logits) MUST_CHECK;
uint32_t runner_argmax(const struct runner *r, const float *logits);
uint32_t runner_cores(void);

#endif
