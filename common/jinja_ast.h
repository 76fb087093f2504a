/* jinja_ast.h - a parsed template: immutable nodes in one arena, shared by threads.
 * Left-associative chains are lists, not towers, so that their length costs no depth. */
#ifndef PENSTOCK_COMMON_JINJA_AST_H
#define PENSTOCK_COMMON_JINJA_AST_H

#include "common/arena.h"
#include "common/jinja_value.h"

enum jnode_kind {
    /* expressions */
    JN_CONST,   /* value */
    JN_NAME,    /* name */
    JN_LIST,    /* list[count] */
    JN_TUPLE,   /* list[count] */
    JN_DICT,    /* list[2 * count]: key, value, ... */
    JN_NEG,     /* a */
    JN_POS,     /* a */
    JN_NOT,     /* a */
    JN_CHAIN,   /* list[count] joined by ops[1..count-1], from the left: + - * / // % ** */
    JN_CONCAT,  /* list[count] */
    JN_AND,     /* list[count] */
    JN_OR,      /* list[count] */
    JN_COMPARE, /* list[count], ops[i] stands before list[i] */
    JN_COND,    /* a if b else c (NULL) */
    JN_ATTR,    /* a.value; fn: the method of that name, or NULL */
    JN_ITEM,    /* a[b] */
    JN_SLICE,   /* [a:b:c], each may be NULL; only as b of an ITEM */
    JN_CALL,    /* a(arguments) */
    JN_FILTER,  /* a|fn(arguments); a NULL: the body of a filter block; value: the name */
    JN_TEST,    /* a is fn(arguments); negated */
    /* statements */
    JN_TEXT,         /* value */
    JN_OUTPUT,       /* a */
    JN_BODY,         /* list[count] */
    JN_IF,           /* list[2 * count]: test, body, ...; c: else or NULL */
    JN_FOR,          /* for a in b if c; list[0] body, list[1] else or NULL; recursive */
    JN_SET,          /* a = b; a is NAME, TUPLE or ATTR of a name */
    JN_SET_BLOCK,    /* a = body c through filters b (NULL) */
    JN_MACRO,        /* name; list[count] parameter NAMEs, defaults[count] or NULL each; c body */
    JN_CALL_BLOCK,   /* a: CALL, b: MACRO (the caller) */
    JN_FILTER_BLOCK, /* b: filters, c: body */
    JN_WITH,         /* list[2 * count]: target, value, ...; c: body */
    JN_BREAK,
    JN_CONTINUE,
};

enum jop {
    JOP_ADD,
    JOP_SUB,
    JOP_MUL,
    JOP_DIV,
    JOP_FLOORDIV,
    JOP_MOD,
    JOP_POW,
    JOP_EQ,
    JOP_NE,
    JOP_LT,
    JOP_LE,
    JOP_GT,
    JOP_GE,
    JOP_IN,
    JOP_NOT_IN,
};

struct jnode {
    enum jnode_kind kind;
    uint32_t line;
    uint32_t count;    /* of list; CALL, FILTER, TEST: positional arguments */
    uint32_t kw_count; /* keyword arguments, in list behind the positional ones */
    uint32_t name;     /* index into the template's names */
    bool negated, recursive;
    bool takes_varargs, takes_kwargs, takes_caller; /* MACRO: its body names them */
    struct jnode *a, *b, *c;
    struct jnode **list;
    struct jnode **defaults;
    const struct jstr **kw_names; /* [kw_count] */
    const uint8_t *ops;           /* enum jop */
    const struct jbuiltin *fn;
    struct jval value;
};

/* Names that the engine itself binds; the first ones of every template. */
enum { JNAME_LOOP, JNAME_CALLER, JNAME_VARARGS, JNAME_KWARGS, JNAME_FIXED_ };

struct chat_template {
    struct arena arena;
    struct jnode *root;
    const char **names; /* [name_count], NUL-terminated */
    uint32_t name_count;
};

/* jinja_parse.c: fills t->root and t->names from source (UTF-8, newlines already LF). */
enum err jinja_parse(struct chat_template *t, struct span source, struct errmsg *why) MUST_CHECK;

#endif
