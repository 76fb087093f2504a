/* Messages and prompts to token ids: shapes, refusals by name, lengths, and user text that looks
 * like a control token stays text. */
#include "tests/unit/gateway/gateway_fixture.h"

static struct served_model model;

static int setup(void **state)
{
    (void)state;
    fixture_model_init(&model);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_model_deinit(&model);
    return 0;
}

static void expect_fault(enum endpoint endpoint, const char *json, const char *param,
                         const char *code)
{
    struct api_error e;
    enum err err;
    struct request *r = fixture_parse(endpoint, json, &e, &err);
    if (err == OK) err = api_prompt_make(r, &model, &e);
    if (err == OK) fail_msg("taken: %s", json);
    if (e.status != 400 || strcmp(e.param, param) != 0 ||
        strcmp(e.code != NULL ? e.code : "", code) != 0)
        fail_msg("%s: %u param '%s' code '%s': %s", json, e.status, e.param, e.code, e.message);
    request_destroy(r);
}

/* The prompt's text, control tokens spelt as {id}. */
static void expect_prompt(const char *fields, const char *want)
{
    char json[2048];
    struct buffer text;
    (void)snprintf(json, sizeof json, "{\"model\":\"m\",%s}", fields);
    struct request *r = fixture_request(&model, ENDPOINT_CHAT, json);
    buffer_init(&text, 4096);
    for (uint32_t i = 0; i < r->prompts[0].count; i++) {
        uint32_t id = r->prompts[0].ids[i];
        if (tokenizer_is_control(model.tokenizer, id))
            buffer_printf(&text, "{%u}", id);
        else
            buffer_add_span(&text, tokenizer_piece(model.tokenizer, id));
    }
    assert_text(buffer_view(&text), want);
    buffer_deinit(&text);
    request_destroy(r);
}

static void messages_are_rendered(void **state)
{
    (void)state;
    expect_prompt("\"messages\":[{\"role\":\"user\",\"content\":\"hex\"}]",
                  "{1}user:hex|{1}assistant:");
    expect_prompt("\"messages\":[{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"user\","
                  "\"content\":[{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"text\",\"text\":"
                  "\"c\"}]}],\"add_generation_prompt\":false",
                  "{1}system:a|{1}user:bc|");
    /* what a user writes is never a control token */
    expect_prompt("\"messages\":[{\"role\":\"user\",\"content\":\"a<s>b</s>\"}]",
                  "{1}user:a<s>b</s>|{1}assistant:");
    expect_prompt("\"messages\":[{\"role\":\"user\",\"content\":\"<s\"},{\"role\":\"user\","
                  "\"content\":\">\"}],\"add_generation_prompt\":false",
                  "{1}user:<s|{1}user:>|");
}

static void the_final_message_is_continued(void **state)
{
    (void)state;
    expect_prompt("\"messages\":[{\"role\":\"user\",\"content\":\"he\"},{\"role\":\"assistant\","
                  "\"content\":\"he \"}],\"continue_final_message\":true",
                  "{1}user:he|{1}assistant:he");
    expect_fault(ENDPOINT_CHAT,
                 "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                 "\"continue_final_message\":true}",
                 "continue_final_message", "invalid_value");
}

static void faults_in_messages(void **state)
{
    (void)state;
    static const struct {
        const char *messages, *param, *code;
    } list[] = {
        {"null", "messages", "missing_required_parameter"},
        {"[]", "messages", "empty_array"},
        {"\"x\"", "messages", "invalid_type"},
        {"[5]", "messages[0]", "invalid_type"},
        {"[{\"content\":\"x\"}]", "messages[0].role", "missing_required_parameter"},
        {"[{\"role\":\"boss\",\"content\":\"x\"}]", "messages[0].role", "invalid_value"},
        {"[{\"role\":\"user\"}]", "messages[0].content", "invalid_type"},
        {"[{\"role\":\"user\",\"content\":7}]", "messages[0].content", "invalid_type"},
        {"[{\"role\":\"user\",\"content\":[]}]", "messages[0].content", "empty_array"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", "messages[0].content",
         "unsupported_value"},
        {"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"tool\",\"content\":\"x\"}]",
         "messages[1].tool_call_id", "missing_required_parameter"},
        {"[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]",
         "messages[0].tool_calls", "unsupported_parameter"},
        {"[{\"role\":\"user\",\"content\":\"a\",\"colour\":1}]", "messages[0].colour",
         "unsupported_parameter"},
        {"[{\"role\":\"user\",\"content\":\"forbidden\"}]", "messages", "invalid_value"},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        char json[512];
        (void)snprintf(json, sizeof json, "{\"model\":\"m\",\"messages\":%s}", list[i].messages);
        expect_fault(ENDPOINT_CHAT, json, list[i].param, list[i].code);
    }
    struct api_error e;
    enum err err;
    struct request *r = fixture_parse(
        ENDPOINT_CHAT,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"forbidden\"}]}", &e, &err);
    assert_int_equal(api_prompt_make(r, &model, &e), ERR_INVALID);
    assert_true(span_has(span_str(e.message), "not that")); /* the template's own words */
    request_destroy(r);
}

static void completion_prompts(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_COMPLETIONS,
                                        "{\"model\":\"m\",\"prompt\":\"hello\",\"n\":2}");
    assert_int_equal(r->prompt_count, 1);
    assert_int_equal(r->prompts[0].count, 4); /* he l l o */
    assert_int_equal(r->choice_count, 2);
    request_destroy(r);
    r = fixture_request(&model, ENDPOINT_COMPLETIONS,
                        "{\"model\":\"m\",\"prompt\":[\"he\",\"x\",[3,4,5]],\"n\":2}");
    assert_int_equal(r->prompt_count, 3);
    assert_int_equal(r->choice_count, 6);
    assert_true(r->choices[5].prompt == 2 && r->choices[5].within == 1);
    assert_int_equal(r->prompts[2].ids[2], 5);
    request_destroy(r);
    r = fixture_request(&model, ENDPOINT_COMPLETIONS, "{\"model\":\"m\",\"prompt\":[3,4]}");
    assert_int_equal(r->prompt_count, 1);
    assert_int_equal(r->prompts[0].count, 2);
    request_destroy(r);
    r = fixture_request(&model, ENDPOINT_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"\"}");
    assert_int_equal(r->prompts[0].count, 1); /* nothing: the model's own beginning */
    assert_int_equal(r->prompts[0].ids[0], ID_BOS);
    request_destroy(r);
    static const char *const faults[] = {"[]",        "[[]]",  "[-1]", "[320]",        "[1,\"a\"]",
                                         "[\"a\",1]", "[1.5]", "{}",   "[[1],[\"a\"]]"};
    static const char *const codes[] = {"empty_array",   "empty_array",  "invalid_value",
                                        "invalid_value", "invalid_type", "invalid_type",
                                        "invalid_type",  "invalid_type", "invalid_type"};
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        char json[128];
        (void)snprintf(json, sizeof json, "{\"model\":\"m\",\"prompt\":%s}", faults[i]);
        expect_fault(ENDPOINT_COMPLETIONS, json, "prompt", codes[i]);
    }
}

static void lengths(void **state)
{
    (void)state;
    char json[2048], text[512];
    memset(text, 'q', 250);
    text[200] = '\0'; /* the context is 200: one token must be left */
    (void)snprintf(json, sizeof json, "{\"model\":\"m\",\"prompt\":\"%s\"}", text);
    expect_fault(ENDPOINT_COMPLETIONS, json, "prompt", "context_length_exceeded");
    text[199] = '\0';
    (void)snprintf(json, sizeof json, "{\"model\":\"m\",\"prompt\":\"%s\"}", text);
    struct request *r = fixture_request(&model, ENDPOINT_COMPLETIONS, json);
    assert_int_equal(r->params.max_tokens, 1);
    request_destroy(r);
    (void)snprintf(json, sizeof json, "{\"model\":\"m\",\"prompt\":\"%s\",\"max_tokens\":2}", text);
    struct api_error e;
    enum err err;
    r = fixture_parse(ENDPOINT_COMPLETIONS, json, &e, &err);
    assert_int_equal(api_prompt_make(r, &model, &e), ERR_INVALID);
    assert_string_equal(e.code, "context_length_exceeded");
    assert_true(span_has(span_str(e.message), "200") && span_has(span_str(e.message), "201"));
    request_destroy(r);
    expect_fault(ENDPOINT_COMPLETIONS,
                 "{\"model\":\"m\",\"prompt\":\"a\",\"logit_bias\":{\"320\":1}}", "logit_bias",
                 "invalid_value");
    expect_fault(ENDPOINT_COMPLETIONS,
                 "{\"model\":\"m\",\"prompt\":\"a\",\"stop_token_ids\":[320]}", "stop_token_ids",
                 "invalid_value");
}

static void template_arguments(void **state)
{
    (void)state;
    expect_fault(ENDPOINT_CHAT,
                 "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                 "\"chat_template_kwargs\":{\"messages\":[]}}",
                 "chat_template_kwargs", "invalid_value");
    expect_fault(ENDPOINT_CHAT,
                 "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                 "\"chat_template_kwargs\":[]}",
                 "chat_template_kwargs", "invalid_type");
    expect_prompt("\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                  "\"chat_template_kwargs\":{\"x\":1}",
                  "{1}user:a|{1}assistant:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_rendered),
        cmocka_unit_test(the_final_message_is_continued),
        cmocka_unit_test(faults_in_messages),
        cmocka_unit_test(completion_prompts),
        cmocka_unit_test(lengths),
        cmocka_unit_test(template_arguments),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
