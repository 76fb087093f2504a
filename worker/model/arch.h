/* arch.h - what an architecture is, read from a file's metadata by one table. Keys that are not
 * known and could change results are refused by name. */
#ifndef PENSTOCK_WORKER_MODEL_ARCH_H
#define PENSTOCK_WORKER_MODEL_ARCH_H

#include "worker/model/gguf.h"
#include "worker/model/model.h"

struct arch {
    const char *name;
    bool pairs_adjacent; /* rows of q and k are stored with rotary pairs side by side */
    bool qkv_bias;
    bool qk_norm;
};

/* Fills m's scalars and its layers' shapes (m->layers is allocated). */
enum err arch_read(const struct gguf *g, struct model *m, const struct arch **out,
                   struct errmsg *why) MUST_CHECK;

#endif
