#include "common/jinja_builtin.h"

#include "common/err.h"

static const struct jbuiltin *find_in(const struct jbuiltin_table *t, struct span name)
{
    for (uint32_t i = 0; i < t->count; i++)
        if (span_eq_str(name, t->items[i].name)) return &t->items[i];
    return NULL;
}

const struct jbuiltin *jinja_filter_find(struct span name)
{
    const struct jbuiltin_table *const tables[] = {&jinja_filters_value, &jinja_filters_text,
                                                   &jinja_filters_seq, &jinja_filters_select};
    const struct jbuiltin *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(tables) && found == NULL; i++)
        found = find_in(tables[i], name);
    return found;
}

const struct jbuiltin *jinja_test_find(struct span name)
{
    return find_in(&jinja_tests, name);
}

const struct jbuiltin *jinja_method_find(struct span name)
{
    return find_in(&jinja_methods, name);
}

const struct jbuiltin *jinja_function_find(struct span name)
{
    return find_in(&jinja_functions, name);
}
