/* /tokenize and /detokenize: both families of field names, and refusals by name. */
#include "gateway/api_tokenize.h"
#include "tests/unit/gateway/gateway_fixture.h"

static struct served_models models;
static struct buffer out;

static int setup(void **state)
{
    (void)state;
    fixture_model_init(&models.list[0]);
    buffer_init(&out, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_model_deinit(&models.list[0]);
    buffer_deinit(&out);
    return 0;
}

static void expect(bool tokenize, const char *body, const char *want)
{
    struct api_error e = {.message = ""};
    buffer_reset(&out);
    enum err err = tokenize ? api_tokenize(&models, span_str(body), &out, &e)
                            : api_detokenize(&models, span_str(body), &out, &e);
    if (err != OK) fail_msg("%s: %s", body, e.message);
    assert_text(buffer_view(&out), want);
}

static void expect_fault(bool tokenize, const char *body, uint32_t status, const char *param)
{
    struct api_error e;
    buffer_reset(&out);
    enum err err = tokenize ? api_tokenize(&models, span_str(body), &out, &e)
                            : api_detokenize(&models, span_str(body), &out, &e);
    assert_int_equal(err, ERR_INVALID);
    if (e.status != status || strcmp(e.param, param) != 0)
        fail_msg("%s: %u '%s': %s", body, e.status, e.param, e.message);
}

static void texts(void **state)
{
    (void)state;
    expect(true, "{\"prompt\":\"hello\"}",
           "{\"count\":4,\"max_model_len\":200,\"tokens\":[259,111,111,114]}");
    expect(true, "{\"model\":\"m\",\"content\":\"hex\",\"add_special\":false}",
           "{\"count\":2,\"max_model_len\":200,\"tokens\":[259,266]}");
    expect(true, "{\"content\":\"x<s>\",\"parse_special\":true,\"with_pieces\":true}",
           "{\"count\":2,\"max_model_len\":200,\"tokens\":[{\"id\":266,\"piece\":\"x\"},"
           "{\"id\":1,\"piece\":\"<s>\"}]}");
    expect(true, "{\"prompt\":\"he\",\"return_token_strs\":true}",
           "{\"count\":1,\"max_model_len\":200,\"tokens\":[259],\"token_strs\":[\"he\"]}");
    expect(true, "{\"prompt\":\"\"}", "{\"count\":0,\"max_model_len\":200,\"tokens\":[]}");
}

static void chats(void **state)
{
    (void)state;
    struct api_error e;
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                               "\"add_generation_prompt\":false}";
    buffer_reset(&out);
    assert_int_equal(api_tokenize(&models, span_str(body), &out, &e), OK);
    assert_true(span_has(buffer_view(&out), "\"count\":8")); /* <s> u s e r : x | */
    expect_fault(true, "{\"messages\":[],\"prompt\":\"x\"}", 400, "messages");
    expect_fault(true, "{\"messages\":[]}", 400, "messages");
}

static void back(void **state)
{
    (void)state;
    expect(false, "{\"tokens\":[259,260,1]}", "{\"prompt\":\"hello<s>\",\"content\":\"hello<s>\"}");
    expect(false, "{\"tokens\":[]}", "{\"prompt\":\"\",\"content\":\"\"}");
    expect_fault(false, "{\"tokens\":[-1]}", 400, "tokens");
    expect_fault(false, "{\"tokens\":[267]}", 400, "tokens");
    expect_fault(false, "{\"tokens\":[\"a\"]}", 400, "tokens");
    expect_fault(false, "{\"tokens\":5}", 400, "tokens");
    expect_fault(false, "{}", 400, "tokens");
}

static void faults(void **state)
{
    (void)state;
    expect_fault(true, "{}", 400, "prompt");
    expect_fault(true, "{\"prompt\":5}", 400, "prompt");
    expect_fault(true, "{\"prompt\":\"x\",\"colour\":1}", 400, "colour");
    expect_fault(true, "{\"prompt\":\"x\",\"parse_special\":1}", 400, "parse_special");
    expect_fault(true, "{\"prompt\":\"x\",\"model\":\"n\"}", 404, "model");
    expect_fault(true, "[]", 400, "");
    expect_fault(true, "{\"prompt\":", 400, "");
    models.list[1] = models.list[0];
    expect_fault(true, "{\"prompt\":\"x\"}", 400, "model"); /* which of two? */
    models.list[1].used = false;
    models.list[0].used = false;
    expect_fault(true, "{\"prompt\":\"x\"}", 503, "");
    models.list[0].used = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(chats),
                                       cmocka_unit_test(back), cmocka_unit_test(faults)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
