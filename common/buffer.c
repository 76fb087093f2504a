#include "common/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void buffer_init(struct buffer *buf, size_t max)
{
    *buf = (struct buffer){.max = max};
}

void buffer_deinit(struct buffer *buf)
{
    free(buf->ptr);
    *buf = (struct buffer){.max = buf->max};
}

void buffer_reset(struct buffer *buf)
{
    buf->len = 0;
    buf->failed = false;
}

enum err buffer_reserve(struct buffer *buf, size_t extra)
{
    if (buf->failed) return ERR_LIMIT;
    if (extra > buf->max - buf->len) {
        buf->failed = true;
        return ERR_LIMIT;
    }
    size_t need = buf->len + extra;
    if (need <= buf->cap) return OK;
    size_t cap = buf->cap ? buf->cap : 256;
    while (cap < need)
        cap = cap > buf->max / 2 ? buf->max : cap * 2;
    uint8_t *ptr = realloc(buf->ptr, cap);
    if (ptr == NULL) {
        buf->failed = true;
        return ERR_NOMEM;
    }
    buf->ptr = ptr;
    buf->cap = cap;
    return OK;
}

void buffer_add(struct buffer *buf, const void *ptr, size_t len)
{
    if (len == 0 || buffer_reserve(buf, len) != OK) return;
    memcpy(buf->ptr + buf->len, ptr, len);
    buf->len += len;
}

void buffer_add_span(struct buffer *buf, struct span s)
{
    buffer_add(buf, s.ptr, s.len);
}

void buffer_add_str(struct buffer *buf, const char *text)
{
    buffer_add(buf, text, strlen(text));
}

void buffer_add_byte(struct buffer *buf, uint8_t byte)
{
    buffer_add(buf, &byte, 1);
}

void buffer_printf(struct buffer *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && buffer_reserve(buf, (size_t)n + 1) == OK) {
        (void)vsnprintf((char *)buf->ptr + buf->len, (size_t)n + 1, format, again);
        buf->len += (size_t)n;
    }
    va_end(again);
}

void buffer_consume(struct buffer *buf, size_t n)
{
    CHECK(n <= buf->len);
    if (n == 0) return;
    memmove(buf->ptr, buf->ptr + n, buf->len - n);
    buf->len -= n;
}

enum err buffer_status(const struct buffer *buf)
{
    return buf->failed ? ERR_LIMIT : OK;
}
