/* jinja_filters_select.c - map, select, reject, selectattr, rejectattr. */
#include "common/jinja_run.h"

/* The rest of c's positional arguments and its keywords, for fn over self. */
static struct jval apply(struct jrun *r, const struct jbuiltin *fn, struct jval self,
                         const struct jcall *c, uint32_t skipped)
{
    struct jcall inner = {.self = self,
                          .pos = c->pos + skipped,
                          .pos_count = c->pos_count - skipped,
                          .kw_names = c->kw_names,
                          .kw = c->kw,
                          .kw_count = c->kw_count};
    if (!jrun_enter(r)) return JV_UNDEF; /* map('map', 'map', ...) */
    struct jval v = jinja_builtin_call(r, fn, &inner);
    jrun_leave(r);
    return v;
}

static const struct jval *keyword(const struct jcall *c, const char *name)
{
    for (uint32_t i = 0; i < c->kw_count; i++)
        if (span_eq_str(jstr_span(c->kw_names[i]), name)) return &c->kw[i];
    return NULL;
}

/* These filters take whatever is false, none too, for an empty sequence. */
static bool lay_out(struct jrun *r, struct jval v, struct jseq *out)
{
    *out = (struct jseq){0};
    return !jv_truth(v) || jrun_iterate(r, v, out);
}

static struct jval filter_map(struct jrun *r, const struct jcall *c)
{
    const struct jval *attribute = c->pos_count == 0 ? keyword(c, "attribute") : NULL;
    const struct jval *otherwise = keyword(c, "default");
    const struct jbuiltin *fn = NULL;
    struct jseq seq;
    if (attribute == NULL) {
        if (c->pos_count == 0 || c->pos[0].kind != JK_STR)
            return jrun_type_error(r, "map needs a filter's name or attribute=");
        if ((fn = jinja_filter_find(jstr_span(c->pos[0].s))) == NULL)
            return jrun_type_error(r, "map: no such filter");
    }
    if (!lay_out(r, c->self, &seq)) return JV_UNDEF;
    struct jval *items = jrun_items(r, seq.count);
    for (uint32_t i = 0; i < seq.count && jrun_step(r, 1); i++) {
        struct jval v = jseq_at(&seq, i);
        if (fn != NULL) {
            items[i] = apply(r, fn, v, c, 1);
            continue;
        }
        items[i] = jrun_get_path(r, v, *attribute);
        if (items[i].kind == JK_UNDEF && otherwise != NULL) items[i] = *otherwise;
    }
    return jlist_new(r, JK_ITER, items, seq.count);
}

/* want: what the test must say; by_attribute: the first argument names what is tested. */
static struct jval choose(struct jrun *r, const struct jcall *c, bool want, bool by_attribute)
{
    uint32_t skipped = by_attribute;
    const struct jbuiltin *test = NULL;
    struct jseq seq;
    if (c->pos_count < skipped) return jrun_type_error(r, "an attribute's name is missing");
    if (c->pos_count > skipped) {
        struct jval name = c->pos[skipped++];
        if (name.kind != JK_STR || (test = jinja_test_find(jstr_span(name.s))) == NULL)
            return jrun_type_error(r, "no such test");
    }
    if (!lay_out(r, c->self, &seq)) return JV_UNDEF;
    struct jval *items = jrun_items(r, seq.count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < seq.count && jrun_step(r, 1); i++) {
        struct jval v = jseq_at(&seq, i), tested = v;
        if (by_attribute) tested = jrun_get_path(r, v, c->pos[0]);
        if (test != NULL) tested = apply(r, test, tested, c, skipped);
        if (r->err == OK && jv_truth(tested) == want) items[count++] = v;
    }
    return jlist_new(r, JK_ITER, items, count);
}

static struct jval filter_select(struct jrun *r, const struct jcall *c)
{
    return choose(r, c, true, false);
}

static struct jval filter_reject(struct jrun *r, const struct jcall *c)
{
    return choose(r, c, false, false);
}

static struct jval filter_selectattr(struct jrun *r, const struct jcall *c)
{
    return choose(r, c, true, true);
}

static struct jval filter_rejectattr(struct jrun *r, const struct jcall *c)
{
    return choose(r, c, false, true);
}

static const struct jbuiltin items[] = {
    {"map", NULL, 0, filter_map, 0},
    {"select", NULL, 0, filter_select, 0},
    {"reject", NULL, 0, filter_reject, 0},
    {"selectattr", NULL, 0, filter_selectattr, 0},
    {"rejectattr", NULL, 0, filter_rejectattr, 0},
};
const struct jbuiltin_table jinja_filters_select = {items, ARRAY_LEN(items)};
