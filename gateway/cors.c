#include "gateway/cors.h"

static bool origin_allowed(const char *origins, struct span origin)
{
    struct span rest = span_str(origins);
    while (rest.len > 0) {
        const uint8_t *comma = memchr(rest.ptr, ',', rest.len);
        struct span one = comma != NULL ? span_of(rest.ptr, (size_t)(comma - rest.ptr)) : rest;
        if (span_eq(one, origin)) return true;
        rest = comma != NULL ? span_from(rest, one.len + 1) : span_of(NULL, 0);
    }
    return false;
}

bool cors_apply(struct http_exchange *x, const char *origins)
{
    struct span origin = http_header(x, "origin");
    bool any = strcmp(origins, "*") == 0;
    if (origins[0] == '\0' || origin.len == 0) return false;
    if (!any) http_reply_header(x, "Vary", SPAN_LIT("Origin"));
    if (!any && !origin_allowed(origins, origin)) return false;
    http_reply_header(x, "Access-Control-Allow-Origin", any ? SPAN_LIT("*") : origin);
    if (http_method(x) != HTTP_OPTIONS || !http_has_header(x, "access-control-request-method")) {
        http_reply_header(x, "Access-Control-Expose-Headers",
                          SPAN_LIT("x-request-id, openai-processing-ms, retry-after"));
        return false;
    }
    http_reply_header(x, "Access-Control-Allow-Methods", SPAN_LIT("GET, POST, OPTIONS"));
    /* clients send many headers of their own: a fixed list would break them */
    struct span wanted = http_header(x, "access-control-request-headers");
    if (wanted.len > 0 && wanted.len <= 4096)
        http_reply_header(x, "Access-Control-Allow-Headers", wanted);
    http_reply_header(x, "Access-Control-Max-Age", SPAN_LIT("600"));
    return true;
}
