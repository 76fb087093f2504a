/* ring.h - one producer, one consumer, fixed-size items, no locks. Owns its slots; full is an
 * answer, not a wait. */
#ifndef PENSTOCK_COMMON_RING_H
#define PENSTOCK_COMMON_RING_H

#include "common/err.h"
#include "common/span.h"

struct ring; /* one producer thread, one consumer thread */

/* item_count: rounded up to a power of two. NULL when memory is short. */
struct ring *ring_create(uint32_t item_count, uint32_t item_bytes);
void ring_destroy(struct ring *ring);
bool ring_push(struct ring *ring, const void *item); /* producer; false when full */
bool ring_pop(struct ring *ring, void *item);        /* consumer; false when empty */
uint32_t ring_count(const struct ring *ring);        /* either side; a snapshot */

#endif
