/* jinja_seq.c - lists, dicts, iteration, attributes, subscripts and slices. */
#include "common/jinja_run.h"

#include "common/unicode.h"

struct jval *jrun_items(struct jrun *r, size_t count)
{
    return jrun_step(r, count / 4) ? jrun_alloc(r, count, sizeof(struct jval)) : NULL;
}

struct jval jlist_new(struct jrun *r, enum jkind kind, const struct jval *items, uint32_t count)
{
    struct jlist *l = jrun_alloc(r, 1, sizeof *l);
    if (l == NULL) return JV_UNDEF;
    *l = (struct jlist){.items = items, .count = count};
    return (struct jval){.kind = kind, .list = l};
}

/* a + b in place where a's array has room behind it, as jstr_concat. */
struct jval jlist_concat(struct jrun *r, struct jval a, struct jval b)
{
    const struct jlist *x = a.list, *y = b.list;
    size_t total = (size_t)x->count + y->count;
    struct jlist_back *back = x->back;
    if (back == NULL || x->items + x->count != back->items + back->used ||
        back->cap - back->used < y->count) {
        size_t cap = total + x->count / 2 + 4;
        struct jval *items = jrun_items(r, cap);
        if (items == NULL || (back = jrun_alloc(r, 1, sizeof *back)) == NULL) return JV_UNDEF;
        if (x->count > 0) memcpy(items, x->items, x->count * sizeof *items);
        *back = (struct jlist_back){.items = items, .used = x->count, .cap = (uint32_t)cap};
    } else if (!jrun_step(r, y->count / 4)) {
        return JV_UNDEF;
    }
    const struct jval *start = back->items + back->used - x->count;
    if (y->count > 0) memcpy(back->items + back->used, y->items, y->count * sizeof *y->items);
    back->used += y->count;
    struct jval out = jlist_new(r, a.kind, start, (uint32_t)total);
    if (r->err == OK) out.list->back = back;
    return out;
}

struct jval jdict_new(struct jrun *r, enum jkind kind, uint32_t cap)
{
    struct jdict *d = jrun_alloc(r, 1, sizeof *d);
    if (d == NULL) return JV_UNDEF;
    *d = (struct jdict){.cap = cap};
    d->pairs = jrun_alloc(r, cap, sizeof *d->pairs);
    return (struct jval){.kind = kind, .dict = d};
}

const struct jval *jdict_get_text(struct jrun *r, const struct jdict *d, struct span key)
{
    uint32_t i = 0;
    while (i < d->count &&
           !(d->pairs[i].key.kind == JK_STR && span_eq(jstr_span(d->pairs[i].key.s), key)))
        i++;
    jrun_step(r, ((uint64_t)i + 1) * (64 + key.len) / 512);
    return i < d->count ? &d->pairs[i].value : NULL;
}

const struct jval *jdict_get(struct jrun *r, const struct jdict *d, struct jval key)
{
    if (key.kind == JK_STR) return jdict_get_text(r, d, jstr_span(key.s));
    for (uint32_t i = 0; i < d->count && r->err == OK; i++)
        if (jrun_equal(r, d->pairs[i].key, key)) return &d->pairs[i].value;
    return NULL;
}

void jdict_put(struct jrun *r, struct jdict *d, struct jval key, struct jval value)
{
    if (key.kind == JK_LIST || key.kind == JK_DICT) {
        jrun_type_error(r, "unhashable type: '%s'", jv_type_name(key));
        return;
    }
    const struct jval *old = jdict_get(r, d, key);
    if (old != NULL) {
        d->pairs[(const struct jpair *)(const void *)((const char *)old -
                                                      offsetof(struct jpair, value)) -
                 d->pairs]
            .value = value;
        return;
    }
    if (r->err != OK) return;
    if (d->count == d->cap) {
        uint32_t cap = d->cap < 4 ? 8 : d->cap * 2;
        struct jpair *wider = jrun_alloc(r, cap, sizeof *wider);
        if (wider == NULL) return;
        if (d->count > 0) memcpy(wider, d->pairs, d->count * sizeof *wider);
        d->pairs = wider;
        d->cap = cap;
    }
    d->pairs[d->count++] = (struct jpair){key, value};
}

struct jval jdict_view(struct jrun *r, const struct jdict *d, int which, enum jkind kind)
{
    struct jval *items = jrun_items(r, d->count);
    for (uint32_t i = 0; i < d->count && r->err == OK; i++) {
        if (which < 2) {
            items[i] = which == 0 ? d->pairs[i].key : d->pairs[i].value;
            continue;
        }
        struct jval *pair = jrun_items(r, 2);
        if (pair == NULL) break;
        pair[0] = d->pairs[i].key;
        pair[1] = d->pairs[i].value;
        items[i] = jlist_new(r, JK_TUPLE, pair, 2);
    }
    return jlist_new(r, kind, items, d->count);
}

static bool iterate_str(struct jrun *r, const struct jstr *s, struct jseq *out)
{
    uint32_t count = jstr_chars(r, s);
    struct jval *items = jrun_items(r, count);
    size_t at = 0;
    jrun_step(r, count);
    for (uint32_t i = 0; i < count && r->err == OK; i++) {
        uint32_t n = unicode_utf8_len(s->ptr[at]);
        items[i] = jstr_part(r, s, at, n);
        at += n;
    }
    *out = (struct jseq){.items = items, .count = count};
    return r->err == OK;
}

bool jrun_iterate(struct jrun *r, struct jval v, struct jseq *out)
{
    *out = (struct jseq){0};
    if (r->err != OK) return false;
    switch (v.kind) {
    case JK_UNDEF: return true;
    case JK_LIST:
    case JK_TUPLE:
    case JK_VIEW:
    case JK_ITER:
        *out = (struct jseq){.items = v.list->items, .count = v.list->count};
        if (v.kind == JK_ITER) v.list->count = 0;
        return true;
    case JK_RANGE:
        *out =
            (struct jseq){.count = v.range->count, .start = v.range->start, .step = v.range->step};
        return true;
    case JK_STR: return iterate_str(r, v.s, out);
    case JK_DICT:
        v = jdict_view(r, v.dict, 0, JK_VIEW);
        return r->err == OK && jrun_iterate(r, v, out);
    default: break;
    }
    jrun_type_error(r, "'%s' object is not iterable", jv_type_name(v));
    return false;
}

static struct jval bound_method(struct jrun *r, struct jval self, const struct jbuiltin *fn,
                                const char *loop_method)
{
    struct jmethod *m = jrun_alloc(r, 1, sizeof *m);
    if (m == NULL) return JV_UNDEF;
    *m = (struct jmethod){.self = self, .fn = fn, .loop_method = loop_method};
    return (struct jval){.kind = JK_METHOD, .method = m};
}

static struct jval undefined_of(struct jrun *r, struct jval v)
{
    if (v.what != NULL) return jrun_type_error(r, "'%.100s' is undefined", v.what);
    return jrun_type_error(r, "a value that is undefined has no attributes");
}

struct jval jrun_get_attr(struct jrun *r, struct jval v, const struct jstr *name,
                          const struct jbuiltin *method)
{
    const struct jval *found;
    switch (v.kind) {
    case JK_UNDEF: return undefined_of(r, v);
    case JK_SPACE:
        found = jdict_get_text(r, v.dict, jstr_span(name));
        return found != NULL ? *found : JV_UNDEF;
    case JK_LOOP:
        if (span_eq_str(jstr_span(name), "cycle")) return bound_method(r, v, NULL, "cycle");
        if (span_eq_str(jstr_span(name), "changed")) return bound_method(r, v, NULL, "changed");
        return jloop_get(r, v.loop, jstr_span(name));
    case JK_MACRO:
        if (!span_eq_str(jstr_span(name), "name")) return JV_UNDEF;
        return jstr_copy(r, r->t->names[v.macro->node->name]);
    case JK_TUPLE:
        if (v.list->is_group && span_eq_str(jstr_span(name), "grouper")) return v.list->items[0];
        if (v.list->is_group && span_eq_str(jstr_span(name), "list")) return v.list->items[1];
        break;
    default: break;
    }
    if (method != NULL && (method->kinds & (1u << v.kind)) != 0)
        return bound_method(r, v, method, NULL);
    if (v.kind != JK_DICT) return JV_UNDEF;
    found = jdict_get_text(r, v.dict, jstr_span(name));
    return found != NULL ? *found : JV_UNDEF;
}

/* A Python index into count things; false: out of range. */
static bool normalize_index(int64_t index, uint32_t count, uint32_t *out)
{
    if (index < 0) index += count;
    if (index < 0 || index >= count) return false;
    *out = (uint32_t)index;
    return true;
}

static struct jval get_index(struct jrun *r, struct jval v, int64_t index)
{
    uint32_t i;
    switch (v.kind) {
    case JK_LIST:
    case JK_TUPLE: return normalize_index(index, v.list->count, &i) ? v.list->items[i] : JV_UNDEF;
    case JK_RANGE:
        if (!normalize_index(index, v.range->count, &i)) return JV_UNDEF;
        return jv_int(jrange_at(v.range->start, v.range->step, i));
    case JK_STR: {
        if (!normalize_index(index, jstr_chars(r, v.s), &i)) return JV_UNDEF;
        size_t at = jstr_offset(r, v.s, i);
        return jstr_part(r, v.s, at, unicode_utf8_len(v.s->ptr[at]));
    }
    default: return JV_UNDEF;
    }
}

struct jval jrun_get_item(struct jrun *r, struct jval v, struct jval key)
{
    if (v.kind == JK_UNDEF) return undefined_of(r, v);
    if (v.kind == JK_DICT) {
        if (key.kind == JK_LIST || key.kind == JK_DICT) return JV_UNDEF;
        const struct jval *found = jdict_get(r, v.dict, key);
        if (found != NULL) return *found;
    } else if (jv_is_integer(key)) {
        return get_index(r, v, jv_as_int(key));
    }
    /* x['name'] looks for the attribute last */
    if (key.kind == JK_STR) return jrun_get_attr(r, v, key.s, jinja_method_find(jstr_span(key.s)));
    return JV_UNDEF;
}

struct jval jrun_get_path(struct jrun *r, struct jval v, struct jval path)
{
    if (path.kind != JK_STR) return jrun_get_item(r, v, path);
    struct span rest = jstr_span(path.s);
    while (r->err == OK) {
        const uint8_t *dot = rest.len > 0 ? memchr(rest.ptr, '.', rest.len) : NULL;
        struct span part = span_of(rest.ptr, dot != NULL ? (size_t)(dot - rest.ptr) : rest.len);
        bool digits = part.len > 0 && part.len < 10;
        int64_t number = 0;
        for (size_t i = 0; i < part.len && digits; i++) {
            digits = part.ptr[i] >= '0' && part.ptr[i] <= '9';
            number = number * 10 + (part.ptr[i] - '0');
        }
        struct jval key = digits ? jv_int(number) : jstr_new(r, part, false);
        v = jrun_get_item(r, v, key);
        if (dot == NULL) break;
        rest = span_from(rest, part.len + 1);
    }
    return v;
}

/* Python's slice(start, stop, step).indices(count). False: a part is no integer, or step is 0. */
static bool slice_bounds(struct jrun *r, const struct jval part[3], uint32_t count, int64_t *start,
                         int64_t *stop, int64_t *step)
{
    for (int i = 0; i < 3; i++) {
        if (part[i].kind == JK_NONE || jv_is_integer(part[i])) continue;
        jrun_type_error(r, "slice indices must be integers or None");
        return false;
    }
    *step = part[2].kind == JK_NONE ? 1 : jv_as_int(part[2]);
    if (*step == 0) {
        jrun_type_error(r, "slice step cannot be zero");
        return false;
    }
    int64_t low = *step > 0 ? 0 : -1, high = *step > 0 ? count : (int64_t)count - 1;
    int64_t *out[2] = {start, stop}, missing[2] = {*step > 0 ? low : high, *step > 0 ? high : low};
    for (int i = 0; i < 2; i++) {
        if (part[i].kind == JK_NONE) {
            *out[i] = missing[i];
            continue;
        }
        int64_t v = jv_as_int(part[i]);
        if (v < 0) v += count;
        *out[i] = v < low ? low : v > high ? high : v;
    }
    return true;
}

static struct jval slice_str(struct jrun *r, const struct jstr *s, int64_t start, int64_t step,
                             uint32_t n)
{
    if (step == 1) {
        size_t from = jstr_offset(r, s, (uint32_t)start),
               to = jstr_offset(r, s, (uint32_t)start + n);
        return jstr_part(r, s, from, to - from);
    }
    struct jseq seq;
    if (!iterate_str(r, s, &seq)) return JV_UNDEF;
    size_t mark = r->text.len;
    for (uint32_t i = 0; i < n && jrun_step(r, 1); i++)
        jrun_emit_str(r, seq.items[start + step * (int64_t)i].s);
    return jrun_take(r, mark);
}

static struct jval slice_range(struct jrun *r, const struct jrange *range, uint32_t from,
                               int64_t by, uint32_t n)
{
    struct jrange *part = jrun_alloc(r, 1, sizeof *part);
    if (part == NULL) return JV_UNDEF;
    *part = (struct jrange){.start = jrange_at(range->start, range->step, from),
                            .step = (int64_t)((uint64_t)range->step * (uint64_t)by),
                            .count = n};
    return (struct jval){.kind = JK_RANGE, .range = part};
}

struct jval jrun_slice(struct jrun *r, struct jval v, struct jval start, struct jval stop,
                       struct jval step)
{
    struct jval part[3] = {start, stop, step};
    uint32_t count;
    if (v.kind == JK_STR)
        count = jstr_chars(r, v.s);
    else if (jv_is_sequence(v))
        count = v.list->count;
    else if (v.kind == JK_RANGE)
        count = v.range->count;
    else if (v.kind == JK_UNDEF)
        return undefined_of(r, v);
    else
        return jrun_type_error(r, "'%s' object cannot be sliced", jv_type_name(v));
    int64_t from, to, by;
    if (!slice_bounds(r, part, count, &from, &to, &by)) return JV_UNDEF;
    uint64_t n = 0, stride = by > 0 ? (uint64_t)by : 0 - (uint64_t)by;
    if (by > 0 ? from < to : from > to)
        n = ((uint64_t)(by > 0 ? to - from : from - to) - 1) / stride + 1;
    if (n <= 1) by = 1; /* a huge step must not be multiplied */
    if (v.kind == JK_STR) return slice_str(r, v.s, n > 0 ? from : 0, by, (uint32_t)n);
    if (v.kind == JK_RANGE)
        return slice_range(r, v.range, n > 0 ? (uint32_t)from : 0, by, (uint32_t)n);
    if (by == 1) return jlist_new(r, v.kind, v.list->items + (n > 0 ? from : 0), (uint32_t)n);
    struct jval *items = jrun_items(r, n);
    for (uint32_t i = 0; i < n && r->err == OK; i++)
        items[i] = v.list->items[from + by * (int64_t)i];
    return jlist_new(r, v.kind, items, (uint32_t)n);
}
