/* jinja_builtin.h - filters, tests, methods and functions: tables of name, parameters, code. */
#ifndef PENSTOCK_COMMON_JINJA_BUILTIN_H
#define PENSTOCK_COMMON_JINJA_BUILTIN_H

#include "common/jinja_value.h"

struct jrun;

enum { JARGS_MAX = 6 }; /* named parameters of one builtin */

/* One call, its arguments bound. Parameters that were not given are ABSENT. */
struct jcall {
    struct jval self;         /* what stands before | or "is" or "." */
    struct jval a[JARGS_MAX]; /* by the order of the builtin's params */
    const struct jval *pos;   /* as they were given */
    uint32_t pos_count;
    const struct jstr *const *kw_names;
    const struct jval *kw; /* [kw_count] */
    uint32_t kw_count;
};

struct jbuiltin {
    const char *name;
    const char *params; /* names separated by blanks; NULL: fn reads pos and kw itself */
    uint32_t min;       /* so many must be given */
    struct jval (*fn)(struct jrun *r, const struct jcall *c);
    uint32_t kinds; /* methods: bits of enum jkind that have it */
};

/* NULL: no such name. A method table entry serves all kinds that have a method of that name. */
const struct jbuiltin *jinja_filter_find(struct span name);
const struct jbuiltin *jinja_test_find(struct span name);
const struct jbuiltin *jinja_method_find(struct span name);
const struct jbuiltin *jinja_function_find(struct span name);

/* Binds the arguments that c holds to fn's parameters and calls it. */
struct jval jinja_builtin_call(struct jrun *r, const struct jbuiltin *fn, struct jcall *c);

/* The tables, one in each file that implements them. */
struct jbuiltin_table {
    const struct jbuiltin *items;
    uint32_t count;
};
extern const struct jbuiltin_table jinja_filters_text, jinja_filters_seq, jinja_filters_select,
    jinja_filters_value, jinja_tests, jinja_methods, jinja_functions;

#endif
