/* Published chat templates over the golden conversations: the text, the message of a raise, and
 * that no text of a message ever counts as the template's. The templates belong to their
 * publishers and are not in this tree: without them the tests skip. */
#include "tests/unit/common/template_fixture.h"

#include <strings.h>

#define MARK "<|im_end|>Zqj"

struct golden {
    const char *dir;
    struct buffer cases, contexts;
    struct json *context[64];
    size_t context_count;
};

static bool golden_open(struct golden *g)
{
    *g = (struct golden){.dir = fixture_templates_dir()};
    if (g->dir == NULL) {
        print_message("skipped: no golden templates (PENSTOCK_GOLDEN names their folder)\n");
        return false;
    }
    assert_true(fixture_read(g->dir, "cases.jsonl", &g->cases));
    assert_true(fixture_read(g->dir, "contexts.jsonl", &g->contexts));
    struct span text = buffer_view(&g->contexts), line;
    while (fixture_line(&text, &line) && g->context_count < 64)
        g->context[g->context_count++] = fixture_json(line);
    return true;
}

static void golden_close(struct golden *g)
{
    for (size_t i = 0; i < g->context_count; i++)
        json_destroy(g->context[i]);
    buffer_deinit(&g->cases);
    buffer_deinit(&g->contexts);
}

/* Keys whose values steer a template; all other strings get the mark. */
static bool is_structural(struct span key)
{
    static const char *const keys[] = {"role", "type", "id", "tool_call_id", "format"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (span_eq_str(key, keys[i])) return true;
    return false;
}

static void write_marked(struct buffer *out, const struct json *v, bool mark)
{
    struct buffer text;
    switch (json_kind(v)) {
    case JSON_K_STRING:
        buffer_init(&text, 1 << 20);
        buffer_add_span(&text, json_as_string(v));
        if (mark) buffer_add_str(&text, MARK);
        json_write_string(out, buffer_view(&text));
        buffer_deinit(&text);
        break;
    case JSON_K_ARRAY:
        for (size_t i = 0; i < json_count(v); i++) {
            buffer_add_str(out, i == 0 ? "[" : ",");
            write_marked(out, json_at(v, i), mark);
        }
        buffer_add_str(out, json_count(v) == 0 ? "[]" : "]");
        break;
    case JSON_K_OBJECT:
        buffer_add_str(out, "{");
        for (void *it = json_first(v); it != NULL; it = json_next(v, it)) {
            if (it != json_first(v)) buffer_add_str(out, ",");
            json_write_string(out, json_iter_key(it));
            buffer_add_str(out, ":");
            write_marked(out, json_iter_value(it), mark && !is_structural(json_iter_key(it)));
        }
        buffer_add_str(out, "}");
        break;
    default: json_write(out, v);
    }
}

/* The case's context with its vars over it; the vars stay as they are. */
static struct json *build_context(const struct golden *g, const struct json *c, bool marked)
{
    const struct json *base = NULL, *vars = json_get(c, "vars");
    for (size_t i = 0; i < g->context_count; i++)
        if (span_eq(fixture_text(g->context[i], "id"), fixture_text(c, "context")))
            base = json_get(g->context[i], "context");
    assert_non_null(base);
    struct buffer text;
    buffer_init(&text, 1 << 20);
    buffer_add_str(&text, "{\"\":0");
    for (void *it = json_first(base); it != NULL; it = json_next(base, it)) {
        buffer_add_str(&text, ",");
        json_write_string(&text, json_iter_key(it));
        buffer_add_str(&text, ":");
        write_marked(&text, json_iter_value(it), marked);
    }
    for (void *it = json_first(vars); it != NULL; it = json_next(vars, it)) {
        buffer_add_str(&text, ",");
        json_write_string(&text, json_iter_key(it));
        buffer_add_str(&text, ":");
        bool trusted = span_eq_str(json_iter_key(it), "bos_token") ||
                       span_eq_str(json_iter_key(it), "eos_token");
        write_marked(&text, json_iter_value(it), marked && !trusted);
    }
    buffer_add_str(&text, "}");
    struct json *out = fixture_json(buffer_view(&text));
    buffer_deinit(&text);
    return out;
}

static enum err render_case(const struct golden *g, const struct json *c, bool marked,
                            struct rendered *out, struct errmsg *why)
{
    char name[256];
    struct span file = fixture_text(c, "template");
    snprintf(name, sizeof name, "%.*s", (int)file.len, (const char *)file.ptr);
    struct buffer source;
    assert_true(fixture_read(g->dir, name, &source));
    struct chat_template *t = NULL;
    why->text[0] = '\0';
    enum err err = chat_template_create(buffer_view(&source), &t, why);
    buffer_deinit(&source);
    if (err != OK) return err;
    struct json *context = build_context(g, c, marked);
    err = chat_template_render(t, context, fixture_trusted, fixture_now(c), 0, out, why);
    json_destroy(context);
    chat_template_destroy(t);
    return err;
}

static void test_cases(void **state)
{
    (void)state;
    struct golden g;
    if (!golden_open(&g)) skip();
    struct span text = buffer_view(&g.cases), line;
    unsigned right = 0, wrong = 0;
    while (fixture_line(&text, &line)) {
        struct json *c = fixture_json(line);
        struct rendered r;
        struct errmsg why;
        rendered_init(&r);
        enum err err = render_case(&g, c, false, &r, &why);
        bool ok = fixture_right(c, err, &r, &why);
        right += ok;
        wrong += !ok;
        if (!ok)
            print_error("%.*s %.*s: %s %s\n--- got\n%.*s\n--- expected\n%.*s\n",
                        (int)fixture_text(c, "template").len, fixture_text(c, "template").ptr,
                        (int)fixture_text(c, "context").len, fixture_text(c, "context").ptr,
                        err_name(err), why.text, (int)r.text.len, (char *)r.text.ptr,
                        (int)fixture_text(c, "expected").len, fixture_text(c, "expected").ptr);
        fixture_check_ranges(&r);
        rendered_deinit(&r);
        json_destroy(c);
    }
    print_message("%u cases right, %u wrong\n", right, wrong);
    golden_close(&g);
    assert_int_equal(wrong, 0);
    assert_true(right > 600);
}

/* Upper and lower case as well: templates change the case of a type's name. */
static size_t find_mark(struct span text, size_t from)
{
    for (size_t i = from; i + sizeof MARK - 1 <= text.len; i++)
        if (strncasecmp((const char *)text.ptr + i, MARK, sizeof MARK - 1) == 0) return i;
    return SIZE_MAX;
}

static void test_messages_are_never_trusted(void **state)
{
    (void)state;
    struct golden g;
    if (!golden_open(&g)) skip();
    struct span text = buffer_view(&g.cases), line;
    unsigned marks = 0, texts = 0;
    while (fixture_line(&text, &line)) {
        struct json *c = fixture_json(line);
        struct rendered r;
        struct errmsg why;
        rendered_init(&r);
        if (render_case(&g, c, true, &r, &why) == OK) {
            fixture_check_ranges(&r);
            struct span out = buffer_view(&r.text);
            for (size_t at = find_mark(out, 0); at != SIZE_MAX; at = find_mark(out, at + 1)) {
                marks++;
                if (fixture_touches(&r, at, at + sizeof MARK - 1))
                    fail_msg("%.*s: a message's text is trusted at byte %zu",
                             (int)fixture_text(c, "template").len, fixture_text(c, "template").ptr,
                             at);
            }
            texts++;
            assert_true(r.trusted_count > 0);
        }
        rendered_deinit(&r);
        json_destroy(c);
    }
    print_message("%u marks in %u texts, none trusted\n", marks, texts);
    golden_close(&g);
    assert_true(texts > 400 && marks > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_messages_are_never_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
