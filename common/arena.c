#include "common/arena.h"

#include <stdlib.h>

enum { ARENA_CHUNK_BYTES = 16384 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used;
    size_t cap;
    _Alignas(16) uint8_t data[];
};

void arena_init(struct arena *arena, size_t max_bytes)
{
    *arena = (struct arena){.max_bytes = max_bytes};
}

void arena_deinit(struct arena *arena)
{
    for (struct arena_chunk *chunk = arena->head; chunk != NULL;) {
        struct arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *arena = (struct arena){.max_bytes = arena->max_bytes};
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (bytes > arena->max_bytes) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > arena->max_bytes - arena->used_bytes) return NULL;
    struct arena_chunk *chunk = arena->head;
    if (chunk == NULL || chunk->cap - chunk->used < bytes) {
        size_t cap = bytes > ARENA_CHUNK_BYTES / 4 ? bytes : ARENA_CHUNK_BYTES;
        struct arena_chunk *fresh = malloc(sizeof *fresh + cap);
        if (fresh == NULL) return NULL;
        fresh->used = 0;
        fresh->cap = cap;
        /* a chunk of its own goes behind the head, whose room is kept for small pieces */
        if (cap == bytes && chunk != NULL) {
            fresh->next = chunk->next;
            chunk->next = fresh;
        } else {
            fresh->next = chunk;
            arena->head = fresh;
        }
        chunk = fresh;
    }
    void *ptr = chunk->data + chunk->used;
    chunk->used += bytes;
    arena->used_bytes += bytes;
    return ptr;
}

void *arena_calloc(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) return NULL;
    void *ptr = arena_alloc(arena, bytes);
    if (ptr != NULL) memset(ptr, 0, bytes);
    return ptr;
}

char *arena_dup(struct arena *arena, struct span s)
{
    if (s.len == SIZE_MAX) return NULL;
    char *ptr = arena_alloc(arena, s.len + 1);
    if (ptr == NULL) return NULL;
    if (s.len) memcpy(ptr, s.ptr, s.len);
    ptr[s.len] = '\0';
    return ptr;
}
