/* jinja_tests.c - what may stand behind `is`, and the operators that select() knows by name. */
#include "common/jinja_run.h"

#include "common/unicode.h"
#include "common/unicode_case.h"

#include <math.h>

#define KIND_TEST(name, condition)                                                                 \
    static struct jval test_##name(struct jrun *r, const struct jcall *c)                          \
    {                                                                                              \
        struct jval v = c->self;                                                                   \
        (void)r, (void)v;                                                                          \
        return jv_bool(condition);                                                                 \
    }
KIND_TEST(defined, v.kind != JK_UNDEF)
KIND_TEST(undefined, v.kind == JK_UNDEF)
KIND_TEST(none, v.kind == JK_NONE)
KIND_TEST(boolean, v.kind == JK_BOOL)
KIND_TEST(true, v.kind == JK_BOOL && v.b)
KIND_TEST(false, v.kind == JK_BOOL && !v.b)
KIND_TEST(integer, v.kind == JK_INT)
KIND_TEST(float, v.kind == JK_REAL)
KIND_TEST(number, jv_is_number(v))
KIND_TEST(string, v.kind == JK_STR)
KIND_TEST(mapping, v.kind == JK_DICT)
KIND_TEST(iterable, v.kind == JK_UNDEF || v.kind == JK_STR || jv_is_sequence(v) ||
                        v.kind == JK_ITER || v.kind == JK_VIEW || v.kind == JK_RANGE ||
                        v.kind == JK_DICT || v.kind == JK_LOOP)
KIND_TEST(sequence, v.kind == JK_UNDEF || v.kind == JK_STR || jv_is_sequence(v) ||
                        v.kind == JK_RANGE || v.kind == JK_DICT)
KIND_TEST(callable, v.kind == JK_UNDEF || v.kind == JK_MACRO || v.kind == JK_FUNCTION ||
                        v.kind == JK_METHOD || v.kind == JK_LOOP)
KIND_TEST(escaped, v.kind == JK_STR && v.s->markup)
KIND_TEST(filter, v.kind == JK_STR && jinja_filter_find(jstr_span(v.s)) != NULL)
KIND_TEST(test, v.kind == JK_STR && jinja_test_find(jstr_span(v.s)) != NULL)

#define OP_TEST(name, op)                                                                          \
    static struct jval test_##name(struct jrun *r, const struct jcall *c)                          \
    {                                                                                              \
        return jv_bool(jrun_test_op(r, op, c->self, c->a[0]));                                     \
    }
OP_TEST(eq, JOP_EQ)
OP_TEST(ne, JOP_NE)
OP_TEST(lt, JOP_LT)
OP_TEST(le, JOP_LE)
OP_TEST(gt, JOP_GT)
OP_TEST(ge, JOP_GE)
OP_TEST(in, JOP_IN)

static struct jval test_sameas(struct jrun *r, const struct jcall *c)
{
    struct jval a = c->self, b = c->a[0];
    if (a.kind != b.kind) return jv_bool(false);
    if (a.kind == JK_REAL || a.kind == JK_INT || a.kind == JK_BOOL || a.kind == JK_NONE)
        return jv_bool(jrun_equal(r, a, b));
    return jv_bool(a.s == b.s);
}

static struct jval remainder_is(struct jrun *r, struct jval v, struct jval by, int64_t want)
{
    struct jval rest = jrun_binary(r, JOP_MOD, v, by);
    if (r->err != OK) return JV_UNDEF;
    return jv_bool(jrun_equal(r, rest, jv_int(want)));
}

static struct jval test_odd(struct jrun *r, const struct jcall *c)
{
    return remainder_is(r, c->self, jv_int(2), 1);
}

static struct jval test_even(struct jrun *r, const struct jcall *c)
{
    return remainder_is(r, c->self, jv_int(2), 0);
}

static struct jval test_divisibleby(struct jrun *r, const struct jcall *c)
{
    return remainder_is(r, c->self, c->a[0], 0);
}

/* Python's isupper, islower: some cased character, and none of the other case. */
static struct jval has_case(struct jrun *r, const struct jcall *c, bool upper)
{
    struct jval v = jrun_to_str(r, c->self);
    bool some = false;
    uint32_t n, out[3];
    if (r->err != OK || !jrun_step(r, v.s->len / 4)) return JV_UNDEF;
    for (size_t i = 0; i < v.s->len; i += n) {
        uint32_t cp = unicode_decode(v.s->ptr + i, &n);
        if (!unicode_is_cased(cp)) continue;
        some = true;
        uint32_t count = upper ? unicode_upper(cp, out) : unicode_lower(cp, out);
        if (count != 1 || out[0] != cp) return jv_bool(false);
    }
    return jv_bool(some);
}

static struct jval test_upper(struct jrun *r, const struct jcall *c)
{
    return has_case(r, c, true);
}

static struct jval test_lower(struct jrun *r, const struct jcall *c)
{
    return has_case(r, c, false);
}

static const struct jbuiltin items[] = {
    {"defined", "", 0, test_defined, 0},
    {"undefined", "", 0, test_undefined, 0},
    {"none", "", 0, test_none, 0},
    {"boolean", "", 0, test_boolean, 0},
    {"true", "", 0, test_true, 0},
    {"false", "", 0, test_false, 0},
    {"integer", "", 0, test_integer, 0},
    {"float", "", 0, test_float, 0},
    {"number", "", 0, test_number, 0},
    {"string", "", 0, test_string, 0},
    {"mapping", "", 0, test_mapping, 0},
    {"iterable", "", 0, test_iterable, 0},
    {"sequence", "", 0, test_sequence, 0},
    {"callable", "", 0, test_callable, 0},
    {"escaped", "", 0, test_escaped, 0},
    {"filter", "", 0, test_filter, 0},
    {"test", "", 0, test_test, 0},
    {"sameas", "other", 1, test_sameas, 0},
    {"odd", "", 0, test_odd, 0},
    {"even", "", 0, test_even, 0},
    {"divisibleby", "num", 1, test_divisibleby, 0},
    {"upper", "", 0, test_upper, 0},
    {"lower", "", 0, test_lower, 0},
    {"eq", "other", 1, test_eq, 0},
    {"equalto", "other", 1, test_eq, 0},
    {"==", "other", 1, test_eq, 0},
    {"ne", "other", 1, test_ne, 0},
    {"!=", "other", 1, test_ne, 0},
    {"lt", "other", 1, test_lt, 0},
    {"lessthan", "other", 1, test_lt, 0},
    {"<", "other", 1, test_lt, 0},
    {"le", "other", 1, test_le, 0},
    {"<=", "other", 1, test_le, 0},
    {"gt", "other", 1, test_gt, 0},
    {"greaterthan", "other", 1, test_gt, 0},
    {">", "other", 1, test_gt, 0},
    {"ge", "other", 1, test_ge, 0},
    {">=", "other", 1, test_ge, 0},
    {"in", "seq", 1, test_in, 0},
};
const struct jbuiltin_table jinja_tests = {items, ARRAY_LEN(items)};
