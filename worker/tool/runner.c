#include "worker/tool/runner.h"

#include "kernels/cpu/cpu_ops.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

uint32_t runner_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? (uint32_t)n : 1;
}

static void show_progress(void *arg, uint64_t done, uint64_t total)
{
    (void)arg;
    fprintf(stderr, "\rloading %3u %%%s", (unsigned)(total ? done * 100 / total : 100),
            done >= total ? "\r             \r" : "");
    fflush(stderr);
}

static enum err open_parts(struct runner *r, struct errmsg *why)
{
    const struct runner_options *o = &r->options;
    struct model_options load = {.reference = o->reference,
                                 .threads = o->threads,
                                 .progress = o->progress && isatty(2) ? show_progress : NULL};
    enum err err = model_load(o->path, &load, &r->model, why);
    if (err != OK) return err;
    int isa = o->reference ? (int)ISA_PLAIN : (int)o->isa - 1;
    err = backend_cpu_create(o->threads, isa, &r->backend, why);
    if (err != OK) return err;
    static const enum kv_type kv_types[] = {KV_F16, KV_Q8, KV_F32};
    r->blocks_each = (o->context + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    struct transformer_options options = {
        .limits = {.rows_max = o->rows_max,
                   .sequences_max = o->sequences,
                   .context_max = o->context,
                   .copies_max = 1},
        .logits_rows_max = o->rows_max,
        .kv_type = o->reference ? KV_F32 : kv_types[o->kv],
        .kv_blocks = r->blocks_each * o->sequences,
    };
    err = transformer_create(r->model, r->backend, &options, &r->transformer, why);
    if (err != OK) return err;
    r->length = calloc(o->sequences, sizeof *r->length);
    if (r->length == NULL || step_init(&r->step, &options.limits) != OK)
        return errmsg_set(why, ERR_NOMEM, "no memory for a step of %u tokens", o->rows_max);
    step_clear(&r->step);
    return OK;
}

enum err runner_open(const struct runner_options *options, struct runner *r, struct errmsg *why)
{
    *r = (struct runner){.options = *options};
    if (r->options.threads == 0) r->options.threads = runner_cores();
    enum err err = open_parts(r, why);
    if (err != OK) runner_close(r);
    return err;
}

void runner_close(struct runner *r)
{
    if (r->step.tokens != NULL) step_deinit(&r->step);
    transformer_destroy(r->transformer);
    if (r->backend != NULL) r->backend->ops->destroy(r->backend);
    model_destroy(r->model);
    free(r->length);
    *r = (struct runner){0};
}

void runner_reset(struct runner *r)
{
    for (uint32_t s = 0; s < r->options.sequences; s++)
        r->length[s] = 0;
}

enum err runner_check(const struct runner *r, uint32_t sequence, const uint32_t *ids,
                      uint32_t count, struct errmsg *why)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] >= r->model->vocab_count)
            return errmsg_set(why, ERR_INVALID, "ids[%u] is %u; the vocabulary has %u tokens", i,
                              ids[i], r->model->vocab_count);
    if (count > r->options.context - r->length[sequence])
        return errmsg_set(why, ERR_LIMIT, "%u tokens behind %u; the context here is %u", count,
                          r->length[sequence], r->options.context);
    return OK;
}

void runner_add(struct runner *r, uint32_t sequence, const uint32_t *ids, uint32_t count,
                bool want_all, bool want_last)
{
    struct step *step = &r->step;
    CHECK(step->rows + count <= r->options.rows_max && sequence < r->options.sequences);
    uint32_t *table = step->block_table + (size_t)step->sequences * step->block_table_stride;
    uint32_t first_block = sequence * r->blocks_each;
    for (uint32_t b = 0; b < r->blocks_each; b++)
        table[b] = first_block + b;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = step->rows++, position = r->length[sequence]++;
        step->tokens[row] = ids[i];
        step->position[row] = position;
        step->slot[row] = first_block * KV_BLOCK_TOKENS + position;
        step->row_sequence[row] = step->sequences;
        if (want_all || (want_last && i + 1 == count)) step->logits_row[step->logits_rows++] = row;
    }
    step->sequences++;
}

enum err runner_run(struct runner *r, const float **logits)
{
    enum err err = transformer_forward(r->transformer, &r->step);
    *logits = r->step.logits;
    step_clear(&r->step);
    return err;
}

uint32_t runner_argmax(const struct runner *r, const float *logits)
{
    float max;
    uint32_t best = 0;
    (void)backend_cpu_ops(r->backend)->row_max(logits, r->model->vocab_count, &max, &best);
    return best;
}
