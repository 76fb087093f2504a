/* span.h - a borrowed run of bytes, and unaligned little-endian loads and stores. */
#ifndef PENSTOCK_COMMON_SPAN_H
#define PENSTOCK_COMMON_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct span {
    const uint8_t *ptr; /* may be NULL when len is 0 */
    size_t len;         /* bytes; no NUL is promised behind them */
};

#define SPAN_LIT(literal) ((struct span){(const uint8_t *)(literal), sizeof(literal) - 1})

static inline struct span span_of(const void *ptr, size_t len)
{
    return (struct span){(const uint8_t *)ptr, len};
}
static inline struct span span_str(const char *text)
{
    return span_of(text, text ? strlen(text) : 0);
}
static inline bool span_eq(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}
static inline bool span_eq_str(struct span a, const char *text)
{
    return span_eq(a, span_str(text));
}
/* What lies behind the first start bytes; empty (at the end, not NULL: libc wants pointers even for
 * nothing) if that is all. */
static inline struct span span_from(struct span s, size_t start)
{
    if (s.ptr == NULL) return s;
    return start >= s.len ? span_of(s.ptr + s.len, 0) : span_of(s.ptr + start, s.len - start);
}

/* The machine is little-endian (checked at build time); memcpy makes the loads legal at any
 * address. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "Penstock runs on little-endian machines");
static inline uint16_t load_le16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t load_le32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t load_le64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store_le16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void store_le32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void store_le64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

#endif
