/* jinja_filters_text.c - filters that make text of text. */
#include "common/jinja_run.h"

#include "common/jinja_lex.h"
#include "common/jinja_text.h"
#include "common/unicode.h"
#include "common/unicode_case.h"

/* self as a string; a failed conversion sets r->err. */
static const struct jstr *self_text(struct jrun *r, const struct jcall *c)
{
    struct jval v = jrun_to_str(r, c->self);
    return r->err == OK ? v.s : NULL;
}

static struct jval change(struct jrun *r, const struct jcall *c, enum jcase to)
{
    const struct jstr *s = self_text(r, c);
    return s != NULL ? jrun_change_case(r, s, to) : JV_UNDEF;
}

static struct jval filter_upper(struct jrun *r, const struct jcall *c)
{
    return change(r, c, JCASE_UPPER);
}

static struct jval filter_lower(struct jrun *r, const struct jcall *c)
{
    return change(r, c, JCASE_LOWER);
}

static struct jval filter_capitalize(struct jrun *r, const struct jcall *c)
{
    return change(r, c, JCASE_CAPITALIZE);
}

static struct jval filter_title(struct jrun *r, const struct jcall *c)
{
    return change(r, c, JCASE_TITLE_FILTER);
}

static struct jval filter_trim(struct jrun *r, const struct jcall *c)
{
    const struct jstr *s = self_text(r, c);
    return s != NULL ? jtext_strip(r, s, c->a[0], true, true) : JV_UNDEF;
}

static struct jval filter_replace(struct jrun *r, const struct jcall *c)
{
    const struct jstr *s = self_text(r, c);
    struct jval from = jrun_to_str(r, c->a[0]), to = jrun_to_str(r, c->a[1]);
    if (r->err != OK) return JV_UNDEF;
    return jtext_replace(r, s, from.s, to.s, jv_is_integer(c->a[2]) ? jv_as_int(c->a[2]) : -1);
}

static struct jval filter_format(struct jrun *r, const struct jcall *c)
{
    const struct jstr *s = self_text(r, c);
    if (s == NULL) return JV_UNDEF;
    struct jval args;
    if (c->kw_count > 0) {
        if (c->pos_count > 0) return jrun_type_error(r, "format takes values or names, not both");
        args = jdict_new(r, JK_DICT, c->kw_count);
        for (uint32_t i = 0; i < c->kw_count && r->err == OK; i++)
            jdict_put(r, args.dict, jv_str(c->kw_names[i]), c->kw[i]);
    } else {
        args = jlist_new(r, JK_TUPLE, c->pos, c->pos_count);
    }
    return r->err == OK ? jrun_format_percent(r, s, args) : JV_UNDEF;
}

static void emit_blanks(struct jrun *r, int64_t n, const struct jstr *own)
{
    if (own != NULL) {
        jrun_emit_str(r, own);
        return;
    }
    if (n > TEMPLATE_OUTPUT_BYTES_MAX) {
        jrun_fail(r, ERR_LIMIT, "an indentation is too wide");
        return;
    }
    for (; n > 0 && jrun_step(r, 1); n--)
        jrun_emit_text(r, " ");
}

/* indent(width, first, blank): every line but the first (unless first), empty ones left alone
 * (unless blank). */
static struct jval filter_indent(struct jrun *r, const struct jcall *c)
{
    const struct jstr *own = c->a[0].kind == JK_STR ? c->a[0].s : NULL, *s = c->self.s;
    int64_t width = jv_is_integer(c->a[0]) ? jv_as_int(c->a[0]) : 4;
    bool blank = jv_truth(c->a[2]);
    if (c->self.kind != JK_STR)
        return jrun_type_error(r, "indent needs a string, not '%s'", jv_type_name(c->self));
    size_t mark = r->text.len;
    if (jv_truth(c->a[1])) emit_blanks(r, width, own);
    for (size_t start = 0, end; start <= s->len && r->err == OK; start = end + 1) {
        end = jstr_find(r, s, SPAN_LIT("\n"), start);
        if (end == SIZE_MAX) end = s->len;
        if (start > 0 && (end > start || (blank && start < s->len))) emit_blanks(r, width, own);
        jrun_emit_part(r, s, start, end - start);
        if (end < s->len) jrun_emit_part(r, s, end, 1);
    }
    return jrun_take(r, mark);
}

static struct jval filter_escape(struct jrun *r, const struct jcall *c)
{
    const struct jstr *s = self_text(r, c);
    if (s == NULL || s->markup) return c->self;
    return jtext_escape(r, s);
}

static struct jval filter_safe(struct jrun *r, const struct jcall *c)
{
    const struct jstr *s = self_text(r, c);
    return s != NULL ? jtext_as_markup(r, s) : JV_UNDEF;
}

static struct jval filter_wordcount(struct jrun *r, const struct jcall *c)
{
    const struct jstr *s = self_text(r, c);
    if (s == NULL) return JV_UNDEF;
    int64_t words = 0;
    bool inside = false;
    uint32_t n;
    jrun_step(r, s->len / 8);
    for (size_t i = 0; i < s->len; i += n) {
        uint32_t cp = unicode_decode(s->ptr + i, &n);
        bool word = cp == '_' || unicode_is_word(cp);
        words += word && !inside;
        inside = word;
    }
    return jv_int(words);
}

static const struct jbuiltin items[] = {
    {"upper", "", 0, filter_upper, 0},
    {"lower", "", 0, filter_lower, 0},
    {"capitalize", "", 0, filter_capitalize, 0},
    {"title", "", 0, filter_title, 0},
    {"trim", "chars", 0, filter_trim, 0},
    {"replace", "old new count", 2, filter_replace, 0},
    {"format", NULL, 0, filter_format, 0},
    {"indent", "width first blank", 0, filter_indent, 0},
    {"escape", "", 0, filter_escape, 0},
    {"e", "", 0, filter_escape, 0},
    {"safe", "", 0, filter_safe, 0},
    {"wordcount", "", 0, filter_wordcount, 0},
};
const struct jbuiltin_table jinja_filters_text = {items, ARRAY_LEN(items)};
