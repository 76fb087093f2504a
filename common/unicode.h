/* unicode.h - the little of Unicode that tokenizers need: UTF-8, four classes of code points, NFC.
 * Tables are built once per process from utf8proc (a few milliseconds, at the first
 * unicode_tables()) and are immutable afterwards: any thread. Sources: Unicode Standard Annexes 15
 * (normalization) and 44 (properties). */
#ifndef PENSTOCK_COMMON_UNICODE_H
#define PENSTOCK_COMMON_UNICODE_H

#include "common/buffer.h"

enum unicode_class {
    UNICODE_OTHER,
    UNICODE_LETTER,  /* general category L* */
    UNICODE_NUMBER,  /* N* */
    UNICODE_SPACE,   /* White_Space, without the next two */
    UNICODE_NEWLINE, /* CR and LF */
    UNICODE_CLASS_MASK = 7,
    UNICODE_NFC_SUSPECT = 8, /* a bit: text without such code points is in NFC */
};
enum { UNICODE_MAX = 0x10FFFF, UNICODE_PAGES = (UNICODE_MAX + 1) >> 8 };

struct unicode_tables {
    uint16_t page_of[UNICODE_PAGES]; /* index into pages */
    uint8_t (*pages)[256];           /* class and bits of each code point; equal pages are shared */
};

/* The tables; builds them at the first call. NULL: out of memory. */
const struct unicode_tables *unicode_tables(void);
static inline uint8_t unicode_props(const struct unicode_tables *u, uint32_t cp)
{
    return u->pages[u->page_of[cp >> 8]][cp & 255];
}

/* True when text is well-formed UTF-8 (no surrogates, no overlong forms, at most U+10FFFF). */
bool unicode_utf8_valid(struct span text);
/* One code point of *valid* UTF-8 at p; *len of its bytes. */
static inline uint32_t unicode_decode(const uint8_t *p, uint32_t *len)
{
    uint32_t c = p[0];
    if (c < 0x80) return *len = 1, c;
    if (c < 0xE0) return *len = 2, (c & 31) << 6 | (p[1] & 63u);
    if (c < 0xF0) return *len = 3, (c & 15) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
    return *len = 4, (c & 7) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
}
/* Writes cp (a scalar value) and returns the number of bytes, 1 to 4. */
uint32_t unicode_encode(uint32_t cp, uint8_t out[4]);
/* How many bytes a sequence that begins with lead has; 0: no lead byte. */
uint32_t unicode_utf8_len(uint8_t lead);
/* Whether byte may stand at index (1..3) of a sequence that begins with lead. */
bool unicode_utf8_continues(uint8_t lead, uint32_t index, uint8_t byte);

/* True when valid UTF-8 text is certainly in NFC; false means that it may not be. */
bool unicode_nfc_quick(const struct unicode_tables *u, struct span text);
/* Appends the NFC of valid UTF-8 text. O(n log n) for any input. ERR_LIMIT (out->max), ERR_NOMEM.
 */
enum err unicode_nfc(const struct unicode_tables *u, struct span text,
                     struct buffer *out) MUST_CHECK;

/* unicode_nfc.c, for unicode.c: the code points that may take part in a change by NFC. */
bool unicode__nfc_init(uint8_t *props /* [UNICODE_MAX + 1] */);

#endif
