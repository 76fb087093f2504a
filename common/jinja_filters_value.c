/* jinja_filters_value.c - filters over single values: default, numbers, tojson. */
#include "common/jinja_run.h"

#include "common/jinja_lex.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct jval filter_default(struct jrun *r, const struct jcall *c)
{
    (void)r;
    bool use = c->self.kind == JK_UNDEF || (jv_truth(c->a[1]) && !jv_truth(c->self));
    if (!use) return c->self;
    if (c->a[0].kind == JK_ABSENT) return jstr_copy(r, "");
    return c->a[0];
}

static struct jval filter_string(struct jrun *r, const struct jcall *c)
{
    return jrun_to_str(r, c->self);
}

static struct jval filter_abs(struct jrun *r, const struct jcall *c)
{
    if (c->self.kind == JK_REAL) return jv_real(fabs(c->self.d));
    if (!jv_is_integer(c->self)) return jrun_type_error(r, "abs of '%s'", jv_type_name(c->self));
    int64_t v = jv_as_int(c->self);
    return v < 0 ? jrun_binary(r, JOP_SUB, jv_int(0), jv_int(v)) : jv_int(v);
}

/* Copies a number's text without the underscores between its digits; false: it is none. */
static bool number_text(const struct jstr *s, char *out, size_t cap)
{
    struct span text = jinja_strip(jstr_span(s), true, true);
    size_t n = 0;
    if (text.len == 0 || text.len + 1 > cap) return false;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t ch = text.ptr[i];
        if (ch == '_') {
            bool between =
                i > 0 && i + 1 < text.len && text.ptr[i - 1] != '_' && text.ptr[i + 1] != '_';
            if (!between) return false;
            continue;
        }
        if (ch <= ' ' || ch >= 0x7F) return false;
        out[n++] = (char)ch;
    }
    out[n] = '\0';
    return true;
}

static bool read_real(const struct jstr *s, double *out)
{
    char text[400], *end;
    if (!number_text(s, text, sizeof text) || strpbrk(text, "xXpP(") != NULL) return false;
    *out = strtod(text, &end);
    return *end == '\0';
}

/* Python's int(text, base): 1 read, 0 no integer, -1 beyond 64 bits. */
static int read_int(const struct jstr *s, int base, int64_t *out)
{
    char text[400], *end;
    if (!number_text(s, text, sizeof text)) return 0;
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    bool prefixed = digits[0] == '0' && (digits[1] | 0x20) >= 'a' && base != 10;
    if (prefixed && base == 2 && (digits[1] | 0x20) == 'b') {
        if (digits != text) return 0;
        digits += 2;
        *out = strtoll(digits, &end, 2);
        return *end == '\0' && digits[0] != '\0' && digits[0] != '-';
    }
    if (digits[0] == '-' || digits[0] == '+') return 0;
    errno = 0;
    *out = strtoll(text, &end, base);
    if (*end != '\0' || *digits == '\0') return 0;
    return errno == ERANGE ? -1 : 1;
}

static struct jval real_to_int(struct jrun *r, double d, struct jval otherwise)
{
    if (isnan(d)) return otherwise;
    if (!(fabs(d) < 0x1p63)) return jrun_type_error(r, "an integer does not fit into 64 bits");
    return jv_int((int64_t)d);
}

static struct jval filter_int(struct jrun *r, const struct jcall *c)
{
    struct jval otherwise = c->a[0].kind != JK_ABSENT ? c->a[0] : jv_int(0);
    int64_t v, base = jv_is_integer(c->a[1]) ? jv_as_int(c->a[1]) : 10;
    double d;
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    switch (c->self.kind) {
    case JK_BOOL:
    case JK_INT: return jv_int(jv_as_int(c->self));
    case JK_REAL: return real_to_int(r, c->self.d, otherwise);
    case JK_UNDEF: return jrun_type_error(r, "int of a value that is undefined");
    case JK_STR:
        switch (read_int(c->self.s, (int)base, &v)) {
        case 1: return jv_int(v);
        case -1: return jrun_type_error(r, "an integer does not fit into 64 bits");
        default: break;
        }
        if (!read_real(c->self.s, &d) || isinf(d)) return otherwise;
        return real_to_int(r, d, otherwise);
    default: return otherwise;
    }
}

static struct jval filter_float(struct jrun *r, const struct jcall *c)
{
    struct jval otherwise = c->a[0].kind != JK_ABSENT ? c->a[0] : jv_real(0.0);
    double d;
    if (jv_is_number(c->self)) return jv_real(jv_as_real(c->self));
    if (c->self.kind == JK_UNDEF) return jrun_type_error(r, "float of a value that is undefined");
    if (c->self.kind == JK_STR && read_real(c->self.s, &d)) return jv_real(d);
    return otherwise;
}

static struct jval filter_round(struct jrun *r, const struct jcall *c)
{
    int64_t precision = jv_is_integer(c->a[0]) ? jv_as_int(c->a[0]) : 0;
    struct jval method = c->a[1];
    if (!jv_is_number(c->self)) return jrun_type_error(r, "round of '%s'", jv_type_name(c->self));
    if (precision < -300 || precision > 300)
        return jrun_type_error(r, "round's precision is out of range");
    double d = jv_as_real(c->self), scale = pow(10, (double)precision);
    if (method.kind == JK_ABSENT || jv_is_str(method, "common")) {
        if (jv_is_integer(c->self) && precision >= 0) return jv_int(jv_as_int(c->self));
        if (precision < 0) {
            d = nearbyint(d * scale) / scale;
            return jv_is_integer(c->self) ? real_to_int(r, d, jv_int(0)) : jv_real(d);
        }
        char text[700]; /* libc rounds the exact binary value, half to even, as Python does */
        snprintf(text, sizeof text, "%.*f", (int)precision, d);
        return jv_real(strtod(text, NULL));
    }
    if (jv_is_str(method, "ceil")) return jv_real(ceil(d * scale) / scale);
    if (jv_is_str(method, "floor")) return jv_real(floor(d * scale) / scale);
    return jrun_type_error(r, "round's method must be common, ceil or floor");
}

static struct jval filter_tojson(struct jrun *r, const struct jcall *c)
{
    struct jjson_style style = {
        .indent = -1, .ensure_ascii = jv_truth(c->a[0]), .sort_keys = jv_truth(c->a[3])};
    if (jv_is_integer(c->a[1]))
        style.indent = jv_as_int(c->a[1]) > 0 ? jv_as_int(c->a[1]) : 0;
    else if (c->a[1].kind != JK_ABSENT && c->a[1].kind != JK_NONE)
        return jrun_type_error(r, "tojson's indent must be an integer");
    if (c->a[2].kind != JK_ABSENT && c->a[2].kind != JK_NONE) {
        const struct jlist *pair = jv_is_sequence(c->a[2]) ? c->a[2].list : NULL;
        if (pair == NULL || pair->count != 2 || pair->items[0].kind != JK_STR ||
            pair->items[1].kind != JK_STR)
            return jrun_type_error(r, "tojson's separators must be two strings");
        style.item_separator = pair->items[0].s;
        style.key_separator = pair->items[1].s;
    }
    size_t mark = r->text.len;
    jrun_emit_json(r, c->self, &style);
    return jrun_take(r, mark);
}

static struct jval filter_attr(struct jrun *r, const struct jcall *c)
{
    if (c->a[0].kind != JK_STR) return jrun_type_error(r, "attr needs a name");
    const struct jbuiltin *method = jinja_method_find(jstr_span(c->a[0].s));
    if (c->self.kind == JK_DICT && method == NULL) return JV_UNDEF; /* never a key */
    return jrun_get_attr(r, c->self, c->a[0].s, method);
}

static const struct jbuiltin items[] = {
    {"default", "default_value boolean", 0, filter_default, 0},
    {"d", "default_value boolean", 0, filter_default, 0},
    {"string", "", 0, filter_string, 0},
    {"abs", "", 0, filter_abs, 0},
    {"int", "default base", 0, filter_int, 0},
    {"float", "default", 0, filter_float, 0},
    {"round", "precision method", 0, filter_round, 0},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, filter_tojson, 0},
    {"attr", "name", 1, filter_attr, 0},
};
const struct jbuiltin_table jinja_filters_value = {items, ARRAY_LEN(items)};
