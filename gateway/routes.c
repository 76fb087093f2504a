/* routes.c - which path is what: an exact table, and the endpoints that need no worker. */
#include "gateway/loop.h"

#include "common/clock.h"
#include "gateway/api_tokenize.h"
#include "gateway/cors.h"
#include "gateway/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

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

typedef void route_fn(struct loop *l, struct http_exchange *x, const char *request_id);

static void route_chat(struct loop *l, struct http_exchange *x, const char *request_id)
{
    loop__start_request(l, x, ENDPOINT_CHAT, request_id);
}

static void route_completions(struct loop *l, struct http_exchange *x, const char *request_id)
{
    loop__start_request(l, x, ENDPOINT_COMPLETIONS, request_id);
}

static void route_models(struct loop *l, struct http_exchange *x, const char *id)
{
    (void)id;
    struct buffer body;
    buffer_init(&body, 1 << 20);
    buffer_add_str(&body, "{\"object\":\"list\",\"data\":[");
    bool first = true;
    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        if (!served_model_offered(&l->models.list[i])) continue;
        if (!first) buffer_add_byte(&body, ',');
        first = false;
        reply_model(&l->models.list[i], &body);
    }
    buffer_add_str(&body, "]}");
    http_reply(x, 200, "application/json", buffer_view(&body));
    buffer_deinit(&body);
}

/* %XX in a path; left empty, and so found nowhere, when it is too long or damaged. */
static void unescape(struct span from, char *out, size_t out_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < from.len; i++) {
        char c = (char)from.ptr[i];
        if (c == '%') {
            char hex[3] = {0}, *end = hex;
            if (i + 2 < from.len) memcpy(hex, from.ptr + i + 1, 2);
            c = (char)strtoul(hex, &end, 16);
            if (end != hex + 2 || c == '\0') n = out_bytes;
            i += 2;
        }
        if (n + 1 >= out_bytes) {
            out[0] = '\0';
            return;
        }
        out[n++] = c;
    }
    out[n] = '\0';
}

static void route_one_model(struct loop *l, struct http_exchange *x, struct span name)
{
    struct buffer body;
    char text[MODEL_NAME_BYTES_MAX] = "";
    unescape(name, text, sizeof text);
    const struct served_model *m = served_model_find(&l->models, text);
    if (m == NULL || !served_model_offered(m)) {
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

static void route_health(struct loop *l, struct http_exchange *x, const char *id)
{
    (void)id;
    bool ready = !l->draining && dispatch_good_workers(&l->dispatch, NULL, clock_now_ns()) > 0;
    http_reply(x, ready ? 200 : 503, "application/json",
               ready ? SPAN_LIT("{\"status\":\"ok\"}")
                     : SPAN_LIT("{\"status\":\"no worker is ready\"}"));
}

static void answer(struct loop *l, struct http_exchange *x,
                   enum err (*make)(struct served_models *, struct span, struct buffer *,
                                    struct api_error *))
{
    struct api_error e;
    buffer_reset(&l->scratch);
    if (make(&l->models, http_body(x), &l->scratch, &e) == OK)
        http_reply(x, 200, "application/json", buffer_view(&l->scratch));
    else
        loop__reply_error(x, &e);
}

static void route_tokenize(struct loop *l, struct http_exchange *x, const char *id)
{
    (void)id;
    answer(l, x, api_tokenize);
}

static void route_detokenize(struct loop *l, struct http_exchange *x, const char *id)
{
    (void)id;
    answer(l, x, api_detokenize);
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

/* application/json, and if a charset is named, then UTF-8. */
static bool is_plain_json(struct span type)
{
    static const char json[] = "application/json", charset[] = "charset=";
    size_t n = sizeof json - 1;
    if (type.len == 0) return true;
    if (type.len < n || strncasecmp((const char *)type.ptr, json, n) != 0) return false;
    struct span rest = span_from(type, n);
    if (rest.len > 0 && strchr("; \t", rest.ptr[0]) == NULL) return false;
    while (rest.len > 0 && strchr("; \t", rest.ptr[0]) != NULL)
        rest = span_from(rest, 1);
    if (rest.len < sizeof charset - 1 ||
        strncasecmp((const char *)rest.ptr, charset, sizeof charset - 1) != 0)
        return true;
    rest = span_from(rest, sizeof charset - 1);
    if (rest.len >= 2 && rest.ptr[0] == '"') rest = span_of(rest.ptr + 1, rest.len - 2);
    return (rest.len >= 5 && strncasecmp((const char *)rest.ptr, "utf-8", 5) == 0) ||
           (rest.len >= 4 && strncasecmp((const char *)rest.ptr, "utf8", 4) == 0);
}

static bool body_acceptable(struct http_exchange *x)
{
    struct api_error e;
    if (is_plain_json(http_header(x, "content-type")) && !http_has_header(x, "content-encoding"))
        return true;
    (void)api_error_set(&e, 415, "unsupported_content_type", NULL,
                        "The body must be JSON in UTF-8, without a content encoding: "
                        "'Content-Type: application/json'.");
    loop__reply_error(x, &e);
    return false;
}

static void make_request_id(struct http_exchange *x, char out[REQUEST_ID_BYTES_MAX + 1])
{
    struct span given = http_header(x, "x-request-id");
    bool good = given.len > 0 && given.len <= REQUEST_ID_BYTES_MAX;
    for (size_t i = 0; i < given.len && good; i++) {
        uint8_t c = given.ptr[i];
        good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '-' || c == '_' || c == '.' || c == ':';
    }
    uint64_t random;
    clock_random(&random, sizeof random);
    if (good)
        (void)snprintf(out, REQUEST_ID_BYTES_MAX + 1, "%.*s", (int)given.len,
                       (const char *)given.ptr);
    else
        (void)snprintf(out, REQUEST_ID_BYTES_MAX + 1, "req-%016llx", (unsigned long long)random);
}

void loop__route(struct loop *l, struct http_exchange *x)
{
    struct span path = http_path(x);
    enum http_method method = http_method(x);
    char id[REQUEST_ID_BYTES_MAX + 1];
    make_request_id(x, id);
    http_reply_header(x, "x-request-id", span_str(id));
    if (cors_apply(x, l->set.cors_origin)) {
        http_reply(x, 204, NULL, span_of(NULL, 0));
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        if (!span_eq_str(path, routes[i].path)) continue;
        bool get = routes[i].method == HTTP_GET;
        if (method == routes[i].method || (get && method == HTTP_HEAD)) {
            if (get || body_acceptable(x)) routes[i].route(l, x, id);
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
