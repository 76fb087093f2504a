/* arena.h - memory of one request: allocated in chunks, given back at once. One thread at a time.
 */
#ifndef PENSTOCK_COMMON_ARENA_H
#define PENSTOCK_COMMON_ARENA_H

#include "common/err.h"
#include "common/span.h"

struct arena {
    struct arena_chunk *head;
    size_t used_bytes; /* handed out, with alignment */
    size_t max_bytes;  /* hard limit */
};

void arena_init(struct arena *arena, size_t max_bytes);
void arena_deinit(struct arena *arena);
/* 16-byte aligned, not cleared. NULL over the limit or out of memory. */
void *arena_alloc(struct arena *arena, size_t bytes);
void *arena_calloc(struct arena *arena, size_t count, size_t size); /* cleared; product checked */
/* A copy with a NUL behind it; NULL as arena_alloc. */
char *arena_dup(struct arena *arena, struct span s);

#endif
