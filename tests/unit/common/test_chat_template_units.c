/* One construct a line, checked against jinja2 3.1.6 (tests/golden/templates/unit.jsonl), and
 * templates that must only come to an end (hostile.jsonl). */
#include "tests/unit/common/template_fixture.h"

#include "common/clock.h"

static const char units_dir[] = GOLDEN_DIR "/templates";

static void test_units(void **state)
{
    (void)state;
    struct buffer file;
    assert_true(fixture_read(units_dir, "unit.jsonl", &file));
    struct span text = buffer_view(&file), line;
    assert_true(fixture_line(&text, &line));
    struct json *head = fixture_json(line);
    unsigned right = 0, wrong = 0;
    while (fixture_line(&text, &line)) {
        struct json *c = fixture_json(line);
        struct chat_template *t = NULL;
        struct rendered r;
        struct errmsg why = {""};
        rendered_init(&r);
        enum err err = chat_template_create(fixture_text(c, "template"), &t, &why);
        if (err == OK)
            err = chat_template_render(t, json_get(head, "context"), NULL, fixture_now(head), 0, &r,
                                       &why);
        bool ok = fixture_right(c, err, &r, &why);
        right += ok;
        wrong += !ok;
        if (!ok)
            print_error("%.*s: %s %s '%.*s'\n   expected '%.*s'\n", (int)fixture_text(c, "id").len,
                        fixture_text(c, "id").ptr, err_name(err), why.text, (int)r.text.len,
                        (char *)r.text.ptr, (int)fixture_text(c, "expected").len,
                        fixture_text(c, "expected").ptr);
        fixture_check_ranges(&r);
        rendered_deinit(&r);
        chat_template_destroy(t);
        json_destroy(c);
    }
    json_destroy(head);
    buffer_deinit(&file);
    print_message("%u units right, %u wrong\n", right, wrong);
    assert_int_equal(wrong, 0);
    assert_true(right >= 75);
}

static unsigned run_hostile(const char *dir)
{
    struct buffer file;
    assert_true(fixture_read(dir, "hostile.jsonl", &file));
    struct span text = buffer_view(&file), line;
    struct json *context = fixture_json(SPAN_LIT("{}"));
    unsigned count = 0;
    while (fixture_line(&text, &line)) {
        struct json *c = fixture_json(line);
        struct chat_template *t = NULL;
        struct rendered r;
        struct errmsg why = {""};
        rendered_init(&r);
        uint64_t start_ns = clock_now_ns();
        enum err err = chat_template_create(fixture_text(c, "template"), &t, &why);
        if (err == OK) err = chat_template_render(t, context, NULL, 0, 0, &r, &why);
        uint64_t took_ns = clock_now_ns() - start_ns;
        print_message("%-20.*s %6.1f ms %s %.60s\n", (int)fixture_text(c, "id").len,
                      fixture_text(c, "id").ptr, (double)took_ns / 1e6, err_name(err), why.text);
        assert_true(err == OK || why.text[0] != '\0');
        assert_true(took_ns < 10 * NS_PER_S); /* a second, on a loaded machine with sanitizers */
        rendered_deinit(&r);
        chat_template_destroy(t);
        json_destroy(c);
        count++;
    }
    json_destroy(context);
    buffer_deinit(&file);
    return count;
}

static void test_hostile(void **state)
{
    (void)state;
    assert_true(run_hostile(units_dir) >= 8);
}

static void test_hostile_large(void **state)
{
    (void)state;
    const char *dir = fixture_templates_dir();
    if (dir == NULL) {
        print_message("skipped: no golden templates (PENSTOCK_GOLDEN names their folder)\n");
        skip();
    }
    assert_true(run_hostile(dir) >= 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_hostile_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
