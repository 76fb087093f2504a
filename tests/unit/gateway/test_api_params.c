/* Every parameter works or is refused by name, with OpenAI's words and codes. */
#include "tests/unit/gateway/gateway_fixture.h"

struct refusal {
    const char *field; /* the JSON of one more member */
    const char *param, *code;
};

static void expect_refused(enum endpoint endpoint, const char *field, const char *param,
                           const char *code)
{
    char json[2048];
    struct api_error e;
    enum err err;
    (void)snprintf(json, sizeof json, "{\"model\":\"m\",%s}", field);
    struct request *r = fixture_parse(endpoint, json, &e, &err);
    if (err != ERR_INVALID) fail_msg("taken: %s", json);
    if (e.status != 400 || strcmp(e.param, param) != 0 ||
        strcmp(e.code != NULL ? e.code : "", code) != 0)
        fail_msg("%s: %u param '%s' code '%s': %s", json, e.status, e.param, e.code, e.message);
    request_destroy(r);
}

static struct request *expect_taken(enum endpoint endpoint, const char *fields)
{
    char json[2048];
    struct api_error e;
    enum err err;
    (void)snprintf(json, sizeof json, "{\"model\":\"m\"%s%s}", fields[0] ? "," : "", fields);
    struct request *r = fixture_parse(endpoint, json, &e, &err);
    if (err != OK) fail_msg("%s: %s", json, e.message);
    return r;
}

static void refused_in_chat(void **state)
{
    (void)state;
    static const struct refusal list[] = {
        {"\"temperature\":2.1", "temperature", "decimal_above_max_value"},
        {"\"temperature\":-0.1", "temperature", "decimal_below_min_value"},
        {"\"temperature\":\"1\"", "temperature", "invalid_type"},
        {"\"top_p\":0", "top_p", "decimal_below_min_value"},
        {"\"top_p\":1.01", "top_p", "decimal_above_max_value"},
        {"\"min_p\":2", "min_p", "decimal_above_max_value"},
        {"\"presence_penalty\":-3", "presence_penalty", "decimal_below_min_value"},
        {"\"frequency_penalty\":true", "frequency_penalty", "invalid_type"},
        {"\"repetition_penalty\":0", "repetition_penalty", "decimal_below_min_value"},
        {"\"max_tokens\":0", "max_tokens", "integer_below_min_value"},
        {"\"max_tokens\":1.0", "max_tokens", "invalid_type"},
        {"\"max_completion_tokens\":\"5\"", "max_completion_tokens", "invalid_type"},
        {"\"max_tokens\":5,\"max_completion_tokens\":5", "max_completion_tokens", "invalid_value"},
        {"\"max_tokens\":5,\"min_tokens\":6", "min_tokens", "invalid_value"},
        {"\"n\":0", "n", "integer_below_min_value"},
        {"\"n\":17", "n", "integer_above_max_value"},
        {"\"n\":true", "n", "invalid_type"},
        {"\"top_k\":-2", "top_k", "integer_below_min_value"},
        {"\"seed\":1.5", "seed", "invalid_type"},
        {"\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]", "stop", "array_above_max_length"},
        {"\"stop\":\"\"", "stop", "invalid_value"},
        {"\"stop\":[\"a\",\"\"]", "stop[1]", "invalid_value"},
        {"\"stop\":[1]", "stop[0]", "invalid_type"},
        {"\"stop\":5", "stop", "invalid_type"},
        {"\"stop_token_ids\":[-1]", "stop_token_ids", "integer_below_min_value"},
        {"\"stop_token_ids\":\"2\"", "stop_token_ids", "invalid_type"},
        {"\"logit_bias\":{\"AI\":1}", "logit_bias", "invalid_value"},
        {"\"logit_bias\":{\"-1\":1}", "logit_bias", "invalid_value"},
        {"\"logit_bias\":{\"5\":101}", "logit_bias", "decimal_above_max_value"},
        {"\"logit_bias\":[1]", "logit_bias", "invalid_type"},
        {"\"logprobs\":\"yes\"", "logprobs", "invalid_type"},
        {"\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "integer_above_max_value"},
        {"\"logprobs\":true,\"top_logprobs\":-1", "top_logprobs", "integer_below_min_value"},
        {"\"top_logprobs\":2", "top_logprobs", "invalid_value"},
        {"\"stream\":\"true\"", "stream", "invalid_type"},
        {"\"stream_options\":{\"include_usage\":true}", "stream_options", "invalid_value"},
        {"\"stream\":true,\"stream_options\":{\"x\":1}", "stream_options.x",
         "unsupported_parameter"},
        {"\"response_format\":{\"type\":\"json_object\"}", "response_format.type",
         "unsupported_value"},
        {"\"response_format\":{}", "response_format.type", "missing_required_parameter"},
        {"\"tools\":[{\"type\":\"function\"}]", "tools", "unsupported_parameter"},
        {"\"tool_choice\":\"required\"", "tool_choice", "unsupported_parameter"},
        {"\"modalities\":[\"audio\"]", "modalities", "unsupported_value"},
        {"\"user\":5", "user", "invalid_type"},
        {"\"metadata\":{\"a\":1}", "metadata", "invalid_type"},
        {"\"store\":true", "store", "unsupported_parameter"},
        {"\"reasoning_effort\":\"high\"", "reasoning_effort", "unsupported_parameter"},
        {"\"continue_final_message\":true,\"add_generation_prompt\":true", "continue_final_message",
         "invalid_value"},
        {"\"__proto__\":1", "__proto__", "unknown_parameter"},
        {"\"prompt\":\"a\"", "prompt", "unknown_parameter"},
        {"\"echo\":true", "echo", "unknown_parameter"},
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        expect_refused(ENDPOINT_CHAT, list[i].field, list[i].param, list[i].code);
}

static void refused_in_completions(void **state)
{
    (void)state;
    expect_refused(ENDPOINT_COMPLETIONS, "\"messages\":[]", "messages", "unknown_parameter");
    expect_refused(ENDPOINT_COMPLETIONS, "\"logprobs\":true", "logprobs", "invalid_type");
    expect_refused(ENDPOINT_COMPLETIONS, "\"logprobs\":21", "logprobs", "integer_above_max_value");
    expect_refused(ENDPOINT_COMPLETIONS, "\"best_of\":2", "best_of", "unsupported_value");
    expect_refused(ENDPOINT_COMPLETIONS, "\"suffix\":\"x\"", "suffix", "unsupported_parameter");
    expect_refused(ENDPOINT_COMPLETIONS, "\"echo\":true,\"logprobs\":1", "echo",
                   "unsupported_value");
}

static void the_model_is_named(void **state)
{
    (void)state;
    struct api_error e;
    enum err err;
    static const struct {
        const char *json, *code;
        uint32_t status;
    } list[] = {{"{}", "missing_required_parameter", 400},
                {"{\"model\":null}", "missing_required_parameter", 400},
                {"{\"model\":12}", "invalid_type", 400},
                {"{\"model\":\"\"}", "model_not_found", 404}};
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct request *r = fixture_parse(ENDPOINT_CHAT, list[i].json, &e, &err);
        assert_int_equal(err, ERR_INVALID);
        assert_int_equal(e.status, list[i].status);
        assert_string_equal(e.code, list[i].code);
        assert_string_equal(e.param, "model");
        request_destroy(r);
    }
    struct request *r = fixture_parse(ENDPOINT_CHAT, "[]", &e, &err);
    assert_int_equal(e.status, 400);
    assert_string_equal(e.param, "");
    request_destroy(r);
}

static void values_arrive(void **state)
{
    (void)state;
    struct request *r = expect_taken(
        ENDPOINT_CHAT,
        "\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.1,\"repetition_penalty\":1.1,"
        "\"presence_penalty\":-1,\"frequency_penalty\":2,\"max_completion_tokens\":50,"
        "\"min_tokens\":3,\"n\":2,\"seed\":-1,\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[7,8],"
        "\"ignore_eos\":true,\"logit_bias\":{\"5\":-100},\"logprobs\":true,\"top_logprobs\":4,"
        "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false},"
        "\"skip_special_tokens\":false,\"user\":\"u\"");
    const struct request_params *p = &r->params;
    assert_string_equal(r->model_name, "m");
    assert_true(p->temperature == 0.5 && p->top_p == 0.9 && p->min_p == 0.1);
    assert_true(p->repetition_penalty == 1.1 && p->presence_penalty == -1);
    assert_true(p->frequency_penalty == 2 && p->top_k == 40);
    assert_int_equal(p->max_tokens, 50);
    assert_int_equal(p->min_tokens, 3);
    assert_int_equal(p->n, 2);
    assert_true(p->has_seed && p->seed == UINT64_MAX);
    assert_int_equal(p->stop_count, 2);
    assert_text(p->stops[1], "bc");
    assert_int_equal(p->stop_id_count, 2);
    assert_int_equal(p->stop_ids[1], 8);
    assert_true(p->ignore_eos && p->want_logprobs && p->stream && p->include_usage);
    assert_true(p->keep_special_tokens);
    assert_int_equal(p->top_logprobs, 4);
    assert_int_equal(p->bias_count, 1);
    assert_true(p->bias_ids[0] == 5 && p->bias[0] == -100);
    request_destroy(r);
}

static void defaults_and_null(void **state)
{
    (void)state;
    struct request *r = expect_taken(
        ENDPOINT_CHAT,
        "\"temperature\":null,\"stop\":null,\"seed\":null,\"tools\":[],\"tool_choice\":\"none\","
        "\"stream_options\":null,\"n\":null,\"response_format\":{\"type\":\"text\"},"
        "\"parallel_tool_calls\":false,\"service_tier\":\"auto\",\"store\":false");
    assert_true(r->params.temperature == 1 && r->params.top_p == 1 && r->params.n == 1);
    assert_false(r->params.has_seed || r->params.stream || r->params.want_logprobs);
    assert_int_equal(r->params.stop_count, 0);
    assert_int_equal(r->params.max_tokens, 0);
    assert_true(r->params.add_generation_prompt);
    request_destroy(r);
    r = expect_taken(ENDPOINT_COMPLETIONS, "\"best_of\":2,\"n\":2,\"logprobs\":3,\"suffix\":\"\"");
    assert_true(r->params.want_logprobs && r->params.top_logprobs == 3);
    request_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_in_chat),    cmocka_unit_test(refused_in_completions),
        cmocka_unit_test(the_model_is_named), cmocka_unit_test(values_arrive),
        cmocka_unit_test(defaults_and_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
