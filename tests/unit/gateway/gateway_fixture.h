/* gateway_fixture.h - a model without a worker: a tokenizer of 256 byte tokens and a few words, and
 * a small chat template. For tests of the gateway's cores. */
#ifndef PENSTOCK_TESTS_GATEWAY_FIXTURE_H
#define PENSTOCK_TESTS_GATEWAY_FIXTURE_H

#include "gateway/api_params.h"
#include "gateway/api_prompt.h"
#include "gateway/reply.h"
#include "gateway/stream.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { ID_UNK, ID_BOS, ID_EOS, ID_BYTE, ID_WORD = ID_BYTE + 256, VOCAB_MAX = 320 };
#define BLANK "\xE2\x96\x81"
static const char *const fixture_words[] = {"he", "llo", BLANK "wor", "ld",
                                            "EN", "D!",  "aaaa",      "x"};
enum { W_HE = ID_WORD, W_LLO, W_WOR, W_LD, W_EN, W_D, W_AAAA, W_X, VOCAB_COUNT };

static const char fixture_template[] =
    "{% for m in messages %}{% if m.content == 'forbidden' %}{{ raise_exception('not that') }}"
    "{% endif %}{{ bos_token }}{{ m.role }}:{{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant:{% endif %}";

static inline void fixture_asset(struct buffer *asset)
{
    static struct span tokens[VOCAB_MAX];
    static float scores[VOCAB_MAX];
    static int32_t types[VOCAB_MAX];
    static char bytes[256][8];
    uint32_t n = 0;
    tokens[n] = SPAN_LIT("<unk>");
    types[n++] = TOKEN_UNKNOWN;
    tokens[n] = SPAN_LIT("<s>");
    types[n++] = TOKEN_CONTROL;
    tokens[n] = SPAN_LIT("</s>");
    types[n++] = TOKEN_CONTROL;
    for (uint32_t b = 0; b < 256; b++) {
        (void)snprintf(bytes[b], sizeof bytes[b], "<0x%02X>", b);
        tokens[n] = span_str(bytes[b]);
        types[n++] = TOKEN_BYTE;
    }
    for (size_t i = 0; i < ARRAY_LEN(fixture_words); i++) {
        tokens[n] = span_str(fixture_words[i]);
        scores[n] = -(float)i;
        types[n++] = TOKEN_NORMAL;
    }
    CHECK(n == VOCAB_COUNT);
    struct tokenizer_spec spec = {.model = SPAN_LIT("llama"),
                                  .pre = SPAN_LIT("default"),
                                  .token_count = n,
                                  .tokens = tokens,
                                  .scores = scores,
                                  .types = types,
                                  .unk = ID_UNK,
                                  .bos = ID_BOS,
                                  .eos = ID_EOS,
                                  .pad = TOKEN_NONE,
                                  .eot = TOKEN_NONE,
                                  .eom = TOKEN_NONE};
    struct errmsg why = {""};
    buffer_init(asset, 1 << 20);
    enum err err = tokenizer_asset_pack(&spec, asset, &why);
    CHECK_MSG(err == OK, "%s", why.text);
}

static inline struct tokenizer *fixture_tokenizer(void)
{
    struct buffer asset;
    struct errmsg why = {""};
    struct tokenizer *t = NULL;
    fixture_asset(&asset);
    enum err err = tokenizer_create(buffer_view(&asset), &t, &why);
    CHECK_MSG(err == OK, "%s", why.text);
    buffer_deinit(&asset);
    return t;
}

static inline void fixture_model_init(struct served_model *m)
{
    struct errmsg why = {""};
    *m = (struct served_model){.used = true,
                               .name = "m",
                               .vocab_count = VOCAB_COUNT,
                               .context_max = 200,
                               .created = 7,
                               .bos = "<s>",
                               .eos = "</s>"};
    m->tokenizer_asset.here = true;
    m->tokenizer = fixture_tokenizer();
    enum err err = chat_template_create(span_str(fixture_template), &m->chat_template, &why);
    CHECK_MSG(err == OK, "%s", why.text);
}

static inline void fixture_model_deinit(struct served_model *m)
{
    tokenizer_destroy(m->tokenizer);
    chat_template_destroy(m->chat_template);
}

/* A request read from JSON, up to its parameters. On a fault *e says which, and err is returned. */
static inline struct request *fixture_parse(enum endpoint endpoint, const char *json,
                                            struct api_error *e, enum err *err)
{
    struct request *r = request_create(NULL, endpoint);
    struct errmsg why = {""};
    memset(e, 0, sizeof *e);
    *err = json_parse(span_str(json), NULL, &r->json, &why);
    CHECK_MSG(*err == OK, "%s", why.text);
    *err = api_params_parse(r, e);
    return r;
}

/* And on to its choices: ready for tokens. */
static inline struct request *fixture_request(struct served_model *m, enum endpoint endpoint,
                                              const char *json)
{
    struct api_error e;
    enum err err;
    struct request *r = fixture_parse(endpoint, json, &e, &err);
    r->model = m;
    if (err == OK) err = api_prompt_make(r, m, &e);
    CHECK_MSG(err == OK, "%s: %s", json, e.message);
    CHECK(request_make_choices(r, m->tokenizer) == OK);
    (void)snprintf(r->public_id, sizeof r->public_id, "id-1");
    reply_prepare(r);
    return r;
}

static inline void assert_text(struct span got, const char *want)
{
    if (!span_eq_str(got, want))
        fail_msg("got  \"%.*s\"\nwant \"%s\"", (int)got.len, (const char *)got.ptr, want);
}

static inline bool span_has(struct span text, const char *part)
{
    return text.len > 0 && memmem(text.ptr, text.len, part, strlen(part)) != NULL;
}

#endif
