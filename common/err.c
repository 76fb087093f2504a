#include "common/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *err_name(enum err err)
{
    static const char *const names[ERR_COUNT_] = {
        "OK",         "ERR_AGAIN",       "ERR_PROTO",   "ERR_LIMIT", "ERR_FULL",  "ERR_NOT_FOUND",
        "ERR_EXISTS", "ERR_UNSUPPORTED", "ERR_INVALID", "ERR_IO",    "ERR_NOMEM", "ERR_CLOSED",
        "ERR_TIMEOUT"};
    return (unsigned)err < ERR_COUNT_ ? names[err] : "ERR_?";
}

enum err errmsg_set(struct errmsg *why, enum err err, const char *format, ...)
{
    if (why == NULL) return err;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return err;
}

void check__failed(const char *file, int line, const char *expr, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "ev=check.failed at=%s:%d expr=\"%s\" msg=\"", file, line, expr);
    vfprintf(stderr, format, args);
    fputs("\"\n", stderr);
    va_end(args);
    abort();
}
