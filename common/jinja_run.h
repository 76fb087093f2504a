/* jinja_run.h - the state of one render, its budgets, and what the interpreter's files call in one
 * another. A function that fails sets r->err (the first fault counts) and returns an undefined
 * value; who calls in a loop looks at r->err. One thread. */
#ifndef PENSTOCK_COMMON_JINJA_RUN_H
#define PENSTOCK_COMMON_JINJA_RUN_H

#include "common/chat_template.h"
#include "common/jinja_ast.h"
#include "common/jinja_builtin.h"

enum {
    JRUN_NESTING_MAX = 2500, /* evaluations within evaluations: bounds the C stack */
    JRUN_RANGE_MAX = 100000, /* items of a range(), as jinja2's sandbox has it */
};

struct jbind {
    uint32_t name;
    struct jval value;
};
struct jscope { /* of a loop, a macro, a block; the template's own variables are r->globals */
    struct jscope *parent;
    struct jbind *binds;
    uint32_t count, cap;
};

struct jrun {
    const struct chat_template *t;
    const struct json *context;
    const char *const *trusted_vars;
    int64_t now_s;
    int32_t utc_offset_s;
    struct arena arena;   /* every value of the render */
    struct buffer text;   /* the output, and behind it what is being captured */
    struct buffer ranges; /* struct trust_range: the trusted parts of text, ascending, merged */
    struct jval *globals; /* [name_count]; ABSENT: not looked up yet */
    struct jscope *scope; /* the innermost, NULL at the template's top level */
    uint32_t nesting, calls;
    int64_t steps_left;
    uint32_t line;
    enum err err;
    struct errmsg *why;
};

/* jinja_run.c ---------------------------------------------------------------------------------- */

/* ERR_INVALID: the sentence gets "line N: " before it. */
struct jval jrun_fail(struct jrun *r, enum err err, const char *format, ...) PRINTF_LIKE(3, 4);
#define jrun_type_error(r, ...) jrun_fail((r), ERR_INVALID, __VA_ARGS__)
/* Spends n steps; false once the budget is gone. */
bool jrun_step(struct jrun *r, uint64_t n);
/* From the render's budget, 16-byte aligned; NULL with r->err set. count * size is checked. */
void *jrun_alloc(struct jrun *r, size_t count, size_t size);
/* For recursion over values and calls. Each true one needs a leave. */
bool jrun_enter(struct jrun *r);
static inline void jrun_leave(struct jrun *r)
{
    r->calls--;
}
struct jval jrun_lookup(struct jrun *r, uint32_t name);
void jrun_bind(struct jrun *r, uint32_t name, struct jval value); /* in the innermost scope */
void jrun_scope_open(struct jrun *r, struct jscope *scope);       /* child of the innermost */
/* A context value as the interpreter has it; strings borrow from the JSON tree. */
struct jval jrun_from_json(struct jrun *r, const struct json *v, bool trusted);

/* jinja_str.c: the output, and strings ----------------------------------------------------------
 */

void jrun_emit(struct jrun *r, struct span bytes, bool trusted);
void jrun_emit_text(struct jrun *r, const char *text); /* not trusted */
void jrun_emit_str(struct jrun *r, const struct jstr *s);
void jrun_emit_part(struct jrun *r, const struct jstr *s, size_t start, size_t len); /* bytes */
/* What was emitted since r->text.len was mark becomes a string; the output is as it was. */
struct jval jrun_take(struct jrun *r, size_t mark);
struct jval jstr_new(struct jrun *r, struct span bytes, bool trusted); /* borrows the bytes */
struct jval jstr_copy(struct jrun *r, const char *text);               /* not trusted */
struct jval jstr_concat(struct jrun *r, const struct jstr *a, const struct jstr *b);
struct jval jstr_part(struct jrun *r, const struct jstr *s, size_t start, size_t len); /* bytes */
uint32_t jstr_chars(struct jrun *r, const struct jstr *s);
/* Where code point index begins, in bytes; len when index is the count. */
size_t jstr_offset(struct jrun *r, const struct jstr *s, uint32_t index);
/* Byte offset of needle in s at or behind from; SIZE_MAX: none. */
size_t jstr_find(struct jrun *r, const struct jstr *s, struct span needle, size_t from);

/* jinja_seq.c: lists, dicts, iteration ----------------------------------------------------------
 */

struct jseq {                 /* something iterable, laid out */
    const struct jval *items; /* NULL: the numbers start, start + step, ... */
    uint32_t count;
    int64_t start, step;
};
static inline struct jval jseq_at(const struct jseq *s, uint32_t i)
{
    return s->items != NULL ? s->items[i] : jv_int(jrange_at(s->start, s->step, i));
}
/* Lays v out; an ITER is empty afterwards. False: not iterable (r->err is set). */
bool jrun_iterate(struct jrun *r, struct jval v, struct jseq *out);
struct jval jlist_new(struct jrun *r, enum jkind kind, const struct jval *items, uint32_t count);
/* An array to fill, of which a list is then made. */
struct jval *jrun_items(struct jrun *r, size_t count);
struct jval jlist_concat(struct jrun *r, struct jval a, struct jval b);
struct jval jdict_new(struct jrun *r, enum jkind kind, uint32_t cap);
void jdict_put(struct jrun *r, struct jdict *d, struct jval key, struct jval value);
/* NULL: no such key. */
const struct jval *jdict_get(struct jrun *r, const struct jdict *d, struct jval key);
const struct jval *jdict_get_text(struct jrun *r, const struct jdict *d, struct span key);
/* keys 0, values 1, items 2 */
struct jval jdict_view(struct jrun *r, const struct jdict *d, int which, enum jkind kind);
struct jval jrun_get_attr(struct jrun *r, struct jval v, const struct jstr *name,
                          const struct jbuiltin *method);
struct jval jrun_get_item(struct jrun *r, struct jval v, struct jval key);
/* An attribute path as filters take it: "a.b.0", or an integer. */
struct jval jrun_get_path(struct jrun *r, struct jval v, struct jval path);
struct jval jrun_slice(struct jrun *r, struct jval v, struct jval start, struct jval stop,
                       struct jval step);

/* jinja_ops.c ---------------------------------------------------------------------------------- */

bool jv_truth(struct jval v);
bool jrun_equal(struct jrun *r, struct jval a, struct jval b);
/* -1, 0, 1; fails for values without an order. NaN compares as unordered: 2. */
int jrun_compare(struct jrun *r, struct jval a, struct jval b);
bool jrun_contains(struct jrun *r, struct jval container, struct jval item);
struct jval jrun_binary(struct jrun *r, enum jop op, struct jval a, struct jval b);
bool jrun_test_op(struct jrun *r, enum jop op, struct jval a, struct jval b);

/* jinja_print.c -------------------------------------------------------------------------------- */

void jrun_emit_value(struct jrun *r, struct jval v); /* str() */
void jrun_emit_repr(struct jrun *r, struct jval v);
void jrun_emit_real(struct jrun *r, double d);
struct jval jrun_to_str(struct jrun *r, struct jval v);
/* tojson; indent < 0: on one line. NULL separators: the usual ones. */
struct jjson_style {
    int64_t indent;
    bool ensure_ascii, sort_keys;
    const struct jstr *item_separator, *key_separator;
};
void jrun_emit_json(struct jrun *r, struct jval v, const struct jjson_style *style);

/* jinja_format.c ------------------------------------------------------------------------------- */

struct jval jrun_format_percent(struct jrun *r, const struct jstr *format, struct jval args);
struct jval jrun_format_braces(struct jrun *r, const struct jstr *format, const struct jcall *c);

/* jinja_case.c --------------------------------------------------------------------------------- */

enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_CAPITALIZE, JCASE_TITLE, JCASE_TITLE_FILTER };
struct jval jrun_change_case(struct jrun *r, const struct jstr *s, enum jcase to);

/* jinja_eval.c, jinja_exec.c ------------------------------------------------------------------- */

struct jval jrun_eval(struct jrun *r, const struct jnode *n);
/* Calls a macro, function, method, loop with arguments already evaluated. */
struct jval jrun_call(struct jrun *r, struct jval callee, struct jcall *c);
/* The call n of a macro, which gets caller for its {% call %} block. */
struct jval jrun_call_with(struct jrun *r, const struct jnode *n, const struct jmacro *caller);
/* The filters of node n, a chain without operand, over value. */
struct jval jrun_filter(struct jrun *r, const struct jnode *n, struct jval value);

enum jflow { JFLOW_NEXT, JFLOW_BREAK, JFLOW_CONTINUE };
enum jflow jrun_exec(struct jrun *r, const struct jnode *n);
struct jval jrun_call_macro(struct jrun *r, const struct jmacro *m, const struct jcall *c,
                            const struct jmacro *caller);
struct jmacro {
    const struct jnode *node;
    struct jscope *scope; /* where it was defined */
};
struct jloop {
    const struct jnode *node;
    struct jscope *scope; /* around the loop */
    struct jseq seq;
    uint32_t index0, depth0;
    struct jval changed; /* the arguments of the last loop.changed(), or ABSENT */
};
struct jval jloop_get(struct jrun *r, struct jloop *l, struct span name);
struct jval jloop_call_method(struct jrun *r, struct jloop *l, const char *name,
                              const struct jcall *c);
/* loop(x): the loop over again, one level down. */
struct jval jloop_recurse(struct jrun *r, const struct jloop *l, struct jval items);

#endif
