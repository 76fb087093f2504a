/* jinja_ops.c - truth, equality, order, membership and arithmetic, as Python has them for these
 * types. Integers are 64 bits: what would not fit is an error. */
#include "common/jinja_run.h"
#include "common/jinja_text.h"

#include <math.h>

const char *jv_type_name(struct jval v)
{
    static const char *const names[] = {
        [JK_ABSENT] = "nothing", [JK_UNDEF] = "Undefined",   [JK_NONE] = "NoneType",
        [JK_BOOL] = "bool",      [JK_INT] = "int",           [JK_REAL] = "float",
        [JK_STR] = "str",        [JK_LIST] = "list",         [JK_TUPLE] = "tuple",
        [JK_ITER] = "generator", [JK_VIEW] = "dict_view",    [JK_RANGE] = "range",
        [JK_DICT] = "dict",      [JK_SPACE] = "Namespace",   [JK_LOOP] = "LoopContext",
        [JK_MACRO] = "Macro",    [JK_FUNCTION] = "function", [JK_METHOD] = "method"};
    return names[v.kind];
}

bool jv_truth(struct jval v)
{
    switch (v.kind) {
    case JK_ABSENT:
    case JK_UNDEF:
    case JK_NONE: return false;
    case JK_BOOL: return v.b;
    case JK_INT: return v.i != 0;
    case JK_REAL: return v.d != 0;
    case JK_STR: return v.s->len > 0;
    case JK_LIST:
    case JK_TUPLE:
    case JK_VIEW: return v.list->count > 0;
    case JK_RANGE: return v.range->count > 0;
    case JK_DICT: return v.dict->count > 0;
    default: return true;
    }
}

static int compare_numbers(struct jval a, struct jval b)
{
    /* long double holds every int64 and every double exactly */
    long double x = a.kind == JK_REAL ? (long double)a.d : (long double)jv_as_int(a);
    long double y = b.kind == JK_REAL ? (long double)b.d : (long double)jv_as_int(b);
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static bool equal_dicts(struct jrun *r, const struct jdict *a, const struct jdict *b)
{
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const struct jval *other = jdict_get(r, b, a->pairs[i].key);
        if (other == NULL || !jrun_equal(r, a->pairs[i].value, *other)) return false;
    }
    return true;
}

static bool equal_lists(struct jrun *r, const struct jlist *a, const struct jlist *b)
{
    if (a->count != b->count) return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!jrun_equal(r, a->items[i], b->items[i])) return false;
    return true;
}

static bool equal_ranges(const struct jrange *a, const struct jrange *b)
{
    return a->count == b->count && (a->count == 0 || a->start == b->start) &&
           (a->count <= 1 || a->step == b->step);
}

bool jrun_equal(struct jrun *r, struct jval a, struct jval b)
{
    if (!jrun_step(r, 1)) return false;
    if (jv_is_number(a) && jv_is_number(b)) return compare_numbers(a, b) == 0;
    if (a.kind != b.kind) return false;
    bool same = false;
    switch (a.kind) {
    case JK_UNDEF:
    case JK_NONE: return true;
    case JK_STR:
        if (a.s->len == b.s->len) jrun_step(r, a.s->len / 64);
        return span_eq(jstr_span(a.s), jstr_span(b.s));
    case JK_LIST:
    case JK_TUPLE:
    case JK_DICT:
        if (!jrun_enter(r)) return false;
        same = a.kind == JK_DICT ? equal_dicts(r, a.dict, b.dict) : equal_lists(r, a.list, b.list);
        jrun_leave(r);
        return same;
    case JK_RANGE: return equal_ranges(a.range, b.range);
    case JK_METHOD: return false;
    default: return a.s == b.s; /* the same object */
    }
}

static int compare_strings(struct jrun *r, const struct jstr *a, const struct jstr *b)
{
    size_t n = a->len < b->len ? a->len : b->len;
    jrun_step(r, n / 64);
    int order = n > 0 ? memcmp(a->ptr, b->ptr, n) : 0; /* UTF-8 sorts as its code points do */
    if (order == 0) return (a->len > b->len) - (a->len < b->len);
    return order < 0 ? -1 : 1;
}

int jrun_compare(struct jrun *r, struct jval a, struct jval b)
{
    if (!jrun_step(r, 1)) return 2;
    if (jv_is_number(a) && jv_is_number(b)) return compare_numbers(a, b);
    if (a.kind == JK_STR && b.kind == JK_STR) return compare_strings(r, a.s, b.s);
    if (a.kind != b.kind || !jv_is_sequence(a)) {
        jrun_type_error(r, "'%s' and '%s' cannot be ordered", jv_type_name(a), jv_type_name(b));
        return 2;
    }
    const struct jlist *x = a.list, *y = b.list;
    int order = 0;
    if (!jrun_enter(r)) return 2;
    for (uint32_t i = 0; i < x->count && i < y->count && order == 0 && r->err == OK; i++)
        if (!jrun_equal(r, x->items[i], y->items[i]))
            order = jrun_compare(r, x->items[i], y->items[i]);
    jrun_leave(r);
    return order != 0 ? order : (x->count > y->count) - (x->count < y->count);
}

bool jrun_contains(struct jrun *r, struct jval container, struct jval item)
{
    if (container.kind == JK_STR) {
        if (item.kind == JK_STR) return jstr_find(r, container.s, jstr_span(item.s), 0) != SIZE_MAX;
        jrun_type_error(r, "'in' over a string needs a string, not '%s'", jv_type_name(item));
        return false;
    }
    if (container.kind == JK_DICT) {
        if (item.kind == JK_LIST || item.kind == JK_DICT)
            jrun_type_error(r, "unhashable type: '%s'", jv_type_name(item));
        return jdict_get(r, container.dict, item) != NULL;
    }
    struct jseq seq;
    if (!jrun_iterate(r, container, &seq)) return false;
    for (uint32_t i = 0; i < seq.count && r->err == OK; i++)
        if (jrun_equal(r, jseq_at(&seq, i), item)) return true;
    return false;
}

static const char *const op_names[] = {
    [JOP_ADD] = "+",       [JOP_SUB] = "-", [JOP_MUL] = "*", [JOP_DIV] = "/",
    [JOP_FLOORDIV] = "//", [JOP_MOD] = "%", [JOP_POW] = "**"};

static struct jval no_operator(struct jrun *r, enum jop op, struct jval a, struct jval b)
{
    struct jval undefined = a.kind == JK_UNDEF ? a : b;
    if (undefined.kind == JK_UNDEF && undefined.what != NULL)
        return jrun_type_error(r, "'%.100s' is undefined", undefined.what);
    return jrun_type_error(r, "'%s' cannot be applied to '%s' and '%s'", op_names[op],
                           jv_type_name(a), jv_type_name(b));
}

/* base ** exponent for exponent >= 0; true on overflow. */
static bool power_overflows(int64_t base, int64_t exponent, int64_t *out)
{
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return true;
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return true;
    }
    *out = result;
    return false;
}

static struct jval real_op(struct jrun *r, enum jop op, double x, double y)
{
    double q;
    if ((op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD) && y == 0)
        return jrun_type_error(r, "division by zero");
    switch (op) {
    case JOP_ADD: return jv_real(x + y);
    case JOP_SUB: return jv_real(x - y);
    case JOP_MUL: return jv_real(x * y);
    case JOP_DIV: return jv_real(x / y);
    case JOP_FLOORDIV: return jv_real(floor(x / y));
    case JOP_MOD: q = fmod(x, y); return jv_real(q != 0 && (q < 0) != (y < 0) ? q + y : q);
    default: break;
    }
    if (x == 0 && y < 0) return jrun_type_error(r, "zero cannot be raised to a negative power");
    q = pow(x, y);
    if (isnan(q) && !isnan(x) && !isnan(y)) return jrun_type_error(r, "a power is no real number");
    if (isinf(q) && isfinite(x) && isfinite(y)) return jrun_type_error(r, "a power is too large");
    return jv_real(q);
}

static struct jval int_op(struct jrun *r, enum jop op, int64_t x, int64_t y)
{
    int64_t out = 0;
    bool overflow = false;
    switch (op) {
    case JOP_ADD: overflow = __builtin_add_overflow(x, y, &out); break;
    case JOP_SUB: overflow = __builtin_sub_overflow(x, y, &out); break;
    case JOP_MUL: overflow = __builtin_mul_overflow(x, y, &out); break;
    case JOP_POW:
        if (y < 0) return real_op(r, op, (double)x, (double)y);
        overflow = power_overflows(x, y, &out);
        break;
    default:
        if (op == JOP_DIV || y == 0) return real_op(r, op, (double)x, (double)y);
        if (y == -1) { /* INT64_MIN / -1 traps */
            overflow = op == JOP_FLOORDIV && __builtin_sub_overflow((int64_t)0, x, &out);
            break;
        }
        out = op == JOP_FLOORDIV ? x / y : x % y;
        if (x % y != 0 && (x % y < 0) != (y < 0)) out += op == JOP_FLOORDIV ? -1 : y;
    }
    if (overflow) return jrun_type_error(r, "an integer does not fit into 64 bits");
    return jv_int(out);
}

static struct jval repeat(struct jrun *r, struct jval v, int64_t times)
{
    uint64_t n = times > 0 ? (uint64_t)times : 0;
    if (v.kind == JK_STR) {
        size_t mark = r->text.len;
        if (v.s->len == 0) n = 0;
        if (n > TEMPLATE_OUTPUT_BYTES_MAX / (v.s->len > 0 ? v.s->len : 1))
            return jrun_fail(r, ERR_LIMIT, "a repeated string is too long");
        for (uint64_t i = 0; i < n && jrun_step(r, 1); i++)
            jrun_emit_str(r, v.s);
        return jrun_take(r, mark);
    }
    size_t count = v.list->count;
    if (count == 0) n = 0;
    if (n > TEMPLATE_OUTPUT_BYTES_MAX / (count > 0 ? count : 1))
        return jrun_fail(r, ERR_LIMIT, "a repeated list is too long");
    struct jval *items = jrun_items(r, count * n);
    for (uint64_t i = 0; i < n && r->err == OK; i++)
        memcpy(items + i * count, v.list->items, count * sizeof *items);
    return jlist_new(r, v.kind, items, (uint32_t)(count * n));
}

struct jval jrun_binary(struct jrun *r, enum jop op, struct jval a, struct jval b)
{
    if (jv_is_integer(a) && jv_is_integer(b)) return int_op(r, op, jv_as_int(a), jv_as_int(b));
    if (jv_is_number(a) && jv_is_number(b)) return real_op(r, op, jv_as_real(a), jv_as_real(b));
    if (op == JOP_ADD && a.kind == b.kind) {
        if (a.kind == JK_STR && a.s->markup != b.s->markup) {
            if (a.s->markup)
                b = jtext_escape(r, b.s);
            else
                a = jtext_escape(r, a.s);
            if (r->err != OK) return JV_UNDEF;
        }
        if (a.kind == JK_STR) return jstr_concat(r, a.s, b.s);
        if (jv_is_sequence(a)) return jlist_concat(r, a, b);
    }
    if (op == JOP_MOD && a.kind == JK_STR && b.kind != JK_UNDEF)
        return jrun_format_percent(r, a.s, b);
    if (op == JOP_MUL) {
        if ((a.kind == JK_STR || jv_is_sequence(a)) && jv_is_integer(b))
            return repeat(r, a, jv_as_int(b));
        if ((b.kind == JK_STR || jv_is_sequence(b)) && jv_is_integer(a))
            return repeat(r, b, jv_as_int(a));
    }
    return no_operator(r, op, a, b);
}

bool jrun_test_op(struct jrun *r, enum jop op, struct jval a, struct jval b)
{
    switch (op) {
    case JOP_EQ: return jrun_equal(r, a, b);
    case JOP_NE: return !jrun_equal(r, a, b);
    case JOP_IN: return jrun_contains(r, b, a);
    case JOP_NOT_IN: return !jrun_contains(r, b, a);
    default: break;
    }
    int order = jrun_compare(r, a, b);
    if (order == 2) return false;
    return op == JOP_LT   ? order < 0
           : op == JOP_LE ? order <= 0
           : op == JOP_GT ? order > 0
                          : order >= 0;
}
