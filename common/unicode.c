/* unicode.c - property tables and UTF-8. utf8proc is asked only while the tables are built. */
#include "common/unicode.h"

#include <pthread.h>
#include <stdlib.h>
#include <utf8proc.h>

static struct unicode_tables tables;
static bool tables_ready;
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static uint8_t class_of(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return UNICODE_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return UNICODE_NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return UNICODE_SPACE;
    default: break;
    }
    if (cp == '\r' || cp == '\n') return UNICODE_NEWLINE;
    /* the controls among White_Space */
    return (cp >= 9 && cp <= 13) || cp == 0x85 ? UNICODE_SPACE : UNICODE_OTHER;
}

/* Folds the flat table into shared pages. Most of Unicode is a few repeated pages, but the search
 * for an equal one is kept short by comparing with the last pages only. */
static bool tables_fold(const uint8_t *props)
{
    uint8_t(*pages)[256] = malloc((size_t)UNICODE_PAGES * 256);
    if (pages == NULL) return false;
    uint32_t count = 0;
    for (uint32_t p = 0; p < UNICODE_PAGES; p++) {
        const uint8_t *page = props + (size_t)p * 256;
        uint32_t at = count;
        for (uint32_t back = 1; back <= count && back <= 64; back++)
            if (memcmp(pages[count - back], page, 256) == 0) {
                at = count - back;
                break;
            }
        if (at == count) memcpy(pages[count++], page, 256);
        tables.page_of[p] = (uint16_t)at;
    }
    uint8_t(*fitting)[256] = realloc(pages, (size_t)count * 256);
    tables.pages = fitting ? fitting : pages;
    return true;
}

static void tables_build(void)
{
    uint8_t *props = malloc(UNICODE_MAX + 1);
    if (props == NULL) return;
    for (uint32_t cp = 0; cp <= UNICODE_MAX; cp++)
        props[cp] = class_of(cp);
    tables_ready = unicode__nfc_init(props) && tables_fold(props);
    free(props);
}

const struct unicode_tables *unicode_tables(void)
{
    (void)pthread_once(&tables_once, tables_build);
    return tables_ready ? &tables : NULL;
}

uint32_t unicode_utf8_len(uint8_t lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    return lead < 0xF5 ? 4 : 0;
}

bool unicode_utf8_continues(uint8_t lead, uint32_t index, uint8_t byte)
{
    if ((byte & 0xC0) != 0x80) return false;
    if (index != 1) return true;
    switch (lead) {
    case 0xE0: return byte >= 0xA0; /* else overlong */
    case 0xED: return byte < 0xA0;  /* else a surrogate */
    case 0xF0: return byte >= 0x90;
    case 0xF4: return byte < 0x90; /* else above U+10FFFF */
    default: return true;
    }
}

bool unicode_utf8_valid(struct span text)
{
    const uint8_t *p = text.ptr;
    size_t i = 0;
    while (i < text.len) {
        if (p[i] < 0x80) {
            while (i + 8 <= text.len && (load_le64(p + i) & 0x8080808080808080ull) == 0)
                i += 8;
            while (i < text.len && p[i] < 0x80)
                i++;
            continue;
        }
        uint32_t len = unicode_utf8_len(p[i]);
        if (len == 0 || len > text.len - i) return false;
        for (uint32_t k = 1; k < len; k++)
            if (!unicode_utf8_continues(p[i], k, p[i + k])) return false;
        i += len;
    }
    return true;
}

uint32_t unicode_encode(uint32_t cp, uint8_t out[4])
{
    if (cp < 0x80) return out[0] = (uint8_t)cp, 1;
    uint32_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (uint32_t k = len - 1; k > 0; k--, cp >>= 6)
        out[k] = (uint8_t)(0x80 | (cp & 63));
    out[0] = (uint8_t)(lead[len] | cp);
    return len;
}
