/* jinja_parse_expr.c - expressions, by precedence climbing as jinja2 orders it: inline if, or, and,
 * not, comparisons, + -, ~, * / // %, **, unary minus, postfix, filters and tests. */
#include "common/jinja_builtin.h"
#include "common/jinja_parser.h"

static struct jnode *parse_or(struct jparse *p);
static struct jnode *parse_postfix(struct jparse *p, struct jnode *node);

struct jnode *jparse_expression(struct jparse *p)
{
    if (!jparse_enter(p)) return NULL;
    struct jnode *then = parse_or(p);
    for (uint32_t n = 0; then != NULL && jparse_is_name(p, "if"); n++) {
        if (n >= TEMPLATE_DEPTH_MAX) return jparse_fault(p, "too many inline ifs in a row");
        struct jnode *cond = jparse_node(p, JN_COND);
        jparse_next(p);
        bool soft = p->soft;
        p->soft = true;
        if (cond == NULL) return NULL;
        cond->b = then;
        if ((cond->a = parse_or(p)) == NULL) return NULL;
        if (jparse_skip_name(p, "else") && (cond->c = jparse_expression(p)) == NULL) return NULL;
        p->soft = soft;
        then = cond;
    }
    jparse_leave(p);
    return then;
}

/* operand (word operand)*, as one node. */
static struct jnode *parse_words(struct jparse *p, enum jnode_kind kind, const char *word,
                                 struct jnode *(*operand)(struct jparse *p))
{
    struct jnode *first = operand(p);
    if (first == NULL || !jparse_is_name(p, word)) return first;
    struct jnode *n = jparse_node(p, kind);
    if (n == NULL || !jparse_push(p, &n->list, &n->count, first)) return NULL;
    while (jparse_skip_name(p, word)) {
        struct jnode *next = operand(p);
        if (next == NULL || !jparse_push(p, &n->list, &n->count, next)) return NULL;
    }
    return n;
}

struct level {
    enum jnode_kind kind;
    struct jnode *(*operand)(struct jparse *p);
    int (*op)(struct jparse *p); /* takes an operator's tokens; -1: none stands here */
};

static struct jnode *parse_level(struct jparse *p, const struct level *level)
{
    struct jnode *first = level->operand(p);
    int op = first != NULL ? level->op(p) : -1;
    if (op < 0) return first;
    struct jnode *n = jparse_node(p, level->kind);
    if (n == NULL || !jparse_push(p, &n->list, &n->count, first)) return NULL;
    uint8_t *ops = NULL;
    uint32_t cap = 0;
    for (; op >= 0; op = level->op(p)) {
        struct jnode *next = level->operand(p);
        if (next == NULL || !jparse_push(p, &n->list, &n->count, next)) return NULL;
        if (n->count > cap) {
            uint8_t *wider = jparse_alloc(p, cap = n->count * 2 + 2, 1);
            if (wider == NULL) return NULL;
            if (ops != NULL) memcpy(wider, ops, n->count - 1);
            ops = wider;
        }
        ops[n->count - 1] = (uint8_t)op;
    }
    n->ops = ops;
    return n;
}

static int take_op(struct jparse *p, const int (*table)[2], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (jparse_skip_op(p, table[i][0])) return table[i][1];
    return -1;
}

static int op_pow(struct jparse *p)
{
    return jparse_skip_op(p, JTOP2('*', '*')) ? JOP_POW : -1;
}

static struct jnode *parse_plain_unary(struct jparse *p)
{
    return jparse_unary(p, true);
}

static struct jnode *parse_pow(struct jparse *p)
{
    return parse_level(p, &(struct level){JN_CHAIN, parse_plain_unary, op_pow});
}

static int op_product(struct jparse *p)
{
    static const int table[][2] = {
        {'*', JOP_MUL}, {'/', JOP_DIV}, {JTOP2('/', '/'), JOP_FLOORDIV}, {'%', JOP_MOD}};
    return take_op(p, table, ARRAY_LEN(table));
}

static struct jnode *parse_product(struct jparse *p)
{
    return parse_level(p, &(struct level){JN_CHAIN, parse_pow, op_product});
}

static int op_concat(struct jparse *p)
{
    return jparse_skip_op(p, '~') ? JOP_ADD : -1;
}

static struct jnode *parse_concat(struct jparse *p)
{
    return parse_level(p, &(struct level){JN_CONCAT, parse_product, op_concat});
}

static int op_sum(struct jparse *p)
{
    static const int table[][2] = {{'+', JOP_ADD}, {'-', JOP_SUB}};
    return take_op(p, table, ARRAY_LEN(table));
}

static struct jnode *parse_sum(struct jparse *p)
{
    return parse_level(p, &(struct level){JN_CHAIN, parse_concat, op_sum});
}

static int op_compare(struct jparse *p)
{
    static const int table[][2] = {{JTOP2('=', '='), JOP_EQ},
                                   {JTOP2('!', '='), JOP_NE},
                                   {JTOP2('<', '='), JOP_LE},
                                   {JTOP2('>', '='), JOP_GE},
                                   {'<', JOP_LT},
                                   {'>', JOP_GT}};
    if (jparse_skip_name(p, "in")) return JOP_IN;
    if (jparse_is_name(p, "not")) {
        const struct jtoken *ahead = jparse_look(p);
        if (ahead->kind == JT_NAME && span_eq_str(ahead->text, "in")) {
            jparse_next(p);
            jparse_next(p);
            return JOP_NOT_IN;
        }
    }
    return take_op(p, table, ARRAY_LEN(table));
}

static struct jnode *parse_not(struct jparse *p)
{
    if (!jparse_is_name(p, "not"))
        return parse_level(p, &(struct level){JN_COMPARE, parse_sum, op_compare});
    struct jnode *n = jparse_node(p, JN_NOT);
    jparse_next(p);
    if (n == NULL || !jparse_enter(p) || (n->a = parse_not(p)) == NULL) return NULL;
    jparse_leave(p);
    return n;
}

static struct jnode *parse_and(struct jparse *p)
{
    return parse_words(p, JN_AND, "and", parse_not);
}

static struct jnode *parse_or(struct jparse *p)
{
    return parse_words(p, JN_OR, "or", parse_and);
}

struct jnode *jparse_unary(struct jparse *p, bool with_filters)
{
    struct jnode *n;
    if (!jparse_enter(p)) return NULL;
    if (jparse_is_op(p, '-') || jparse_is_op(p, '+')) {
        n = jparse_node(p, jparse_is_op(p, '-') ? JN_NEG : JN_POS);
        jparse_next(p);
        if (n == NULL || (n->a = jparse_unary(p, false)) == NULL) return NULL;
    } else if ((n = jparse_primary(p)) == NULL) {
        return NULL;
    }
    n = parse_postfix(p, n);
    if (n != NULL && with_filters) n = jparse_filters(p, n, false);
    jparse_leave(p);
    return n;
}

/* Tokens of an expression may not begin here: the end of a tag, or of a bracket. */
static bool at_end_of_tuple(const struct jparse *p)
{
    return p->cur.kind == JT_BLOCK_END || p->cur.kind == JT_VAR_END || jparse_is_op(p, ')');
}

static struct jnode *parse_items(struct jparse *p, bool conditional, bool empty_allowed)
{
    struct jnode *tuple = jparse_node(p, JN_TUPLE), *item = NULL;
    bool comma = false;
    while (tuple != NULL && !at_end_of_tuple(p) && !jparse_is_name(p, "recursive")) {
        item = conditional ? jparse_expression(p) : parse_or(p);
        if (item == NULL || !jparse_push(p, &tuple->list, &tuple->count, item)) return NULL;
        if (!jparse_skip_op(p, ',')) break;
        comma = true;
    }
    if (tuple == NULL || comma || (tuple->count == 0 && empty_allowed)) return tuple;
    if (item == NULL) return jparse_fault(p, "an expression is missing");
    return item;
}

struct jnode *jparse_tuple(struct jparse *p, bool conditional)
{
    return parse_items(p, conditional, false);
}

static struct jnode *parse_list(struct jparse *p)
{
    struct jnode *n = jparse_node(p, JN_LIST);
    jparse_next(p);
    while (n != NULL && !jparse_skip_op(p, ']')) {
        if (n->count > 0 && !jparse_expect_op(p, ',', ",")) return NULL;
        if (jparse_skip_op(p, ']')) break;
        struct jnode *item = jparse_expression(p);
        if (item == NULL || !jparse_push(p, &n->list, &n->count, item)) return NULL;
    }
    return n;
}

static struct jnode *parse_dict(struct jparse *p)
{
    struct jnode *n = jparse_node(p, JN_DICT);
    uint32_t count = 0;
    jparse_next(p);
    while (n != NULL && !jparse_skip_op(p, '}')) {
        if (count > 0 && !jparse_expect_op(p, ',', ",")) return NULL;
        if (jparse_skip_op(p, '}')) break;
        struct jnode *key = jparse_expression(p);
        if (key == NULL || !jparse_push(p, &n->list, &count, key) || !jparse_expect_op(p, ':', ":"))
            return NULL;
        struct jnode *value = jparse_expression(p);
        if (value == NULL || !jparse_push(p, &n->list, &count, value)) return NULL;
        n->count = count / 2;
    }
    return n;
}

static struct jnode *parse_string(struct jparse *p)
{
    struct jnode *n = jparse_node(p, JN_CONST);
    struct span text = p->cur.text;
    jparse_next(p);
    while (p->cur.kind == JT_STRING && p->err == OK) { /* adjacent ones join */
        uint8_t *both = jparse_alloc(p, text.len + p->cur.text.len + 1, 1);
        if (both == NULL) return NULL;
        if (text.len > 0) memcpy(both, text.ptr, text.len);
        if (p->cur.text.len > 0) memcpy(both + text.len, p->cur.text.ptr, p->cur.text.len);
        text = span_of(both, text.len + p->cur.text.len);
        jparse_next(p);
    }
    if (n == NULL) return NULL;
    n->value = jparse_literal(p, text);
    return p->err == OK ? n : NULL;
}

static struct jnode *parse_name(struct jparse *p)
{
    static const struct {
        const char *name;
        struct jval value;
    } words[] = {
        {"true", {.kind = JK_BOOL, .b = true}},
        {"True", {.kind = JK_BOOL, .b = true}},
        {"false", {.kind = JK_BOOL, .b = false}},
        {"False", {.kind = JK_BOOL, .b = false}},
        {"none", {.kind = JK_NONE}},
        {"None", {.kind = JK_NONE}},
    };
    struct jnode *n = jparse_node(p, JN_CONST);
    for (size_t i = 0; n != NULL && i < ARRAY_LEN(words); i++) {
        if (!span_eq_str(p->cur.text, words[i].name)) continue;
        n->value = words[i].value;
        jparse_next(p);
        return n;
    }
    if (n == NULL) return NULL;
    n->kind = JN_NAME;
    n->name = jparse_intern(p, p->cur.text);
    if (p->macro != NULL) {
        p->macro->takes_caller |= n->name == JNAME_CALLER;
        p->macro->takes_varargs |= n->name == JNAME_VARARGS;
        p->macro->takes_kwargs |= n->name == JNAME_KWARGS;
    }
    jparse_next(p);
    return p->err == OK ? n : NULL;
}

struct jnode *jparse_primary(struct jparse *p)
{
    if (p->err != OK) return NULL;
    struct jnode *n;
    switch (p->cur.kind) {
    case JT_NAME: return parse_name(p);
    case JT_STRING: return parse_string(p);
    case JT_INT:
    case JT_REAL:
        if ((n = jparse_node(p, JN_CONST)) == NULL) return NULL;
        n->value = p->cur.kind == JT_INT ? jv_int(p->cur.i) : jv_real(p->cur.d);
        jparse_next(p);
        return n;
    case JT_EOF: return jparse_fault(p, "the template ends inside a tag");
    default: break;
    }
    if (jparse_is_op(p, '[')) return parse_list(p);
    if (jparse_is_op(p, '{')) return parse_dict(p);
    if (!jparse_skip_op(p, '(')) return jparse_fault(p, "an expression is missing");
    if (!jparse_enter(p) || (n = parse_items(p, true, true)) == NULL) return NULL;
    jparse_leave(p);
    return jparse_expect_op(p, ')', ")") ? n : NULL;
}

/* Behind the opening bracket: positional arguments, then keywords. */
static bool parse_arguments(struct jparse *p, struct jnode *n)
{
    uint32_t total = 0;
    while (!jparse_skip_op(p, ')')) {
        if (total > 0 && !jparse_expect_op(p, ',', ",")) return false;
        if (jparse_skip_op(p, ')')) break;
        if (jparse_is_op(p, '*') || jparse_is_op(p, JTOP2('*', '*')))
            return jparse_fault(p, "* and ** arguments are not supported") != NULL;
        const struct jtoken *ahead = jparse_look(p);
        if (p->cur.kind == JT_NAME && ahead->kind == JT_OP && ahead->op == '=') {
            const struct jstr **names = jparse_alloc(p, n->kw_count + 1, sizeof *names);
            struct jval name = jparse_literal(p, p->cur.text);
            if (names == NULL || p->err != OK) return false;
            if (n->kw_count > 0) memcpy(names, n->kw_names, n->kw_count * sizeof *names);
            names[n->kw_count++] = name.s;
            n->kw_names = names;
            jparse_next(p);
            jparse_next(p);
        } else if (n->kw_count > 0) {
            return jparse_fault(p, "a positional argument behind a keyword argument") != NULL;
        } else {
            n->count++;
        }
        struct jnode *value = jparse_expression(p);
        if (value == NULL || !jparse_push(p, &n->list, &total, value)) return false;
        if (n->kw_count > 64) return jparse_fault(p, "too many keyword arguments") != NULL;
    }
    return p->err == OK;
}

/* One part of a subscript: an expression or a slice. */
static struct jnode *parse_index(struct jparse *p)
{
    struct jnode *first = NULL;
    if (!jparse_is_op(p, ':') && (first = jparse_expression(p)) == NULL) return NULL;
    if (!jparse_skip_op(p, ':')) return first;
    struct jnode *n = jparse_node(p, JN_SLICE);
    if (n == NULL) return NULL;
    n->a = first;
    if (!jparse_is_op(p, ':') && !jparse_is_op(p, ']') && !jparse_is_op(p, ',') &&
        (n->b = jparse_expression(p)) == NULL)
        return NULL;
    if (jparse_skip_op(p, ':') && !jparse_is_op(p, ']') && !jparse_is_op(p, ',') &&
        (n->c = jparse_expression(p)) == NULL)
        return NULL;
    return n;
}

static struct jnode *parse_attribute(struct jparse *p, struct jnode *node)
{
    struct jnode *n = jparse_node(p, JN_ATTR);
    if (n == NULL) return NULL;
    n->a = node;
    if (p->cur.kind == JT_NAME) {
        n->value = jparse_literal(p, p->cur.text);
        n->fn = jinja_method_find(p->cur.text);
    } else if (p->cur.kind == JT_INT) {
        struct jnode *index = jparse_node(p, JN_CONST);
        if (index == NULL) return NULL;
        index->value = jv_int(p->cur.i);
        n->kind = JN_ITEM;
        n->b = index;
    } else {
        return jparse_fault(p, "a name or a number is expected behind '.'");
    }
    jparse_next(p);
    return p->err == OK ? n : NULL;
}

static struct jnode *parse_postfix(struct jparse *p, struct jnode *node)
{
    for (uint32_t n = 0; node != NULL && p->err == OK; n++) {
        if (n >= TEMPLATE_DEPTH_MAX) return jparse_fault(p, "too many subscripts in a row");
        struct jnode *next;
        if (jparse_skip_op(p, '.')) {
            node = parse_attribute(p, node);
        } else if (jparse_skip_op(p, '[')) {
            if ((next = jparse_node(p, JN_ITEM)) == NULL) return NULL;
            next->a = node;
            if ((next->b = parse_index(p)) == NULL || !jparse_expect_op(p, ']', "]")) return NULL;
            node = next;
        } else if (jparse_skip_op(p, '(')) {
            if ((next = jparse_node(p, JN_CALL)) == NULL) return NULL;
            next->a = node;
            node = parse_arguments(p, next) ? next : NULL;
        } else {
            break;
        }
    }
    return p->err == OK ? node : NULL;
}

/* A filter's or test's name, dotted names included. */
static struct jnode *parse_builtin_name(struct jparse *p, enum jnode_kind kind)
{
    struct jnode *n = jparse_node(p, kind);
    if (n == NULL) return NULL;
    if (p->cur.kind != JT_NAME) return jparse_fault(p, "a filter's or test's name is expected");
    struct span name = p->cur.text;
    jparse_next(p);
    n->value = jparse_literal(p, name);
    n->fn = kind == JN_FILTER ? jinja_filter_find(name) : jinja_test_find(name);
    if (p->err == OK && n->fn == NULL && !p->soft)
        return jparse_fault(p, "no %s named '%.*s'", kind == JN_FILTER ? "filter" : "test",
                            (int)(name.len < 80 ? name.len : 80), (const char *)name.ptr);
    return p->err == OK ? n : NULL;
}

static bool starts_test_argument(const struct jparse *p)
{
    if (p->cur.kind == JT_NAME)
        return !jparse_is_name(p, "else") && !jparse_is_name(p, "or") && !jparse_is_name(p, "and");
    return p->cur.kind == JT_STRING || p->cur.kind == JT_INT || p->cur.kind == JT_REAL ||
           jparse_is_op(p, '[') || jparse_is_op(p, '{');
}

static struct jnode *parse_test(struct jparse *p, struct jnode *node)
{
    bool negated = jparse_skip_name(p, "not");
    struct jnode *n = parse_builtin_name(p, JN_TEST);
    if (n == NULL) return NULL;
    n->a = node;
    n->negated = negated;
    if (jparse_skip_op(p, '(')) return parse_arguments(p, n) ? n : NULL;
    if (!starts_test_argument(p)) return n;
    if (jparse_is_name(p, "is")) return jparse_fault(p, "tests cannot be chained with is");
    struct jnode *argument = jparse_primary(p);
    if (argument == NULL || (argument = parse_postfix(p, argument)) == NULL ||
        !jparse_push(p, &n->list, &n->count, argument))
        return NULL;
    return n;
}

struct jnode *jparse_filters(struct jparse *p, struct jnode *node, bool first)
{
    bool only_filters = node == NULL;
    for (uint32_t n = 0; p->err == OK; n++) {
        if (n >= TEMPLATE_DEPTH_MAX) return jparse_fault(p, "too many filters in a row");
        if (first || jparse_skip_op(p, '|')) {
            struct jnode *filter = parse_builtin_name(p, JN_FILTER);
            if (filter == NULL) return NULL;
            filter->a = node;
            if (jparse_skip_op(p, '(') && !parse_arguments(p, filter)) return NULL;
            node = filter;
            first = false;
        } else if (!only_filters && jparse_skip_name(p, "is")) {
            node = parse_test(p, node);
        } else if (!only_filters && jparse_skip_op(p, '(')) {
            struct jnode *call = jparse_node(p, JN_CALL);
            if (call == NULL) return NULL;
            call->a = node;
            node = parse_arguments(p, call) ? call : NULL;
        } else {
            break;
        }
    }
    return p->err == OK ? node : NULL;
}
