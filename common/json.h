/* json.h - JSON read strictly (RFC 8259) into an immutable tree, and written by a small escaper.
 * The one door to jansson. A tree belongs to one thread at a time; everything it hands out is
 * borrowed from it. Refused: duplicate keys, depth over max_depth, invalid UTF-8, lone surrogates,
 * \u0000 (unless allowed), numbers beyond int64 or double, trailing garbage. An integer (5) and a
 * real (5.0) stay apart. Objects keep their order. */
#ifndef PENSTOCK_COMMON_JSON_H
#define PENSTOCK_COMMON_JSON_H

#include "common/buffer.h"

struct json; /* a node; the root owns the tree */

enum json_kind {
    JSON_K_NULL,
    JSON_K_BOOL,
    JSON_K_INT,
    JSON_K_REAL,
    JSON_K_STRING,
    JSON_K_ARRAY,
    JSON_K_OBJECT
};

struct json_limits {
    uint32_t max_depth;        /* nesting; 0 = 64 */
    bool allow_nul;            /* \u0000 in strings */
    bool allow_duplicate_keys; /* last one wins, as Python's json */
    bool any_root;             /* a scalar may be the root */
};

/* *out owned by the caller: json_destroy. ERR_PROTO, ERR_LIMIT with a sentence ("line 1, column 7:
 * ..."). */
enum err json_parse(struct span text, const struct json_limits *limits, struct json **out,
                    struct errmsg *why) MUST_CHECK;
void json_destroy(struct json *root);

enum json_kind json_kind(const struct json *v);
const char *json_kind_name(
    enum json_kind kind); /* "null", "boolean", "integer", "number", "string", "array", "object" */
bool json_as_bool(const struct json *v); /* CHECKs the type, as the next three */
int64_t json_as_int(const struct json *v);
double json_as_real(const struct json *v);        /* of an INT or a REAL */
struct span json_as_string(const struct json *v); /* UTF-8 bytes, NUL-terminated behind len */
size_t json_count(const struct json *v);          /* members or items; 0 for scalars */
const struct json *json_at(const struct json *array, size_t index); /* NULL past the end */
const struct json *json_get(const struct json *object,
                            const char *key); /* NULL when absent or no object */
/* Iteration in source order: for (void *it = json_first(o); it; it = json_next(o, it)) ... */
void *json_first(const struct json *object);
void *json_next(const struct json *object, void *it);
struct span json_iter_key(void *it);
const struct json *json_iter_value(void *it);

/* Appends "text" with its quotes; control characters as \uXXXX, the short escapes, and nothing else
 * escaped. Bytes that are not UTF-8 become U+FFFD. */
void json_write_string(struct buffer *out, struct span text);
/* Shortest decimal that reads back as v; inf and nan are written as -9999.0 would be misread: they
 * CHECK. */
void json_write_double(struct buffer *out, double v);
/* Writes a parsed tree back, compact. */
void json_write(struct buffer *out, const struct json *v);

#endif
