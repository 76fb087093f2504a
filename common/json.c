#include "common/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* struct json is never defined: a node is jansson's json_t behind another name. */
static inline const json_t *node(const struct json *v)
{
    return (const json_t *)v;
}

/* Depth is checked on the bytes, before any tree is built: jansson itself would go 2048 deep. */
static enum err scan_depth(struct span text, uint32_t max_depth, struct errmsg *why)
{
    uint32_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > max_depth)
                return errmsg_set(why, ERR_LIMIT, "JSON nested deeper than %u levels", max_depth);
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return OK;
}

enum err json_parse(struct span text, const struct json_limits *limits, struct json **out,
                    struct errmsg *why)
{
    static const struct json_limits defaults = {0};
    if (limits == NULL) limits = &defaults;
    enum err err = scan_depth(text, limits->max_depth ? limits->max_depth : 64, why);
    if (err != OK) return err;
    size_t flags = 0;
    if (!limits->allow_duplicate_keys) flags |= JSON_REJECT_DUPLICATES;
    if (limits->allow_nul) flags |= JSON_ALLOW_NUL;
    if (limits->any_root) flags |= JSON_DECODE_ANY;
    json_error_t fault;
    json_t *root = json_loadb((const char *)text.ptr, text.len, flags, &fault);
    if (root == NULL)
        return errmsg_set(why, ERR_PROTO, "line %d, column %d: %s", fault.line, fault.column,
                          fault.text);
    *out = (struct json *)root;
    return OK;
}

void json_destroy(struct json *root)
{
    if (root != NULL) json_decref((json_t *)root);
}

enum json_kind json_kind(const struct json *v)
{
    switch (json_typeof(node(v))) {
    case JSON_OBJECT: return JSON_K_OBJECT;
    case JSON_ARRAY: return JSON_K_ARRAY;
    case JSON_STRING: return JSON_K_STRING;
    case JSON_INTEGER: return JSON_K_INT;
    case JSON_REAL: return JSON_K_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return JSON_K_BOOL;
    default: return JSON_K_NULL;
    }
}

const char *json_kind_name(enum json_kind kind)
{
    static const char *const names[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    return names[kind];
}

bool json_as_bool(const struct json *v)
{
    CHECK(json_is_boolean(node(v)));
    return json_is_true(node(v));
}

int64_t json_as_int(const struct json *v)
{
    CHECK(json_is_integer(node(v)));
    return json_integer_value(node(v));
}

double json_as_real(const struct json *v)
{
    CHECK(json_is_number(node(v)));
    return json_number_value(node(v));
}

struct span json_as_string(const struct json *v)
{
    CHECK(json_is_string(node(v)));
    return span_of(json_string_value(node(v)), json_string_length(node(v)));
}

size_t json_count(const struct json *v)
{
    return json_is_object(node(v)) ? json_object_size(node(v)) : json_array_size(node(v));
}

const struct json *json_at(const struct json *array, size_t index)
{
    return (const struct json *)json_array_get(node(array), index);
}

const struct json *json_get(const struct json *object, const char *key)
{
    return object == NULL ? NULL : (const struct json *)json_object_get(node(object), key);
}

void *json_first(const struct json *object)
{
    return json_object_iter((json_t *)(uintptr_t)object);
}

void *json_next(const struct json *object, void *it)
{
    return json_object_iter_next((json_t *)(uintptr_t)object, it);
}

struct span json_iter_key(void *it)
{
#if JANSSON_VERSION_HEX >= 0x020e00
    return span_of(json_object_iter_key(it), json_object_iter_key_len(it));
#else
    return span_str(json_object_iter_key(it)); /* older ones have no keys with NUL */
#endif
}

const struct json *json_iter_value(void *it)
{
    return (const struct json *)json_object_iter_value(it);
}

/* Length of the valid UTF-8 sequence at p (1 to 4), 0 if there is none. */
static size_t utf8_sequence(const uint8_t *p, size_t left)
{
    uint8_t c = p[0];
    if (c < 0x80) return 1;
    size_t n = c >= 0xF0 && c <= 0xF4 ? 4 : c >= 0xE0 ? 3 : c >= 0xC2 && c < 0xE0 ? 2 : 0;
    if (c > 0xF4 || n == 0 || n > left) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F) || (c == 0xF0 && p[1] < 0x90) ||
        (c == 0xF4 && p[1] > 0x8F))
        return 0;
    return n;
}

void json_write_string(struct buffer *out, struct span text)
{
    static const char shorts[32] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    buffer_add_byte(out, '"');
    size_t from = 0;
    for (size_t i = 0; i < text.len;) {
        uint8_t c = text.ptr[i];
        size_t n = utf8_sequence(text.ptr + i, text.len - i);
        if (c >= 0x20 && c != '"' && c != '\\' && n > 0) {
            i += n;
            continue;
        }
        buffer_add(out, text.ptr + from, i - from);
        if (n == 0)
            buffer_add_str(out, "\xEF\xBF\xBD");
        else if (c == '"' || c == '\\')
            buffer_printf(out, "\\%c", c);
        else if (shorts[c])
            buffer_printf(out, "\\%c", shorts[c]);
        else
            buffer_printf(out, "\\u%04x", c);
        from = ++i;
    }
    buffer_add(out, text.ptr + from, text.len - from);
    buffer_add_byte(out, '"');
}

void json_write_double(struct buffer *out, double v)
{
    CHECK(isfinite(v));
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    buffer_add_str(out, text);
    if (strpbrk(text, ".e") == NULL) buffer_add_str(out, ".0");
}

void json_write(struct buffer *out, const struct json *v)
{
    switch (json_kind(v)) {
    case JSON_K_NULL: buffer_add_str(out, "null"); break;
    case JSON_K_BOOL: buffer_add_str(out, json_as_bool(v) ? "true" : "false"); break;
    case JSON_K_INT: buffer_printf(out, "%lld", (long long)json_as_int(v)); break;
    case JSON_K_REAL: json_write_double(out, json_as_real(v)); break;
    case JSON_K_STRING: json_write_string(out, json_as_string(v)); break;
    case JSON_K_ARRAY:
        buffer_add_byte(out, '[');
        for (size_t i = 0; i < json_count(v); i++) {
            if (i) buffer_add_byte(out, ',');
            json_write(out, json_at(v, i));
        }
        buffer_add_byte(out, ']');
        break;
    case JSON_K_OBJECT:
        buffer_add_byte(out, '{');
        for (void *it = json_first(v); it != NULL; it = json_next(v, it)) {
            if (it != json_first(v)) buffer_add_byte(out, ',');
            json_write_string(out, json_iter_key(it));
            buffer_add_byte(out, ':');
            json_write(out, json_iter_value(it));
        }
        buffer_add_byte(out, '}');
        break;
    }
}
