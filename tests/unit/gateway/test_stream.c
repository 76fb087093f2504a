/* Tokens to text: code points cut in two, stop strings over several tokens, what is held back,
 * logprobs kept in step, each index taken once. */
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

#define CHAT_ONE "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]"

static enum stream_step take(struct request *r, uint32_t id)
{
    struct choice *c = &r->choices[0];
    struct token_logprob lp = {.id = id, .logprob = -1};
    return stream_take(c, &r->params, c->id_count, id, r->params.want_logprobs ? &lp : NULL);
}

static void give_out(struct request *r, const char *want)
{
    assert_text(stream_ready(&r->choices[0]), want);
    stream_mark_sent(&r->choices[0]);
}

static void split_code_points(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_CHAT, "{" CHAT_ONE "}");
    assert_int_equal(take(r, ID_BYTE + 0xE2), STREAM_MORE);
    give_out(r, "");
    assert_int_equal(take(r, ID_BYTE + 0x82), STREAM_MORE);
    give_out(r, "");
    assert_int_equal(take(r, ID_BYTE + 0xAC), STREAM_MORE);
    give_out(r, "\xE2\x82\xAC");
    assert_int_equal(take(r, ID_EOS), STREAM_MORE); /* control tokens have no text */
    assert_int_equal(take(r, ID_BYTE + 0xC3), STREAM_MORE);
    stream_finish(&r->choices[0], FINISH_LENGTH);
    give_out(r, "\xEF\xBF\xBD");
    assert_int_equal(take(r, W_HE), STREAM_OLD);
    request_destroy(r);
}

static void indexes_are_taken_once(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_CHAT, "{" CHAT_ONE "}");
    struct choice *c = &r->choices[0];
    assert_int_equal(stream_take(c, &r->params, 0, W_HE, NULL), STREAM_MORE);
    assert_int_equal(stream_take(c, &r->params, 0, W_LD, NULL), STREAM_OLD);
    assert_int_equal(stream_take(c, &r->params, 2, W_LD, NULL), STREAM_GAP);
    assert_int_equal(stream_take(c, &r->params, 1, W_LLO, NULL), STREAM_MORE);
    give_out(r, "hello");
    assert_int_equal(c->id_count, 2);
    request_destroy(r);
}

static void stop_over_tokens(void **state)
{
    (void)state;
    struct request *r =
        fixture_request(&model, ENDPOINT_CHAT, "{" CHAT_ONE ",\"stop\":[\"END!\",\"lo w\"]}");
    assert_int_equal(take(r, W_HE), STREAM_MORE);
    give_out(r, "he");
    assert_int_equal(take(r, W_X), STREAM_MORE);
    assert_int_equal(take(r, W_EN), STREAM_MORE);
    give_out(r, "x"); /* EN may become END! */
    assert_int_equal(take(r, W_EN), STREAM_MORE);
    give_out(r, "EN"); /* the first EN did not, the second may */
    assert_int_equal(take(r, W_D), STREAM_ENDED);
    give_out(r, "");
    assert_int_equal(r->choices[0].finish, FINISH_STOP);
    assert_text(buffer_view(&r->choices[0].text), "hexEN");
    assert_int_equal(r->choices[0].id_count, 5);
    request_destroy(r);
}

static void held_text_comes_at_the_end(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_CHAT, "{" CHAT_ONE ",\"stop\":\"END!\"}");
    (void)take(r, W_HE);
    (void)take(r, W_EN);
    give_out(r, "he");
    stream_finish(&r->choices[0], FINISH_STOP);
    give_out(r, "EN");
    request_destroy(r);
}

static void the_earliest_stop_wins(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_CHAT,
                                        "{" CHAT_ONE ",\"stop\":[\"ld\",\"lo world\",\"orld\"]}");
    (void)take(r, W_HE);
    (void)take(r, W_LLO);
    (void)take(r, W_WOR);
    give_out(r, "hel");
    assert_int_equal(take(r, W_LD), STREAM_ENDED);
    assert_text(buffer_view(&r->choices[0].text), "hel");
    request_destroy(r);
}

/* A stop string is looked for in what is generated, not across the echoed prompt's end. */
static void echo_is_not_scanned(void **state)
{
    (void)state;
    struct request *r = fixture_request(
        &model, ENDPOINT_COMPLETIONS,
        "{\"model\":\"m\",\"prompt\":\"he\",\"echo\":true,\"stop\":[\"hello\",\"ex\",\"he\"]}");
    give_out(r, "he");
    assert_int_equal(take(r, W_X), STREAM_MORE);
    give_out(r, "x");
    assert_int_equal(take(r, W_HE), STREAM_ENDED);
    assert_text(buffer_view(&r->choices[0].text), "hex");
    request_destroy(r);
}

static void logprobs_are_cut_with_the_text(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_CHAT,
                                        "{" CHAT_ONE ",\"stop\":\"hello\",\"logprobs\":true}");
    struct choice *c = &r->choices[0];
    (void)take(r, W_X);
    (void)take(r, W_HE);
    assert_int_equal(stream_ready_logprobs(c), 1); /* he is held back, and so is its logprob */
    stream_mark_sent(c);
    assert_int_equal(take(r, W_LLO), STREAM_ENDED);
    assert_int_equal(c->logprob_count, 1);
    request_destroy(r);

    r = fixture_request(&model, ENDPOINT_CHAT, "{" CHAT_ONE ",\"stop\":\"low\",\"logprobs\":true}");
    c = &r->choices[0];
    (void)take(r, W_HE);
    (void)take(r, W_LLO);
    (void)take(r, ID_BYTE + 'w');
    assert_text(buffer_view(&c->text), "hel");
    assert_int_equal(c->logprob_count, 2); /* llo is partly text */
    request_destroy(r);
}

static void offsets_count_code_points(void **state)
{
    (void)state;
    struct request *r = fixture_request(&model, ENDPOINT_COMPLETIONS,
                                        "{\"model\":\"m\",\"prompt\":\"he\",\"logprobs\":0}");
    struct choice *c = &r->choices[0];
    (void)take(r, ID_BYTE + 0xC3);
    (void)take(r, ID_BYTE + 0xA9);
    (void)take(r, W_HE);
    assert_int_equal(c->logprobs[0].end_chars, 0);
    assert_int_equal(c->logprobs[1].end_chars, 1);
    assert_int_equal(c->logprobs[2].end_chars, 3);
    request_destroy(r);
}

/* The plain twin: the whole text at once, cut at the first stop. Random tokens and stops, deltas
 * given out at random times: together they must be that, and never more than is certain. */
static void random_against_the_whole(void **state)
{
    (void)state;
    static const char *const stops[] = {"aaaa", "xx", "hello", "END!", "aax", "D!x"};
    static const uint32_t ids[] = {W_HE,   W_LLO, W_EN,          W_D,
                                   W_AAAA, W_X,   ID_BYTE + 'a', ID_BYTE + 'x'};
    srand(11);
    for (int round = 0; round < 3000; round++) {
        struct request *r = fixture_request(&model, ENDPOINT_CHAT, "{" CHAT_ONE "}");
        struct choice *c = &r->choices[0];
        r->params.stop_count = (uint32_t)(rand() % 4);
        for (uint32_t i = 0; i < r->params.stop_count; i++)
            r->params.stops[i] = span_str(stops[rand() % (int)ARRAY_LEN(stops)]);
        char all[256] = "", sent[256] = "";
        enum stream_step step = STREAM_MORE;
        for (int i = 0; i < 20 && step == STREAM_MORE; i++) {
            uint32_t id = ids[rand() % (int)ARRAY_LEN(ids)];
            struct span piece = tokenizer_piece(model.tokenizer, id);
            strncat(all, (const char *)piece.ptr, piece.len);
            step = take(r, id);
            if (rand() % 2) {
                struct span ready = stream_ready(c);
                strncat(sent, (const char *)ready.ptr, ready.len);
                stream_mark_sent(c);
            }
        }
        stream_finish(c, FINISH_LENGTH);
        struct span ready = stream_ready(c);
        strncat(sent, (const char *)ready.ptr, ready.len);
        char *first = NULL;
        for (uint32_t i = 0; i < r->params.stop_count; i++) {
            char *at = strstr(all, (const char *)r->params.stops[i].ptr);
            if (at != NULL && (first == NULL || at < first)) first = at;
        }
        assert_int_equal(step == STREAM_ENDED, first != NULL);
        if (first != NULL) *first = '\0';
        assert_string_equal(sent, all);
        request_destroy(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_code_points),
        cmocka_unit_test(indexes_are_taken_once),
        cmocka_unit_test(stop_over_tokens),
        cmocka_unit_test(held_text_comes_at_the_end),
        cmocka_unit_test(the_earliest_stop_wins),
        cmocka_unit_test(echo_is_not_scanned),
        cmocka_unit_test(logprobs_are_cut_with_the_text),
        cmocka_unit_test(offsets_count_code_points),
        cmocka_unit_test(random_against_the_whole),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
