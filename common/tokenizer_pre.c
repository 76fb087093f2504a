/* tokenizer_pre.c - the pre-tokenizers: where a text is cut before merging. Each published regular
 * expression is written out as a scanner over code point classes: no backtracking, one look at each
 * character (two at blanks in front of a newline).
 *   gpt-2      's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   smollm     each \p{N} alone; gpt-2 on each part between them, by itself
 *   llama-bpe  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
 *              | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *   qwen2      the same with \p{N} for \p{N}{1,3} */
#include "common/tokenizer_internal.h"

static inline uint8_t class_at(const struct unicode_tables *u, const uint8_t *p, uint32_t *len)
{
    return unicode_props(u, unicode_decode(p, len)) & UNICODE_CLASS_MASK;
}

static inline bool is_blank(uint8_t class)
{
    return class == UNICODE_SPACE || class == UNICODE_NEWLINE;
}

/* End of the run of one class that goes on at at, at most max code points. */
static inline size_t run_end(const struct unicode_tables *u, const uint8_t *text, size_t at,
                             size_t len, uint8_t class, uint32_t max)
{
    const uint8_t *low = u->pages[u->page_of[0]];
    for (; at < len && max > 0; max--) {
        uint32_t n = 1;
        uint8_t c = text[at] < 0x80 ? low[text[at]] : class_at(u, text + at, &n);
        if (c != class) break;
        at += n;
    }
    return at;
}

/* Bytes of 's 't 're 've 'm 'll 'd at text, 0 if none. fold: in any case; U+017F is an s then. */
static size_t contraction(const uint8_t *text, size_t len, bool fold)
{
    if (len < 2) return 0;
    if (fold && len >= 3 && text[1] == 0xC5 && text[2] == 0xBF) return 3;
    uint8_t lower = fold ? 0x20 : 0;
    uint8_t a = text[1] | lower, b = len > 2 ? text[2] | lower : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s+(?!\S)|\s+ : all blanks up to the end of the part, else all but the last. */
static size_t blanks_end(size_t at, size_t end, size_t last, bool part_ends)
{
    return part_ends || last == at ? end : last;
}

/* The run of blanks at at: its end, where its last code point begins, and behind its last newline
 * (0: none). */
static size_t blanks_scan(const struct unicode_tables *u, const uint8_t *text, size_t at,
                          size_t len, size_t *last, size_t *newline_end)
{
    *newline_end = 0;
    while (at < len) {
        uint32_t n;
        uint8_t c = class_at(u, text + at, &n);
        if (!is_blank(c)) break;
        *last = at;
        at += n;
        if (c == UNICODE_NEWLINE) *newline_end = at;
    }
    return at;
}

static size_t next_gpt2(const struct unicode_tables *u, const uint8_t *text, size_t at, size_t len,
                        bool digits_apart)
{
    if (text[at] == '\'') {
        size_t n = contraction(text + at, len - at, false);
        if (n != 0) return at + n;
    }
    uint32_t n;
    uint8_t class = class_at(u, text + at, &n);
    if (digits_apart && class == UNICODE_NUMBER) return at + n;
    if (!is_blank(class)) return run_end(u, text, at + n, len, class, UINT32_MAX);
    if (text[at] == ' ' && at + 1 < len) {
        uint8_t next = class_at(u, text + at + 1, &n);
        if (!is_blank(next) && !(digits_apart && next == UNICODE_NUMBER))
            return run_end(u, text, at + 1 + n, len, next, UINT32_MAX);
    }
    size_t last = at, newline_end;
    size_t end = blanks_scan(u, text, at, len, &last, &newline_end);
    bool part_ends = end == len || (digits_apart && class_at(u, text + end, &n) == UNICODE_NUMBER);
    return blanks_end(at, end, last, part_ends);
}

static size_t next_llama3(const struct unicode_tables *u, const uint8_t *text, size_t at,
                          size_t len, uint32_t digits)
{
    if (text[at] == '\'') {
        size_t n = contraction(text + at, len - at, true);
        if (n != 0) return at + n;
    }
    uint32_t n;
    uint8_t class = class_at(u, text + at, &n);
    if (class == UNICODE_LETTER) return run_end(u, text, at + n, len, class, UINT32_MAX);
    if (class == UNICODE_NUMBER) return run_end(u, text, at + n, len, class, digits - 1);
    size_t next_at = at + n;
    uint8_t next = UNICODE_NEWLINE;
    if (class != UNICODE_NEWLINE && next_at < len) {
        next = class_at(u, text + next_at, &n);
        if (next == UNICODE_LETTER) return run_end(u, text, next_at + n, len, next, UINT32_MAX);
    }
    if (class == UNICODE_OTHER || (text[at] == ' ' && next == UNICODE_OTHER)) {
        size_t end = run_end(u, text, next_at, len, UNICODE_OTHER, UINT32_MAX);
        return run_end(u, text, end, len, UNICODE_NEWLINE, UINT32_MAX);
    }
    size_t last = at, newline_end;
    size_t end = blanks_scan(u, text, at, len, &last, &newline_end);
    return newline_end != 0 ? newline_end : blanks_end(at, end, last, end == len);
}

size_t pre__next(const struct unicode_tables *u, enum pre_kind kind, const uint8_t *text, size_t at,
                 size_t len)
{
    switch (kind) {
    case PRE_GPT2: return next_gpt2(u, text, at, len, false);
    case PRE_SMOLLM: return next_gpt2(u, text, at, len, true);
    case PRE_LLAMA3: return next_llama3(u, text, at, len, 3);
    default: return next_llama3(u, text, at, len, 1);
    }
}

enum err pre__by_name(struct span name, enum pre_kind *out, struct errmsg *why)
{
    static const struct {
        const char *name;
        enum pre_kind kind;
    } known[] = {
        {"", PRE_GPT2},           {"default", PRE_GPT2},     {"gpt-2", PRE_GPT2},
        {"smollm", PRE_SMOLLM},   {"llama-bpe", PRE_LLAMA3}, {"llama3", PRE_LLAMA3},
        {"llama-v3", PRE_LLAMA3}, {"qwen2", PRE_QWEN2},
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (span_eq_str(name, known[i].name)) {
            *out = known[i].kind;
            return OK;
        }
    return errmsg_set(why, ERR_UNSUPPORTED,
                      "pre-tokenizer '%.*s' is not known; there are smollm, gpt-2 (default), "
                      "llama-bpe (llama3, llama-v3) and qwen2",
                      (int)(name.len < 64 ? name.len : 64), (const char *)name.ptr);
}
