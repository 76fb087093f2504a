/* jinja_case.c - upper, lower, capitalize and title of strings; each character keeps its origin. */
#include "common/jinja_run.h"

#include "common/jinja_lex.h"
#include "common/jinja_text.h"
#include "common/unicode.h"
#include "common/unicode_case.h"

/* A Greek capital sigma at the end of a word becomes a final one. */
static bool is_final_sigma(const struct jstr *s, size_t at, size_t next)
{
    uint32_t n;
    bool before = false;
    while (at > 0 && !before) {
        do
            at--;
        while (at > 0 && (s->ptr[at] & 0xC0) == 0x80);
        uint32_t cp = unicode_decode(s->ptr + at, &n);
        if (cp == '\'' || cp == 0xB7 || cp == '.') continue;
        if (!unicode_is_cased(cp)) return false;
        before = true;
    }
    for (; before && next < s->len; next += n) {
        uint32_t cp = unicode_decode(s->ptr + next, &n);
        if (cp == '\'' || cp == 0xB7 || cp == '.') continue;
        return !unicode_is_cased(cp);
    }
    return before;
}

/* Characters behind which jinja2's title filter begins a word. */
static bool breaks_word(uint32_t cp)
{
    return jinja_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

struct jval jrun_change_case(struct jrun *r, const struct jstr *s, enum jcase to)
{
    size_t mark = r->text.len;
    bool first = true; /* the next character begins a word */
    uint32_t n, out[3], count;
    jrun_step(r, s->len / 8);
    for (size_t i = 0; i < s->len && r->err == OK; i += n) {
        uint32_t cp = unicode_decode(s->ptr + i, &n);
        bool trusted = s->marks != NULL ? s->marks[i] != 0 : s->trusted;
        if (to == JCASE_UPPER || (to == JCASE_TITLE_FILTER && first)) {
            count = unicode_upper(cp, out);
        } else if (to != JCASE_LOWER && first) {
            count = unicode_title(cp, out);
        } else {
            count = unicode_lower(cp, out);
            if (cp == 0x3A3 && is_final_sigma(s, i, i + n)) out[0] = 0x3C2;
        }
        first = to == JCASE_TITLE          ? !unicode_is_cased(cp)
                : to == JCASE_TITLE_FILTER ? breaks_word(cp)
                                           : false;
        for (uint32_t k = 0; k < count; k++) {
            uint8_t bytes[4];
            jrun_emit(r, span_of(bytes, unicode_encode(out[k], bytes)), trusted);
        }
    }
    struct jval v = jrun_take(r, mark);
    return s->markup && r->err == OK ? jtext_as_markup(r, v.s) : v;
}
