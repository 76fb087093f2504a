/* jinja_text.h - string operations that filters and methods share. */
#ifndef PENSTOCK_COMMON_JINJA_TEXT_H
#define PENSTOCK_COMMON_JINJA_TEXT_H

#include "common/jinja_run.h"

/* chars: a string whose characters go, or NONE or ABSENT for white space. */
struct jval jtext_strip(struct jrun *r, const struct jstr *s, struct jval chars, bool left,
                        bool right);
/* At most limit replacements; below 0: all. */
struct jval jtext_replace(struct jrun *r, const struct jstr *s, const struct jstr *from,
                          const struct jstr *to, int64_t limit);
/* A list. separator NONE or ABSENT: runs of white space. limit below 0: none; from_right: the
 * limit counts from the end. */
struct jval jtext_split(struct jrun *r, const struct jstr *s, struct jval separator, int64_t limit,
                        bool from_right);
struct jval jtext_splitlines(struct jrun *r, const struct jstr *s, bool keep_ends);
/* With & < > " ' as HTML has them; a markup string. */
struct jval jtext_escape(struct jrun *r, const struct jstr *s);
struct jval jtext_as_markup(struct jrun *r, const struct jstr *s);
/* items of any kind as strings with glue between them; strings only when strict. */
struct jval jtext_join(struct jrun *r, const struct jstr *glue, struct jval items, bool strict,
                       struct jval attribute);

#endif
