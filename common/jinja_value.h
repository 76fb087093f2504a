/* jinja_value.h - the values of one render: small tagged unions whose larger parts lie in the
 * render's arena. Strings carry for each byte whether the template wrote it. Immutable once made
 * (namespaces and consumed iterators excepted); one thread. */
#ifndef PENSTOCK_COMMON_JINJA_VALUE_H
#define PENSTOCK_COMMON_JINJA_VALUE_H

#include "common/span.h"

enum jkind {
    JK_ABSENT, /* an argument that was not given; never a value of an expression */
    JK_UNDEF,
    JK_NONE,
    JK_BOOL,
    JK_INT,
    JK_REAL,
    JK_STR,
    JK_LIST,
    JK_TUPLE,
    JK_ITER, /* what Python has generators for: no length, no index, gone once read */
    JK_VIEW, /* dict.keys(), values(), items() */
    JK_RANGE,
    JK_DICT,
    JK_SPACE, /* namespace(): the one thing that can be changed */
    JK_LOOP,
    JK_MACRO,
    JK_FUNCTION,
    JK_METHOD,
};

struct jstr;
struct jlist;
struct jdict;
struct jrange;
struct jloop;
struct jmacro;
struct jbuiltin;
struct jmethod;

struct jval {
    enum jkind kind;
    union {
        bool b;
        int64_t i;
        double d;
        const char *what; /* UNDEF: the name that was looked for, or NULL */
        const struct jstr *s;
        struct jlist *list;
        struct jdict *dict; /* DICT and SPACE */
        const struct jrange *range;
        struct jloop *loop;
        const struct jmacro *macro;
        const struct jbuiltin *function;
        const struct jmethod *method;
    };
};

/* Where a string made by + or ~ may grow: the string that ends at used can be lengthened in place,
 * because shorter strings over the same bytes never look behind their own end. */
struct jback {
    uint8_t *bytes;
    uint8_t *marks; /* NULL while no mixed string uses it */
    uint32_t used, cap;
};

/* Valid UTF-8. marks: one byte for each byte of text, 1 where the template wrote it; NULL when all
 * of it has the one origin that trusted tells. */
struct jstr {
    const uint8_t *ptr;
    const uint8_t *marks;
    struct jback *back; /* or NULL */
    uint32_t len;       /* bytes */
    uint32_t chars;     /* code points, or JSTR_CHARS_UNKNOWN */
    bool trusted;
    bool markup; /* made by |safe or |escape: what is added to it with + gets its HTML escaped */
};
#define JSTR_CHARS_UNKNOWN UINT32_MAX

struct jlist_back {
    struct jval *items;
    uint32_t used, cap;
};
struct jlist {
    const struct jval *items;
    struct jlist_back *back; /* as jstr's; or NULL */
    uint32_t count;
    bool is_group; /* a pair that groupby made: its items have names */
};

struct jpair {
    struct jval key, value;
};
struct jdict { /* in order of insertion */
    struct jpair *pairs;
    uint32_t count, cap;
};

struct jrange {
    int64_t start, step;
    uint32_t count;
};

/* Every item fits into 64 bits; the way there (step * i) need not, so it is computed modulo 2^64.
 */
static inline int64_t jrange_at(int64_t start, int64_t step, uint32_t i)
{
    return (int64_t)((uint64_t)start + (uint64_t)step * i);
}

struct jmethod {
    struct jval self;
    const struct jbuiltin *fn; /* of a dict, a string, a list; NULL for namesake methods of loop */
    const char *loop_method;   /* "cycle", "changed" */
};

#define JV_UNDEF ((struct jval){.kind = JK_UNDEF, .what = NULL})
#define JV_NONE ((struct jval){.kind = JK_NONE, .i = 0})
#define JV_ABSENT ((struct jval){.kind = JK_ABSENT, .i = 0})
static inline struct jval jv_bool(bool b)
{
    struct jval v = {.kind = JK_BOOL, .i = 0};
    v.b = b;
    return v;
}
static inline struct jval jv_int(int64_t i)
{
    return (struct jval){.kind = JK_INT, .i = i};
}
static inline struct jval jv_real(double d)
{
    return (struct jval){.kind = JK_REAL, .d = d};
}
static inline struct jval jv_str(const struct jstr *s)
{
    return (struct jval){.kind = JK_STR, .s = s};
}
static inline struct span jstr_span(const struct jstr *s)
{
    return span_of(s->ptr, s->len);
}
static inline bool jv_is_str(struct jval v, const char *text)
{
    return v.kind == JK_STR && span_eq_str(jstr_span(v.s), text);
}
static inline bool jv_is_integer(struct jval v) /* Python's int, of which bool is a kind */
{
    return v.kind == JK_INT || v.kind == JK_BOOL;
}
static inline int64_t jv_as_int(struct jval v)
{
    return v.kind == JK_BOOL ? v.b : v.i;
}
static inline bool jv_is_number(struct jval v)
{
    return v.kind == JK_REAL || jv_is_integer(v);
}
static inline double jv_as_real(struct jval v)
{
    return v.kind == JK_REAL ? v.d : (double)jv_as_int(v);
}
static inline bool jv_is_sequence(struct jval v) /* list or tuple */
{
    return v.kind == JK_LIST || v.kind == JK_TUPLE;
}
/* Python's name of the type, for error sentences. */
const char *jv_type_name(struct jval v);

#endif
