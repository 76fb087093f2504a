/* jinja_run.c - budgets, scopes, and the way in for context data. */
#include "common/jinja_run.h"

#include <stdarg.h>
#include <stdio.h>

struct jval jrun_fail(struct jrun *r, enum err err, const char *format, ...)
{
    if (r->err != OK) return JV_UNDEF;
    char what[sizeof r->why->text];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    r->err = errmsg_set(r->why, err, "line %u: %s", r->line, what);
    return JV_UNDEF;
}

bool jrun_step(struct jrun *r, uint64_t n)
{
    if (r->err != OK) return false;
    if (n <= (uint64_t)r->steps_left) {
        r->steps_left -= (int64_t)n;
        return true;
    }
    r->steps_left = 0;
    jrun_fail(r, ERR_LIMIT, "the template runs longer than %d steps", TEMPLATE_STEPS_MAX);
    return false;
}

void *jrun_alloc(struct jrun *r, size_t count, size_t size)
{
    size_t bytes;
    if (r->err != OK) return NULL;
    bool fits = !__builtin_mul_overflow(count, size, &bytes);
    void *ptr = fits ? arena_alloc(&r->arena, bytes > 0 ? bytes : 1) : NULL;
    if (ptr != NULL) return ptr;
    if (fits && bytes <= r->arena.max_bytes - r->arena.used_bytes)
        jrun_fail(r, ERR_NOMEM, "no memory for the values of a template");
    else
        jrun_fail(r, ERR_LIMIT, "the template's values need more than %d bytes",
                  TEMPLATE_OUTPUT_BYTES_MAX);
    return NULL;
}

bool jrun_enter(struct jrun *r)
{
    if (r->err != OK) return false;
    if (r->calls < TEMPLATE_DEPTH_MAX) return r->calls++, true;
    jrun_fail(r, ERR_LIMIT, "calls or values nest deeper than %d levels", TEMPLATE_DEPTH_MAX);
    return false;
}

void jrun_scope_open(struct jrun *r, struct jscope *scope)
{
    *scope = (struct jscope){.parent = r->scope};
    r->scope = scope;
}

void jrun_bind(struct jrun *r, uint32_t name, struct jval value)
{
    struct jscope *s = r->scope;
    if (s == NULL) {
        r->globals[name] = value;
        return;
    }
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->binds[i].name != name) continue;
        s->binds[i].value = value;
        return;
    }
    if (s->count == s->cap) {
        uint32_t cap = s->cap == 0 ? 8 : s->cap * 2;
        struct jbind *wider = jrun_alloc(r, cap, sizeof *wider);
        if (wider == NULL) return;
        if (s->count > 0) memcpy(wider, s->binds, s->count * sizeof *wider);
        s->binds = wider;
        s->cap = cap;
    }
    s->binds[s->count++] = (struct jbind){name, value};
}

static bool is_trusted(const struct jrun *r, const char *name)
{
    for (const char *const *v = r->trusted_vars; v != NULL && *v != NULL; v++)
        if (strcmp(*v, name) == 0) return true;
    return false;
}

struct jval jrun_lookup(struct jrun *r, uint32_t name)
{
    for (const struct jscope *s = r->scope; s != NULL; s = s->parent)
        for (uint32_t i = 0; i < s->count; i++)
            if (s->binds[i].name == name) return s->binds[i].value;
    struct jval *global = &r->globals[name];
    if (global->kind != JK_ABSENT) return *global;
    const char *text = r->t->names[name];
    const struct json *v = json_get(r->context, text);
    const struct jbuiltin *fn;
    if (v != NULL)
        *global = jrun_from_json(r, v, is_trusted(r, text));
    else if ((fn = jinja_function_find(span_str(text))) != NULL)
        *global = (struct jval){.kind = JK_FUNCTION, .function = fn};
    else
        *global = (struct jval){.kind = JK_UNDEF, .what = text};
    return *global;
}

static struct jval object_from_json(struct jrun *r, const struct json *v, bool trusted)
{
    struct jval dict = jdict_new(r, JK_DICT, (uint32_t)json_count(v));
    for (void *it = json_first(v); it != NULL && r->err == OK; it = json_next(v, it)) {
        struct jpair *p = &dict.dict->pairs[dict.dict->count++];
        p->key = jstr_new(r, json_iter_key(it), trusted);
        p->value = jrun_from_json(r, json_iter_value(it), trusted);
    }
    return dict;
}

struct jval jrun_from_json(struct jrun *r, const struct json *v, bool trusted)
{
    if (!jrun_enter(r)) return JV_UNDEF;
    struct jval out = JV_NONE;
    switch (json_kind(v)) {
    case JSON_K_NULL: break;
    case JSON_K_BOOL: out = jv_bool(json_as_bool(v)); break;
    case JSON_K_INT: out = jv_int(json_as_int(v)); break;
    case JSON_K_REAL: out = jv_real(json_as_real(v)); break;
    case JSON_K_STRING: out = jstr_new(r, json_as_string(v), trusted); break;
    case JSON_K_OBJECT: out = object_from_json(r, v, trusted); break;
    case JSON_K_ARRAY: {
        size_t count = json_count(v);
        struct jval *items = jrun_items(r, count);
        for (size_t i = 0; i < count && r->err == OK; i++)
            items[i] = jrun_from_json(r, json_at(v, i), trusted);
        out = jlist_new(r, JK_LIST, items, (uint32_t)count);
        break;
    }
    }
    jrun_leave(r);
    return out;
}
