/* jinja_exec.c - statements: output, branches, loops, assignments, macros. */
#include "common/jinja_run.h"

/* A scope in the arena: a macro that is defined in it may outlive the block. */
static struct jscope *open_scope(struct jrun *r)
{
    struct jscope *s = jrun_alloc(r, 1, sizeof *s);
    if (s != NULL) jrun_scope_open(r, s);
    return s;
}

static void set_attribute(struct jrun *r, const struct jnode *target, struct jval value)
{
    struct jval space = jrun_lookup(r, target->a->name);
    if (space.kind == JK_SPACE)
        jdict_put(r, space.dict, target->value, value);
    else
        jrun_type_error(r, "only a namespace's attributes can be set, not those of '%s'",
                        jv_type_name(space));
}

static void assign(struct jrun *r, const struct jnode *target, struct jval value)
{
    if (r->err != OK) return;
    if (target->kind == JN_NAME) {
        jrun_bind(r, target->name, value);
        return;
    }
    if (target->kind == JN_ATTR) {
        set_attribute(r, target, value);
        return;
    }
    struct jseq seq;
    if (!jrun_iterate(r, value, &seq)) return;
    if (seq.count != target->count) {
        jrun_type_error(r, "%u values to unpack where %u are expected", seq.count, target->count);
        return;
    }
    for (uint32_t i = 0; i < seq.count; i++)
        jrun_bind(r, target->list[i]->name, jseq_at(&seq, i));
}

/* What of seq passes the loop's own `if`. */
static bool filter_items(struct jrun *r, const struct jnode *n, struct jseq *seq)
{
    struct jscope *outer = r->scope, *scope = open_scope(r);
    struct jval *items = jrun_items(r, seq->count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < seq->count && r->err == OK; i++) {
        struct jval item = jseq_at(seq, i);
        scope->count = 0;
        assign(r, n->a, item);
        if (r->err == OK && jv_truth(jrun_eval(r, n->c))) items[count++] = item;
    }
    r->scope = outer;
    *seq = (struct jseq){.items = items, .count = count};
    return r->err == OK;
}

static enum jflow run_loop(struct jrun *r, const struct jnode *n, struct jval over, uint32_t depth0)
{
    struct jscope *outer = r->scope, *scope;
    struct jloop *loop = jrun_alloc(r, 1, sizeof *loop);
    struct jseq seq;
    if (loop == NULL || !jrun_iterate(r, over, &seq)) return JFLOW_NEXT;
    if (n->c != NULL && !filter_items(r, n, &seq)) return JFLOW_NEXT;
    if ((scope = open_scope(r)) == NULL) return JFLOW_NEXT;
    *loop = (struct jloop){
        .node = n, .scope = outer, .seq = seq, .depth0 = depth0, .changed = JV_ABSENT};
    enum jflow flow = JFLOW_NEXT;
    for (uint32_t i = 0; i < seq.count && flow != JFLOW_BREAK && jrun_step(r, 1); i++) {
        scope->count = 0;
        loop->index0 = i;
        jrun_bind(r, JNAME_LOOP, (struct jval){.kind = JK_LOOP, .loop = loop});
        assign(r, n->a, jseq_at(&seq, i));
        if (r->err == OK) flow = jrun_exec(r, n->list[0]);
    }
    scope->count = 0;
    flow = JFLOW_NEXT;
    if (seq.count == 0 && n->list[1] != NULL && r->err == OK) flow = jrun_exec(r, n->list[1]);
    r->scope = outer;
    return flow;
}

struct jval jloop_recurse(struct jrun *r, const struct jloop *l, struct jval items)
{
    if (!l->node->recursive)
        return jrun_type_error(r, "loop() is called in a loop that is not marked recursive");
    if (!jrun_enter(r)) return JV_UNDEF;
    struct jscope *caller = r->scope;
    size_t mark = r->text.len;
    r->scope = l->scope;
    run_loop(r, l->node, items, l->depth0 + 1);
    r->scope = caller;
    jrun_leave(r);
    return jrun_take(r, mark);
}

struct jval jloop_get(struct jrun *r, struct jloop *l, struct span name)
{
    uint32_t i = l->index0, n = l->seq.count;
    (void)r;
    if (span_eq_str(name, "index0")) return jv_int(i);
    if (span_eq_str(name, "index")) return jv_int((int64_t)i + 1);
    if (span_eq_str(name, "first")) return jv_bool(i == 0);
    if (span_eq_str(name, "last")) return jv_bool(i + 1 == n);
    if (span_eq_str(name, "length")) return jv_int(n);
    if (span_eq_str(name, "revindex")) return jv_int((int64_t)n - i);
    if (span_eq_str(name, "revindex0")) return jv_int((int64_t)n - i - 1);
    if (span_eq_str(name, "depth")) return jv_int((int64_t)l->depth0 + 1);
    if (span_eq_str(name, "depth0")) return jv_int(l->depth0);
    if (span_eq_str(name, "previtem") && i > 0) return jseq_at(&l->seq, i - 1);
    if (span_eq_str(name, "nextitem") && i + 1 < n) return jseq_at(&l->seq, i + 1);
    return JV_UNDEF;
}

struct jval jloop_call_method(struct jrun *r, struct jloop *l, const char *name,
                              const struct jcall *c)
{
    if (strcmp(name, "cycle") == 0) {
        if (c->pos_count == 0) return jrun_type_error(r, "loop.cycle() needs values");
        return c->pos[l->index0 % c->pos_count];
    }
    struct jval *items = jrun_items(r, c->pos_count); /* the arguments may lie on the stack */
    if (items == NULL) return JV_UNDEF;
    memcpy(items, c->pos, c->pos_count * sizeof *items);
    struct jval now = jlist_new(r, JK_TUPLE, items, c->pos_count);
    bool changed = r->err == OK && !jrun_equal(r, l->changed, now);
    l->changed = now;
    return jv_bool(changed);
}

/* A body whose output becomes a string; in a scope of its own. */
static struct jval capture(struct jrun *r, const struct jnode *body, enum jflow *flow)
{
    struct jscope *outer = r->scope;
    size_t mark = r->text.len;
    if (open_scope(r) == NULL) return JV_UNDEF;
    *flow = jrun_exec(r, body);
    r->scope = outer;
    return jrun_take(r, mark);
}

/* Parameters of a macro that its call gave by position or by name. */
static bool bind_given(struct jrun *r, const struct jnode *n, const struct jcall *c, bool *given)
{
    for (uint32_t i = 0; i < n->count && i < c->pos_count; i++) {
        jrun_bind(r, n->list[i]->name, c->pos[i]);
        given[i] = true;
    }
    if (c->pos_count > n->count && !n->takes_varargs)
        jrun_type_error(r, "macro '%.80s' takes not more than %u arguments", r->t->names[n->name],
                        n->count);
    struct jval extra = n->takes_kwargs ? jdict_new(r, JK_DICT, c->kw_count) : JV_UNDEF;
    for (uint32_t k = 0; k < c->kw_count && r->err == OK; k++) {
        struct span name = jstr_span(c->kw_names[k]);
        uint32_t i = 0;
        while (i < n->count && !span_eq_str(name, r->t->names[n->list[i]->name]))
            i++;
        if (i < n->count && !given[i]) {
            jrun_bind(r, n->list[i]->name, c->kw[k]);
            given[i] = true;
        } else if (i == n->count && n->takes_kwargs) {
            jdict_put(r, extra.dict, jv_str(c->kw_names[k]), c->kw[k]);
        } else {
            jrun_type_error(r, "macro '%.80s' cannot take the argument '%.*s'",
                            r->t->names[n->name], (int)(name.len < 80 ? name.len : 80),
                            (const char *)name.ptr);
        }
    }
    if (n->takes_kwargs) jrun_bind(r, JNAME_KWARGS, extra);
    return r->err == OK;
}

static void bind_varargs(struct jrun *r, const struct jnode *n, const struct jcall *c)
{
    uint32_t count = c->pos_count > n->count ? c->pos_count - n->count : 0;
    struct jval *items = jrun_items(r, count);
    if (items == NULL) return;
    if (count > 0) memcpy(items, c->pos + n->count, count * sizeof *items);
    jrun_bind(r, JNAME_VARARGS, jlist_new(r, JK_TUPLE, items, count));
}

static void bind_parameters(struct jrun *r, const struct jnode *n, const struct jcall *c,
                            const struct jmacro *caller)
{
    bool given[64] = {false}; /* the parser allows no more parameters */
    if (!bind_given(r, n, c, given)) return;
    if (n->takes_varargs) bind_varargs(r, n, c);
    if (n->takes_caller && n->name != JNAME_CALLER) {
        struct jval v = {.kind = JK_MACRO, .macro = caller};
        jrun_bind(r, JNAME_CALLER, caller != NULL ? v : JV_UNDEF);
    } else if (caller != NULL) {
        jrun_type_error(r, "macro '%.80s' does not use the block of its {%% call %%}",
                        r->t->names[n->name]);
    }
    for (uint32_t i = 0; i < n->count && r->err == OK; i++) {
        uint32_t name = n->list[i]->name;
        if (given[i]) continue;
        if (n->defaults[i] != NULL)
            jrun_bind(r, name, jrun_eval(r, n->defaults[i]));
        else
            jrun_bind(r, name, (struct jval){.kind = JK_UNDEF, .what = r->t->names[name]});
    }
}

struct jval jrun_call_macro(struct jrun *r, const struct jmacro *m, const struct jcall *c,
                            const struct jmacro *caller)
{
    if (!jrun_enter(r)) return JV_UNDEF;
    struct jscope *outer = r->scope;
    size_t mark = r->text.len;
    r->scope = m->scope;
    if (open_scope(r) != NULL) bind_parameters(r, m->node, c, caller);
    if (r->err == OK) jrun_exec(r, m->node->c);
    r->scope = outer;
    jrun_leave(r);
    return jrun_take(r, mark);
}

static struct jmacro *new_macro(struct jrun *r, const struct jnode *n)
{
    struct jmacro *m = jrun_alloc(r, 1, sizeof *m);
    if (m != NULL) *m = (struct jmacro){.node = n, .scope = r->scope};
    return m;
}

static enum jflow exec_if(struct jrun *r, const struct jnode *n)
{
    for (uint32_t i = 0; i < n->count; i++) {
        bool holds = jv_truth(jrun_eval(r, n->list[2 * i]));
        if (r->err != OK) return JFLOW_NEXT;
        if (holds) return jrun_exec(r, n->list[2 * i + 1]);
    }
    return n->c != NULL ? jrun_exec(r, n->c) : JFLOW_NEXT;
}

static enum jflow exec_with(struct jrun *r, const struct jnode *n)
{
    struct jscope *outer = r->scope, *inner = open_scope(r);
    for (uint32_t i = 0; i < n->count && r->err == OK; i++) {
        r->scope = outer; /* the values do not see one another */
        struct jval v = jrun_eval(r, n->list[2 * i + 1]);
        r->scope = inner;
        assign(r, n->list[2 * i], v);
    }
    enum jflow flow = r->err == OK ? jrun_exec(r, n->c) : JFLOW_NEXT;
    r->scope = outer;
    return flow;
}

/* Statements that put a body or an expression into a variable or the output. */
static enum jflow exec_captured(struct jrun *r, const struct jnode *n)
{
    enum jflow flow = JFLOW_NEXT;
    struct jval v;
    if (n->kind == JN_CALL_BLOCK) {
        struct jmacro *caller = new_macro(r, n->b);
        v = caller != NULL ? jrun_call_with(r, n->a, caller) : JV_UNDEF;
    } else {
        v = capture(r, n->c, &flow);
        if (n->b != NULL && r->err == OK) v = jrun_filter(r, n->b, v);
    }
    if (r->err != OK || flow != JFLOW_NEXT) return flow;
    if (n->kind == JN_SET_BLOCK)
        assign(r, n->a, v);
    else
        jrun_emit_value(r, v);
    return flow;
}

static enum jflow exec_inner(struct jrun *r, const struct jnode *n)
{
    enum jflow flow = JFLOW_NEXT;
    switch (n->kind) {
    case JN_BODY:
        for (uint32_t i = 0; i < n->count && flow == JFLOW_NEXT && r->err == OK; i++)
            flow = jrun_exec(r, n->list[i]);
        return flow;
    case JN_TEXT: jrun_emit_str(r, n->value.s); break;
    case JN_OUTPUT: {
        struct jval v = jrun_eval(r, n->a);
        if (r->err == OK) jrun_emit_value(r, v);
        break;
    }
    case JN_IF: return exec_if(r, n);
    case JN_FOR: {
        struct jval v = jrun_eval(r, n->b);
        r->line = n->line;
        return r->err == OK ? run_loop(r, n, v, 0) : JFLOW_NEXT;
    }
    case JN_SET: assign(r, n->a, jrun_eval(r, n->b)); break;
    case JN_MACRO: {
        struct jmacro *m = new_macro(r, n);
        jrun_bind(r, n->name, (struct jval){.kind = JK_MACRO, .macro = m});
        break;
    }
    case JN_SET_BLOCK:
    case JN_CALL_BLOCK:
    case JN_FILTER_BLOCK: return exec_captured(r, n);
    case JN_WITH: return exec_with(r, n);
    case JN_BREAK: return JFLOW_BREAK;
    case JN_CONTINUE: return JFLOW_CONTINUE;
    default: CHECK_MSG(false, "expression %d executed as a statement", (int)n->kind);
    }
    return JFLOW_NEXT;
}

enum jflow jrun_exec(struct jrun *r, const struct jnode *n)
{
    if (!jrun_step(r, 1)) return JFLOW_NEXT;
    if (r->nesting >= JRUN_NESTING_MAX) {
        jrun_fail(r, ERR_LIMIT, "evaluations nest deeper than %d levels", JRUN_NESTING_MAX);
        return JFLOW_NEXT;
    }
    r->nesting++;
    r->line = n->line;
    enum jflow flow = exec_inner(r, n);
    r->nesting--;
    return flow;
}
