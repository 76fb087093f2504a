/* api_error.h - errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}, for HTTP
 * bodies and in-stream events alike. Pure. */
#ifndef PENSTOCK_GATEWAY_API_ERROR_H
#define PENSTOCK_GATEWAY_API_ERROR_H

#include "common/buffer.h"

struct api_error {
    uint32_t status;  /* HTTP */
    const char *type; /* "invalid_request_error", "server_error", "requests" ...; static */
    const char *code; /* "context_length_exceeded" or NULL; static */
    char param[96];   /* "messages[0].role", or empty: null */
    char message[512];
    uint32_t retry_after_s; /* 0: no such header */
    int should_retry;       /* x-should-retry: 1 true, 0 false, -1 not sent */
};

/* Fills *e (status, type "invalid_request_error" or "server_error" by status) and returns
 * ERR_INVALID. param may be NULL. */
enum err api_error_set(struct api_error *e, uint32_t status, const char *code, const char *param,
                       const char *format, ...) PRINTF_LIKE(5, 6);
/* {"error":{...}} */
void api_error_write(struct buffer *out, const struct api_error *e);

#endif
