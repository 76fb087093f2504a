/* jinja_format.c - Python's two ways to fill in a format string: 'a %s' % x (also the format
 * filter) and 'a {}'.format(x). Text of the format keeps its origin, and so do strings that are put
 * in unpadded; numbers and padding do not count as the template's. */
#include "common/jinja_run.h"

#include "common/unicode.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PRECISION_MAX = 400, NUMBER_BYTES = 800 };

struct spec { /* of one field, in either notation */
    uint8_t fill[4];
    uint32_t fill_len;
    char align;               /* '<', '>', '^', '=' or 0 */
    char sign;                /* '+', ' ' or 0 */
    bool alternate;           /* # */
    char grouping;            /* ',' '_' or 0 */
    int64_t width, precision; /* -1: none */
    char type;                /* 0: none */
};

static const struct spec plain_spec = {.fill = " ", .fill_len = 1, .width = -1, .precision = -1};

struct cursor { /* over the format string */
    const struct jstr *s;
    size_t at;
};

static int peek(const struct cursor *c)
{
    return c->at < c->s->len ? c->s->ptr[c->at] : -1;
}

static bool skip(struct cursor *c, char want)
{
    if (peek(c) != want) return false;
    c->at++;
    return true;
}

/* Digits as a number; -1: none stand here. */
static int64_t take_number(struct jrun *r, struct cursor *c)
{
    if (!(peek(c) >= '0' && peek(c) <= '9')) return -1;
    int64_t n = 0;
    for (; peek(c) >= '0' && peek(c) <= '9'; c->at++) {
        n = n * 10 + (peek(c) - '0');
        if (n > TEMPLATE_OUTPUT_BYTES_MAX) {
            jrun_fail(r, ERR_LIMIT, "a width in a format is too large");
            return -1;
        }
    }
    return n;
}

static void emit_fill(struct jrun *r, const struct spec *spec, int64_t n)
{
    for (; n > 0 && jrun_step(r, 1); n--)
        jrun_emit(r, span_of(spec->fill, spec->fill_len), false);
}

static void emit_string_field(struct jrun *r, const struct jstr *s, const struct spec *spec)
{
    uint32_t chars = jstr_chars(r, s);
    size_t len = s->len;
    if (spec->precision >= 0 && spec->precision < chars) {
        chars = (uint32_t)spec->precision;
        len = jstr_offset(r, s, chars);
    }
    int64_t pad = spec->width > chars ? spec->width - chars : 0;
    int64_t left = spec->align == '>' ? pad : spec->align == '^' ? pad / 2 : 0;
    emit_fill(r, spec, left);
    jrun_emit_part(r, s, 0, len);
    emit_fill(r, spec, pad - left);
}

/* digits between sign and padding, grouped by threes before the point. */
static void emit_number(struct jrun *r, const char *digits, bool negative, const char *prefix,
                        const struct spec *spec)
{
    char grouped[2 * NUMBER_BYTES];
    size_t n = 0, whole = strspn(digits, "0123456789");
    for (size_t i = 0; digits[i] != '\0'; i++) {
        if (spec->grouping != 0 && i > 0 && i < whole && (whole - i) % 3 == 0)
            grouped[n++] = spec->grouping;
        grouped[n++] = digits[i];
    }
    grouped[n] = '\0';
    char sign[2] = {negative ? '-' : spec->sign, '\0'};
    int64_t used = (int64_t)(n + strlen(prefix) + strlen(sign));
    int64_t pad = spec->width > used ? spec->width - used : 0;
    char align = spec->align != 0 ? spec->align : '>';
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    emit_fill(r, spec, left);
    jrun_emit_text(r, sign);
    jrun_emit_text(r, prefix);
    if (align == '=') emit_fill(r, spec, pad);
    jrun_emit_text(r, grouped);
    if (align == '<' || align == '^') emit_fill(r, spec, pad - left);
}

static void emit_int_field(struct jrun *r, int64_t v, const struct spec *spec)
{
    char digits[80];
    const char *prefix = "";
    uint64_t magnitude = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    switch (spec->type) {
    case 'x':
    case 'X':
        snprintf(digits, sizeof digits, spec->type == 'x' ? "%" PRIx64 : "%" PRIX64, magnitude);
        if (spec->alternate) prefix = spec->type == 'x' ? "0x" : "0X";
        break;
    case 'o':
        snprintf(digits, sizeof digits, "%" PRIo64, magnitude);
        if (spec->alternate) prefix = "0o";
        break;
    case 'b': {
        int n = 64 - (magnitude != 0 ? __builtin_clzll(magnitude) : 63);
        for (int i = 0; i < n; i++)
            digits[i] = (char)('0' + (magnitude >> (n - 1 - i) & 1));
        digits[n] = '\0';
        if (spec->alternate) prefix = "0b";
        break;
    }
    default: snprintf(digits, sizeof digits, "%" PRIu64, magnitude);
    }
    emit_number(r, digits, v < 0, prefix, spec);
}

static void emit_real_field(struct jrun *r, double v, const struct spec *spec)
{
    char digits[NUMBER_BYTES], format[16];
    int precision = spec->precision >= 0 ? (int)spec->precision : 6;
    bool percent = spec->type == '%', negative = signbit(v) != 0 && !isnan(v);
    if (spec->precision > PRECISION_MAX) {
        jrun_fail(r, ERR_LIMIT, "a precision in a format is over %d", PRECISION_MAX);
        return;
    }
    double magnitude = fabs(v) * (percent ? 100 : 1);
    if (spec->type == 0 && spec->precision < 0) { /* as str() writes it */
        size_t mark = r->text.len;
        jrun_emit_real(r, magnitude);
        struct jval s = jrun_take(r, mark);
        if (r->err != OK) return;
        snprintf(digits, sizeof digits, "%.*s", (int)s.s->len, (const char *)s.s->ptr);
    } else {
        snprintf(format, sizeof format, "%%%s.*%c", spec->alternate ? "#" : "",
                 percent           ? 'f'
                 : spec->type == 0 ? 'g'
                                   : spec->type);
        snprintf(digits, sizeof digits - 1, format, precision, magnitude);
        if (percent) memcpy(digits + strlen(digits), "%", 2);
    }
    emit_number(r, digits, negative, "", spec);
}

/* ---- percent ---- */

struct arguments {
    struct jval all; /* the right operand */
    uint32_t used;
};

static struct jval next_argument(struct jrun *r, struct arguments *args)
{
    bool tuple = args->all.kind == JK_TUPLE;
    if (args->used < (tuple ? args->all.list->count : 1)) {
        uint32_t i = args->used++;
        return tuple ? args->all.list->items[i] : args->all;
    }
    return jrun_type_error(r, "not enough arguments for a format string");
}

/* %(key): the value of that key. */
static struct jval keyed_argument(struct jrun *r, struct cursor *c, struct arguments *args)
{
    size_t start = c->at;
    while (peek(c) != ')' && peek(c) >= 0)
        c->at++;
    if (args->all.kind != JK_DICT || peek(c) < 0)
        return jrun_type_error(r, "a format string needs a mapping");
    const struct jval *v =
        jdict_get_text(r, args->all.dict, span_of(c->s->ptr + start, c->at - start));
    c->at++;
    if (v == NULL) return jrun_type_error(r, "a key of a format string is missing");
    return *v;
}

static void percent_value(struct jrun *r, struct jval v, struct spec *spec)
{
    size_t mark = r->text.len;
    switch (spec->type) {
    case 's':
    case 'r':
    case 'a':
        if (spec->type != 's') {
            jrun_emit_repr(r, v);
            v = jrun_take(r, mark);
        } else {
            v = jrun_to_str(r, v);
        }
        if (r->err == OK) emit_string_field(r, v.s, spec);
        return;
    case 'd':
    case 'i':
    case 'u':
        spec->type = 'd';
        if (v.kind == JK_REAL && isfinite(v.d) && fabs(v.d) < 0x1p63) v = jv_int((int64_t)v.d);
        break;
    case 'c':
        if (v.kind == JK_STR && jstr_chars(r, v.s) == 1) {
            emit_string_field(r, v.s, spec);
            return;
        }
        jrun_type_error(r, "%%c needs a single character");
        return;
    case 'x':
    case 'X':
    case 'o': break;
    default: /* e f g and their capitals */
        if (!jv_is_number(v)) break;
        emit_real_field(r, jv_as_real(v), spec);
        return;
    }
    if (jv_is_integer(v) && strchr("dxXo", spec->type) != NULL)
        emit_int_field(r, jv_as_int(v), spec);
    else
        jrun_type_error(r, "%%%c needs a number, not '%s'", spec->type, jv_type_name(v));
}

/* Behind a '%'. */
static void percent_field(struct jrun *r, struct cursor *c, struct arguments *args)
{
    struct spec spec = plain_spec;
    struct jval v = JV_ABSENT, star;
    spec.align = '>';
    if (skip(c, '(')) v = keyed_argument(r, c, args);
    for (; peek(c) > 0 && strchr("-+ 0#", peek(c)) != NULL; c->at++) {
        if (peek(c) == '-') spec.align = '<';
        if (peek(c) == '0' && spec.align != '<') spec.align = '=';
        if (peek(c) == '+' || (peek(c) == ' ' && spec.sign == 0)) spec.sign = (char)peek(c);
        if (peek(c) == '#') spec.alternate = true;
    }
    if (skip(c, '*')) {
        star = next_argument(r, args);
        if (star.kind != JK_INT || star.i < 0 || star.i > TEMPLATE_OUTPUT_BYTES_MAX)
            jrun_type_error(r, "* needs a small integer");
        else
            spec.width = star.i;
    } else {
        spec.width = take_number(r, c);
    }
    if (skip(c, '.')) {
        spec.precision = take_number(r, c);
        if (spec.precision < 0) spec.precision = 0;
    }
    int type = peek(c);
    c->at++;
    if (r->err != OK) return;
    if (type <= 0 || strchr("sradiuxXoceEfFgG%", type) == NULL) {
        jrun_type_error(r, "a format string holds a conversion that does not exist");
        return;
    }
    if (type == '%') {
        jrun_emit_text(r, "%");
        return;
    }
    if (v.kind == JK_ABSENT) v = next_argument(r, args);
    if (r->err != OK) return;
    spec.type = (char)type;
    if (spec.align == '=' && strchr("srac", type) == NULL) {
        spec.fill[0] = '0';
    } else if (spec.align == '=') {
        spec.align = '>';
    }
    percent_value(r, v, &spec);
}

struct jval jrun_format_percent(struct jrun *r, const struct jstr *format, struct jval args)
{
    struct cursor c = {.s = format};
    struct arguments arguments = {.all = args};
    size_t mark = r->text.len;
    while (c.at < format->len && jrun_step(r, 1)) {
        const uint8_t *found = memchr(format->ptr + c.at, '%', format->len - c.at);
        size_t end = found != NULL ? (size_t)(found - format->ptr) : format->len;
        jrun_emit_part(r, format, c.at, end - c.at);
        c.at = end;
        if (skip(&c, '%')) percent_field(r, &c, &arguments);
    }
    if (arguments.used < (args.kind == JK_TUPLE ? args.list->count : 1) && args.kind != JK_DICT &&
        args.kind != JK_LIST)
        jrun_type_error(r, "not all arguments of a format string were used");
    return jrun_take(r, mark);
}

/* ---- braces ---- */

/* Text behind ':' up to '}'. */
static void parse_spec(struct jrun *r, struct cursor *c, struct spec *spec)
{
    if (peek(c) > 0 && c->at < c->s->len) {
        uint32_t n = unicode_utf8_len((uint8_t)peek(c));
        int after = c->at + n < c->s->len ? c->s->ptr[c->at + n] : -1;
        if (after > 0 && strchr("<>^=", after) != NULL && peek(c) != '{') {
            memcpy(spec->fill, c->s->ptr + c->at, n);
            spec->fill_len = n;
            spec->align = (char)after;
            c->at += n + 1;
        } else if (strchr("<>^=", peek(c)) != NULL) {
            spec->align = (char)c->s->ptr[c->at++];
        }
    }
    if (peek(c) == '+' || peek(c) == ' ' || peek(c) == '-') {
        spec->sign = peek(c) == '-' ? '\0' : (char)peek(c);
        c->at++;
    }
    spec->alternate = skip(c, '#');
    if (skip(c, '0') && spec->align == 0) {
        spec->align = '=';
        spec->fill[0] = '0';
        spec->fill_len = 1;
    }
    spec->width = take_number(r, c);
    if (peek(c) == ',' || peek(c) == '_') spec->grouping = (char)c->s->ptr[c->at++];
    if (skip(c, '.')) {
        spec->precision = take_number(r, c);
        if (spec->precision < 0) jrun_type_error(r, "a precision is missing in a format");
    }
    if (peek(c) > 0 && strchr("sdxXobeEfFgG%n", peek(c)) != NULL)
        spec->type = (char)c->s->ptr[c->at++];
    if (peek(c) != '}') jrun_type_error(r, "a format specification cannot be read");
}

/* The field's value: an index, a name or nothing, then .name and [key] parts. */
static struct jval field_value(struct jrun *r, struct cursor *c, const struct jcall *call,
                               uint32_t *next)
{
    size_t start = c->at;
    struct jval v = JV_ABSENT;
    while (peek(c) >= 0 && strchr("}:!.[{", peek(c)) == NULL)
        c->at++;
    struct span name = span_of(c->s->ptr + start, c->at - start);
    if (name.len == 0 || (isdigit(name.ptr[0]) && name.len < 6)) {
        char digits[8]; /* nothing promises an end behind the name */
        snprintf(digits, sizeof digits, "%.*s", (int)name.len, (const char *)name.ptr);
        uint32_t index = name.len == 0 ? (*next)++ : (uint32_t)strtoul(digits, NULL, 10);
        if (index < call->pos_count) v = call->pos[index];
    }
    for (uint32_t i = 0; i < call->kw_count; i++)
        if (span_eq(jstr_span(call->kw_names[i]), name)) v = call->kw[i];
    if (v.kind == JK_ABSENT) return jrun_type_error(r, "a format string lacks an argument");
    while (r->err == OK && (peek(c) == '.' || peek(c) == '[')) {
        bool bracket = peek(c) == '[';
        start = ++c->at;
        while (peek(c) >= 0 && strchr(bracket ? "]" : "}:!.[", peek(c)) == NULL)
            c->at++;
        struct jval key = jstr_new(r, span_of(c->s->ptr + start, c->at - start), false);
        if (r->err == OK) v = bracket ? jrun_get_path(r, v, key) : jrun_get_attr(r, v, key.s, NULL);
        if (bracket && !skip(c, ']')) return jrun_type_error(r, "']' is missing in a format");
    }
    return v;
}

/* Behind a '{'. */
static void brace_field(struct jrun *r, struct cursor *c, const struct jcall *call, uint32_t *next)
{
    struct spec spec = plain_spec;
    struct jval v = field_value(r, c, call, next);
    size_t mark = r->text.len;
    if (r->err == OK && skip(c, '!')) {
        if (skip(c, 'r')) {
            jrun_emit_repr(r, v);
            v = jrun_take(r, mark);
        } else if (skip(c, 's')) {
            v = jrun_to_str(r, v);
        }
    }
    if (r->err == OK && skip(c, ':')) parse_spec(r, c, &spec);
    if (r->err == OK && !skip(c, '}')) jrun_type_error(r, "'}' is missing in a format");
    if (r->err != OK) return;
    bool real_type = spec.type != 0 && strchr("eEfFgG%", spec.type) != NULL;
    if (v.kind == JK_REAL && (real_type || spec.type == 0)) {
        emit_real_field(r, v.d, &spec);
    } else if (jv_is_integer(v) && real_type) {
        emit_real_field(r, jv_as_real(v), &spec);
    } else if (v.kind == JK_INT && spec.type != 's') {
        emit_int_field(r, v.i, &spec);
    } else if (spec.type == 0 || spec.type == 's') {
        v = jrun_to_str(r, v);
        if (r->err == OK) emit_string_field(r, v.s, &spec);
    } else {
        jrun_type_error(r, "format '%c' does not suit '%s'", spec.type, jv_type_name(v));
    }
}

struct jval jrun_format_braces(struct jrun *r, const struct jstr *format, const struct jcall *call)
{
    struct cursor c = {.s = format};
    size_t mark = r->text.len;
    uint32_t next = 0;
    while (c.at < format->len && jrun_step(r, 1)) {
        size_t start = c.at;
        while (peek(&c) >= 0 && peek(&c) != '{' && peek(&c) != '}')
            c.at++;
        jrun_emit_part(r, format, start, c.at - start);
        if (peek(&c) < 0) break;
        char brace = (char)format->ptr[c.at++];
        if (skip(&c, brace))
            jrun_emit_part(r, format, c.at - 1, 1);
        else if (brace == '{')
            brace_field(r, &c, call, &next);
        else
            jrun_type_error(r, "a single '}' in a format");
    }
    return jrun_take(r, mark);
}
