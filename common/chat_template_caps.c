/* chat_template_caps.c - what a template can do, read off its syntax tree. */
#include "common/chat_template.h"

#include "common/jinja_ast.h"

struct search {
    const struct chat_template *t;
    struct chat_template_caps caps;
    bool *is_content; /* [name_count]: a variable that was set from a message's content */
};

/* Does the value of n come from a `content` key or attribute, by ways that keep a list a list? */
static bool is_content(const struct search *s, const struct jnode *n)
{
    if (n == NULL) return false;
    switch (n->kind) {
    case JN_NAME: return s->is_content[n->name];
    case JN_ATTR: return jv_is_str(n->value, "content");
    case JN_ITEM:
        if (n->b->kind == JN_SLICE) return is_content(s, n->a);
        return n->b->kind == JN_CONST && jv_is_str(n->b->value, "content");
    case JN_FILTER: return is_content(s, n->a);
    case JN_COND: return is_content(s, n->b) || is_content(s, n->c);
    case JN_OR:
        for (uint32_t i = 0; i < n->count; i++)
            if (is_content(s, n->list[i])) return true;
        return false;
    default: return false;
    }
}

static void note_content(struct search *s, const struct jnode *target)
{
    if (target->kind == JN_NAME) s->is_content[target->name] = true;
}

static uint32_t list_length(const struct jnode *n)
{
    switch (n->kind) {
    case JN_DICT:
    case JN_IF:
    case JN_WITH: return 2 * n->count;
    case JN_CALL:
    case JN_FILTER:
    case JN_TEST: return n->count + n->kw_count;
    default: return n->count;
    }
}

/* Chains of filters and subscripts are towers of a's: at most TEMPLATE_DEPTH_MAX high for each
 * level of nesting, which is bounded as well; depth stops what is built on purpose. */
static void visit(struct search *s, const struct jnode *n, uint32_t depth)
{
    if (n == NULL || depth > 2500) return;
    if (n->kind == JN_NAME) {
        s->caps.tools |= strcmp(s->t->names[n->name], "tools") == 0;
        s->caps.enable_thinking |= strcmp(s->t->names[n->name], "enable_thinking") == 0;
        return;
    }
    if (n->kind == JN_FOR && is_content(s, n->b)) s->caps.content_parts = true;
    if (n->kind == JN_SET && is_content(s, n->b)) note_content(s, n->a);
    if (n->kind == JN_MACRO)
        for (uint32_t i = 0; i < n->count; i++)
            if (strcmp(s->t->names[n->list[i]->name], "content") == 0) note_content(s, n->list[i]);
    bool writes_a = n->kind == JN_SET || n->kind == JN_SET_BLOCK || n->kind == JN_FOR;
    if (!writes_a) visit(s, n->a, depth + 1);
    visit(s, n->b, depth + 1);
    visit(s, n->c, depth + 1);
    if (n->kind != JN_MACRO)
        for (uint32_t i = 0; i < list_length(n); i++)
            visit(s, n->list[i], depth + 1);
    for (uint32_t i = 0; n->defaults != NULL && i < n->count; i++)
        visit(s, n->defaults[i], depth + 1);
}

struct chat_template_caps chat_template_caps_of(const struct chat_template *t)
{
    bool content_names[4096] = {false}; /* the parser takes no more names */
    struct search s = {.t = t, .is_content = content_names};
    for (int pass = 0; pass < 3; pass++) /* a name may be read above where it is set */
        visit(&s, t->root, 0);
    return s.caps;
}
