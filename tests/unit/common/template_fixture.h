/* template_fixture.h - golden files for the chat template tests. */
#ifndef PENSTOCK_TESTS_TEMPLATE_FIXTURE_H
#define PENSTOCK_TESTS_TEMPLATE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/chat_template.h"

static const char *const fixture_trusted[] = {"bos_token", "eos_token", NULL};

/* True with the file's bytes in out (to be deinited), false when there is no such file. */
static inline bool fixture_read(const char *dir, const char *name, struct buffer *out)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    buffer_init(out, 64 << 20);
    FILE *f = fopen(path, "rb");
    if (f == NULL) return false;
    static char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        buffer_add(out, block, n);
    fclose(f);
    return true;
}

/* Where third parties' templates lie; NULL when there are none on this machine. */
static inline const char *fixture_templates_dir(void)
{
    static char dir[1024];
    const char *golden = getenv("PENSTOCK_GOLDEN");
    if (golden != NULL)
        snprintf(dir, sizeof dir, "%s/templates", golden);
    else
        snprintf(dir, sizeof dir, "%s/../shared/golden/templates", SOURCE_DIR);
    struct buffer probe;
    bool found = fixture_read(dir, "cases.jsonl", &probe);
    buffer_deinit(&probe);
    return found ? dir : NULL;
}

static inline struct json *fixture_json(struct span text)
{
    struct json *out = NULL;
    struct errmsg why = {""};
    struct json_limits limits = {
        .max_depth = 2000, .allow_nul = true, .allow_duplicate_keys = true};
    if (json_parse(text, &limits, &out, &why) != OK) fail_msg("%s", why.text);
    return out;
}

/* The next line of text that is not empty; false at the end. */
static inline bool fixture_line(struct span *text, struct span *line)
{
    while (text->len > 0) {
        const uint8_t *end = memchr(text->ptr, '\n', text->len);
        *line = span_of(text->ptr, end != NULL ? (size_t)(end - text->ptr) : text->len);
        *text = span_from(*text, line->len + 1);
        if (line->len > 0) return true;
    }
    return false;
}

static inline struct span fixture_text(const struct json *v, const char *key)
{
    const struct json *s = json_get(v, key);
    return s != NULL && json_kind(s) == JSON_K_STRING ? json_as_string(s) : span_of(NULL, 0);
}

static inline int64_t fixture_now(const struct json *v)
{
    struct tm tm = {0};
    struct span text = fixture_text(v, "now");
    char copy[32];
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, (const char *)text.ptr);
    assert_non_null(strptime(copy, "%Y-%m-%d %H:%M:%S", &tm));
    return (int64_t)timegm(&tm);
}

/* Ranges ascend, are not empty, do not touch, and lie in the text. */
static inline void fixture_check_ranges(const struct rendered *r)
{
    size_t at = 0;
    for (size_t i = 0; i < r->trusted_count; i++) {
        assert_true(i == 0 ? r->trusted[i].start >= at : r->trusted[i].start > at);
        assert_true(r->trusted[i].start < r->trusted[i].end);
        at = r->trusted[i].end;
    }
    assert_true(at <= r->text.len);
}

/* Whether some byte of [start, end) is trusted. */
static inline bool fixture_touches(const struct rendered *r, size_t start, size_t end)
{
    for (size_t i = 0; i < r->trusted_count; i++)
        if (r->trusted[i].start < end && r->trusted[i].end > start) return true;
    return false;
}

/* Is what came out of rendering what the case says? */
static inline bool fixture_right(const struct json *c, enum err err, const struct rendered *r,
                                 const struct errmsg *why)
{
    const struct json *expected = json_get(c, "expected"),
                      *mutable = json_get(c, "mutable_expected");
    struct span text = buffer_view(&r->text);
    if (expected != NULL)
        return (err == OK && span_eq(text, json_as_string(expected))) ||
               (json_get(c, "python_repr") != NULL && err == OK);
    if (mutable != NULL && err == OK && span_eq(text, json_as_string(mutable))) return true;
    if (err == OK) return false;
    if (!span_eq_str(fixture_text(c, "error"), "raise")) return true;
    return err == ERR_INVALID && span_eq_str(fixture_text(c, "message"), why->text);
}

#endif
