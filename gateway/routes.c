/* routes.c - which path is what: an exact table, and the endpoints that need no worker. */
#include "gateway/loop.h"

#include "common/clock.h"
#include "gateway/api_params.h"
#include "gateway/api_prompt.h"
#include "gateway/reply.h"

#include <stdio.h>
#include <strings.h>

enum { TOKENIZE_TOKENS_MAX = 1 << 20, TOKENIZE_BODY_MAX = 4 << 20 };

void loop__reply_error(struct http_exchange *x, const struct api_error *e)
{
    struct buffer body;
    buffer_init(&body, 8192);
    api_error_write(&body, e);
    if (e->retry_after_s > 0) {
        char text[16];
        int n = snprintf(text, sizeof text, "%u", e->retry_after_s);
        http_reply_header(x, "Retry-After", span_of(text, (size_t)n));
    }
    if (e->should_retry >= 0)
        http_reply_header(x, "x-should-retry",
                          e->should_retry ? SPAN_LIT("true") : SPAN_LIT("false"));
    http_reply(x, e->status, "application/json", buffer_view(&body));
    buffer_deinit(&body);
}

typedef void route_fn(struct loop *l, struct http_exchange *x);

static void route_chat(struct loop *l, struct http_exchange *x)
{
    loop__start_request(l, x, ENDPOINT_CHAT);
}

static void route_completions(struct loop *l, struct http_exchange *x)
{
    loop__start_request(l, x, ENDPOINT_COMPLETIONS);
}

static bool offered(const struct served_model *m)
{
    return served_model_ready(m) && m->broken[0] == '\0';
}

static void route_models(struct loop *l, struct http_exchange *x)
{
    struct buffer body;
    buffer_init(&body, 1 << 20);
    buffer_add_str(&body, "{\"object\":\"list\",\"data\":[");
    bool first = true;
    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        if (!offered(&l->models.list[i])) continue;
        if (!first) buffer_add_byte(&body, ',');
        first = false;
        reply_model(&l->models.list[i], &body);
    }
    buffer_add_str(&body, "]}");
    http_reply(x, 200, "application/json", buffer_view(&body));
    buffer_deinit(&body);
}

static void route_one_model(struct loop *l, struct http_exchange *x, struct span name)
{
    struct buffer body;
    char text[MODEL_NAME_BYTES_MAX] = "";
    if (name.len < sizeof text) memcpy(text, name.ptr, name.len);
    const struct served_model *m = served_model_find(&l->models, text);
    if (m == NULL || !offered(m)) {
        struct api_error e;
        (void)api_error_set(&e, 404, "model_not_found", "model",
                            "The model '%.128s' does not exist.", text);
        loop__reply_error(x, &e);
        return;
    }
    buffer_init(&body, 4096);
    reply_model(m, &body);
    http_reply(x, 200, "application/json", buffer_view(&body));
    buffer_deinit(&body);
}

static void route_health(struct loop *l, struct http_exchange *x)
{
    bool ready = !l->draining && dispatch_good_workers(&l->dispatch, NULL, clock_now_ns()) > 0;
    http_reply(x, ready ? 200 : 503, "application/json",
               ready ? SPAN_LIT("{\"status\":\"ok\"}")
                     : SPAN_LIT("{\"status\":\"no worker is ready\"}"));
}

/* ---- tokenize, detokenize ---- */

static struct served_model *model_of(struct loop *l, const struct json *root, struct api_error *e)
{
    const struct json *name = json_get(root, "model");
    struct served_model *only = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < MODELS_MAX; i++)
        if (offered(&l->models.list[i])) {
            only = &l->models.list[i];
            count++;
        }
    if (name != NULL && json_kind(name) == JSON_K_STRING) {
        only = served_model_find(&l->models, (const char *)json_as_string(name).ptr);
        count = only != NULL && offered(only);
    }
    if (count == 1) return only;
    if (name == NULL && count > 1)
        (void)api_error_set(e, 400, "missing_required_parameter", "model",
                            "Several models are served: name one in 'model'.");
    else
        (void)api_error_set(e, 404, "model_not_found", "model", "The model does not exist.");
    return NULL;
}

static enum err get_flag(const struct json *root, const char *name, bool absent, bool *out,
                         struct api_error *e)
{
    const struct json *v = json_get(root, name);
    *out = absent;
    if (v == NULL || json_kind(v) == JSON_K_NULL) return OK;
    if (json_kind(v) != JSON_K_BOOL) return api_wrong_type(e, name, "a boolean", v);
    *out = json_as_bool(v);
    return OK;
}

static enum err tokenize(struct loop *l, const struct json *root, struct buffer *out,
                         struct api_error *e)
{
    struct served_model *m = model_of(l, root, e);
    const struct json *text = json_get(root, "prompt");
    if (text == NULL) text = json_get(root, "content"); /* llama.cpp's name for it */
    if (m == NULL) return ERR_INVALID;
    if (text == NULL)
        return api_error_set(e, 400, "missing_required_parameter", "prompt",
                             "Missing required parameter: 'prompt'.");
    if (json_kind(text) != JSON_K_STRING) return api_wrong_type(e, "prompt", "a string", text);
    bool add_special = false, parse_special = false;
    enum err err = get_flag(root, "add_special_tokens", true, &add_special, e);
    if (err == OK) err = get_flag(root, "parse_special", false, &parse_special, e);
    if (err != OK) return err;
    struct token_vec ids;
    token_vec_init(&ids, TOKENIZE_TOKENS_MAX);
    if (add_special && tokenizer_add_bos(m->tokenizer))
        err = token_vec_push(&ids, tokenizer_bos(m->tokenizer));
    if (err == OK)
        err = tokenizer_encode(m->tokenizer, json_as_string(text),
                               parse_special ? TOKENIZE_SPECIAL : TOKENIZE_PLAIN, NULL, 0, &ids);
    buffer_printf(out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":[", ids.count,
                  m->context_max);
    for (size_t i = 0; i < ids.count; i++)
        buffer_printf(out, "%s%u", i ? "," : "", ids.ids[i]);
    buffer_add_str(out, "]}");
    token_vec_deinit(&ids);
    return err == OK ? OK
                     : api_error_set(e, 400, "invalid_value", "prompt",
                                     "The text cannot be tokenized: it is too long.");
}

static enum err detokenize(struct loop *l, const struct json *root, struct buffer *out,
                           struct api_error *e)
{
    struct served_model *m = model_of(l, root, e);
    const struct json *list = json_get(root, "tokens");
    if (m == NULL) return ERR_INVALID;
    if (list == NULL)
        return api_error_set(e, 400, "missing_required_parameter", "tokens",
                             "Missing required parameter: 'tokens'.");
    if (json_kind(list) != JSON_K_ARRAY)
        return api_wrong_type(e, "tokens", "an array of integers", list);
    struct buffer text;
    struct detokenizer d;
    buffer_init(&text, 32 << 20);
    detokenizer_init(&d, m->tokenizer, false, false);
    enum err err = OK;
    for (size_t i = 0; i < json_count(list) && err == OK; i++) {
        const struct json *v = json_at(list, i);
        if (json_kind(v) != JSON_K_INT)
            err = api_wrong_type(e, "tokens", "an array of integers", v);
        else if (json_as_int(v) < 0 || json_as_int(v) >= m->vocab_count)
            err = api_error_set(e, 400, "invalid_value", "tokens",
                                "Token id %lld is not in the vocabulary of %u.",
                                (long long)json_as_int(v), m->vocab_count);
        else
            detokenizer_push(&d, (uint32_t)json_as_int(v), &text);
    }
    detokenizer_flush(&d, &text);
    buffer_add_str(out, "{\"prompt\":");
    json_write_string(out, buffer_view(&text));
    buffer_add_byte(out, '}');
    buffer_deinit(&text);
    return err;
}

static void answer_json(struct loop *l, struct http_exchange *x,
                        enum err (*make)(struct loop *, const struct json *, struct buffer *,
                                         struct api_error *))
{
    struct json *root = NULL;
    struct errmsg why;
    struct api_error e;
    enum err err = OK;
    buffer_reset(&l->scratch);
    if (http_body(x).len > TOKENIZE_BODY_MAX)
        err = api_error_set(&e, 413, "request_too_large", NULL, "At most %d bytes are taken here.",
                            TOKENIZE_BODY_MAX);
    else if (json_parse(http_body(x), NULL, &root, &why) != OK)
        err = api_error_set(&e, 400, NULL, NULL,
                            "We could not parse the JSON body of your request: %.300s", why.text);
    else if (json_kind(root) != JSON_K_OBJECT)
        err = api_error_set(&e, 400, NULL, NULL, "The request body must be a JSON object.");
    if (err == OK) err = make(l, root, &l->scratch, &e);
    if (err == OK && buffer_status(&l->scratch) != OK)
        err = api_error_set(&e, 413, "request_too_large", NULL, "The answer would be too large.");
    if (err == OK)
        http_reply(x, 200, "application/json", buffer_view(&l->scratch));
    else
        loop__reply_error(x, &e);
    json_destroy(root);
}

static void route_tokenize(struct loop *l, struct http_exchange *x)
{
    answer_json(l, x, tokenize);
}

static void route_detokenize(struct loop *l, struct http_exchange *x)
{
    answer_json(l, x, detokenize);
}

/* ---- the table ---- */

static const struct {
    enum http_method method;
    const char *path;
    route_fn *route;
} routes[] = {
    {HTTP_POST, "/v1/chat/completions", route_chat},
    {HTTP_POST, "/v1/completions", route_completions},
    {HTTP_GET, "/v1/models", route_models},
    {HTTP_GET, "/health", route_health},
    {HTTP_POST, "/tokenize", route_tokenize},
    {HTTP_POST, "/detokenize", route_detokenize},
};
#define ONE_MODEL "/v1/models/"

static void method_not_allowed(struct http_exchange *x, const char *allow)
{
    struct api_error e;
    http_reply_header(x, "Allow", span_str(allow));
    if (http_method(x) == HTTP_OPTIONS) {
        http_reply(x, 204, NULL, span_of(NULL, 0));
        return;
    }
    struct span m = http_method_text(x);
    (void)api_error_set(&e, 405, "method_not_allowed", NULL,
                        "Method %.*s is not allowed here; allowed: %s.",
                        (int)(m.len < 32 ? m.len : 32), (const char *)m.ptr, allow);
    loop__reply_error(x, &e);
}

/* Bodies are JSON, plain. */
static bool body_acceptable(struct http_exchange *x)
{
    struct span type = http_header(x, "content-type");
    struct api_error e;
    bool json = type.len == 0 || (type.len >= 16 &&
                                  strncasecmp((const char *)type.ptr, "application/json", 16) == 0);
    struct span rest = span_from(type, 16);
    bool other_charset = rest.len > 0 && memmem(rest.ptr, rest.len, "utf-16", 6) != NULL;
    if (json && !other_charset && !http_has_header(x, "content-encoding")) return true;
    (void)api_error_set(&e, 415, "unsupported_content_type", NULL,
                        "The body must be JSON in UTF-8, without a content encoding: "
                        "'Content-Type: application/json'.");
    loop__reply_error(x, &e);
    return false;
}

void loop__route(struct loop *l, struct http_exchange *x)
{
    struct span path = http_path(x);
    enum http_method method = http_method(x);
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!span_eq_str(path, routes[i].path)) continue;
        bool get = routes[i].method == HTTP_GET;
        if (method == routes[i].method || (get && method == HTTP_HEAD)) {
            if (get || body_acceptable(x)) routes[i].route(l, x);
        } else {
            method_not_allowed(x, get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
        }
        return;
    }
    size_t n = sizeof ONE_MODEL - 1;
    if (path.len > n && memcmp(path.ptr, ONE_MODEL, n) == 0) {
        if (method == HTTP_GET || method == HTTP_HEAD)
            route_one_model(l, x, span_from(path, n));
        else
            method_not_allowed(x, "GET, HEAD, OPTIONS");
        return;
    }
    struct api_error e;
    (void)api_error_set(&e, 404, "unknown_url", NULL, "Unknown request URL: %.*s %.*s.",
                        (int)(http_method_text(x).len < 16 ? http_method_text(x).len : 16),
                        (const char *)http_method_text(x).ptr,
                        (int)(path.len < 200 ? path.len : 200), (const char *)path.ptr);
    loop__reply_error(x, &e);
}
