/* buffer.h - a growable run of bytes with a hard limit. Owns its memory; one thread. */
#ifndef PENSTOCK_COMMON_BUFFER_H
#define PENSTOCK_COMMON_BUFFER_H

#include "common/err.h"
#include "common/span.h"

struct buffer {
    uint8_t *ptr;
    size_t len;
    size_t cap;
    size_t max;  /* bytes; growth beyond it is refused and failed is set */
    bool failed; /* sticky: an append was refused; later appends do nothing until buffer_reset */
};

/* Nothing is allocated until the first append. max: hard limit in bytes. */
void buffer_init(struct buffer *buf, size_t max);
void buffer_deinit(struct buffer *buf);
/* Empties it and clears failed; keeps the memory. */
void buffer_reset(struct buffer *buf);
/* Room for extra more bytes behind len. ERR_LIMIT over max, ERR_NOMEM; sets failed. */
enum err buffer_reserve(struct buffer *buf, size_t extra);
/* Appends are void: they set failed, which buffer_status reports once at the end of a long
 * construction. */
void buffer_add(struct buffer *buf, const void *ptr, size_t len);
void buffer_add_span(struct buffer *buf, struct span s);
void buffer_add_str(struct buffer *buf, const char *text);
void buffer_add_byte(struct buffer *buf, uint8_t byte);
void buffer_printf(struct buffer *buf, const char *format, ...) PRINTF_LIKE(2, 3);
/* Drops the first n bytes (n <= len), moving the rest down. */
void buffer_consume(struct buffer *buf, size_t n);
enum err buffer_status(const struct buffer *buf)
    MUST_CHECK; /* OK, or ERR_LIMIT when an append was refused */
static inline struct span buffer_view(const struct buffer *buf)
{
    return span_of(buf->ptr, buf->len);
}

#endif
