/* jinja_json.c - tojson as transformers defines it: json.dumps without HTML escapes. */
#include "common/jinja_run.h"

#include "common/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* The escape of cp, or false when it is written as it is. */
static bool escape_of(uint32_t cp, bool ensure_ascii, char out[16])
{
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    const char *found = cp != 0 && cp < 0x80 ? strchr(plain, (int)cp) : NULL;
    if (found != NULL)
        snprintf(out, 16, "\\%c", letters[found - plain]);
    else if (cp < 0x20 || (ensure_ascii && cp >= 0x7F && cp < 0x10000))
        snprintf(out, 16, "\\u%04" PRIx32, cp);
    else if (ensure_ascii && cp >= 0x10000)
        snprintf(out, 16, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xD800 + ((cp - 0x10000) >> 10),
                 0xDC00 + (cp & 0x3FF));
    else
        return false;
    return true;
}

static void emit_string(struct jrun *r, const struct jstr *s, bool ensure_ascii)
{
    char escape[16];
    size_t plain = 0;
    uint32_t n;
    jrun_emit_text(r, "\"");
    jrun_step(r, s->len / 16);
    for (size_t i = 0; i < s->len && r->err == OK; i += n) {
        uint32_t cp = s->ptr[i];
        n = 1;
        if (cp >= 0x80) cp = unicode_decode(s->ptr + i, &n);
        if (!escape_of(cp, ensure_ascii, escape)) continue;
        jrun_emit_part(r, s, plain, i - plain);
        jrun_emit_text(r, escape);
        plain = i + n;
    }
    jrun_emit_part(r, s, plain, s->len - plain);
    jrun_emit_text(r, "\"");
}

/* A new line and its indentation; nothing on one line. */
static void emit_break(struct jrun *r, const struct jjson_style *style, uint32_t level)
{
    static const char blanks[] = "                                ";
    if (style->indent < 0) return;
    jrun_emit_text(r, "\n");
    uint64_t n;
    if (__builtin_mul_overflow((uint64_t)style->indent, level, &n) ||
        n > TEMPLATE_OUTPUT_BYTES_MAX) {
        jrun_fail(r, ERR_LIMIT, "tojson's indentation is too wide");
        return;
    }
    for (; n > 0 && r->err == OK; n -= n < 32 ? n : 32)
        jrun_emit(r, span_of(blanks, n < 32 ? n : 32), false);
}

static void emit_separator(struct jrun *r, const struct jstr *own, const char *usual)
{
    if (own != NULL)
        jrun_emit_str(r, own);
    else
        jrun_emit_text(r, usual);
}

static void emit_json(struct jrun *r, struct jval v, const struct jjson_style *style,
                      uint32_t level);

static void emit_key(struct jrun *r, struct jval key, const struct jjson_style *style)
{
    if (key.kind == JK_STR) {
        emit_string(r, key.s, style->ensure_ascii);
    } else if (jv_is_number(key) || key.kind == JK_NONE) {
        jrun_emit_text(r, "\"");
        emit_json(r, key, style, 0);
        jrun_emit_text(r, "\"");
    } else {
        jrun_type_error(r, "a JSON object's key cannot be '%s'", jv_type_name(key));
    }
}

/* The order of a dict's pairs when sort_keys asks for one: insertion sort, stable. */
static const struct jpair *sorted_pairs(struct jrun *r, const struct jdict *d)
{
    struct jpair *pairs = jrun_alloc(r, d->count, sizeof *pairs);
    for (uint32_t i = 0; i < d->count && r->err == OK; i++) {
        uint32_t at = i;
        for (; at > 0 && jrun_compare(r, pairs[at - 1].key, d->pairs[i].key) == 1; at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = d->pairs[i];
    }
    return pairs;
}

static void emit_object(struct jrun *r, const struct jdict *d, const struct jjson_style *style,
                        uint32_t level)
{
    const struct jpair *pairs = style->sort_keys ? sorted_pairs(r, d) : d->pairs;
    jrun_emit_text(r, "{");
    for (uint32_t i = 0; i < d->count && r->err == OK; i++) {
        if (i > 0) emit_separator(r, style->item_separator, style->indent < 0 ? ", " : ",");
        emit_break(r, style, level + 1);
        emit_key(r, pairs[i].key, style);
        emit_separator(r, style->key_separator, ": ");
        emit_json(r, pairs[i].value, style, level + 1);
    }
    if (d->count > 0) emit_break(r, style, level);
    jrun_emit_text(r, "}");
}

static void emit_array(struct jrun *r, const struct jlist *l, const struct jjson_style *style,
                       uint32_t level)
{
    jrun_emit_text(r, "[");
    for (uint32_t i = 0; i < l->count && r->err == OK; i++) {
        if (i > 0) emit_separator(r, style->item_separator, style->indent < 0 ? ", " : ",");
        emit_break(r, style, level + 1);
        emit_json(r, l->items[i], style, level + 1);
    }
    if (l->count > 0) emit_break(r, style, level);
    jrun_emit_text(r, "]");
}

static void emit_json(struct jrun *r, struct jval v, const struct jjson_style *style,
                      uint32_t level)
{
    if (!jrun_step(r, 1) || !jrun_enter(r)) return;
    switch (v.kind) {
    case JK_NONE: jrun_emit_text(r, "null"); break;
    case JK_BOOL: jrun_emit_text(r, v.b ? "true" : "false"); break;
    case JK_INT: jrun_emit_value(r, v); break;
    case JK_REAL:
        if (isfinite(v.d))
            jrun_emit_real(r, v.d);
        else
            jrun_emit_text(r, isnan(v.d) ? "NaN" : v.d > 0 ? "Infinity" : "-Infinity");
        break;
    case JK_STR: emit_string(r, v.s, style->ensure_ascii); break;
    case JK_LIST:
    case JK_TUPLE: emit_array(r, v.list, style, level); break;
    case JK_DICT: emit_object(r, v.dict, style, level); break;
    default: jrun_type_error(r, "'%s' cannot be written as JSON", jv_type_name(v));
    }
    jrun_leave(r);
}

void jrun_emit_json(struct jrun *r, struct jval v, const struct jjson_style *style)
{
    emit_json(r, v, style, 0);
}
