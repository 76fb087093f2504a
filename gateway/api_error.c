#include "gateway/api_error.h"

#include "common/json.h"

#include <stdarg.h>
#include <stdio.h>

enum err api_error_set(struct api_error *e, uint32_t status, const char *code, const char *param,
                       const char *format, ...)
{
    *e = (struct api_error){.status = status, .code = code, .should_retry = -1};
    e->type = status == 429 ? "requests" : status >= 500 ? "server_error" : "invalid_request_error";
    if (param != NULL) (void)snprintf(e->param, sizeof e->param, "%s", param);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(e->message, sizeof e->message, format, args);
    va_end(args);
    return ERR_INVALID;
}

void api_error_write(struct buffer *out, const struct api_error *e)
{
    buffer_add_str(out, "{\"error\":{\"message\":");
    json_write_string(out, span_str(e->message));
    buffer_add_str(out, ",\"type\":");
    json_write_string(out, span_str(e->type));
    buffer_add_str(out, ",\"param\":");
    if (e->param[0] != '\0')
        json_write_string(out, span_str(e->param));
    else
        buffer_add_str(out, "null");
    buffer_add_str(out, ",\"code\":");
    if (e->code != NULL)
        json_write_string(out, span_str(e->code));
    else
        buffer_add_str(out, "null");
    buffer_add_str(out, "}}");
}
