/* jinja_methods.c - methods of strings, dicts and lists. Those that would change a list or a dict
 * are refused, as jinja2's immutable sandbox does. */
#include "common/jinja_run.h"

#include "common/jinja_lex.h"
#include "common/jinja_text.h"
#include "common/unicode.h"
#include "common/unicode_case.h"

#define ON_STR (1u << JK_STR)
#define ON_DICT (1u << JK_DICT)
#define ON_LIST (1u << JK_LIST)
#define ON_TUPLE (1u << JK_TUPLE)

static int64_t int_or(struct jval v, int64_t otherwise)
{
    return jv_is_integer(v) ? jv_as_int(v) : otherwise;
}

#define CASE_METHOD(name, to)                                                                      \
    static struct jval method_##name(struct jrun *r, const struct jcall *c)                        \
    {                                                                                              \
        return jrun_change_case(r, c->self.s, to);                                                 \
    }
CASE_METHOD(upper, JCASE_UPPER)
CASE_METHOD(lower, JCASE_LOWER)
CASE_METHOD(capitalize, JCASE_CAPITALIZE)
CASE_METHOD(title, JCASE_TITLE)

static struct jval method_strip(struct jrun *r, const struct jcall *c)
{
    return jtext_strip(r, c->self.s, c->a[0], true, true);
}

static struct jval method_lstrip(struct jrun *r, const struct jcall *c)
{
    return jtext_strip(r, c->self.s, c->a[0], true, false);
}

static struct jval method_rstrip(struct jrun *r, const struct jcall *c)
{
    return jtext_strip(r, c->self.s, c->a[0], false, true);
}

static struct jval method_split(struct jrun *r, const struct jcall *c)
{
    return jtext_split(r, c->self.s, c->a[0], int_or(c->a[1], -1), false);
}

static struct jval method_rsplit(struct jrun *r, const struct jcall *c)
{
    return jtext_split(r, c->self.s, c->a[0], int_or(c->a[1], -1), true);
}

static struct jval method_splitlines(struct jrun *r, const struct jcall *c)
{
    return jtext_splitlines(r, c->self.s, jv_truth(c->a[0]));
}

static struct jval method_replace(struct jrun *r, const struct jcall *c)
{
    if (c->a[0].kind != JK_STR || c->a[1].kind != JK_STR)
        return jrun_type_error(r, "replace needs two strings");
    return jtext_replace(r, c->self.s, c->a[0].s, c->a[1].s, int_or(c->a[2], -1));
}

/* part(s) of the string between a[1] and a[2], in bytes. False: nothing stands there. */
static bool window(struct jrun *r, const struct jcall *c, size_t *from, size_t *to)
{
    const struct jstr *s = c->self.s;
    int64_t count = jstr_chars(r, s), bound[2] = {int_or(c->a[1], 0), int_or(c->a[2], count)};
    for (int i = 0; i < 2; i++) {
        if (bound[i] < 0) bound[i] = bound[i] + count > 0 ? bound[i] + count : 0;
    }
    if (bound[0] > count || bound[0] > bound[1]) return false;
    *from = jstr_offset(r, s, (uint32_t)bound[0]);
    *to = bound[1] >= count ? s->len : jstr_offset(r, s, (uint32_t)bound[1]);
    return r->err == OK;
}

static struct jval matches_edge(struct jrun *r, const struct jcall *c, bool at_end)
{
    const struct jval *item = &c->a[0];
    uint32_t count = 1;
    size_t from, to;
    if (item->kind == JK_TUPLE) {
        count = item->list->count;
        item = item->list->items;
    }
    bool inside = window(r, c, &from, &to), found = false;
    for (uint32_t i = 0; i < count && !found; i++) {
        if (item[i].kind != JK_STR)
            return jrun_type_error(r, "startswith and endswith need strings, not '%s'",
                                   jv_type_name(item[i]));
        const struct jstr *s = c->self.s, *edge = item[i].s;
        if (!inside || edge->len > to - from || !jrun_step(r, edge->len / 64)) continue;
        found = edge->len == 0 ||
                memcmp(s->ptr + (at_end ? to - edge->len : from), edge->ptr, edge->len) == 0;
    }
    return jv_bool(found);
}

static struct jval method_startswith(struct jrun *r, const struct jcall *c)
{
    return matches_edge(r, c, false);
}

static struct jval method_endswith(struct jrun *r, const struct jcall *c)
{
    return matches_edge(r, c, true);
}

/* Code point index of a[0] in self, -1 when it is not there. */
static int64_t find_text(struct jrun *r, const struct jcall *c, bool last)
{
    size_t from, to, found = SIZE_MAX;
    if (c->a[0].kind != JK_STR) {
        jrun_type_error(r, "find needs a string, not '%s'", jv_type_name(c->a[0]));
        return -1;
    }
    struct span needle = jstr_span(c->a[0].s);
    if (!window(r, c, &from, &to)) return -1;
    if (needle.len == 0) {
        found = last ? to : from;
    } else {
        for (size_t at = from; jrun_step(r, 1);) {
            at = jstr_find(r, c->self.s, needle, at);
            if (at == SIZE_MAX || at + needle.len > to) break;
            found = at++;
            if (!last) break;
        }
    }
    if (found == SIZE_MAX || r->err != OK) return -1;
    int64_t index = 0;
    jrun_step(r, found / 64);
    for (size_t i = 0; i < found; i++)
        index += (c->self.s->ptr[i] & 0xC0) != 0x80;
    return index;
}

static struct jval method_find(struct jrun *r, const struct jcall *c)
{
    return jv_int(find_text(r, c, false));
}

static struct jval method_rfind(struct jrun *r, const struct jcall *c)
{
    return jv_int(find_text(r, c, true));
}

static struct jval method_rindex(struct jrun *r, const struct jcall *c)
{
    int64_t at = find_text(r, c, true);
    return at < 0 ? jrun_type_error(r, "substring not found") : jv_int(at);
}

static struct jval method_index(struct jrun *r, const struct jcall *c)
{
    if (c->self.kind == JK_STR) {
        int64_t at = find_text(r, c, false);
        return at < 0 ? jrun_type_error(r, "substring not found") : jv_int(at);
    }
    for (uint32_t i = 0; i < c->self.list->count && r->err == OK; i++)
        if (jrun_equal(r, c->self.list->items[i], c->a[0])) return jv_int(i);
    return jrun_type_error(r, "the value is not in the list");
}

static struct jval method_count(struct jrun *r, const struct jcall *c)
{
    int64_t n = 0;
    if (c->self.kind != JK_STR) {
        for (uint32_t i = 0; i < c->self.list->count && r->err == OK; i++)
            n += jrun_equal(r, c->self.list->items[i], c->a[0]);
        return jv_int(n);
    }
    size_t from, to;
    if (c->a[0].kind != JK_STR) return jrun_type_error(r, "count needs a string");
    struct span needle = jstr_span(c->a[0].s);
    if (!window(r, c, &from, &to)) return jv_int(0);
    if (needle.len == 0) {
        n = 1;
        jrun_step(r, (to - from) / 64);
        for (size_t i = from; i < to; i++)
            n += (c->self.s->ptr[i] & 0xC0) != 0x80;
        return jv_int(n);
    }
    for (size_t at = from; jrun_step(r, 1); at += needle.len, n++) {
        at = jstr_find(r, c->self.s, needle, at);
        if (at == SIZE_MAX || at + needle.len > to) break;
    }
    return jv_int(n);
}

static struct jval method_join(struct jrun *r, const struct jcall *c)
{
    return jtext_join(r, c->self.s, c->a[0], true, JV_ABSENT);
}

static struct jval method_format(struct jrun *r, const struct jcall *c)
{
    return jrun_format_braces(r, c->self.s, c);
}

static bool is_digit(uint32_t cp)
{
    return cp >= '0' && cp <= '9';
}

static bool is_letter(uint32_t cp)
{
    const struct unicode_tables *u = unicode_tables();
    return u != NULL && (unicode_props(u, cp) & UNICODE_CLASS_MASK) == UNICODE_LETTER;
}

static bool is_letter_or_number(uint32_t cp)
{
    const struct unicode_tables *u = unicode_tables();
    return u != NULL && ((unicode_props(u, cp) & UNICODE_CLASS_MASK) == UNICODE_LETTER ||
                         (unicode_props(u, cp) & UNICODE_CLASS_MASK) == UNICODE_NUMBER);
}

static struct jval all_are(struct jrun *r, const struct jstr *s, bool (*belongs)(uint32_t cp))
{
    uint32_t n;
    jrun_step(r, s->len / 8);
    for (size_t i = 0; i < s->len; i += n)
        if (!belongs(unicode_decode(s->ptr + i, &n))) return jv_bool(false);
    return jv_bool(s->len > 0);
}

#define CLASS_METHOD(name, belongs)                                                                \
    static struct jval method_##name(struct jrun *r, const struct jcall *c)                        \
    {                                                                                              \
        return all_are(r, c->self.s, belongs);                                                     \
    }
CLASS_METHOD(isdigit, is_digit)
CLASS_METHOD(isalpha, is_letter)
CLASS_METHOD(isalnum, is_letter_or_number)
CLASS_METHOD(isspace, jinja_is_space)

static struct jval case_test(struct jrun *r, const struct jcall *c, const char *name)
{
    struct jcall inner = {.self = c->self};
    return jinja_builtin_call(r, jinja_test_find(span_str(name)), &inner);
}

static struct jval method_isupper(struct jrun *r, const struct jcall *c)
{
    return case_test(r, c, "upper");
}

static struct jval method_islower(struct jrun *r, const struct jcall *c)
{
    return case_test(r, c, "lower");
}

static struct jval remove_edge(struct jrun *r, const struct jcall *c, bool at_end)
{
    if (c->a[0].kind != JK_STR) return jrun_type_error(r, "a string is needed");
    const struct jstr *s = c->self.s, *edge = c->a[0].s;
    jrun_step(r, edge->len / 64);
    bool there = edge->len > 0 && edge->len <= s->len &&
                 memcmp(s->ptr + (at_end ? s->len - edge->len : 0), edge->ptr, edge->len) == 0;
    if (!there) return c->self;
    return jstr_part(r, s, at_end ? 0 : edge->len, s->len - edge->len);
}

static struct jval method_removeprefix(struct jrun *r, const struct jcall *c)
{
    return remove_edge(r, c, false);
}

static struct jval method_removesuffix(struct jrun *r, const struct jcall *c)
{
    return remove_edge(r, c, true);
}

static struct jval partition(struct jrun *r, const struct jcall *c, bool last)
{
    if (c->a[0].kind != JK_STR || c->a[0].s->len == 0)
        return jrun_type_error(r, "partition needs a string that is not empty");
    const struct jstr *s = c->self.s;
    size_t len = c->a[0].s->len, found = SIZE_MAX;
    for (size_t at = 0; jrun_step(r, 1); at++) {
        at = jstr_find(r, s, jstr_span(c->a[0].s), at);
        if (at == SIZE_MAX) break;
        found = at;
        if (!last) break;
    }
    struct jval *out = jrun_items(r, 3);
    if (out == NULL) return JV_UNDEF;
    if (found == SIZE_MAX) {
        out[0] = out[1] = out[2] = jstr_part(r, s, 0, 0);
        out[last ? 2 : 0] = c->self;
    } else {
        out[0] = jstr_part(r, s, 0, found);
        out[1] = jstr_part(r, s, found, len);
        out[2] = jstr_part(r, s, found + len, s->len - found - len);
    }
    return jlist_new(r, JK_TUPLE, out, 3);
}

static struct jval method_partition(struct jrun *r, const struct jcall *c)
{
    return partition(r, c, false);
}

static struct jval method_rpartition(struct jrun *r, const struct jcall *c)
{
    return partition(r, c, true);
}

/* ---- dicts and lists ---- */

static struct jval method_get(struct jrun *r, const struct jcall *c)
{
    const struct jval *found = jdict_get(r, c->self.dict, c->a[0]);
    if (found != NULL) return *found;
    return c->a[1].kind != JK_ABSENT ? c->a[1] : JV_NONE;
}

static struct jval method_keys(struct jrun *r, const struct jcall *c)
{
    return jdict_view(r, c->self.dict, 0, JK_VIEW);
}

static struct jval method_values(struct jrun *r, const struct jcall *c)
{
    return jdict_view(r, c->self.dict, 1, JK_VIEW);
}

static struct jval method_items(struct jrun *r, const struct jcall *c)
{
    return jdict_view(r, c->self.dict, 2, JK_VIEW);
}

static struct jval method_copy(struct jrun *r, const struct jcall *c)
{
    (void)r;
    return c->self; /* nothing can change it */
}

static struct jval method_refused(struct jrun *r, const struct jcall *c)
{
    return jrun_type_error(r, "a template may not change a '%s'", jv_type_name(c->self));
}

static const struct jbuiltin items[] = {
    {"get", "key default", 1, method_get, ON_DICT},
    {"items", "", 0, method_items, ON_DICT},
    {"keys", "", 0, method_keys, ON_DICT},
    {"values", "", 0, method_values, ON_DICT},
    {"split", "sep maxsplit", 0, method_split, ON_STR},
    {"strip", "chars", 0, method_strip, ON_STR},
    {"lstrip", "chars", 0, method_lstrip, ON_STR},
    {"rstrip", "chars", 0, method_rstrip, ON_STR},
    {"startswith", "prefix start end", 1, method_startswith, ON_STR},
    {"endswith", "suffix start end", 1, method_endswith, ON_STR},
    {"replace", "old new count", 2, method_replace, ON_STR},
    {"upper", "", 0, method_upper, ON_STR},
    {"lower", "", 0, method_lower, ON_STR},
    {"capitalize", "", 0, method_capitalize, ON_STR},
    {"title", "", 0, method_title, ON_STR},
    {"rsplit", "sep maxsplit", 0, method_rsplit, ON_STR},
    {"splitlines", "keepends", 0, method_splitlines, ON_STR},
    {"find", "sub start end", 1, method_find, ON_STR},
    {"rfind", "sub start end", 1, method_rfind, ON_STR},
    {"rindex", "sub start end", 1, method_rindex, ON_STR},
    {"index", "sub start end", 1, method_index, ON_STR | ON_LIST | ON_TUPLE},
    {"count", "sub start end", 1, method_count, ON_STR | ON_LIST | ON_TUPLE},
    {"join", "iterable", 1, method_join, ON_STR},
    {"format", NULL, 0, method_format, ON_STR},
    {"isdigit", "", 0, method_isdigit, ON_STR},
    {"isdecimal", "", 0, method_isdigit, ON_STR},
    {"isnumeric", "", 0, method_isdigit, ON_STR},
    {"isalpha", "", 0, method_isalpha, ON_STR},
    {"isalnum", "", 0, method_isalnum, ON_STR},
    {"isspace", "", 0, method_isspace, ON_STR},
    {"isupper", "", 0, method_isupper, ON_STR},
    {"islower", "", 0, method_islower, ON_STR},
    {"removeprefix", "prefix", 1, method_removeprefix, ON_STR},
    {"removesuffix", "suffix", 1, method_removesuffix, ON_STR},
    {"partition", "sep", 1, method_partition, ON_STR},
    {"rpartition", "sep", 1, method_rpartition, ON_STR},
    {"copy", "", 0, method_copy, ON_DICT | ON_LIST},
    {"append", NULL, 0, method_refused, ON_LIST},
    {"extend", NULL, 0, method_refused, ON_LIST},
    {"insert", NULL, 0, method_refused, ON_LIST},
    {"remove", NULL, 0, method_refused, ON_LIST},
    {"reverse", NULL, 0, method_refused, ON_LIST},
    {"sort", NULL, 0, method_refused, ON_LIST},
    {"pop", NULL, 0, method_refused, ON_LIST | ON_DICT},
    {"clear", NULL, 0, method_refused, ON_LIST | ON_DICT},
    {"popitem", NULL, 0, method_refused, ON_DICT},
    {"setdefault", NULL, 0, method_refused, ON_DICT},
    {"update", NULL, 0, method_refused, ON_DICT},
};
const struct jbuiltin_table jinja_methods = {items, ARRAY_LEN(items)};
