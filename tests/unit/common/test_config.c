/* Settings: flags, environment, defaults, ranges, and the sentences for mistakes. */
#include "common/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *text;
static uint32_t number, choice;
static uint64_t bytes;
static double share;
static bool flag;
static const struct config_item items[] = {
    {"http-address", CONFIG_STRING, &text, "127.0.0.1", 0, 0, NULL, "", "Where to listen."},
    {"threads", CONFIG_U32, &number, "2", 1, 64, NULL, "", "Threads."},
    {"kv-memory", CONFIG_U64, &bytes, "16M", 0, 0, NULL, "bytes", "Memory."},
    {"share", CONFIG_F64, &share, "0.5", 0, 1, NULL, "", "A share."},
    {"verbose", CONFIG_BOOL, &flag, NULL, 0, 0, NULL, "", "Talk."},
    {"device", CONFIG_CHOICE, &choice, "auto", 0, 0, "auto|cpu", "", "Where."},
};
static const struct config config = {"test",           "A test.", "[options]", NULL, items,
                                     ARRAY_LEN(items), 1};
static struct errmsg why;
static const char *positional[1];
static uint32_t positional_count;

static enum config_result parse(int argc, char **argv)
{
    why.text[0] = '\0';
    return config_parse(&config, argc, argv, positional, &positional_count, &why);
}
#define PARSE(...)                                                                                 \
    parse((int)(sizeof((char *[]){"test", __VA_ARGS__}) / sizeof(char *)),                         \
          (char *[]){"test", __VA_ARGS__})

static void values_come_from_flags_environment_and_table(void **state)
{
    (void)state;
    setenv("PENSTOCK_THREADS", "7", 1);
    assert_int_equal(PARSE("file", "--kv-memory=2G", "--device", "cpu", "--verbose"), CONFIG_RUN);
    assert_string_equal(text, "127.0.0.1");
    assert_int_equal(number, 7);
    assert_true(bytes == UINT64_C(2) << 30);
    assert_true(share == 0.5);
    assert_true(flag);
    assert_int_equal(choice, 1);
    assert_int_equal(positional_count, 1);
    assert_string_equal(positional[0], "file");
    assert_int_equal(PARSE("--threads", "3", "--verbose=false", "--", "--odd"), CONFIG_RUN);
    assert_int_equal(number, 3);
    assert_false(flag);
    assert_string_equal(positional[0], "--odd");
    setenv("PENSTOCK_THREADS", "many", 1);
    assert_int_equal(PARSE("x"), CONFIG_EXIT_BAD);
    assert_non_null(strstr(why.text, "PENSTOCK_THREADS"));
    unsetenv("PENSTOCK_THREADS");
}

static void mistakes_get_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *arg, *says;
    } rows[] = {
        {"--tread=3", "did you mean --threads"},
        {"--thread", "did you mean --threads"},
        {"--kvmemory", "did you mean --kv-memory"},
        {"--zzzzzzzz", "--help lists all"},
        {"-x", "unknown flag"},
        {"--threads=0", "1 to 64"},
        {"--threads=65", "1 to 64"},
        {"--threads=-1", "1 to 64"},
        {"--threads=3x", "1 to 64"},
        {"--threads=99999999999", "1 to 64"},
        {"--kv-memory=20T", "whole number"},
        {"--kv-memory=99999999999G", "whole number"},
        {"--share=nan", "number"},
        {"--share=1.5", "0 to 1"},
        {"--verbose=yes", "true or false"},
        {"--device=gpu", "auto|cpu"},
        {"--threads", "needs a value"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(parse(2, (char *[]){"test", (char *)rows[i].arg}), CONFIG_EXIT_BAD);
        if (strstr(why.text, rows[i].says) == NULL) fail_msg("%s: %s", rows[i].arg, why.text);
    }
    assert_int_equal(PARSE("a", "b"), CONFIG_EXIT_BAD);
}

static void help_lists_everything(void **state)
{
    (void)state;
    char *out = NULL;
    size_t len;
    FILE *f = open_memstream(&out, &len);
    config_print_help(&config, f);
    fclose(f);
    for (size_t i = 0; i < ARRAY_LEN(items); i++)
        assert_non_null(strstr(out, items[i].name));
    assert_non_null(strstr(out, "Range 1 to 64"));
    assert_non_null(strstr(out, "Default 16M"));
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_from_flags_environment_and_table),
        cmocka_unit_test(mistakes_get_a_sentence),
        cmocka_unit_test(help_lists_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
