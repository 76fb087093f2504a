/* jinja_parse.c - statements and the parser's tools. */
#include "common/jinja_parser.h"

#include "common/jinja_builtin.h"
#include "common/unicode.h"

#include <stdarg.h>
#include <stdio.h>

void *jparse_fault(struct jparse *p, const char *format, ...)
{
    if (p->err != OK) return NULL;
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    p->err = errmsg_set(p->why, ERR_PROTO, "line %u: %s", p->cur.line, what);
    return NULL;
}

void *jparse_alloc(struct jparse *p, size_t count, size_t size)
{
    void *ptr = p->err == OK ? arena_calloc(&p->t->arena, count, size) : NULL;
    if (ptr == NULL && p->err == OK)
        p->err = errmsg_set(p->why, ERR_LIMIT, "the template needs too much memory");
    return ptr;
}

struct jnode *jparse_node(struct jparse *p, enum jnode_kind kind)
{
    struct jnode *n = jparse_alloc(p, 1, sizeof *n);
    if (n == NULL) return NULL;
    n->kind = kind;
    n->line = p->cur.line;
    return n;
}

struct jval jparse_literal(struct jparse *p, struct span text)
{
    struct jstr *s = jparse_alloc(p, 1, sizeof *s);
    if (s == NULL) return JV_UNDEF;
    *s = (struct jstr){.ptr = text.ptr, .len = (uint32_t)text.len, .trusted = true};
    for (size_t i = 0; i < text.len; i++)
        s->chars += (text.ptr[i] & 0xC0) != 0x80;
    return jv_str(s);
}

bool jparse_push(struct jparse *p, struct jnode ***list, uint32_t *count, struct jnode *n)
{
    if (*count == 0 || (*count >= 4 && (*count & (*count - 1)) == 0)) {
        struct jnode **wider = jparse_alloc(p, *count == 0 ? 4 : *count * 2, sizeof *wider);
        if (wider == NULL) return false;
        if (*count > 0) memcpy(wider, *list, *count * sizeof *wider);
        *list = wider;
    }
    (*list)[(*count)++] = n;
    return true;
}

uint32_t jparse_intern(struct jparse *p, struct span name)
{
    struct chat_template *t = p->t;
    for (uint32_t i = 0; i < t->name_count; i++)
        if (span_eq_str(name, t->names[i])) return i;
    if (t->name_count == p->names_cap) {
        if (t->name_count >= 4096) return jparse_fault(p, "more than 4096 different names"), 0;
        uint32_t cap = p->names_cap == 0 ? 64 : p->names_cap * 2;
        const char **wider = jparse_alloc(p, cap, sizeof *wider);
        if (wider == NULL) return 0;
        if (t->name_count > 0) memcpy(wider, t->names, t->name_count * sizeof *wider);
        t->names = wider;
        p->names_cap = cap;
    }
    char *copy = jparse_alloc(p, name.len + 1, 1);
    if (copy == NULL) return 0;
    memcpy(copy, name.ptr, name.len);
    t->names[t->name_count] = copy;
    return t->name_count++;
}

static void lex(struct jparse *p, struct jtoken *out)
{
    enum err err = jlex_next(&p->lex, out);
    if (err == OK) return;
    *out = (struct jtoken){.kind = JT_EOF, .line = p->lex.line};
    if (p->err == OK) p->err = err;
}

void jparse_next(struct jparse *p)
{
    if (p->has_ahead) {
        p->cur = p->ahead;
        p->has_ahead = false;
    } else {
        lex(p, &p->cur);
    }
}

const struct jtoken *jparse_look(struct jparse *p)
{
    if (!p->has_ahead) lex(p, &p->ahead);
    p->has_ahead = true;
    return &p->ahead;
}

bool jparse_is_op(const struct jparse *p, int op)
{
    return p->cur.kind == JT_OP && p->cur.op == op && p->err == OK;
}

bool jparse_is_name(const struct jparse *p, const char *name)
{
    return p->cur.kind == JT_NAME && p->err == OK && span_eq_str(p->cur.text, name);
}

bool jparse_skip_op(struct jparse *p, int op)
{
    if (!jparse_is_op(p, op)) return false;
    jparse_next(p);
    return true;
}

bool jparse_skip_name(struct jparse *p, const char *name)
{
    if (!jparse_is_name(p, name)) return false;
    jparse_next(p);
    return true;
}

bool jparse_expect_op(struct jparse *p, int op, const char *spelt)
{
    if (jparse_skip_op(p, op)) return true;
    jparse_fault(p, "'%s' is expected", spelt);
    return false;
}

bool jparse_enter(struct jparse *p)
{
    if (p->err != OK) return false;
    if (++p->depth <= TEMPLATE_DEPTH_MAX) return true;
    p->err = errmsg_set(p->why, ERR_LIMIT, "line %u: nested deeper than %d levels", p->cur.line,
                        TEMPLATE_DEPTH_MAX);
    return false;
}

void jparse_leave(struct jparse *p)
{
    p->depth--;
}

static bool end_tag(struct jparse *p)
{
    if (p->cur.kind == JT_BLOCK_END && p->err == OK) {
        jparse_next(p);
        return true;
    }
    if (p->cur.kind == JT_EOF) return jparse_fault(p, "the template ends inside a tag") != NULL;
    return jparse_fault(p, "a tag should end here with %%}") != NULL;
}

static struct jnode *parse_statement(struct jparse *p);

static bool stands_in(const struct jparse *p, const char *const *words)
{
    for (; *words != NULL; words++)
        if (jparse_is_name(p, *words)) return true;
    return false;
}

/* Nodes up to a tag that begins with one of stops (cur is that word then), or to the end of the
 * template when stops is empty. */
static struct jnode *parse_body(struct jparse *p, const char *const *stops)
{
    struct jnode *body = jparse_node(p, JN_BODY), *n;
    if (body == NULL || !jparse_enter(p)) return NULL;
    for (;;) {
        n = NULL;
        switch (p->cur.kind) {
        case JT_TEXT:
            if ((n = jparse_node(p, JN_TEXT)) != NULL) n->value = jparse_literal(p, p->cur.text);
            jparse_next(p);
            break;
        case JT_VAR_BEGIN:
            jparse_next(p);
            if ((n = jparse_node(p, JN_OUTPUT)) == NULL || (n->a = jparse_tuple(p, true)) == NULL)
                return NULL;
            if (p->cur.kind != JT_VAR_END) return jparse_fault(p, "}} is expected here");
            jparse_next(p);
            break;
        case JT_BLOCK_BEGIN:
            jparse_next(p);
            if (stands_in(p, stops)) {
                jparse_leave(p);
                return body;
            }
            n = parse_statement(p);
            break;
        default:
            if (*stops != NULL) return jparse_fault(p, "{%% %s %%} is missing", *stops);
            jparse_leave(p);
            return p->err == OK ? body : NULL;
        }
        if (n == NULL || p->err != OK) return NULL;
        if (!jparse_push(p, &body->list, &body->count, n)) return NULL;
    }
}

/* A body in a scope of its own, where an unknown filter is an error at once again. */
static struct jnode *parse_scoped_body(struct jparse *p, const char *const *stops)
{
    bool soft = p->soft;
    p->soft = false;
    struct jnode *body = parse_body(p, stops);
    p->soft = soft;
    return body;
}

struct jnode *jparse_target(struct jparse *p, bool with_attribute)
{
    struct jnode *tuple = jparse_node(p, JN_TUPLE), *n = NULL;
    bool bracket = jparse_skip_op(p, '('), comma = false;
    while (tuple != NULL && p->cur.kind == JT_NAME && !jparse_is_name(p, "in")) {
        if ((n = jparse_node(p, JN_NAME)) == NULL) return NULL;
        n->name = jparse_intern(p, p->cur.text);
        jparse_next(p);
        if (with_attribute && !comma && jparse_skip_op(p, '.')) {
            struct jnode *attr = jparse_node(p, JN_ATTR);
            if (attr == NULL) return NULL;
            if (p->cur.kind != JT_NAME) return jparse_fault(p, "an attribute's name is expected");
            attr->a = n;
            attr->value = jparse_literal(p, p->cur.text);
            jparse_next(p);
            return attr;
        }
        if (!jparse_push(p, &tuple->list, &tuple->count, n)) return NULL;
        if (!jparse_skip_op(p, ',')) break;
        comma = true;
    }
    if (n == NULL) return jparse_fault(p, "a variable's name is expected");
    if (bracket && !jparse_expect_op(p, ')', ")")) return NULL;
    return comma ? tuple : n;
}

static struct jnode *parse_if(struct jparse *p, struct jnode *n)
{
    static const char *const stops[] = {"endif", "elif", "else", NULL};
    static const char *const last[] = {"endif", NULL};
    bool soft = p->soft;
    uint32_t total = 0;
    p->soft = true;
    do {
        struct jnode *test = jparse_tuple(p, false);
        if (test == NULL || !end_tag(p)) return NULL;
        struct jnode *body = parse_body(p, stops);
        if (body == NULL || !jparse_push(p, &n->list, &total, test) ||
            !jparse_push(p, &n->list, &total, body))
            return NULL;
        n->count++;
    } while (jparse_skip_name(p, "elif"));
    if (jparse_skip_name(p, "else") && (!end_tag(p) || (n->c = parse_body(p, last)) == NULL))
        return NULL;
    p->soft = soft;
    jparse_next(p);
    return end_tag(p) ? n : NULL;
}

static struct jnode *parse_for(struct jparse *p, struct jnode *n)
{
    static const char *const stops[] = {"endfor", "else", NULL};
    static const char *const last[] = {"endfor", NULL};
    struct jnode *otherwise = NULL;
    if ((n->a = jparse_target(p, false)) == NULL) return NULL;
    if (!jparse_skip_name(p, "in")) return jparse_fault(p, "'in' is expected");
    if ((n->b = jparse_tuple(p, false)) == NULL) return NULL;
    if (jparse_skip_name(p, "if") && (n->c = jparse_expression(p)) == NULL) return NULL;
    n->recursive = jparse_skip_name(p, "recursive");
    if (!end_tag(p)) return NULL;
    p->loops++;
    struct jnode *body = parse_scoped_body(p, stops);
    p->loops--;
    if (body == NULL) return NULL;
    if (jparse_skip_name(p, "else") &&
        (!end_tag(p) || (otherwise = parse_scoped_body(p, last)) == NULL))
        return NULL;
    jparse_next(p);
    if (!jparse_push(p, &n->list, &n->count, body) ||
        !jparse_push(p, &n->list, &n->count, otherwise))
        return NULL;
    return end_tag(p) ? n : NULL;
}

static struct jnode *parse_set(struct jparse *p, struct jnode *n)
{
    static const char *const stops[] = {"endset", NULL};
    if ((n->a = jparse_target(p, true)) == NULL) return NULL;
    if (jparse_skip_op(p, '=')) {
        if ((n->b = jparse_tuple(p, true)) == NULL) return NULL;
        return end_tag(p) ? n : NULL;
    }
    n->kind = JN_SET_BLOCK;
    if (jparse_is_op(p, '|') && (n->b = jparse_filters(p, NULL, false)) == NULL) return NULL;
    if (!end_tag(p) || (n->c = parse_scoped_body(p, stops)) == NULL) return NULL;
    jparse_next(p);
    return end_tag(p) ? n : NULL;
}

/* Behind '(': parameters with their defaults. */
static bool parse_signature(struct jparse *p, struct jnode *macro)
{
    uint32_t defaults = 0;
    while (!jparse_skip_op(p, ')')) {
        if (macro->count > 0 && !jparse_expect_op(p, ',', ",")) return false;
        if (jparse_skip_op(p, ')')) break;
        struct jnode *name = jparse_node(p, JN_NAME), *value = NULL;
        if (name == NULL) return false;
        if (p->cur.kind != JT_NAME) return jparse_fault(p, "a parameter's name is expected");
        name->name = jparse_intern(p, p->cur.text);
        jparse_next(p);
        if (jparse_skip_op(p, '=')) {
            if ((value = jparse_expression(p)) == NULL) return false;
        } else if (defaults > 0 && macro->defaults[defaults - 1] != NULL) {
            return jparse_fault(p, "a parameter without default behind one that has it") != NULL;
        }
        if (!jparse_push(p, &macro->list, &macro->count, name) ||
            !jparse_push(p, &macro->defaults, &defaults, value))
            return false;
        if (macro->count > 64) return jparse_fault(p, "more than 64 parameters") != NULL;
    }
    return p->err == OK;
}

/* The body of macro, which stops at the word stops[0]. */
static bool parse_macro_body(struct jparse *p, struct jnode *macro, const char *const *stops)
{
    struct jnode *outer = p->macro;
    uint32_t loops = p->loops;
    p->macro = macro;
    p->loops = 0;
    macro->c = parse_scoped_body(p, stops);
    p->macro = outer;
    p->loops = loops;
    if (macro->c == NULL) return false;
    if (outer != NULL) { /* a caller's body may hand on what its macro was given */
        outer->takes_caller |= macro->takes_caller;
        outer->takes_varargs |= macro->takes_varargs;
        outer->takes_kwargs |= macro->takes_kwargs;
    }
    jparse_next(p);
    return end_tag(p);
}

static struct jnode *parse_macro(struct jparse *p, struct jnode *n)
{
    static const char *const stops[] = {"endmacro", NULL};
    if (p->cur.kind != JT_NAME) return jparse_fault(p, "a macro's name is expected");
    n->name = jparse_intern(p, p->cur.text);
    jparse_next(p);
    if (!jparse_expect_op(p, '(', "(") || !parse_signature(p, n) || !end_tag(p)) return NULL;
    return parse_macro_body(p, n, stops) ? n : NULL;
}

static struct jnode *parse_call_block(struct jparse *p, struct jnode *n)
{
    static const char *const stops[] = {"endcall", NULL};
    if ((n->b = jparse_node(p, JN_MACRO)) == NULL) return NULL;
    n->b->name = JNAME_CALLER;
    if (jparse_skip_op(p, '(') && !parse_signature(p, n->b)) return NULL;
    if ((n->a = jparse_expression(p)) == NULL) return NULL;
    if (n->a->kind != JN_CALL) return jparse_fault(p, "{%% call %%} needs a call");
    if (!end_tag(p)) return NULL;
    return parse_macro_body(p, n->b, stops) ? n : NULL;
}

static struct jnode *parse_filter_block(struct jparse *p, struct jnode *n)
{
    static const char *const stops[] = {"endfilter", NULL};
    if ((n->b = jparse_filters(p, NULL, true)) == NULL || !end_tag(p)) return NULL;
    if ((n->c = parse_scoped_body(p, stops)) == NULL) return NULL;
    jparse_next(p);
    return end_tag(p) ? n : NULL;
}

/* Also {% generation %}, which marks an answer for training: here a scope and no more. */
static struct jnode *parse_with(struct jparse *p, struct jnode *n, bool is_generation)
{
    static const char *const with_stops[] = {"endwith", NULL};
    static const char *const generation_stops[] = {"endgeneration", NULL};
    uint32_t total = 0;
    while (!is_generation && p->cur.kind == JT_NAME) {
        struct jnode *target = jparse_target(p, false);
        if (target == NULL || !jparse_expect_op(p, '=', "=")) return NULL;
        struct jnode *value = jparse_expression(p);
        if (value == NULL || !jparse_push(p, &n->list, &total, target) ||
            !jparse_push(p, &n->list, &total, value))
            return NULL;
        n->count++;
        if (!jparse_skip_op(p, ',')) break;
    }
    if (!end_tag(p)) return NULL;
    n->c = parse_scoped_body(p, is_generation ? generation_stops : with_stops);
    if (n->c == NULL) return NULL;
    jparse_next(p);
    return end_tag(p) ? n : NULL;
}

static struct jnode *parse_statement(struct jparse *p)
{
    static const struct {
        const char *word;
        enum jnode_kind kind;
    } words[] = {{"if", JN_IF},           {"for", JN_FOR},
                 {"set", JN_SET},         {"macro", JN_MACRO},
                 {"call", JN_CALL_BLOCK}, {"filter", JN_FILTER_BLOCK},
                 {"with", JN_WITH},       {"generation", JN_WITH},
                 {"break", JN_BREAK},     {"continue", JN_CONTINUE}};
    if (p->cur.kind != JT_NAME) return jparse_fault(p, "a tag's name is expected");
    bool is_generation = jparse_is_name(p, "generation");
    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (!jparse_is_name(p, words[i].word)) continue;
        struct jnode *n = jparse_node(p, words[i].kind);
        if (n == NULL) return NULL;
        jparse_next(p);
        switch (n->kind) {
        case JN_IF: return parse_if(p, n);
        case JN_FOR: return parse_for(p, n);
        case JN_SET: return parse_set(p, n);
        case JN_MACRO: return parse_macro(p, n);
        case JN_CALL_BLOCK: return parse_call_block(p, n);
        case JN_FILTER_BLOCK: return parse_filter_block(p, n);
        case JN_WITH: return parse_with(p, n, is_generation);
        default: break;
        }
        if (p->loops == 0) return jparse_fault(p, "%s outside of a loop", words[i].word);
        return end_tag(p) ? n : NULL;
    }
    return jparse_fault(p, "unknown or misplaced tag '%.*s'",
                        (int)(p->cur.text.len < 80 ? p->cur.text.len : 80),
                        (const char *)p->cur.text.ptr);
}

enum err jinja_parse(struct chat_template *t, struct span source, struct errmsg *why)
{
    static const char *const fixed[] = {"loop", "caller", "varargs", "kwargs"};
    static const char *const nothing[] = {NULL};
    struct jparse p = {.t = t, .why = why};
    _Static_assert(ARRAY_LEN(fixed) == JNAME_FIXED_, "names and their indices");
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        jparse_intern(&p, span_str(fixed[i]));
    jlex_init(&p.lex, &t->arena, source, why);
    jparse_next(&p);
    t->root = parse_body(&p, nothing);
    if (p.err == OK && p.cur.kind != JT_EOF) jparse_fault(&p, "an unexpected end of a tag");
    return p.err;
}
