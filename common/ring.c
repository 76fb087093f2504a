#include "common/ring.h"

#include <stdatomic.h>
#include <stdlib.h>

struct ring {
    uint32_t mask;
    uint32_t item_bytes;
    uint8_t *items;
    _Alignas(64) _Atomic uint32_t head; /* next to write; the producer's */
    _Alignas(64) _Atomic uint32_t tail; /* next to read; the consumer's */
};

struct ring *ring_create(uint32_t item_count, uint32_t item_bytes)
{
    CHECK(item_count > 0 && item_count <= 1u << 24 && item_bytes > 0);
    uint32_t cap = 1;
    while (cap < item_count)
        cap *= 2;
    struct ring *ring = aligned_alloc(64, sizeof *ring);
    if (ring == NULL) return NULL;
    memset(ring, 0, sizeof *ring);
    ring->mask = cap - 1;
    ring->item_bytes = item_bytes;
    ring->items = calloc(cap, item_bytes);
    if (ring->items == NULL) {
        free(ring);
        return NULL;
    }
    return ring;
}

void ring_destroy(struct ring *ring)
{
    if (ring == NULL) return;
    free(ring->items);
    free(ring);
}

bool ring_push(struct ring *ring, const void *item)
{
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (head - tail > ring->mask) return false;
    memcpy(ring->items + (size_t)(head & ring->mask) * ring->item_bytes, item, ring->item_bytes);
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return true;
}

bool ring_pop(struct ring *ring, void *item)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    if (head == tail) return false;
    memcpy(item, ring->items + (size_t)(tail & ring->mask) * ring->item_bytes, ring->item_bytes);
    atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
    return true;
}

uint32_t ring_count(const struct ring *ring)
{
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    return head - tail;
}
