/* libFuzzer: JSON bodies of requests, from parameters to prompts, tokens and answers. The first
 * byte picks the endpoint. Whatever comes is a request or an error that has a message. */
#include "gateway/api_tokenize.h"
#include "tests/unit/gateway/gateway_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error(const struct api_error *e)
{
    CHECK(e->status >= 400 && e->status < 600 && e->type != NULL && e->message[0] != '\0');
    struct buffer text;
    buffer_init(&text, 1 << 16);
    api_error_write(&text, e);
    struct json *tree = NULL;
    struct errmsg why;
    CHECK(json_parse(buffer_view(&text), NULL, &tree, &why) == OK);
    json_destroy(tree);
    buffer_deinit(&text);
}

/* Tokens through every choice, and the answer must be JSON. */
static void answer(struct request *r)
{
    struct buffer out;
    buffer_init(&out, 16 << 20);
    reply_prepare(r);
    reply_roles(r, &out);
    for (uint32_t i = 0; i < r->choice_count; i++) {
        struct choice *c = &r->choices[i];
        for (uint32_t k = 0; k < 8; k++) {
            struct token_logprob lp = {.id = W_HE + k % 8};
            (void)stream_take(c, &r->params, k, W_HE + k % 8, r->params.want_logprobs ? &lp : NULL);
            reply_delta(r, i, &out);
        }
        stream_finish(c, FINISH_LENGTH);
        reply_delta(r, i, &out);
    }
    reply_end(r, &out);
    buffer_reset(&out);
    reply_whole(r, &out);
    struct json *tree = NULL;
    struct errmsg why;
    struct json_limits limits = {.allow_nul = true}; /* a byte token may be NUL */
    if (buffer_status(&out) == OK)
        CHECK_MSG(json_parse(buffer_view(&out), &limits, &tree, &why) == OK, "%s", why.text);
    json_destroy(tree);
    buffer_deinit(&out);
}

static void run_request(struct served_model *m, enum endpoint endpoint, struct span body)
{
    struct request *r = request_create(NULL, endpoint);
    struct errmsg why;
    struct api_error e = {.status = 0};
    if (json_parse(body, NULL, &r->json, &why) == OK) {
        enum err err = api_params_parse(r, &e);
        if (err == OK) err = api_prompt_make(r, m, &e);
        if (err == OK) err = request_make_choices(r, m->tokenizer);
        r->model = m;
        if (err == OK)
            answer(r);
        else
            check_error(&e);
    }
    request_destroy(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct served_models models;
    if (!models.list[0].used) fixture_model_init(&models.list[0]);
    if (size < 1) return 0;
    struct span body = span_of(data + 1, size - 1);
    struct buffer out;
    struct api_error e;
    buffer_init(&out, 16 << 20);
    switch (data[0] % 4) {
    case 0: run_request(&models.list[0], ENDPOINT_CHAT, body); break;
    case 1: run_request(&models.list[0], ENDPOINT_COMPLETIONS, body); break;
    case 2:
        if (api_tokenize(&models, body, &out, &e) != OK) check_error(&e);
        break;
    default:
        if (api_detokenize(&models, body, &out, &e) != OK) check_error(&e);
        break;
    }
    buffer_deinit(&out);
    return 0;
}
