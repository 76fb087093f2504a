/* jinja_filters_seq.c - filters over sequences and mappings. */
#include "common/jinja_run.h"

#include "common/jinja_text.h"

struct keyed { /* an item with what it is ordered by */
    struct jval key, value;
};

/* Strings are compared without regard to case unless case_sensitive. */
static struct jval order_key(struct jrun *r, struct jval v, struct jval attribute,
                             bool case_sensitive)
{
    if (attribute.kind != JK_ABSENT && attribute.kind != JK_NONE)
        v = jrun_get_path(r, v, attribute);
    if (v.kind == JK_STR && !case_sensitive) return jrun_change_case(r, v.s, JCASE_LOWER);
    return v;
}

/* A stable merge sort, bottom up: comparisons may fail, which ends it. */
static struct keyed *sort_keyed(struct jrun *r, struct keyed *from, uint32_t count, bool reverse,
                                bool by_attribute)
{
    struct keyed *to = jrun_alloc(r, count, sizeof *to);
    for (uint64_t width = 1; width < count && r->err == OK; width *= 2) {
        for (uint64_t low = 0; low < count && r->err == OK; low += 2 * width) {
            uint64_t mid = low + width < count ? low + width : count;
            uint64_t high = low + 2 * width < count ? low + 2 * width : count;
            uint64_t a = low, b = mid;
            for (uint64_t k = low; k < high; k++) {
                bool take_b = a == mid;
                if (a < mid && b < high) {
                    /* equal attributes need no order, be they undefined */
                    bool equal = by_attribute && jrun_equal(r, from[a].key, from[b].key);
                    int order = equal ? 0 : jrun_compare(r, from[a].key, from[b].key);
                    take_b = reverse ? order == -1 : order == 1;
                }
                to[k] = take_b ? from[b++] : from[a++];
            }
        }
        struct keyed *other = from;
        from = to;
        to = other;
    }
    return from;
}

static struct keyed *keyed_items(struct jrun *r, struct jval self, struct jval attribute,
                                 bool case_sensitive, uint32_t *count)
{
    struct jseq seq;
    if (!jrun_iterate(r, self, &seq)) return NULL;
    struct keyed *out = jrun_alloc(r, seq.count, sizeof *out);
    for (uint32_t i = 0; i < seq.count && r->err == OK; i++) {
        struct jval v = jseq_at(&seq, i);
        out[i] = (struct keyed){order_key(r, v, attribute, case_sensitive), v};
    }
    *count = seq.count;
    return r->err == OK ? out : NULL;
}

static struct jval values_of(struct jrun *r, const struct keyed *from, uint32_t count)
{
    struct jval *items = jrun_items(r, count);
    for (uint32_t i = 0; i < count && r->err == OK; i++)
        items[i] = from[i].value;
    return jlist_new(r, JK_LIST, items, count);
}

static struct jval filter_sort(struct jrun *r, const struct jcall *c)
{
    uint32_t count;
    struct keyed *k = keyed_items(r, c->self, c->a[2], jv_truth(c->a[1]), &count);
    if (k == NULL) return JV_UNDEF;
    k = sort_keyed(r, k, count, jv_truth(c->a[0]), c->a[2].kind != JK_ABSENT);
    return r->err == OK ? values_of(r, k, count) : JV_UNDEF;
}

static struct jval filter_dictsort(struct jrun *r, const struct jcall *c)
{
    bool by_value = jv_is_str(c->a[1], "value");
    if (c->self.kind != JK_DICT)
        return jrun_type_error(r, "dictsort of '%s'", jv_type_name(c->self));
    if (!by_value && c->a[1].kind != JK_ABSENT && !jv_is_str(c->a[1], "key"))
        return jrun_type_error(r, "dictsort's by must be key or value");
    struct jval pairs = jdict_view(r, c->self.dict, 2, JK_LIST);
    uint32_t count;
    struct keyed *k = keyed_items(r, pairs, jv_int(by_value), jv_truth(c->a[0]), &count);
    if (k == NULL) return JV_UNDEF;
    k = sort_keyed(r, k, count, jv_truth(c->a[2]), false);
    return r->err == OK ? values_of(r, k, count) : JV_UNDEF;
}

static struct jval filter_groupby(struct jrun *r, const struct jcall *c)
{
    uint32_t count, groups = 0;
    bool case_sensitive = jv_truth(c->a[2]);
    struct keyed *k = keyed_items(r, c->self, c->a[0], case_sensitive, &count);
    for (uint32_t i = 0; k != NULL && i < count; i++)
        if (k[i].key.kind == JK_UNDEF && c->a[1].kind != JK_ABSENT)
            k[i].key = order_key(r, c->a[1], JV_ABSENT, case_sensitive);
    if (k == NULL || r->err != OK) return JV_UNDEF;
    k = sort_keyed(r, k, count, false, false);
    struct jval *out = jrun_items(r, count);
    for (uint32_t start = 0, end; start < count && r->err == OK; start = end) {
        for (end = start + 1; end < count && jrun_equal(r, k[start].key, k[end].key);)
            end++;
        struct jval *pair = jrun_items(r, 2);
        if (pair == NULL) break;
        pair[0] = jrun_get_path(r, k[start].value, c->a[0]);
        if (pair[0].kind == JK_UNDEF && c->a[1].kind != JK_ABSENT) pair[0] = c->a[1];
        pair[1] = values_of(r, k + start, end - start);
        out[groups] = jlist_new(r, JK_TUPLE, pair, 2);
        if (r->err == OK) out[groups++].list->is_group = true;
    }
    return jlist_new(r, JK_LIST, out, groups);
}

static struct jval filter_unique(struct jrun *r, const struct jcall *c)
{
    uint32_t count, kept = 0;
    struct keyed *k = keyed_items(r, c->self, c->a[1], jv_truth(c->a[0]), &count);
    if (k == NULL) return JV_UNDEF;
    for (uint32_t i = 0; i < count && r->err == OK; i++) {
        uint32_t j = 0;
        while (j < kept && r->err == OK && !jrun_equal(r, k[j].key, k[i].key))
            j++;
        if (j == kept) k[kept++] = k[i];
    }
    struct jval out = values_of(r, k, kept);
    out.kind = r->err == OK ? JK_ITER : JK_UNDEF;
    return out;
}

static struct jval extreme(struct jrun *r, const struct jcall *c, int want)
{
    uint32_t count, best = 0;
    struct keyed *k = keyed_items(r, c->self, c->a[1], jv_truth(c->a[0]), &count);
    if (k == NULL || count == 0) return JV_UNDEF;
    for (uint32_t i = 1; i < count && r->err == OK; i++)
        if (jrun_compare(r, k[i].key, k[best].key) == want) best = i;
    return k[best].value;
}

static struct jval filter_min(struct jrun *r, const struct jcall *c)
{
    return extreme(r, c, -1);
}

static struct jval filter_max(struct jrun *r, const struct jcall *c)
{
    return extreme(r, c, 1);
}

static struct jval filter_sum(struct jrun *r, const struct jcall *c)
{
    struct jseq seq;
    struct jval total = c->a[1].kind != JK_ABSENT ? c->a[1] : jv_int(0);
    if (!jrun_iterate(r, c->self, &seq)) return JV_UNDEF;
    for (uint32_t i = 0; i < seq.count && jrun_step(r, 1); i++) {
        struct jval v = jseq_at(&seq, i);
        if (c->a[0].kind != JK_ABSENT && c->a[0].kind != JK_NONE) v = jrun_get_path(r, v, c->a[0]);
        if (r->err == OK) total = jrun_binary(r, JOP_ADD, total, v);
    }
    return total;
}

static struct jval filter_length(struct jrun *r, const struct jcall *c)
{
    struct jval v = c->self;
    switch (v.kind) {
    case JK_UNDEF: return jv_int(0);
    case JK_STR: return jv_int(jstr_chars(r, v.s));
    case JK_LIST:
    case JK_TUPLE:
    case JK_VIEW: return jv_int(v.list->count);
    case JK_RANGE: return jv_int(v.range->count);
    case JK_DICT: return jv_int(v.dict->count);
    case JK_LOOP: return jv_int(v.loop->seq.count);
    default: return jrun_type_error(r, "object of type '%s' has no length", jv_type_name(v));
    }
}

static struct jval filter_first(struct jrun *r, const struct jcall *c)
{
    struct jseq seq;
    if (!jrun_iterate(r, c->self, &seq) || seq.count == 0) return JV_UNDEF;
    return jseq_at(&seq, 0);
}

static struct jval filter_last(struct jrun *r, const struct jcall *c)
{
    struct jseq seq;
    if (c->self.kind == JK_ITER) return jrun_type_error(r, "a generator has no last item");
    if (!jrun_iterate(r, c->self, &seq) || seq.count == 0) return JV_UNDEF;
    return jseq_at(&seq, seq.count - 1);
}

static struct jval filter_list(struct jrun *r, const struct jcall *c)
{
    struct jseq seq;
    if (!jrun_iterate(r, c->self, &seq)) return JV_UNDEF;
    if (seq.items != NULL || seq.count == 0) return jlist_new(r, JK_LIST, seq.items, seq.count);
    struct jval *items = jrun_items(r, seq.count);
    for (uint32_t i = 0; i < seq.count && r->err == OK; i++)
        items[i] = jseq_at(&seq, i);
    return jlist_new(r, JK_LIST, items, seq.count);
}

static struct jval filter_reverse(struct jrun *r, const struct jcall *c)
{
    struct jseq seq;
    if (c->self.kind == JK_STR) return jrun_slice(r, c->self, JV_NONE, JV_NONE, jv_int(-1));
    if (!jrun_iterate(r, c->self, &seq)) return JV_UNDEF;
    struct jval *items = jrun_items(r, seq.count);
    for (uint32_t i = 0; i < seq.count && r->err == OK; i++)
        items[i] = jseq_at(&seq, seq.count - 1 - i);
    return jlist_new(r, JK_ITER, items, seq.count);
}

static struct jval filter_items(struct jrun *r, const struct jcall *c)
{
    if (c->self.kind == JK_UNDEF) return jlist_new(r, JK_ITER, NULL, 0);
    if (c->self.kind != JK_DICT)
        return jrun_type_error(r, "item pairs can only be had of a mapping, not of '%s'",
                               jv_type_name(c->self));
    return jdict_view(r, c->self.dict, 2, JK_ITER);
}

static struct jval filter_join(struct jrun *r, const struct jcall *c)
{
    struct jval glue = c->a[0].kind == JK_ABSENT ? jstr_copy(r, "") : jrun_to_str(r, c->a[0]);
    return r->err == OK ? jtext_join(r, glue.s, c->self, false, c->a[1]) : JV_UNDEF;
}

/* batch(n, fill): lists of n. */
static struct jval filter_batch(struct jrun *r, const struct jcall *c)
{
    struct jseq seq;
    int64_t size = jv_is_integer(c->a[0]) ? jv_as_int(c->a[0]) : 0;
    bool fill = c->a[1].kind != JK_ABSENT && c->a[1].kind != JK_NONE;
    if (size < 1 || size > TEMPLATE_OUTPUT_BYTES_MAX)
        return jrun_type_error(r, "batch needs a size of at least 1");
    if (!jrun_iterate(r, c->self, &seq)) return JV_UNDEF;
    uint32_t n = (uint32_t)size, count = 0;
    struct jval *out = jrun_items(r, seq.count / n + 1);
    for (uint32_t start = 0; start < seq.count && r->err == OK; start += n) {
        uint32_t have = seq.count - start < n ? seq.count - start : n, want = fill ? n : have;
        struct jval *items = jrun_items(r, want);
        for (uint32_t i = 0; i < want && r->err == OK; i++)
            items[i] = i < have ? jseq_at(&seq, start + i) : c->a[1];
        if (r->err == OK) out[count++] = jlist_new(r, JK_LIST, items, want);
    }
    return jlist_new(r, JK_ITER, out, count);
}

static const struct jbuiltin items[] = {
    {"length", "", 0, filter_length, 0},
    {"count", "", 0, filter_length, 0},
    {"first", "", 0, filter_first, 0},
    {"last", "", 0, filter_last, 0},
    {"list", "", 0, filter_list, 0},
    {"reverse", "", 0, filter_reverse, 0},
    {"items", "", 0, filter_items, 0},
    {"join", "d attribute", 0, filter_join, 0},
    {"sort", "reverse case_sensitive attribute", 0, filter_sort, 0},
    {"dictsort", "case_sensitive by reverse", 0, filter_dictsort, 0},
    {"groupby", "attribute default case_sensitive", 1, filter_groupby, 0},
    {"unique", "case_sensitive attribute", 0, filter_unique, 0},
    {"min", "case_sensitive attribute", 0, filter_min, 0},
    {"max", "case_sensitive attribute", 0, filter_max, 0},
    {"sum", "attribute start", 0, filter_sum, 0},
    {"batch", "linecount fill_with", 1, filter_batch, 0},
};
const struct jbuiltin_table jinja_filters_seq = {items, ARRAY_LEN(items)};
