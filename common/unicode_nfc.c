/* unicode_nfc.c - normalization form C. Our own rather than the library's, whose reordering of
 * combining marks is quadratic: a megabyte of them in alternating classes would hold a thread for
 * hours. Here a run of marks is sorted by merging, and composed in one pass. */
#include "common/unicode.h"

#include <stdlib.h>
#include <utf8proc.h>

enum {
    HANGUL_S = 0xAC00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    HANGUL_LS = 19,
    HANGUL_VS = 21,
    HANGUL_TS = 28,
    HANGUL_COUNT = HANGUL_LS * HANGUL_VS * HANGUL_TS,
    PAIR_SLOTS = 4096, /* about 940 canonical compositions */
    DECOMPOSED_MAX = 8 /* code points; Unicode's longest canonical decomposition has 4 */
};

static struct pair {
    uint32_t first, second, composed;
} pairs[PAIR_SLOTS]; /* open addressing; composed 0 = free */

static uint32_t pair_hash(uint32_t first, uint32_t second)
{
    return (uint32_t)(((uint64_t)first << 32 | second) * 0x9E3779B97F4A7C15ull >> 52);
}

static uint32_t pair_compose(uint32_t a, uint32_t b)
{
    if (a - HANGUL_L < HANGUL_LS && b - HANGUL_V < HANGUL_VS)
        return HANGUL_S + ((a - HANGUL_L) * HANGUL_VS + (b - HANGUL_V)) * HANGUL_TS;
    if (a - HANGUL_S < HANGUL_COUNT && (a - HANGUL_S) % HANGUL_TS == 0 && b > HANGUL_T &&
        b < HANGUL_T + HANGUL_TS)
        return a + (b - HANGUL_T);
    for (uint32_t h = pair_hash(a, b); pairs[h].composed != 0; h = (h + 1) % PAIR_SLOTS)
        if (pairs[h].first == a && pairs[h].second == b) return pairs[h].composed;
    return 0;
}

static uint32_t decompose(uint32_t cp, uint32_t out[DECOMPOSED_MAX])
{
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, (utf8proc_int32_t *)out,
                                                 DECOMPOSED_MAX, UTF8PROC_DECOMPOSE, &boundary);
    CHECK(n >= 1 && n <= DECOMPOSED_MAX);
    return (uint32_t)n;
}

static uint8_t combining_class(uint32_t cp)
{
    return (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

/* Whether NFC leaves cp, standing alone, as it is. */
static bool is_stable(uint32_t cp)
{
    utf8proc_uint8_t text[5] = {0};
    (void)utf8proc_encode_char((utf8proc_int32_t)cp, text);
    utf8proc_uint8_t *nfc = utf8proc_NFC(text);
    bool same = nfc != NULL && strcmp((const char *)nfc, (const char *)text) == 0;
    free(nfc);
    return same;
}

bool unicode__nfc_init(uint8_t *props)
{
    uint32_t d[DECOMPOSED_MAX];
    /* shortest decompositions first, so that the head of a longer one composes already */
    for (uint32_t length = 1; length <= DECOMPOSED_MAX; length++)
        for (uint32_t cp = 0xA0; cp <= UNICODE_MAX; cp++) {
            if (cp == 0x3400) cp = 0xF900; /* ideographs and Hangul have no table entries */
            if (cp == 0x30000) cp = 0xE0000;
            if (utf8proc_get_property((utf8proc_int32_t)cp)->decomp_seqindex == UINT16_MAX)
                continue;
            uint32_t n = decompose(cp, d);
            if (n != length || (n == 1 && d[0] == cp)) continue;
            for (uint32_t k = 1; k < n; k++)
                props[d[k]] |= UNICODE_NFC_SUSPECT;
            if (n == 1 || !is_stable(cp)) {
                props[cp] |= UNICODE_NFC_SUSPECT;
                continue;
            }
            uint32_t head = d[0];
            for (uint32_t k = 1; k + 1 < n && head != 0; k++)
                head = pair_compose(head, d[k]);
            if (head == 0) return false;
            uint32_t h = pair_hash(head, d[n - 1]);
            while (pairs[h].composed != 0)
                h = (h + 1) % PAIR_SLOTS;
            pairs[h] = (struct pair){head, d[n - 1], cp};
        }
    for (uint32_t k = 0; k < HANGUL_VS; k++)
        props[HANGUL_V + k] |= UNICODE_NFC_SUSPECT;
    for (uint32_t k = 1; k < HANGUL_TS; k++)
        props[HANGUL_T + k] |= UNICODE_NFC_SUSPECT;
    for (uint32_t cp = 0; cp <= UNICODE_MAX; cp++)
        if (combining_class(cp) != 0) props[cp] |= UNICODE_NFC_SUSPECT;
    return true;
}

/* Offset of the first suspect at or behind at, or len. *start: where the code point before it
 * begins (at if there is none). */
static size_t next_suspect(const struct unicode_tables *u, struct span text, size_t at,
                           size_t *start)
{
    *start = at;
    while (at < text.len) {
        uint32_t len = 1;
        if (text.ptr[at] < 0x80) {
            while (at + 8 <= text.len && (load_le64(text.ptr + at) & 0x8080808080808080ull) == 0)
                at += 8;
            if (at == text.len || text.ptr[at] >= 0x80) {
                *start = at - 1;
                continue;
            }
        } else if (unicode_props(u, unicode_decode(text.ptr + at, &len)) & UNICODE_NFC_SUSPECT) {
            return at;
        }
        *start = at;
        at += len;
    }
    return at;
}

bool unicode_nfc_quick(const struct unicode_tables *u, struct span text)
{
    size_t start;
    return next_suspect(u, text, 0, &start) == text.len;
}

/* A code point with its combining class in the high byte. */
static uint32_t class_tag(uint32_t cp)
{
    return (uint32_t)combining_class(cp) << 24 | cp;
}

/* Stable sort of marks[0..n) by class; tmp has room for n. Bottom-up merging. */
static void marks_sort(uint32_t *marks, uint32_t *tmp, size_t n)
{
    uint32_t *from = marks, *to = tmp;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t start = 0; start < n; start += 2 * width) {
            size_t mid = start + width < n ? start + width : n;
            size_t end = start + 2 * width < n ? start + 2 * width : n;
            size_t a = start, b = mid;
            for (size_t k = start; k < end; k++)
                to[k] =
                    a < mid && (b == end || from[a] >> 24 <= from[b] >> 24) ? from[a++] : from[b++];
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != marks) memcpy(marks, from, n * sizeof *marks);
}

/* Composes cps[0..n), canonically ordered, in place; returns the new count. */
static size_t compose(uint32_t *cps, size_t n)
{
    size_t out = 0, starter = SIZE_MAX;
    uint32_t last_class = 0; /* of the code point kept last behind the starter */
    for (size_t i = 0; i < n; i++) {
        uint32_t cp = cps[i] & 0xFFFFFF, class = cps[i] >> 24;
        bool adjacent = starter != SIZE_MAX && starter + 1 == out;
        if (starter != SIZE_MAX && (adjacent || (last_class != 0 && last_class < class))) {
            uint32_t both = pair_compose(cps[starter], cp);
            if (both != 0) {
                cps[starter] = both;
                continue;
            }
        }
        if (class == 0) starter = out;
        last_class = class;
        cps[out++] = cp;
    }
    return out;
}

/* Normalizes one stretch; cps has room for 2 * cap. */
static void normalize_stretch(struct span text, uint32_t *cps, size_t cap, struct buffer *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len;) {
        uint32_t len, d[DECOMPOSED_MAX];
        uint32_t parts = decompose(unicode_decode(text.ptr + i, &len), d);
        i += len;
        CHECK(n + parts <= cap);
        for (uint32_t k = 0; k < parts; k++)
            cps[n++] = class_tag(d[k]);
    }
    for (size_t i = 0; i < n;) { /* runs of marks into canonical order */
        size_t end = i;
        while (end < n && cps[end] >> 24 != 0)
            end++;
        if (end - i > 1) marks_sort(cps + i, cps + cap + i, end - i);
        i = end + 1;
    }
    n = compose(cps, n);
    uint8_t utf8[4];
    for (size_t i = 0; i < n; i++)
        buffer_add(out, utf8, unicode_encode(cps[i], utf8));
}

/* A code point that is no suspect is a starter that nothing before it can change: the text is
 * normalized in stretches, each a suspect run with the code point in front of it. */
enum err unicode_nfc(const struct unicode_tables *u, struct span text, struct buffer *out)
{
    uint32_t *cps = NULL;
    size_t cap = 0, done = 0;
    for (;;) {
        size_t start, end = next_suspect(u, text, done, &start);
        if (end == text.len) break;
        while (end < text.len) {
            uint32_t len, cp = unicode_decode(text.ptr + end, &len);
            if (!(unicode_props(u, cp) & UNICODE_NFC_SUSPECT)) break;
            end += len;
        }
        /* a canonical decomposition has at most 2 code points to a byte of UTF-8: U+0390 has 3 */
        size_t need = 2 * (end - start) + DECOMPOSED_MAX;
        if (need > cap) {
            free(cps);
            cap = 2 * need;
            cps = malloc(cap * 2 * sizeof *cps);
            if (cps == NULL) return ERR_NOMEM;
        }
        buffer_add(out, text.ptr + done, start - done);
        normalize_stretch(span_of(text.ptr + start, end - start), cps, cap, out);
        done = end;
    }
    buffer_add_span(out, span_from(text, done));
    free(cps);
    return buffer_status(out);
}
