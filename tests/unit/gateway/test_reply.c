/* What clients read, byte for byte where they depend on it: role first, finish in its own event,
 * usage, [DONE], errors; whole answers; logprobs in both shapes. */
#include "tests/unit/gateway/gateway_fixture.h"

static struct served_model model;
static struct buffer out;

static int setup(void **state)
{
    (void)state;
    fixture_model_init(&model);
    buffer_init(&out, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_model_deinit(&model);
    buffer_deinit(&out);
    return 0;
}

static void give(struct request *r, uint32_t choice, uint32_t id)
{
    struct choice *c = &r->choices[choice];
    struct token_logprob lp = {.id = id,
                               .logprob = -0.5f,
                               .top_count = r->params.top_logprobs,
                               .top_ids = {id, ID_BYTE + 0xC3},
                               .top_logprobs = {-0.5f, -INFINITY}};
    (void)stream_take(c, &r->params, c->id_count, id, r->params.want_logprobs ? &lp : NULL);
}

/* Events without what all of them begin with. */
static void expect_events(const char *object, const char *const want[])
{
    char head[256];
    (void)snprintf(head, sizeof head,
                   "data: {\"id\":\"id-1\",\"object\":\"%s\",\"created\":0,\"model\":\"m\","
                   "\"system_fingerprint\":\"fp_00000000\",\"choices\":[",
                   object);
    struct span rest = buffer_view(&out);
    for (size_t i = 0; want[i] != NULL; i++) {
        const uint8_t *end = memmem(rest.ptr, rest.len, "\n\n", 2);
        assert_non_null(end);
        struct span event = span_of(rest.ptr, (size_t)(end - rest.ptr));
        if (event.len > strlen(head) && memcmp(event.ptr, head, strlen(head)) == 0)
            event = span_from(event, strlen(head));
        assert_null(memchr(event.ptr, '\n', event.len));
        assert_text(event, want[i]);
        rest = span_from(rest, (size_t)(end - rest.ptr) + 2);
    }
    assert_int_equal(rest.len, 0);
    buffer_reset(&out);
}

#define ONE "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"

static void a_chat_stream(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_CHAT,
                                        "{\"model\":\"m\"," ONE ",\"stream\":true,\"n\":2,"
                                        "\"stream_options\":{\"include_usage\":true}}");
    give(r, 1, W_HE);
    reply_roles(r, &out);
    reply_delta(r, 0, &out);
    reply_delta(r, 1, &out);
    expect_events(
        "chat.completion.chunk",
        (const char *[]){"{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                         "\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}",
                         "{\"index\":1,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                         "\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}",
                         "{\"index\":1,\"delta\":{\"content\":\"he\"},\"logprobs\":null,"
                         "\"finish_reason\":null}],\"usage\":null}",
                         NULL});
    give(r, 1, ID_BYTE + '"');
    give(r, 1, ID_BYTE + '\n');
    stream_finish(&r->choices[1], FINISH_STOP);
    stream_finish(&r->choices[0], FINISH_LENGTH);
    r->choices[0].cached_tokens = r->choices[1].cached_tokens = 3;
    reply_roles(r, &out);
    reply_delta(r, 0, &out);
    reply_delta(r, 1, &out);
    reply_delta(r, 1, &out); /* nothing twice */
    reply_end(r, &out);
    char usage[256];
    (void)snprintf(usage, sizeof usage,
                   "],\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":3,\"total_tokens\":%u,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":3},"
                   "\"completion_tokens_details\":{\"reasoning_tokens\":0}}}",
                   r->prompts[0].count, r->prompts[0].count + 3);
    expect_events("chat.completion.chunk",
                  (const char *[]){"{\"index\":0,\"delta\":{},\"logprobs\":null,"
                                   "\"finish_reason\":\"length\"}],\"usage\":null}",
                                   "{\"index\":1,\"delta\":{\"content\":\"\\\"\\n\"},"
                                   "\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}",
                                   "{\"index\":1,\"delta\":{},\"logprobs\":null,"
                                   "\"finish_reason\":\"stop\"}],\"usage\":null}",
                                   usage, "data: [DONE]", NULL});
    request_destroy(r);
}

static void a_completion_stream_without_usage(void **state)
{
    (void)state;
    struct request *r =
        fixture_request(&model, ENDPOINT_COMPLETIONS,
                        "{\"model\":\"m\",\"prompt\":\"x\",\"stream\":true,\"echo\":true}");
    give(r, 0, W_HE);
    reply_roles(r, &out);
    reply_delta(r, 0, &out);
    stream_finish(&r->choices[0], FINISH_LENGTH);
    reply_delta(r, 0, &out);
    reply_end(r, &out);
    expect_events(
        "text_completion",
        (const char *[]){
            "{\"index\":0,\"text\":\"xhe\",\"logprobs\":null,\"finish_reason\":null}]}",
            "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}",
            "data: [DONE]", NULL});
    request_destroy(r);
}

static void errors_in_a_stream(void **state)
{
    (void)state;
    struct api_error e;
    (void)api_error_set(&e, 500, "worker_lost", NULL, "a \"word\"");
    reply_error_event(&e, &out);
    assert_text(buffer_view(&out),
                "data: {\"error\":{\"message\":\"a \\\"word\\\"\",\"type\":"
                "\"server_error\",\"param\":null,\"code\":\"worker_lost\"}}\n\n");
    buffer_reset(&out);
    (void)api_error_set(&e, 429, NULL, "n", "%d", 5);
    api_error_write(&out, &e);
    assert_text(buffer_view(&out), "{\"error\":{\"message\":\"5\",\"type\":\"requests\",\"param\":"
                                   "\"n\",\"code\":null}}");
    buffer_reset(&out);
}

static void chat_logprobs(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_CHAT,
                                        "{\"model\":\"m\"," ONE
                                        ",\"stream\":true,\"logprobs\":true,\"top_logprobs\":2}");
    give(r, 0, ID_BYTE + 0xC3); /* half a code point: no text yet, but its bytes are told */
    reply_delta(r, 0, &out);
    expect_events(
        "chat.completion.chunk",
        (const char *[]){
            "{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":{\"content\":[{\"token\":"
            "\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195],\"top_logprobs\":[{\"token\":"
            "\"\xEF\xBF\xBD\",\"logprob\":-0.5,\"bytes\":[195]},{\"token\":\"\xEF\xBF\xBD\","
            "\"logprob\":-9999,\"bytes\":[195]}]}],\"refusal\":null},\"finish_reason\":null}]}",
            NULL});
    request_destroy(r);
}

static void whole_answers(void **state)
{
    (void)state;
    struct request *r =
        fixture_request(&model, ENDPOINT_COMPLETIONS,
                        "{\"model\":\"m\",\"prompt\":\"x\",\"logprobs\":1,\"max_tokens\":2}");
    give(r, 0, W_HE);
    give(r, 0, W_X);
    stream_finish(&r->choices[0], FINISH_LENGTH);
    reply_whole(r, &out);
    assert_text(
        buffer_view(&out),
        "{\"id\":\"id-1\",\"object\":\"text_completion\",\"created\":0,\"model\":\"m\","
        "\"system_fingerprint\":\"fp_00000000\",\"choices\":[{\"index\":0,\"text\":\"hex\","
        "\"logprobs\":{\"tokens\":[\"he\",\"x\"],\"token_logprobs\":[-0.5,-0.5],"
        "\"top_logprobs\":[{\"he\":-0.5},{\"x\":-0.5}],\"text_offset\":[0,2]},"
        "\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,"
        "\"total_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":0},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":0}}}");
    buffer_reset(&out);
    request_destroy(r);
    r = fixture_request(&model, ENDPOINT_CHAT, "{\"model\":\"m\"," ONE "}");
    give(r, 0, W_HE);
    stream_finish(&r->choices[0], FINISH_STOP);
    reply_whole(r, &out);
    assert_true(
        span_has(buffer_view(&out),
                 "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
                 "\"he\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}],"));
    buffer_reset(&out);
    request_destroy(r);
}

static void models(void **state)
{
    (void)state;
    reply_model(&model, &out);
    assert_text(buffer_view(&out), "{\"id\":\"m\",\"object\":\"model\",\"created\":7,\"owned_by\":"
                                   "\"penstock\",\"max_model_len\":200}");
    buffer_reset(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_stream),      cmocka_unit_test(a_completion_stream_without_usage),
        cmocka_unit_test(errors_in_a_stream), cmocka_unit_test(chat_logprobs),
        cmocka_unit_test(whole_answers),      cmocka_unit_test(models),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
