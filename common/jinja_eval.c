/* jinja_eval.c - expressions, and calls of everything that can be called. */
#include "common/jinja_run.h"

/* How much of a name goes into a sentence. */
static int shown_len(const struct jstr *name)
{
    return name->len < 80 ? (int)name->len : 80;
}

static bool eval_list(struct jrun *r, const struct jnode *n, uint32_t count, struct jval *out)
{
    for (uint32_t i = 0; i < count && r->err == OK; i++)
        out[i] = jrun_eval(r, n->list[i]);
    return r->err == OK;
}

static struct jval eval_sequence(struct jrun *r, const struct jnode *n)
{
    struct jval *items = jrun_items(r, n->count);
    if (items == NULL || !eval_list(r, n, n->count, items)) return JV_UNDEF;
    return jlist_new(r, n->kind == JN_LIST ? JK_LIST : JK_TUPLE, items, n->count);
}

static struct jval eval_dict(struct jrun *r, const struct jnode *n)
{
    struct jval dict = jdict_new(r, JK_DICT, n->count);
    for (uint32_t i = 0; i < n->count && r->err == OK; i++) {
        struct jval key = jrun_eval(r, n->list[2 * i]);
        struct jval value = r->err == OK ? jrun_eval(r, n->list[2 * i + 1]) : JV_UNDEF;
        if (r->err == OK) jdict_put(r, dict.dict, key, value);
    }
    return dict;
}

static struct jval eval_chain(struct jrun *r, const struct jnode *n)
{
    struct jval left = jrun_eval(r, n->list[0]);
    for (uint32_t i = 1; i < n->count && r->err == OK; i++) {
        struct jval right = jrun_eval(r, n->list[i]);
        r->line = n->line;
        if (r->err == OK) left = jrun_binary(r, (enum jop)n->ops[i], left, right);
    }
    return left;
}

static struct jval eval_concat(struct jrun *r, const struct jnode *n)
{
    struct jval left = jrun_to_str(r, jrun_eval(r, n->list[0]));
    for (uint32_t i = 1; i < n->count && r->err == OK; i++) {
        struct jval right = jrun_to_str(r, jrun_eval(r, n->list[i]));
        if (r->err == OK) left = jstr_concat(r, left.s, right.s);
    }
    return left;
}

static struct jval eval_words(struct jrun *r, const struct jnode *n)
{
    struct jval v = JV_UNDEF;
    for (uint32_t i = 0; i < n->count && r->err == OK; i++) {
        v = jrun_eval(r, n->list[i]);
        if (jv_truth(v) == (n->kind == JN_OR)) break;
    }
    return v;
}

static struct jval eval_compare(struct jrun *r, const struct jnode *n)
{
    struct jval left = jrun_eval(r, n->list[0]);
    bool holds = true;
    for (uint32_t i = 1; i < n->count && holds && r->err == OK; i++) {
        struct jval right = jrun_eval(r, n->list[i]);
        r->line = n->line;
        if (r->err == OK) holds = jrun_test_op(r, (enum jop)n->ops[i], left, right);
        left = right;
    }
    return jv_bool(holds);
}

static struct jval eval_sign(struct jrun *r, const struct jnode *n)
{
    struct jval v = jrun_eval(r, n->a);
    if (r->err != OK) return JV_UNDEF;
    if (!jv_is_number(v)) return jrun_type_error(r, "a sign before '%s'", jv_type_name(v));
    if (n->kind == JN_POS) return v.kind == JK_BOOL ? jv_int(v.b) : v;
    if (v.kind == JK_REAL) return jv_real(-v.d);
    return jrun_binary(r, JOP_SUB, jv_int(0), v);
}

static struct jval eval_item(struct jrun *r, const struct jnode *n)
{
    struct jval v = jrun_eval(r, n->a);
    if (r->err != OK) return JV_UNDEF;
    if (n->b->kind != JN_SLICE) {
        struct jval key = jrun_eval(r, n->b);
        r->line = n->line;
        return r->err == OK ? jrun_get_item(r, v, key) : JV_UNDEF;
    }
    const struct jnode *part[3] = {n->b->a, n->b->b, n->b->c};
    struct jval bound[3];
    for (int i = 0; i < 3; i++)
        bound[i] = part[i] != NULL ? jrun_eval(r, part[i]) : JV_NONE;
    return r->err == OK ? jrun_slice(r, v, bound[0], bound[1], bound[2]) : JV_UNDEF;
}

/* The arguments of a CALL, FILTER or TEST; in `room` when they fit there. */
static bool eval_arguments(struct jrun *r, const struct jnode *n, struct jcall *c,
                           struct jval room[JARGS_MAX])
{
    uint32_t total = n->count + n->kw_count;
    struct jval *values = total <= JARGS_MAX ? room : jrun_items(r, total);
    if (values == NULL || !eval_list(r, n, total, values)) return false;
    c->pos = values;
    c->pos_count = n->count;
    c->kw = values + n->count;
    c->kw_count = n->kw_count;
    c->kw_names = n->kw_names;
    return true;
}

/* Index of the parameter called name in params, -1. */
static int find_parameter(const char *params, struct span name)
{
    for (int i = 0; *params != '\0'; i++) {
        size_t n = strcspn(params, " ");
        if (span_eq(span_of(params, n), name)) return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

struct jval jinja_builtin_call(struct jrun *r, const struct jbuiltin *fn, struct jcall *c)
{
    if (r->err != OK) return JV_UNDEF;
    for (uint32_t i = 0; i < JARGS_MAX; i++)
        c->a[i] = JV_ABSENT;
    if (fn->params != NULL) {
        uint32_t most = *fn->params != '\0';
        for (const char *p = fn->params; *p != '\0'; p++)
            most += *p == ' ';
        if (c->pos_count > most)
            return jrun_type_error(r, "%s takes at most %u arguments", fn->name, most);
        for (uint32_t i = 0; i < c->pos_count; i++)
            c->a[i] = c->pos[i];
        for (uint32_t i = 0; i < c->kw_count; i++) {
            int at = find_parameter(fn->params, jstr_span(c->kw_names[i]));
            if (at < 0 || c->a[at].kind != JK_ABSENT)
                return jrun_type_error(r, "%s has no argument '%.*s' to give", fn->name,
                                       shown_len(c->kw_names[i]),
                                       (const char *)c->kw_names[i]->ptr);
            c->a[at] = c->kw[i];
        }
        for (uint32_t i = 0; i < fn->min; i++)
            if (c->a[i].kind == JK_ABSENT)
                return jrun_type_error(r, "%s needs %u arguments", fn->name, fn->min);
    }
    return fn->fn(r, c);
}

static struct jval eval_call_of(struct jrun *r, const struct jnode *n, struct jval callee,
                                struct jcall *c)
{
    struct jval room[JARGS_MAX];
    if (!eval_arguments(r, n, c, room)) return JV_UNDEF;
    r->line = n->line;
    return jrun_call(r, callee, c);
}

/* v.name(...) without a method value in between. */
static struct jval eval_method_call(struct jrun *r, const struct jnode *n)
{
    const struct jnode *attr = n->a;
    struct jcall c;
    struct jval room[JARGS_MAX];
    struct jval self = jrun_eval(r, attr->a);
    if (r->err != OK) return JV_UNDEF;
    r->line = attr->line;
    if (attr->fn == NULL || (attr->fn->kinds & (1u << self.kind)) == 0) {
        struct jval callee = jrun_get_attr(r, self, attr->value.s, NULL);
        if (r->err != OK) return JV_UNDEF;
        if (callee.kind == JK_UNDEF)
            return jrun_type_error(r, "'%s' has no method '%.*s'", jv_type_name(self),
                                   shown_len(attr->value.s), (const char *)attr->value.s->ptr);
        return eval_call_of(r, n, callee, &c);
    }
    if (!eval_arguments(r, n, &c, room)) return JV_UNDEF;
    c.self = self;
    r->line = n->line;
    return jinja_builtin_call(r, attr->fn, &c);
}

static struct jval eval_call(struct jrun *r, const struct jnode *n)
{
    if (n->a->kind == JN_ATTR) return eval_method_call(r, n);
    struct jcall c;
    struct jval callee = jrun_eval(r, n->a);
    return r->err == OK ? eval_call_of(r, n, callee, &c) : JV_UNDEF;
}

struct jval jrun_call(struct jrun *r, struct jval callee, struct jcall *c)
{
    if (!jrun_step(r, 1)) return JV_UNDEF;
    switch (callee.kind) {
    case JK_MACRO: return jrun_call_macro(r, callee.macro, c, NULL);
    case JK_FUNCTION: return jinja_builtin_call(r, callee.function, c);
    case JK_LOOP:
        if (c->pos_count != 1) return jrun_type_error(r, "loop() needs one argument");
        return jloop_recurse(r, callee.loop, c->pos[0]);
    case JK_METHOD:
        if (callee.method->fn == NULL)
            return jloop_call_method(r, callee.method->self.loop, callee.method->loop_method, c);
        c->self = callee.method->self;
        return jinja_builtin_call(r, callee.method->fn, c);
    case JK_UNDEF:
        if (callee.what != NULL) return jrun_type_error(r, "'%.100s' is undefined", callee.what);
        return jrun_type_error(r, "a value that is undefined cannot be called");
    default: return jrun_type_error(r, "'%s' object is not callable", jv_type_name(callee));
    }
}

struct jval jrun_call_with(struct jrun *r, const struct jnode *n, const struct jmacro *caller)
{
    struct jcall c;
    struct jval room[JARGS_MAX], callee = jrun_eval(r, n->a);
    if (r->err != OK || !eval_arguments(r, n, &c, room)) return JV_UNDEF;
    if (callee.kind != JK_MACRO)
        return jrun_type_error(r, "{%% call %%} needs a macro, not '%s'", jv_type_name(callee));
    return jrun_call_macro(r, callee.macro, &c, caller);
}

static struct jval no_builtin(struct jrun *r, const struct jnode *n)
{
    return jrun_type_error(r, "no %s named '%.*s'", n->kind == JN_FILTER ? "filter" : "test",
                           shown_len(n->value.s), (const char *)n->value.s->ptr);
}

struct jval jrun_filter(struct jrun *r, const struct jnode *n, struct jval value)
{
    struct jcall c;
    struct jval room[JARGS_MAX];
    if (n->a != NULL) value = n->a->kind == JN_FILTER ? jrun_filter(r, n->a, value) : value;
    r->line = n->line;
    if (n->fn == NULL) return no_builtin(r, n);
    if (r->err != OK || !eval_arguments(r, n, &c, room)) return JV_UNDEF;
    c.self = value;
    r->line = n->line;
    return jinja_builtin_call(r, n->fn, &c);
}

static struct jval eval_builtin(struct jrun *r, const struct jnode *n)
{
    struct jcall c;
    struct jval room[JARGS_MAX];
    r->line = n->line;
    if (n->fn == NULL) return no_builtin(r, n);
    c.self = jrun_eval(r, n->a);
    if (r->err != OK || !eval_arguments(r, n, &c, room)) return JV_UNDEF;
    r->line = n->line;
    struct jval v = jinja_builtin_call(r, n->fn, &c);
    if (n->kind == JN_TEST && r->err == OK) return jv_bool(jv_truth(v) != n->negated);
    return v;
}

static struct jval eval_cond(struct jrun *r, const struct jnode *n)
{
    bool holds = jv_truth(jrun_eval(r, n->a));
    if (r->err != OK) return JV_UNDEF;
    if (holds) return jrun_eval(r, n->b);
    return n->c != NULL ? jrun_eval(r, n->c) : JV_UNDEF;
}

static struct jval eval_inner(struct jrun *r, const struct jnode *n)
{
    switch (n->kind) {
    case JN_LIST:
    case JN_TUPLE: return eval_sequence(r, n);
    case JN_DICT: return eval_dict(r, n);
    case JN_NEG:
    case JN_POS: return eval_sign(r, n);
    case JN_NOT: return jv_bool(!jv_truth(jrun_eval(r, n->a)));
    case JN_CHAIN: return eval_chain(r, n);
    case JN_CONCAT: return eval_concat(r, n);
    case JN_AND:
    case JN_OR: return eval_words(r, n);
    case JN_COMPARE: return eval_compare(r, n);
    case JN_COND: return eval_cond(r, n);
    case JN_ITEM: return eval_item(r, n);
    case JN_CALL: return eval_call(r, n);
    case JN_FILTER:
    case JN_TEST: return eval_builtin(r, n);
    case JN_ATTR: {
        struct jval v = jrun_eval(r, n->a);
        r->line = n->line;
        return r->err == OK ? jrun_get_attr(r, v, n->value.s, n->fn) : JV_UNDEF;
    }
    default: CHECK_MSG(false, "statement %d evaluated as an expression", (int)n->kind);
    }
}

struct jval jrun_eval(struct jrun *r, const struct jnode *n)
{
    if (!jrun_step(r, 1)) return JV_UNDEF;
    if (n->kind == JN_CONST) return n->value;
    if (n->kind == JN_NAME) return jrun_lookup(r, n->name);
    if (r->nesting >= JRUN_NESTING_MAX)
        return jrun_fail(r, ERR_LIMIT, "evaluations nest deeper than %d levels", JRUN_NESTING_MAX);
    r->nesting++;
    struct jval v = eval_inner(r, n);
    r->nesting--;
    return v;
}
