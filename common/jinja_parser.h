/* jinja_parser.h - what the parser's files share: jinja_parse.c (statements),
 * jinja_parse_expr.c (expressions). A function that returns a node returns NULL once p->err is
 * set. */
#ifndef PENSTOCK_COMMON_JINJA_PARSER_H
#define PENSTOCK_COMMON_JINJA_PARSER_H

#include "common/chat_template.h"
#include "common/jinja_ast.h"
#include "common/jinja_lex.h"

struct jparse {
    struct chat_template *t;
    struct jlex lex;
    struct jtoken cur, ahead;
    bool has_ahead;
    uint32_t depth;      /* nesting, at most TEMPLATE_DEPTH_MAX */
    bool soft;           /* inside if: unknown filters and tests fail only when they run */
    uint32_t loops;      /* loops around, within the innermost macro */
    struct jnode *macro; /* the innermost macro or call block, or NULL */
    uint32_t names_cap;
    enum err err;
    struct errmsg *why;
};

/* p->err = ERR_PROTO, "line N: what"; the first fault counts. Returns NULL. */
void *jparse_fault(struct jparse *p, const char *format, ...) PRINTF_LIKE(2, 3);
void jparse_next(struct jparse *p);
const struct jtoken *jparse_look(struct jparse *p); /* the token behind cur */
bool jparse_is_op(const struct jparse *p, int op);
bool jparse_is_name(const struct jparse *p, const char *name);
bool jparse_skip_op(struct jparse *p, int op);
bool jparse_skip_name(struct jparse *p, const char *name);
bool jparse_expect_op(struct jparse *p, int op, const char *spelt);
/* False, with ERR_LIMIT set, when the nesting is too deep. Each true one needs a leave. */
bool jparse_enter(struct jparse *p);
void jparse_leave(struct jparse *p);

void *jparse_alloc(struct jparse *p, size_t count, size_t size); /* cleared; NULL: p->err set */
struct jnode *jparse_node(struct jparse *p, enum jnode_kind kind);
struct jval jparse_literal(struct jparse *p, struct span text); /* a trusted string */
uint32_t jparse_intern(struct jparse *p, struct span name);
/* Appends to a list that doubles; count is the caller's. */
bool jparse_push(struct jparse *p, struct jnode ***list, uint32_t *count, struct jnode *n);

struct jnode *jparse_expression(struct jparse *p);
/* An expression or a bare tuple; conditional: inline ifs are taken. */
struct jnode *jparse_tuple(struct jparse *p, bool conditional);
struct jnode *jparse_primary(struct jparse *p);
/* |name(...) chains behind node; first: name stands at cur without its | (node may be NULL). */
struct jnode *jparse_filters(struct jparse *p, struct jnode *node, bool first);
struct jnode *jparse_unary(struct jparse *p, bool with_filters);
/* A name, or names separated by commas, as `for` and `set` have them. */
struct jnode *jparse_target(struct jparse *p, bool with_attribute);

#endif
