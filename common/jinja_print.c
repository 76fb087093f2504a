/* jinja_print.c - values as text: Python's str and repr. Text of a string keeps its origin; what
 * is written around it does not count as the template's. */
#include "common/jinja_run.h"

#include "common/unicode.h"
#include "common/unicode_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Python's repr of a float: the shortest digits that read back, an exponent below 1e-4 and from
 * 1e16. */
void jrun_emit_real(struct jrun *r, double d)
{
    char digits[40], text[64];
    if (isnan(d) || isinf(d)) {
        jrun_emit_text(r, isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 1;
    do
        snprintf(digits, sizeof digits, "%.*e", precision - 1, d);
    while (precision++ < 17 && strtod(digits, NULL) != d);
    int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10), count = precision - 1;
    if (exponent >= 16 || exponent < -4) {
        snprintf(text, sizeof text, "%.*s%s%02d", (int)(strchr(digits, 'e') - digits), digits,
                 exponent < 0 ? "e-" : "e+", abs(exponent));
        jrun_emit_text(r, text);
        return;
    }
    int decimals = count - 1 - exponent;
    snprintf(text, sizeof text, "%.*f", decimals > 1 ? decimals : 1, d);
    jrun_emit_text(r, text);
}

static void emit_repr_str(struct jrun *r, const struct jstr *s)
{
    bool has_single = s->len > 0 && memchr(s->ptr, '\'', s->len) != NULL;
    bool has_double = s->len > 0 && memchr(s->ptr, '"', s->len) != NULL;
    char quote = has_single && !has_double ? '"' : '\'', escape[16];
    jrun_emit(r, span_of(&quote, 1), false);
    jrun_step(r, s->len / 16);
    size_t plain = 0;
    uint32_t n;
    for (size_t i = 0; i < s->len && r->err == OK; i += n) {
        uint32_t cp = unicode_decode(s->ptr + i, &n);
        if (cp == '\\' || cp == (uint32_t)quote)
            snprintf(escape, sizeof escape, "\\%c", (int)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            snprintf(escape, sizeof escape, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (unicode_is_printable(cp))
            continue;
        else
            snprintf(escape, sizeof escape,
                     cp < 0x100     ? "\\x%02" PRIx32
                     : cp < 0x10000 ? "\\u%04" PRIx32
                                    : "\\U%08" PRIx32,
                     cp);
        jrun_emit_part(r, s, plain, i - plain);
        jrun_emit_text(r, escape);
        plain = i + n;
    }
    jrun_emit_part(r, s, plain, s->len - plain);
    jrun_emit(r, span_of(&quote, 1), false);
}

static void emit_list(struct jrun *r, struct jval v)
{
    jrun_emit_text(r, v.kind == JK_TUPLE ? "(" : "[");
    for (uint32_t i = 0; i < v.list->count && r->err == OK; i++) {
        if (i > 0) jrun_emit_text(r, ", ");
        jrun_emit_repr(r, v.list->items[i]);
    }
    if (v.kind == JK_TUPLE && v.list->count == 1) jrun_emit_text(r, ",");
    jrun_emit_text(r, v.kind == JK_TUPLE ? ")" : "]");
}

static void emit_dict(struct jrun *r, const struct jdict *d)
{
    jrun_emit_text(r, "{");
    for (uint32_t i = 0; i < d->count && r->err == OK; i++) {
        if (i > 0) jrun_emit_text(r, ", ");
        jrun_emit_repr(r, d->pairs[i].key);
        jrun_emit_text(r, ": ");
        jrun_emit_repr(r, d->pairs[i].value);
    }
    jrun_emit_text(r, "}");
}

static void emit_range(struct jrun *r, const struct jrange *range)
{
    char text[96];
    int64_t stop = jrange_at(range->start, range->step, range->count);
    int n = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, range->start, stop);
    if (range->step != 1) snprintf(text + n, sizeof text - (size_t)n, ", %" PRId64, range->step);
    jrun_emit_text(r, text);
    jrun_emit_text(r, ")");
}

static void emit_plain(struct jrun *r, struct jval v, bool repr)
{
    char text[32];
    switch (v.kind) {
    case JK_ABSENT: break;
    case JK_UNDEF:
        if (repr) jrun_emit_text(r, "Undefined");
        break;
    case JK_NONE: jrun_emit_text(r, "None"); break;
    case JK_BOOL: jrun_emit_text(r, v.b ? "True" : "False"); break;
    case JK_INT:
        snprintf(text, sizeof text, "%" PRId64, v.i);
        jrun_emit_text(r, text);
        break;
    case JK_REAL: jrun_emit_real(r, v.d); break;
    case JK_RANGE: emit_range(r, v.range); break;
    default:
        jrun_emit_text(r, "<");
        jrun_emit_text(r, jv_type_name(v));
        jrun_emit_text(r, ">");
    }
}

static void emit_value(struct jrun *r, struct jval v, bool repr)
{
    if (v.kind == JK_STR) {
        if (repr)
            emit_repr_str(r, v.s);
        else
            jrun_emit_str(r, v.s);
        return;
    }
    if (!jv_is_sequence(v) && v.kind != JK_VIEW && v.kind != JK_DICT && v.kind != JK_SPACE) {
        emit_plain(r, v, repr);
        return;
    }
    if (!jrun_step(r, 1) || !jrun_enter(r)) return;
    if (v.kind == JK_DICT || v.kind == JK_SPACE) {
        if (v.kind == JK_SPACE) jrun_emit_text(r, "<Namespace ");
        emit_dict(r, v.dict);
        if (v.kind == JK_SPACE) jrun_emit_text(r, ">");
    } else {
        if (v.kind == JK_VIEW) jrun_emit_text(r, "dict_view(");
        emit_list(r, v);
        if (v.kind == JK_VIEW) jrun_emit_text(r, ")");
    }
    jrun_leave(r);
}

void jrun_emit_value(struct jrun *r, struct jval v)
{
    emit_value(r, v, false);
}

void jrun_emit_repr(struct jrun *r, struct jval v)
{
    emit_value(r, v, true);
}

struct jval jrun_to_str(struct jrun *r, struct jval v)
{
    if (v.kind == JK_STR) return v;
    size_t mark = r->text.len;
    jrun_emit_value(r, v);
    return jrun_take(r, mark);
}
