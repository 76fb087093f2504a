#include "common/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static _Atomic int log_level = LOG_INFO;
static _Atomic uint64_t log_dropped;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&log_level, memory_order_relaxed);
}

static const char *const level_names[] = {"debug", "info", "warn", "error"};

bool log_level_parse(struct span text, enum log_level *out)
{
    for (int i = 0; i < 4; i++)
        if (span_eq_str(text, level_names[i])) {
            *out = (enum log_level)i;
            return true;
        }
    return false;
}

uint64_t log_dropped_count(void)
{
    return atomic_load_explicit(&log_dropped, memory_order_relaxed);
}

void log_at(enum log_level level, const char *format, ...)
{
    if (!log_enabled(level)) return;
    char line[LOG_LINE_MAX];
    struct timespec ts;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    (void)gmtime_r(&ts.tv_sec, &tm);
    size_t n = strftime(line, sizeof line, "ts=%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03ldZ level=%s ", ts.tv_nsec / 1000000,
                          level_names[level]);
    size_t start = n;
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(line + n, sizeof line - n - 1, format, args);
    va_end(args);
    if (wrote > 0) n += (size_t)wrote;
    if (n > sizeof line - 2) n = sizeof line - 2;
    for (size_t i = start; i < n; i++)
        if ((uint8_t)line[i] < 0x20) line[i] = ' ';
    line[n++] = '\n';
    if (write(STDERR_FILENO, line, n) != (ssize_t)n)
        atomic_fetch_add_explicit(&log_dropped, 1, memory_order_relaxed);
}
