/* jinja_str.c - the output with its trusted ranges, and strings that know where their bytes came
 * from. Strings under construction are written behind the output and then taken off it, so that
 * each costs one copy and one budget serves all. */
#include "common/jinja_run.h"

#include "common/unicode.h"

enum { STEP_BYTES = 64 }; /* so many bytes copied or compared cost a step */

static bool grow(struct jrun *r, size_t extra)
{
    if (!jrun_step(r, extra / STEP_BYTES)) return false;
    enum err err = buffer_reserve(&r->text, extra);
    if (err == OK) return true;
    jrun_fail(r, err == ERR_NOMEM ? ERR_NOMEM : ERR_LIMIT,
              "the template's output needs more than %d bytes", TEMPLATE_OUTPUT_BYTES_MAX);
    return false;
}

static void mark_trusted(struct jrun *r, size_t start, size_t end)
{
    struct trust_range *ranges = (struct trust_range *)(void *)r->ranges.ptr;
    size_t count = r->ranges.len / sizeof *ranges;
    if (count > 0 && ranges[count - 1].end == start) {
        ranges[count - 1].end = end;
        return;
    }
    buffer_add(&r->ranges, &(struct trust_range){start, end}, sizeof *ranges);
    if (buffer_status(&r->ranges) != OK)
        jrun_fail(r, ERR_LIMIT, "the output changes too often between template and message");
}

void jrun_emit(struct jrun *r, struct span bytes, bool trusted)
{
    if (bytes.len == 0 || !grow(r, bytes.len)) return;
    size_t start = r->text.len;
    buffer_add_span(&r->text, bytes);
    if (trusted) mark_trusted(r, start, r->text.len);
}

void jrun_emit_text(struct jrun *r, const char *text)
{
    jrun_emit(r, span_str(text), false);
}

void jrun_emit_part(struct jrun *r, const struct jstr *s, size_t start, size_t len)
{
    if (s->marks == NULL) {
        jrun_emit(r, span_of(s->ptr + start, len), s->trusted);
        return;
    }
    for (size_t end = start + len; start < end && r->err == OK;) {
        const uint8_t *marks = s->marks + start;
        const uint8_t *change = memchr(marks, !marks[0], end - start);
        size_t n = change != NULL ? (size_t)(change - marks) : end - start;
        jrun_emit(r, span_of(s->ptr + start, n), marks[0] != 0);
        start += n;
    }
}

void jrun_emit_str(struct jrun *r, const struct jstr *s)
{
    jrun_emit_part(r, s, 0, s->len);
}

static struct jstr *new_header(struct jrun *r, size_t len)
{
    struct jstr *s = jrun_alloc(r, 1, sizeof *s);
    if (s != NULL) *s = (struct jstr){.len = (uint32_t)len, .chars = JSTR_CHARS_UNKNOWN};
    return s;
}

struct jval jstr_new(struct jrun *r, struct span bytes, bool trusted)
{
    if (bytes.len >= TEMPLATE_OUTPUT_BYTES_MAX)
        return jrun_fail(r, ERR_LIMIT, "a string has more than %d bytes",
                         TEMPLATE_OUTPUT_BYTES_MAX);
    struct jstr *s = new_header(r, bytes.len);
    if (s == NULL) return JV_UNDEF;
    s->ptr = bytes.ptr;
    s->trusted = trusted;
    return jv_str(s);
}

struct jval jstr_copy(struct jrun *r, const char *text)
{
    size_t mark = r->text.len;
    jrun_emit_text(r, text);
    return jrun_take(r, mark);
}

struct jval jrun_take(struct jrun *r, size_t mark)
{
    size_t len = r->text.len - mark, trusted = 0;
    struct jstr *s = new_header(r, len);
    uint8_t *bytes = jrun_alloc(r, len, 1), *marks = NULL;
    if (bytes == NULL) return JV_UNDEF;
    if (len > 0) memcpy(bytes, r->text.ptr + mark, len);
    struct trust_range *ranges = (struct trust_range *)(void *)r->ranges.ptr;
    size_t count = r->ranges.len / sizeof *ranges;
    while (count > 0 && ranges[count - 1].end > mark) {
        struct trust_range *last = &ranges[count - 1];
        size_t start = last->start > mark ? last->start : mark, n = last->end - start;
        if (n < len && marks == NULL) {
            if ((marks = jrun_alloc(r, len, 1)) == NULL) return JV_UNDEF;
            memset(marks, 0, len);
        }
        if (marks != NULL) memset(marks + (start - mark), 1, n);
        trusted += n;
        if (last->start < mark)
            last->end = mark; /* the output before the capture ends with trusted text */
        else
            count--;
    }
    r->ranges.len = count * sizeof *ranges;
    r->text.len = mark;
    s->ptr = bytes;
    s->marks = marks;
    s->trusted = len > 0 && trusted == len;
    return jv_str(s);
}

/* A copy of s with room behind it. */
static struct jstr *with_room(struct jrun *r, const struct jstr *s, size_t extra)
{
    size_t cap = s->len + extra + s->len / 2 + 32;
    if (cap > TEMPLATE_OUTPUT_BYTES_MAX) cap = s->len + extra;
    if (cap > TEMPLATE_OUTPUT_BYTES_MAX) {
        jrun_fail(r, ERR_LIMIT, "a string has more than %d bytes", TEMPLATE_OUTPUT_BYTES_MAX);
        return NULL;
    }
    struct jstr *copy = new_header(r, s->len);
    struct jback *back = jrun_alloc(r, 1, sizeof *back);
    uint8_t *bytes = jrun_alloc(r, cap, 1);
    if (bytes == NULL) return NULL;
    memcpy(bytes, s->ptr, s->len);
    *back = (struct jback){.bytes = bytes, .used = s->len, .cap = (uint32_t)cap};
    if (s->marks != NULL) {
        if ((back->marks = jrun_alloc(r, cap, 1)) == NULL) return NULL;
        memcpy(back->marks, s->marks, s->len);
    }
    copy->ptr = bytes;
    copy->marks = back->marks;
    copy->back = back;
    copy->trusted = s->trusted;
    copy->markup = s->markup;
    return copy;
}

static bool can_grow(const struct jstr *s, size_t extra)
{
    return s->back != NULL && s->ptr + s->len == s->back->bytes + s->back->used &&
           s->back->cap - s->back->used >= extra;
}

static void fill_marks(uint8_t *marks, const struct jstr *s)
{
    if (s->marks != NULL)
        memcpy(marks, s->marks, s->len);
    else
        memset(marks, s->trusted, s->len);
}

struct jval jstr_concat(struct jrun *r, const struct jstr *a, const struct jstr *b)
{
    if (a->len == 0) return jv_str(b);
    if (b->len == 0) return jv_str(a);
    if (!jrun_step(r, b->len / STEP_BYTES)) return JV_UNDEF;
    if (!can_grow(a, b->len)) {
        if (!jrun_step(r, a->len / STEP_BYTES)) return JV_UNDEF;
        if ((a = with_room(r, a, b->len)) == NULL) return JV_UNDEF;
    }
    struct jback *back = a->back;
    struct jstr *s = new_header(r, a->len + b->len);
    if (s == NULL) return JV_UNDEF;
    bool mixed = a->marks != NULL || b->marks != NULL || a->trusted != b->trusted;
    size_t start = (size_t)(a->ptr - back->bytes);
    if (mixed && back->marks == NULL) {
        if ((back->marks = jrun_alloc(r, back->cap, 1)) == NULL) return JV_UNDEF;
    }
    if (mixed) {
        if (a->marks == NULL) fill_marks(back->marks + start, a);
        fill_marks(back->marks + back->used, b);
    }
    memcpy(back->bytes + back->used, b->ptr, b->len);
    back->used += b->len;
    s->ptr = a->ptr;
    s->marks = mixed ? back->marks + start : NULL;
    s->back = back;
    s->trusted = !mixed && a->trusted;
    s->markup = a->markup && b->markup;
    if (a->chars != JSTR_CHARS_UNKNOWN && b->chars != JSTR_CHARS_UNKNOWN)
        s->chars = a->chars + b->chars;
    return jv_str(s);
}

struct jval jstr_part(struct jrun *r, const struct jstr *s, size_t start, size_t len)
{
    if (len == s->len) return jv_str(s);
    struct jstr *part = new_header(r, len);
    if (part == NULL) return JV_UNDEF;
    part->ptr = s->ptr + start;
    part->markup = s->markup;
    part->trusted = s->trusted;
    if (s->chars == s->len) part->chars = (uint32_t)len;
    if (s->marks == NULL || len == 0) return jv_str(part);
    jrun_step(r, len / STEP_BYTES);
    part->trusted = s->marks[start] != 0;
    if (memchr(s->marks + start, !part->trusted, len) != NULL) part->marks = s->marks + start;
    if (part->marks != NULL) part->trusted = false;
    return jv_str(part);
}

uint32_t jstr_chars(struct jrun *r, const struct jstr *s)
{
    if (s->chars != JSTR_CHARS_UNKNOWN) return s->chars;
    uint32_t n = 0;
    jrun_step(r, s->len / STEP_BYTES);
    for (size_t i = 0; i < s->len; i++)
        n += (s->ptr[i] & 0xC0) != 0x80;
    /* only strings of this render can be unknown: a template's own were counted when parsed */
    ((struct jstr *)(uintptr_t)s)->chars = n;
    return n;
}

size_t jstr_offset(struct jrun *r, const struct jstr *s, uint32_t index)
{
    if (jstr_chars(r, s) == s->len) return index;
    jrun_step(r, index / 16);
    size_t at = 0;
    for (; index > 0 && at < s->len; index--)
        at += unicode_utf8_len(s->ptr[at]);
    return at;
}

size_t jstr_find(struct jrun *r, const struct jstr *s, struct span needle, size_t from)
{
    if (from > s->len || needle.len > s->len - from) return SIZE_MAX;
    if (needle.len == 0) return from;
    const uint8_t *hay = s->ptr + from;
    const uint8_t *found = needle.len == 1 ? memchr(hay, needle.ptr[0], s->len - from)
                                           : memmem(hay, s->len - from, needle.ptr, needle.len);
    size_t at = found != NULL ? (size_t)(found - s->ptr) : SIZE_MAX;
    /* the search prepares the needle each time */
    jrun_step(r, ((found != NULL ? at : s->len) - from + 2 * needle.len) / (STEP_BYTES / 2));
    return at;
}
