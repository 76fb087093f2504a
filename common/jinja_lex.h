/* jinja_lex.h - template source to tokens, one at a time, with whitespace control.
 * Rules: jinja2's with trim_blocks and lstrip_blocks on, keep_trailing_newline off. */
#ifndef PENSTOCK_COMMON_JINJA_LEX_H
#define PENSTOCK_COMMON_JINJA_LEX_H

#include "common/arena.h"

enum jtoken_kind {
    JT_EOF,
    JT_TEXT, /* template text, never empty */
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_VAR_BEGIN,
    JT_VAR_END,
    JT_NAME,
    JT_STRING, /* text is unescaped */
    JT_INT,
    JT_REAL,
    JT_OP, /* op: one character, or two packed by JTOP2 */
};
#define JTOP2(a, b) ((a) << 8 | (b))

struct jtoken {
    enum jtoken_kind kind;
    uint32_t line;
    int op;
    struct span text; /* borrowed from the source or the arena */
    int64_t i;
    double d;
};

enum { JLEX_BRACKETS_MAX = 256 };

struct jlex {
    struct arena *arena; /* for unescaped strings */
    struct span src;
    size_t pos;
    uint32_t line;
    enum { JLEX_DATA, JLEX_BLOCK, JLEX_VAR } state;
    enum jtoken_kind pending; /* a tag's opening found behind text; JT_EOF: none */
    bool line_starting;       /* the last token ended with a newline */
    char brackets[JLEX_BRACKETS_MAX];
    uint32_t bracket_count;
    struct errmsg *why;
};

void jlex_init(struct jlex *lex, struct arena *arena, struct span source, struct errmsg *why);
/* ERR_PROTO with "line N: ...", ERR_LIMIT, ERR_NOMEM. */
enum err jlex_next(struct jlex *lex, struct jtoken *out) MUST_CHECK;

/* Python's str.isspace of one code point. */
bool jinja_is_space(uint32_t cp);
/* Text without leading (left) or trailing white space. */
struct span jinja_strip(struct span text, bool left, bool right);

#endif
