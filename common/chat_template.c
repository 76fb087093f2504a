#include "common/chat_template.h"

#include "common/jinja_run.h"
#include "common/unicode.h"

#include <stdlib.h>

enum {
    TREE_BYTES_MAX = 64 << 20,  /* nodes of a parsed template */
    RANGES_BYTES_MAX = 8 << 20, /* trusted ranges of one output */
};

/* CR LF and CR become LF; one newline at the very end goes. The copy lives in the arena. */
static enum err copy_source(struct chat_template *t, struct span source, struct span *out,
                            struct errmsg *why)
{
    uint8_t *bytes = arena_alloc(&t->arena, source.len + 1);
    if (bytes == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for a template");
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        uint8_t c = source.ptr[i];
        if (c == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n') continue;
        bytes[n++] = c == '\r' ? '\n' : c;
    }
    if (n > 0 && bytes[n - 1] == '\n') n--;
    *out = span_of(bytes, n);
    return OK;
}

enum err chat_template_create(struct span source, struct chat_template **out, struct errmsg *why)
{
    struct span text;
    if (source.len > TEMPLATE_SOURCE_BYTES_MAX)
        return errmsg_set(why, ERR_LIMIT, "the template has %zu bytes; at most %d are read",
                          source.len, TEMPLATE_SOURCE_BYTES_MAX);
    if (!unicode_utf8_valid(source))
        return errmsg_set(why, ERR_PROTO, "the template is not valid UTF-8");
    struct chat_template *t = calloc(1, sizeof *t);
    if (t == NULL) return errmsg_set(why, ERR_NOMEM, "no memory for a template");
    arena_init(&t->arena, TREE_BYTES_MAX);
    enum err err = copy_source(t, source, &text, why);
    if (err == OK) err = jinja_parse(t, text, why);
    if (err != OK) {
        chat_template_destroy(t);
        return err;
    }
    *out = t;
    return OK;
}

void chat_template_destroy(struct chat_template *t)
{
    if (t == NULL) return;
    arena_deinit(&t->arena);
    free(t);
}

void rendered_init(struct rendered *r)
{
    *r = (struct rendered){0};
    buffer_init(&r->text, TEMPLATE_OUTPUT_BYTES_MAX);
}

void rendered_deinit(struct rendered *r)
{
    buffer_deinit(&r->text);
    free(r->trusted);
    r->trusted = NULL;
    r->trusted_count = 0;
}

enum err chat_template_render(const struct chat_template *t, const struct json *context,
                              const char *const *trusted_vars, int64_t now_s, int32_t utc_offset_s,
                              struct rendered *out, struct errmsg *why)
{
    struct errmsg unheard;
    struct jrun r = {.t = t,
                     .context = context,
                     .trusted_vars = trusted_vars,
                     .now_s = now_s,
                     .utc_offset_s = utc_offset_s,
                     .steps_left = TEMPLATE_STEPS_MAX,
                     .why = why != NULL ? why : &unheard};
    rendered_deinit(out);
    arena_init(&r.arena, TEMPLATE_OUTPUT_BYTES_MAX);
    buffer_init(&r.text, TEMPLATE_OUTPUT_BYTES_MAX);
    buffer_init(&r.ranges, RANGES_BYTES_MAX);
    r.globals = jrun_alloc(&r, t->name_count, sizeof *r.globals);
    for (uint32_t i = 0; i < t->name_count && r.err == OK; i++)
        r.globals[i] = JV_ABSENT;
    if (r.err == OK) jrun_exec(&r, t->root);
    arena_deinit(&r.arena);
    if (r.err != OK) {
        buffer_deinit(&r.text);
        buffer_deinit(&r.ranges);
        return r.err;
    }
    out->text = r.text;
    out->trusted = (struct trust_range *)(void *)r.ranges.ptr;
    out->trusted_count = r.ranges.len / sizeof *out->trusted;
    return OK;
}
