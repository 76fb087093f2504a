#include "common/jinja_text.h"

#include "common/jinja_lex.h"
#include "common/unicode.h"

static bool is_stripped(uint32_t cp, const struct jstr *chars)
{
    if (chars == NULL) return jinja_is_space(cp);
    uint32_t n;
    for (size_t i = 0; i < chars->len; i += n)
        if (unicode_decode(chars->ptr + i, &n) == cp) return true;
    return false;
}

struct jval jtext_strip(struct jrun *r, const struct jstr *s, struct jval chars, bool left,
                        bool right)
{
    const struct jstr *set = chars.kind == JK_STR ? chars.s : NULL;
    if (set == NULL && chars.kind != JK_NONE && chars.kind != JK_ABSENT)
        return jrun_type_error(r, "strip needs a string, not '%s'", jv_type_name(chars));
    uint64_t cost = set != NULL ? 1 + set->len / 8 : 1;
    size_t start = 0, end = s->len;
    uint32_t n;
    while (left && start < end && is_stripped(unicode_decode(s->ptr + start, &n), set)) {
        if (!jrun_step(r, cost)) return JV_UNDEF;
        start += n;
    }
    while (right && end > start && jrun_step(r, cost)) {
        size_t at = end - 1;
        while (at > start && (s->ptr[at] & 0xC0) == 0x80)
            at--;
        if (!is_stripped(unicode_decode(s->ptr + at, &n), set)) break;
        end = at;
    }
    return jstr_part(r, s, start, end - start);
}

struct jval jtext_replace(struct jrun *r, const struct jstr *s, const struct jstr *from,
                          const struct jstr *to, int64_t limit)
{
    size_t mark = r->text.len, plain = 0, at = 0;
    if (limit == 0) return jv_str(s);
    while (limit != 0 && jrun_step(r, 1)) {
        size_t found = jstr_find(r, s, jstr_span(from), at);
        if (found == SIZE_MAX) break;
        jrun_emit_part(r, s, plain, found - plain);
        jrun_emit_str(r, to);
        plain = found + from->len;
        at = plain;
        if (limit > 0) limit--;
        if (from->len > 0) continue;
        if (at >= s->len) break; /* an empty string stands before each character and at the end */
        at += unicode_utf8_len(s->ptr[at]);
    }
    if (plain == 0 && at == 0) return jv_str(s);
    jrun_emit_part(r, s, plain, s->len - plain);
    return jrun_take(r, mark);
}

struct parts { /* of a split; grows in the arena */
    struct jval *items;
    uint32_t count, cap;
};

static void add_part(struct jrun *r, struct parts *p, const struct jstr *s, size_t start,
                     size_t end)
{
    if (p->count == p->cap) {
        uint32_t cap = p->cap == 0 ? 8 : p->cap * 2;
        struct jval *wider = jrun_items(r, cap);
        if (wider == NULL) return;
        if (p->count > 0) memcpy(wider, p->items, p->count * sizeof *wider);
        p->items = wider;
        p->cap = cap;
    }
    p->items[p->count++] = jstr_part(r, s, start, end - start);
}

static void split_on(struct jrun *r, const struct jstr *s, struct span sep, int64_t limit,
                     struct parts *p)
{
    size_t start = 0;
    for (; limit != 0 && jrun_step(r, 1); limit--) {
        size_t found = jstr_find(r, s, sep, start);
        if (found == SIZE_MAX) break;
        add_part(r, p, s, start, found);
        start = found + sep.len;
    }
    add_part(r, p, s, start, s->len);
}

/* The last place of sep that ends at or before end; SIZE_MAX. */
static size_t find_last(struct jrun *r, const struct jstr *s, struct span sep, size_t end)
{
    if (sep.len > end || sep.len == 0) return SIZE_MAX;
    for (size_t at = end - sep.len + 1; at > 0 && jrun_step(r, 1 + sep.len / 64);)
        if (memcmp(s->ptr + --at, sep.ptr, sep.len) == 0) return at;
    return SIZE_MAX;
}

static void split_on_right(struct jrun *r, const struct jstr *s, struct span sep, int64_t limit,
                           struct parts *p)
{
    size_t end = s->len;
    for (; limit != 0 && r->err == OK; limit--) {
        size_t found = find_last(r, s, sep, end);
        if (found == SIZE_MAX) break;
        add_part(r, p, s, found + sep.len, end);
        end = found;
    }
    add_part(r, p, s, 0, end);
    for (uint32_t i = 0; i < p->count / 2; i++) {
        struct jval other = p->items[p->count - 1 - i];
        p->items[p->count - 1 - i] = p->items[i];
        p->items[i] = other;
    }
}

static size_t skip_class(const struct jstr *s, size_t at, bool space)
{
    uint32_t n;
    while (at < s->len && jinja_is_space(unicode_decode(s->ptr + at, &n)) == space)
        at += n;
    return at;
}

static void split_on_space(struct jrun *r, const struct jstr *s, int64_t limit, struct parts *p)
{
    jrun_step(r, s->len / 8);
    for (size_t at = skip_class(s, 0, true); at < s->len && r->err == OK; limit--) {
        size_t end = skip_class(s, at, false);
        if (limit == 0)
            end = (size_t)(jinja_strip(span_from(jstr_span(s), at), false, true).len + at);
        add_part(r, p, s, at, end);
        if (limit == 0) break;
        at = skip_class(s, end, true);
    }
}

struct jval jtext_split(struct jrun *r, const struct jstr *s, struct jval separator, int64_t limit,
                        bool from_right)
{
    struct parts p = {0};
    if (separator.kind == JK_STR) {
        if (separator.s->len == 0) return jrun_type_error(r, "empty separator");
        if (from_right && limit >= 0)
            split_on_right(r, s, jstr_span(separator.s), limit, &p);
        else
            split_on(r, s, jstr_span(separator.s), limit, &p);
    } else if (separator.kind != JK_NONE && separator.kind != JK_ABSENT) {
        return jrun_type_error(r, "split needs a string, not '%s'", jv_type_name(separator));
    } else if (from_right && limit >= 0) {
        return jrun_type_error(r, "rsplit with a limit needs a separator");
    } else {
        split_on_space(r, s, limit, &p);
    }
    return jlist_new(r, JK_LIST, p.items, p.count);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

struct jval jtext_splitlines(struct jrun *r, const struct jstr *s, bool keep_ends)
{
    struct parts p = {0};
    size_t start = 0;
    uint32_t n;
    jrun_step(r, s->len / 8);
    for (size_t at = 0; at < s->len && r->err == OK; at += n) {
        uint32_t cp = unicode_decode(s->ptr + at, &n);
        if (!is_line_end(cp)) continue;
        size_t end = at;
        if (cp == '\r' && at + 1 < s->len && s->ptr[at + 1] == '\n') n = 2;
        add_part(r, &p, s, start, keep_ends ? end + n : end);
        start = at + n;
    }
    if (start < s->len) add_part(r, &p, s, start, s->len);
    return jlist_new(r, JK_LIST, p.items, p.count);
}

struct jval jtext_join(struct jrun *r, const struct jstr *glue, struct jval items, bool strict,
                       struct jval attribute)
{
    struct jseq seq;
    if (!jrun_iterate(r, items, &seq)) return JV_UNDEF;
    size_t mark = r->text.len;
    for (uint32_t i = 0; i < seq.count && jrun_step(r, 1); i++) {
        struct jval v = jseq_at(&seq, i);
        if (strict && v.kind != JK_STR)
            return jrun_type_error(r, "join needs strings, not '%s'", jv_type_name(v));
        if (attribute.kind != JK_ABSENT && attribute.kind != JK_NONE) {
            v = jrun_get_path(r, v, attribute);
            if (r->err != OK) return JV_UNDEF;
        }
        if (i > 0) jrun_emit_str(r, glue);
        jrun_emit_value(r, v);
    }
    return jrun_take(r, mark);
}

struct jval jtext_as_markup(struct jrun *r, const struct jstr *s)
{
    struct jstr *copy = s->markup ? NULL : jrun_alloc(r, 1, sizeof *copy);
    if (copy == NULL) return jv_str(s);
    *copy = *s;
    copy->markup = true;
    return jv_str(copy);
}

struct jval jtext_escape(struct jrun *r, const struct jstr *s)
{
    static const char *const escapes[][2] = {
        {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&#34;"}, {"'", "&#39;"}};
    size_t mark = r->text.len, plain = 0;
    jrun_step(r, s->len / 8);
    for (size_t i = 0; i < s->len && r->err == OK; i++)
        for (size_t k = 0; k < ARRAY_LEN(escapes); k++) {
            if (s->ptr[i] != (uint8_t)escapes[k][0][0]) continue;
            jrun_emit_part(r, s, plain, i - plain);
            jrun_emit_text(r, escapes[k][1]);
            plain = i + 1;
        }
    jrun_emit_part(r, s, plain, s->len - plain);
    struct jval v = jrun_take(r, mark);
    return r->err == OK ? jtext_as_markup(r, v.s) : JV_UNDEF;
}
